//! Names into tools: which code a name of a project stands for, what runs it, and what it is
//! held to. A name that could mean two things is an error. TP-64.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use callgate_call::{Asker, Guarantees, Origin, OriginSource, PackOrigin, is_name};
use callgate_wires::tool_protocol::{
    Binding, Capabilities, Filesystem, Kind, Network, Purity, RunnerWord, Subprocess, is_entry,
    slug,
};

use super::settings::{Override, Settings};
use super::{BINDINGS, Bound, Loaded, SETTINGS};
use crate::config::{LimitsConfig, PoolConfig, RunnerConfig, ToolConfig};
use crate::pack::{INSTALLED, Levels, Policy, module_path};
use crate::suggest;

/// Why names can not be resolved.
pub(super) struct Unresolved {
    pub(super) file: &'static str,
    pub(super) code: &'static str,
    pub(super) reason: String,
}

/// What there is to resolve.
pub(super) struct Project<'a> {
    pub(super) root: &'a Path,
    pub(super) settings: &'a Settings,
    pub(super) policies: [&'a Policy; 2],
    pub(super) bindings: &'a BTreeMap<String, Binding>,
    pub(super) packs: &'a [Loaded],
}

impl Project<'_> {
    /// The tools of the packs, then those of the bindings.
    pub(super) fn tools(&self) -> Result<Vec<ToolConfig>, Unresolved> {
        self.check_names()?;
        let mut tools = Vec::new();
        for loaded in self.packs {
            for (name, binding) in &loaded.pack.bindings {
                tools.push(self.pack_tool(loaded, name, binding)?);
            }
        }
        for (name, binding) in self.bindings {
            tools.push(self.bound_tool(name, binding)?);
        }
        self.check_overrides(&tools)?;
        Ok(tools)
    }

    /// The ids of the packs that have a tool of this name.
    fn having<'b>(&'b self, tool: &'b str) -> impl Iterator<Item = &'b str> {
        let having = self
            .packs
            .iter()
            .filter(move |loaded| loaded.pack.bindings.contains_key(tool));
        having.map(|loaded| loaded.pack.manifest.id.as_str())
    }

    /// A name means one tool. TP-64.
    fn check_names(&self) -> Result<(), Unresolved> {
        let unresolved = |file, code, reason| Err(Unresolved { file, code, reason });
        for (tool, id) in &self.settings.pinned {
            if !self.having(tool).any(|having| having == id) {
                let reason = format!(
                    "`{tool}` is pinned to {id}, which is not installed, not enabled or has no \
                     such tool"
                );
                return unresolved(SETTINGS, "pack_pin_missing", reason);
            }
        }
        let names = self
            .packs
            .iter()
            .flat_map(|loaded| loaded.pack.bindings.keys());
        for name in names {
            let having: Vec<&str> = self.having(name).collect();
            if having.len() > 1 && !self.settings.pinned.contains_key(name) {
                let reason = format!(
                    "`{name}` is a tool of {}: disable one, or say in {SETTINGS} \
                     [tool_packs] pinned_tools = {{ {name:?} = {:?} }}",
                    having.join(" and of "),
                    having[0]
                );
                return unresolved(SETTINGS, "pack_collision", reason);
            }
            if self.bindings.contains_key(name) {
                let reason = format!(
                    "`{name}` is bound, and is a tool of pack {}: rename the binding, or disable \
                     the pack",
                    having.join(", ")
                );
                return unresolved(BINDINGS, "pack_collision", reason);
            }
        }
        Ok(())
    }

    /// A misspelt name would tighten nothing.
    fn check_overrides(&self, tools: &[ToolConfig]) -> Result<(), Unresolved> {
        let names = || {
            tools
                .iter()
                .flat_map(|tool| tool.aliases.iter().chain([&tool.name]))
        };
        let unknown = self
            .settings
            .overrides
            .keys()
            .find(|key| !names().any(|name| name == *key));
        match unknown {
            None => Ok(()),
            Some(key) => Err(Unresolved {
                file: SETTINGS,
                code: "unknown_tool",
                reason: format!(
                    "capability_overrides names `{key}`, which is no tool here{}",
                    suggest::question(key, names().map(String::as_str))
                ),
            }),
        }
    }

    fn pack_tool(
        &self,
        loaded: &Loaded,
        name: &str,
        binding: &Binding,
    ) -> Result<ToolConfig, Unresolved> {
        let manifest = &loaded.pack.manifest;
        let needed = loaded.pack.capabilities(name);
        let canonical = format!("{}/{}", manifest.id, slug(name));
        let mut asked = of_pack(&needed);
        let user = self.tighten(&mut asked, &[name, &canonical], binding);
        let pinned = self.settings.pinned.get(name);
        let is_named = pinned.is_none_or(|id| *id == manifest.id);
        let bound = Bound {
            origin: Arc::new(Origin {
                source: loaded.source,
                pack: Some(PackOrigin {
                    id: manifest.id.clone(),
                    name: manifest.name.clone(),
                    version: manifest.version.clone(),
                }),
                ..origin(binding)
            }),
            guarantees: asked,
            network: needed.network == Network::Outbound,
            unsafe_execution: user.unsafe_execution,
            // A pack can not turn its confinement off.
            unconfined: false,
            code: Some(Arc::clone(&loaded.code)),
            unavailable: None,
        };
        let mut tool = self
            .tool(canonical, binding, bound)
            .map_err(|reason| Unresolved {
                file: INSTALLED,
                code: "binding_error",
                reason: format!("pack {}: `{name}`: {reason}", manifest.id),
            })?;
        tool.description.clone_from(&manifest.description);
        tool.title = Some(name.to_owned());
        tool.aliases.extend(is_named.then(|| name.to_owned()));
        tool.tier = Some(tier(&needed).max(tool.tier.unwrap_or(0)));
        if needed.filesystem == Filesystem::Write {
            tool.writes.push(".".to_owned());
        }
        Ok(tool)
    }

    fn bound_tool(&self, name: &str, binding: &Binding) -> Result<ToolConfig, Unresolved> {
        let error = |reason: String| Unresolved {
            file: BINDINGS,
            code: "binding_error",
            reason: format!("`{name}`: {reason}"),
        };
        let local = matches!(binding.runner, None | Some(RunnerWord::Local));
        if local && binding.kind == Kind::Python {
            self.check_entry(&binding.entry).map_err(error)?;
        }
        let canonical = if is_name(name) {
            name.to_owned()
        } else {
            slug(name)
        };
        let mut asked = Guarantees::default();
        let user = self.tighten(&mut asked, &[name, &canonical], binding);
        let bound = Bound {
            origin: Arc::new(origin(binding)),
            guarantees: asked,
            network: false,
            unsafe_execution: user.unsafe_execution,
            unconfined: binding.sandbox == Some(false),
            code: None,
            unavailable: None,
        };
        let mut tool = self.tool(canonical, binding, bound).map_err(error)?;
        if tool.name != name {
            tool.aliases.push(name.to_owned());
            tool.title = Some(name.to_owned());
        }
        Ok(tool)
    }

    /// The code of a binding is the project's own: a module of `tools`, in a file that is there.
    fn check_entry(&self, entry: &str) -> Result<(), String> {
        if !is_entry(entry) || !entry.starts_with("tools.") {
            return Err(format!("entry `{entry}` is not tools.MODULE:FUNCTION"));
        }
        let path = self.root.join(module_path(entry));
        let there = path.with_extension("py").is_file() || path.join("__init__.py").is_file();
        match there {
            true => Ok(()),
            false => Err(format!("there is no {}.py", module_path(entry))),
        }
    }

    /// Adds what the tool, the user and the policies ask for, in this order. TP-31.
    fn tighten(&self, asked: &mut Guarantees, names: &[&str], binding: &Binding) -> Override {
        if binding.purity == Some(Purity::Pure) {
            asked.tighten(&Guarantees::pure(Asker::Tool));
        }
        let mut user = Override::default();
        for name in names {
            if let Some(said) = self.settings.overrides.get(*name) {
                user.guarantees.tighten(&said.guarantees);
                user.unsafe_execution |= said.unsafe_execution;
            }
        }
        asked.tighten(&user.guarantees);
        for policy in self.policies {
            asked.tighten(&policy.allowed_capabilities.guarantees(Asker::Policy));
        }
        user
    }

    fn tool(&self, name: String, binding: &Binding, bound: Bound) -> Result<ToolConfig, String> {
        let (runner, unavailable) = match runner(binding, self.settings)? {
            Chosen::Runs(runner) => (Some(runner), None),
            Chosen::NotYet(reason) => (None, Some(reason)),
        };
        let remote = matches!(
            binding.runner,
            Some(RunnerWord::Service | RunnerWord::Container)
        );
        Ok(ToolConfig {
            name,
            tier: Some(if remote { 2 } else { 0 }),
            timeout_ms: binding.timeout_ms.or(self.settings.timeout_ms),
            deterministic: binding.purity == Some(Purity::Pure),
            runner,
            bound: Some(Box::new(Bound {
                unavailable,
                ..bound
            })),
            ..ToolConfig::default()
        })
    }
}

fn origin(binding: &Binding) -> Origin {
    let runner = match binding.runner {
        Some(word @ (RunnerWord::Service | RunnerWord::Container)) => word,
        Some(RunnerWord::Local | RunnerWord::Node) | None => RunnerWord::Local,
    };
    Origin {
        source: OriginSource::Binding,
        pack: None,
        runner: runner.as_str(),
        entry: binding.entry.clone(),
        pure: binding.purity == Some(Purity::Pure),
    }
}

/// What a pack's levels leave to a tool: nothing that it does not say it needs. TP-63.
fn of_pack(needed: &Capabilities) -> Guarantees {
    let levels = Levels {
        filesystem: Some(needed.filesystem),
        network: Some(needed.network),
        env: Some(needed.env),
        subprocess: Some(needed.subprocess),
    };
    let mut asked = levels.guarantees(Asker::Pack);
    asked.allow_secrets(needed.secrets.clone(), Asker::Pack);
    asked
}

fn tier(needed: &Capabilities) -> u64 {
    if needed.network == Network::Outbound || needed.subprocess == Subprocess::Allow {
        2
    } else {
        u64::from(needed.filesystem == Filesystem::Write)
    }
}

/// What a binding runs by.
enum Chosen {
    Runs(RunnerConfig),
    /// It is listed, and says why it can not be called.
    NotYet(String),
}

/// The runner of a binding, chosen when it is loaded. TP-62.
fn runner(binding: &Binding, settings: &Settings) -> Result<Chosen, String> {
    let not_yet = |what: &str| Ok(Chosen::NotYet(format!("{what} can not be run yet")));
    match (binding.runner, binding.kind) {
        (Some(RunnerWord::Service), _) => {
            match binding.url.as_ref().or(settings.service_url.as_ref()) {
                Some(_) => not_yet("service tools"),
                None => Err(format!(
                    "it is a service without an address: say `url`, or python_tools.service_url in \
                 {SETTINGS}"
                )),
            }
        }
        (Some(RunnerWord::Container), _) => match &binding.image {
            Some(_) => not_yet("container tools"),
            None => Err("it is a container without an image: say `image`".to_owned()),
        },
        (Some(RunnerWord::Node), _) | (_, Kind::Node) => not_yet("Node tools"),
        (Some(RunnerWord::Local) | None, Kind::Python) => Ok(Chosen::Runs(RunnerConfig::Python {
            entry: binding.entry.clone(),
            python: None,
            env: BTreeMap::new(),
            limits: LimitsConfig::default(),
            pool: PoolConfig::default(),
        })),
    }
}
