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
use crate::config::{
    ContainerRunnerConfig, LimitsConfig, ModeConfig, PoolConfig, RunnerConfig, ServiceRunnerConfig,
    ToolConfig,
};
use crate::pack::{INSTALLED, Levels, NODE_ENDS, Policy, code_file, is_node, module_path};
use crate::suggest;

/// Why names can not be resolved.
pub(super) struct Unresolved {
    pub(super) file: &'static str,
    pub(super) code: &'static str,
    pub(super) reason: String,
}

/// Why a binding makes no tool.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindingError {
    /// An entry that is no function of the project.
    #[error("entry `{0}` is not tools.MODULE:FUNCTION")]
    Entry(String),
    /// A module that is not there, by the name of its file.
    #[error("there is no {0}")]
    NoFile(String),
    /// A service that cannot be asked.
    #[error(
        "it is a service without an address: say `url`, or python_tools.service_url in {SETTINGS}"
    )]
    NoAddress,
    /// A container of nothing.
    #[error("it is a container without an image: say `image`")]
    NoImage,
}

/// What there is to resolve.
pub(super) struct Project<'a> {
    pub(super) root: &'a Path,
    /// What is read is a copy: the code of its tools may have gone from the workspace.
    pub(super) is_copy: bool,
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
        };
        let mut tool = self
            .tool(canonical, name, binding, bound)
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
        let error = |reason: BindingError| Unresolved {
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
        };
        let mut tool = self.tool(canonical, name, binding, bound).map_err(error)?;
        if tool.name != name {
            tool.aliases.push(name.to_owned());
            tool.title = Some(name.to_owned());
        }
        Ok(tool)
    }

    /// The code of a binding is the project's own: a module of `tools`, in a file that is there.
    fn check_entry(&self, entry: &str) -> Result<(), BindingError> {
        if !is_entry(entry) || !entry.starts_with("tools.") {
            return Err(BindingError::Entry(entry.to_owned()));
        }
        let path = self.root.join(module_path(entry));
        let there = path.with_extension("py").is_file() || path.join("__init__.py").is_file();
        match there || self.is_copy {
            true => Ok(()),
            false => Err(BindingError::NoFile(format!("{}.py", module_path(entry)))),
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

    /// A binding to Node names a module as one to Python does; what runs it wants the file.
    fn with_file(&self, binding: &Binding, bound: &Bound) -> Result<Binding, BindingError> {
        let mut binding = binding.clone();
        if !is_node(&binding) || !is_entry(&binding.entry) {
            return Ok(binding);
        }
        let module = module_path(&binding.entry);
        let file = match &bound.code {
            Some(code) => code_file(&module, &NODE_ENDS, |file| {
                code.files.iter().any(|(name, _)| name == file)
            }),
            None => {
                let mut files = NODE_ENDS.map(|end| format!("{module}{end}")).into_iter();
                files.find(|file| self.root.join(file).is_file())
            }
        };
        let file = match file {
            None if self.is_copy => format!("{module}.mjs"),
            file => file.ok_or_else(|| BindingError::NoFile(format!("{module}.mjs")))?,
        };
        let function = binding.entry.split(':').next_back().unwrap_or_default();
        binding.entry = format!("{file}:{function}");
        Ok(binding)
    }

    /// `plain` is the name it was declared by, and by which a service knows it.
    fn tool(
        &self,
        name: String,
        plain: &str,
        binding: &Binding,
        bound: Bound,
    ) -> Result<ToolConfig, BindingError> {
        let binding = &self.with_file(binding, &bound)?;
        let runner = runner(plain, binding, self.settings)?;
        let remote = matches!(
            binding.runner,
            Some(RunnerWord::Service | RunnerWord::Container)
        );
        let pack = bound.origin.pack.as_ref();
        Ok(ToolConfig {
            declared: (name != plain).then(|| plain.to_owned()),
            name,
            version: pack.map(|pack| pack.version.clone()),
            tier: Some(if remote { 2 } else { 0 }),
            timeout_ms: binding.timeout_ms.or(self.settings.timeout_ms),
            deterministic: binding.purity == Some(Purity::Pure),
            runner: Some(runner),
            bound: Some(Box::new(bound)),
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

/// What runs in an image that does not say.
const IMAGE_COMMAND: [&str; 3] = ["python", "-m", "namel3ss_tools.runner"];

/// The runner of a binding, chosen when it is loaded. TP-62.
fn runner(
    plain: &str,
    binding: &Binding,
    settings: &Settings,
) -> Result<RunnerConfig, BindingError> {
    match (binding.runner, binding.kind) {
        (Some(RunnerWord::Service), _) => {
            match binding.url.as_ref().or(settings.service_url.as_ref()) {
                Some(url) => Ok(RunnerConfig::Service(ServiceRunnerConfig {
                    url: url.clone(),
                    entry: Some(binding.entry.clone()),
                    tool_name: Some(plain.to_owned()),
                    // Not required is not forbidden: what is asked for is asked after.
                    handshake: settings.handshake.then_some(true),
                    ..ServiceRunnerConfig::default()
                })),
                None => Err(BindingError::NoAddress),
            }
        }
        (Some(RunnerWord::Container), _) => match &binding.image {
            Some(image) => Ok(RunnerConfig::Container(Box::new(ContainerRunnerConfig {
                image: image.clone(),
                entry: Some(binding.entry.clone()),
                command: binding
                    .command
                    .clone()
                    .unwrap_or_else(|| IMAGE_COMMAND.map(str::to_owned).to_vec()),
                mode: ModeConfig::Oneshot,
                env: binding.env.clone().unwrap_or_default(),
                ..ContainerRunnerConfig::default()
            }))),
            None => Err(BindingError::NoImage),
        },
        (Some(RunnerWord::Node), _) | (_, Kind::Node) => Ok(RunnerConfig::Node {
            entry: binding.entry.clone(),
            node: None,
            env: BTreeMap::new(),
            limits: LimitsConfig::default(),
            pool: PoolConfig::default(),
        }),
        (Some(RunnerWord::Local) | None, Kind::Python) => Ok(RunnerConfig::Python {
            entry: binding.entry.clone(),
            python: None,
            preload: Vec::new(),
            env: BTreeMap::new(),
            limits: LimitsConfig::default(),
            pool: PoolConfig::default(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use callgate_call::{Digest, Guarantee};
    use callgate_wires::tool_protocol::read_bindings;

    use super::super::Code;
    use super::*;
    use crate::pack::{Pack, read_policy};

    const CAPABILITIES: &str = r#"capabilities:
  "fetch a page":
    filesystem: "none"
    network: "outbound"
    env: "read"
    subprocess: "none"
    secrets: ["A", "B"]
"#;

    /// A pack of two tools, of which one is listed in its capabilities.
    fn pack(id: &str) -> Loaded {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callgate-resolve-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&folder);
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let one = "    kind: python\n    entry: tools.all:run\n";
        write(
            "pack.yaml",
            &format!(
                "id: {id}\nname: P\nversion: 1\ndescription: D\nauthor: A\nlicense: L\n\
             tools:\n  - fetch a page\n  - other\n"
            ),
        );
        write(
            "tools.yaml",
            &format!("tools:\n  fetch a page:\n{one}  other:\n{one}    purity: pure\n"),
        );
        write("capabilities.yaml", CAPABILITIES);
        write("tools/all.py", "def run(x): return x\n");
        let pack = Pack::read(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        Loaded {
            pack,
            source: OriginSource::InstalledPack,
            code: Arc::new(Code {
                id: id.to_owned(),
                digest: Digest::of_bytes(b""),
                files: Vec::new(),
            }),
        }
    }

    struct Case {
        settings: &'static str,
        bindings: String,
        policy: &'static str,
        packs: Vec<Loaded>,
    }

    impl Case {
        fn tools(&self) -> Result<Vec<ToolConfig>, String> {
            let settings = Settings::read(self.settings).unwrap();
            let policy = read_policy(self.policy).unwrap();
            let project = Project {
                is_copy: false,
                root: Path::new("/nowhere"),
                settings: &settings,
                policies: [&Policy::default(), &policy],
                bindings: &read_bindings(&format!("tools:\n{}", self.bindings)).unwrap(),
                packs: &self.packs,
            };
            project
                .tools()
                .map_err(|error| format!("{}: {}: {}", error.file, error.code, error.reason))
        }
    }

    fn case(packs: &[&str]) -> Case {
        Case {
            settings: "",
            bindings: String::new(),
            policy: "",
            packs: packs.iter().map(|id| pack(id)).collect(),
        }
    }

    fn bound(tools: &[ToolConfig], name: &str) -> Bound {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        *tool.bound.clone().unwrap()
    }

    /// Each guarantee asked for, with who asked.
    fn asked(bound: &Bound) -> String {
        let words = bound.guarantees.iter();
        let words: Vec<String> = words
            .map(|(one, asker)| format!("{}:{}", one.capability(), asker.as_str()))
            .collect();
        words.join(" ")
    }

    /// TP-29, TP-31, TP-32, TP-63: pack, then tool, then user, then policy; who asked last is
    /// named, lists of secrets intersect, and a tool that is not listed has nothing.
    #[test]
    fn only_ever_tighter() {
        let mut one = case(&["p"]);
        let tools = one.tools().unwrap();
        let fetch = bound(&tools, "p/fetch_a_page");
        assert_eq!(
            asked(&fetch),
            "filesystem_read:pack filesystem_write:pack subprocess:pack env_write:pack secrets:pack"
        );
        assert!(fetch.network && !fetch.unsafe_execution);
        let other = bound(&tools, "p/other");
        assert_eq!(
            asked(&other),
            "filesystem_read:tool filesystem_write:tool network:tool subprocess:tool \
             env_read:tool env_write:tool secrets:tool"
        );
        one.settings = "[capability_overrides]\n\"fetch a page\" = { no_filesystem_write = true, \
                        no_subprocess = false, secrets_allowed = [\"B\", \"C\"] }\n\
                        \"p/other\" = { allow_unsafe_execution = true }\n";
        one.policy = "allowed_capabilities = { filesystem = \"none\" }";
        let tools = one.tools().unwrap();
        let fetch = bound(&tools, "p/fetch_a_page");
        assert_eq!(
            asked(&fetch),
            "filesystem_read:policy filesystem_write:policy subprocess:pack env_write:pack \
             secrets:user"
        );
        let secrets: Vec<&str> = fetch
            .guarantees
            .secrets()
            .unwrap()
            .iter()
            .map(String::as_str)
            .collect();
        assert_eq!(secrets, ["B"]);
        assert!(bound(&tools, "p/other").unsafe_execution);
        assert!(
            bound(&tools, "p/other")
                .guarantees
                .requires(Guarantee::NoNetwork)
        );
    }

    /// TP-62, TP-64: names, and where they come from.
    #[test]
    fn names_and_origins() {
        let tools = case(&["p"]).tools().unwrap();
        let tool = tools
            .iter()
            .find(|tool| tool.name == "p/fetch_a_page")
            .unwrap();
        assert_eq!(tool.aliases, ["fetch a page"]);
        assert_eq!(
            (tool.tier, tool.title.as_deref()),
            (Some(2), Some("fetch a page"))
        );
        let origin = bound(&tools, "p/fetch_a_page").origin;
        assert_eq!(
            (origin.source.as_str(), origin.runner),
            ("installed_pack", "local")
        );
        assert_eq!(origin.pack.as_ref().unwrap().version, "1");
    }

    /// TP-64: the same name twice is an error that says what to do; a pin decides.
    #[test]
    fn collisions() {
        let mut two = case(&["p", "q"]);
        let error = two.tools().unwrap_err();
        assert!(
            error.starts_with("namel3ss.toml: pack_collision: `fetch a page`"),
            "{error}"
        );
        assert!(error.contains("pinned_tools"), "{error}");
        two.settings = "[tool_packs]\npinned_tools = { \"fetch a page\" = \"q\", other = \"p\" }";
        let tools = two.tools().unwrap();
        let aliases = |name: &str| {
            tools
                .iter()
                .find(|tool| tool.name == name)
                .unwrap()
                .aliases
                .join(" ")
        };
        assert_eq!(
            (aliases("p/fetch_a_page"), aliases("q/fetch_a_page")),
            (String::new(), "fetch a page".to_owned())
        );
        assert_eq!(
            (aliases("p/other"), aliases("q/other")),
            ("other".to_owned(), String::new())
        );
        two.settings = "[tool_packs]\npinned_tools = { other = \"r\" }";
        assert!(two.tools().unwrap_err().contains("pack_pin_missing"));

        let mut one = case(&["p"]);
        one.bindings = "  other:\n    kind: python\n    entry: tools.x:run\n    runner: service\n    url: http://h/\n".to_owned();
        let error = one.tools().unwrap_err();
        assert!(
            error.starts_with(".namel3ss/tools.yaml: pack_collision: `other`"),
            "{error}"
        );
        one.bindings.clear();
        one.settings = "[capability_overrides]\nothr = { no_network = true }";
        let error = one.tools().unwrap_err();
        assert!(
            error.contains("unknown_tool") && error.contains("did you mean `other`?"),
            "{error}"
        );
    }

    /// TP-60, TP-62: what runs a binding is chosen at load, or it is an error.
    #[test]
    fn runners_of_bindings() {
        let mut none = case(&[]);
        for (fields, words) in [
            ("runner: service", "without an address"),
            ("runner: container", "without an image"),
            ("runner: local", "there is no tools/x.py"),
        ] {
            let text = format!("  a b:\n    kind: python\n    entry: tools.x:run\n    {fields}\n");
            none.bindings = text;
            let error = none.tools().unwrap_err();
            assert!(
                error.contains("binding_error") && error.contains(words),
                "{error}"
            );
        }
        none.bindings = "  a b:\n    kind: python\n    entry: tools.x:run\n    runner: service\n    timeout_ms: 7\n  c:\n    kind: python\n    entry: tools.x:run\n    runner: container\n    image: i\n    sandbox: false\n".to_owned();
        none.settings = "[python_tools]\nservice_url = \"http://h/\"\ntimeout_seconds = 3";
        let tools = none.tools().unwrap();
        assert_eq!(
            (tools[0].name.as_str(), tools[0].timeout_ms),
            ("a_b", Some(7))
        );
        assert_eq!(tools[0].aliases, ["a b"]);
        assert_eq!(tools[1].timeout_ms, Some(3000));
        let service = bound(&tools, "a_b");
        assert_eq!(
            (service.origin.runner, service.origin.source.as_str()),
            ("service", "binding")
        );
        assert_eq!(asked(&service), "");
        assert!(bound(&tools, "c").unconfined);
    }
}
