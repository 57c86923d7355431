//! Functions of the workspace that are no registered tools: run by `callgate tool`, and by the
//! service where `service.allow_entries` names them. Each becomes a tool of its own, named
//! `entry/MODULE/FUNCTION`, so that policy, leases and the chain see what runs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callgate_call::{Fault, chain, fits};
use callgate_gate::{Entries, Entry};
use callgate_sandbox::Spawner;
use callgate_store::Store;
use serde_json::json;

use crate::catalog::{SharedPools, Workshop};
use crate::config::{Config, ServiceConfig, ToolConfig};
use crate::environment::Environment;
use crate::needs::Ground;
use crate::node;
use crate::project;
use crate::python;
use crate::setup::Parts;

/// Entries known at the same time; the next one is refused.
const ENTRIES_MAX: usize = 1024;

/// Nobody has said what they do, so they count as tools that write.
const TIER: u8 = 1;

/// What may be run, and what has been.
pub struct Functions {
    environment: Arc<Environment>,
    workspace: PathBuf,
    ground: Ground,
    spawner: Arc<Spawner>,
    store: Arc<Store>,
    /// Patterns over `module:function`.
    patterns: Vec<String>,
    /// The interpreter where there is no `.venv`, and what entries load beside their package.
    service: ServiceConfig,
    /// What is closed to callers: where it is known, only functions in there are run.
    closed: Option<Vec<PathBuf>>,
    /// Held while an entry is made, so that each is made once: taken before the locks of the store
    /// and the spawner, neither of which leads back here.
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    pools: SharedPools,
    entries: HashMap<String, Arc<Entry>>,
}

impl Functions {
    /// Those of a workspace that fit one of `patterns`.
    pub fn new(
        parts: &Parts,
        patterns: Vec<String>,
        service: ServiceConfig,
        closed: Option<&Ground>,
    ) -> Self {
        Self {
            environment: Arc::clone(&parts.environment),
            workspace: parts.paths.workspace.clone(),
            ground: Ground::new(&parts.paths, &Config::default(), &[]),
            spawner: Arc::clone(&parts.spawner),
            store: Arc::clone(&parts.store),
            patterns,
            service,
            closed: closed.map(|ground| ground.kept().to_owned()),
            made: Mutex::default(),
        }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_or_make(&self, entry: &str) -> Result<Arc<Entry>, Fault> {
        let mut made = self.made();
        if let Some(known) = made.entries.get(entry) {
            return Ok(Arc::clone(known));
        }
        let function = Function::read(entry)?;
        self.check_module(&function)?;
        if made.entries.len() >= ENTRIES_MAX {
            let reason = format!("{ENTRIES_MAX} entries have been run: register tools instead");
            return Err(Fault::Unavailable { reason });
        }
        let new = Arc::new(self.make(&mut made.pools, entry, &function)?);
        made.entries.insert(entry.to_owned(), Arc::clone(&new));
        Ok(new)
    }

    /// Only what the workspace itself has: `os:system` is no tool of anybody's. TP-5.
    fn check_module(&self, function: &Function<'_>) -> Result<(), Fault> {
        let path = self.workspace.join(function.module.replace('.', "/"));
        let is_closed = |path: &PathBuf| match &self.closed {
            None => true,
            Some(closed) => closed.iter().any(|own| path.starts_with(own)),
        };
        let places = [path.with_extension("py"), path.join("__init__.py")];
        if let Some(found) = places.iter().find(|path| path.is_file()) {
            if is_closed(found) {
                return Ok(());
            }
            return Err(Fault::ToolFailed {
                error_type: "ModuleNotFoundError".to_owned(),
                message: format!(
                    "No module named '{}': its file was not there when the configuration was \
                     loaded, so callers may have written it; start the gate again",
                    function.module
                ),
                content: None,
            });
        }
        Err(Fault::ToolFailed {
            error_type: "ModuleNotFoundError".to_owned(),
            message: format!("No module named '{}' in the workspace", function.module),
            content: None,
        })
    }

    fn make(
        &self,
        pools: &mut SharedPools,
        entry: &str,
        function: &Function<'_>,
    ) -> Result<Entry, Fault> {
        let internal = |message: String| Fault::Internal { message };
        let mut runner = json!({ "kind": "python", "entry": entry });
        if let Some(python) = &self.service.python {
            runner["python"] = python.as_str().into();
        }
        let config = json!({
            "name": function.tool_name(),
            "description": format!("The function {entry}, which is not registered."),
            "tier": TIER,
            "code": self.service.code,
            "runner": runner,
        });
        let config: ToolConfig =
            serde_json::from_value(config).map_err(|error| internal(error.to_string()))?;
        let another = project::is_of_another(&self.environment, &self.workspace);
        let mut workshop = Workshop {
            environment: &self.environment,
            root: self.workspace.clone(),
            spawner: Arc::clone(&self.spawner),
            ground: &self.ground,
            secrets: &[],
            worker: &|| match another {
                true => python::worker_as_text(),
                false => python::worker(&self.store),
            },
            node_worker: &|| match another {
                true => node::worker_as_text(),
                false => node::worker(&self.store),
            },
            lay_out: &|code| code.lay_out(&self.store, None),
            remotes: None,
            runs: None,
            pools: std::mem::take(pools),
        };
        let tool = workshop.tool(config);
        *pools = workshop.pools;
        let tool = tool.map_err(|error| internal(chain(&error)))?;
        Entry::new(tool).map_err(|error| internal(chain(&error)))
    }
}

impl Entries for Functions {
    fn find(&self, entry: &str) -> Option<Result<Arc<Entry>, Fault>> {
        let allowed = self.patterns.iter().any(|pattern| fits(pattern, entry));
        allowed.then(|| self.find_or_make(entry))
    }

    fn stop(&self) {
        for entry in self.made().entries.values() {
            entry.tool.runner.stop();
        }
    }
}

/// `package.module:function`, or a method of something in a module.
struct Function<'a> {
    module: &'a str,
    path: &'a str,
}

impl<'a> Function<'a> {
    fn read(entry: &'a str) -> Result<Self, Fault> {
        let is_dotted = |text: &str| text.split('.').all(is_identifier);
        match entry.split_once(':') {
            Some((module, path)) if is_dotted(module) && is_dotted(path) => {
                let function = Self { module, path };
                if callgate_call::is_name(&function.tool_name()) {
                    return Ok(function);
                }
                Err(Fault::bad_value(format!("entry `{entry}` is too long")))
            }
            _ => Err(Fault::bad_value(format!(
                "entry `{entry}` is not of the form module:function"
            ))),
        }
    }

    fn tool_name(&self) -> String {
        format!("entry/{}/{}", self.module, self.path)
    }
}

fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(begins) && bytes.all(|byte| begins(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TP-5: what is no `module:function` is a `ValueError` before anything starts.
    #[test]
    fn entries() {
        for good in ["a:b", "tools.sample_tool:greet", "_a.b1:C.method"] {
            assert!(Function::read(good).is_ok(), "{good}");
        }
        let long = format!("{}:f", "m".repeat(128));
        for bad in [
            "", "a", ":", "a:", ":b", "a.:b", ".a:b", "a:b:c", "a/b:c", "../a:b", "a b:c", "1a:b",
            "a:b-c", "ä:b", &long,
        ] {
            let fault = Function::read(bad).err();
            assert!(matches!(fault, Some(Fault::BadValue { .. })), "{bad}");
        }
        assert_eq!(
            Function::read("t.s:g")
                .ok()
                .map(|f| f.tool_name())
                .as_deref(),
            Some("entry/t.s/g")
        );
    }
}
