//! What functions declare with `@tool`, for the `[[tool]]` of the same function: read once, by
//! `callgate trust`, from a process that may do nothing, and kept in the copy of what is trusted.
//! The digest covers both what was declared and the text that declares it, so that a change of
//! the text waits for the owner's word like one of the configuration. G-9e.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use callgate_call::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{RunnerConfig, ToolConfig};
use crate::plain;

/// The file of a copy that holds them.
pub const DECLARED_FILE: &str = ".callgate-declared.json";

/// Most bytes of that file, and of a module.
const BYTES_MAX: u64 = 1024 * 1024;

/// The keys that stay the configuration's own.
const OWN_KEYS: [&str; 3] = ["name", "aid", "runner"];

/// The keys of a runner that a function may declare.
const RUNNER_KEYS: [&str; 4] = ["env", "limits", "pool", "preload"];

/// One function's declaration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Declaration {
    /// The digest of the text that declares it.
    text: String,
    /// What it says, under the names of `callgate.toml`.
    spec: Map<String, Value>,
}

/// The declarations of a configuration's functions, by their entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declarations(BTreeMap<String, Declaration>);

/// Why the declarations of a copy cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DeclaredError {
    /// The file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file does not hold declarations.
    #[error("{}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong with its text.
        source: serde_json::Error,
    },
}

/// A declaration that is none of a tool.
#[derive(Debug, thiserror::Error)]
#[error("@tool of {entry}")]
pub struct MergeError {
    entry: String,
    source: serde_json::Error,
}

impl Declarations {
    /// Those that a copy holds; none where it was made without any.
    pub fn of_copy(copy: &Path) -> Result<Self, DeclaredError> {
        let path = copy.join(DECLARED_FILE);
        match plain::read(&path, BYTES_MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(DeclaredError::Read { path, source }),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| DeclaredError::Text { path, source }),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what a function of the workspace says.
    pub fn add(&mut self, root: &Path, entry: &str, spec: Map<String, Value>) {
        let text = digest_of_text(root, entry);
        let declaration = Declaration { text, spec };
        self.0.insert(entry.to_owned(), declaration);
    }

    /// The file that holds them.
    pub fn bytes(&self) -> Vec<u8> {
        // Keys are texts and values are JSON, so that nothing can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What of them is a part of the digest for one entry: what it says, and the text that says
    /// it, as it is now in `root` or as it was.
    pub fn noted(&self, entry: &str, root: Option<&Path>) -> Option<Vec<u8>> {
        let declared = self.0.get(entry)?;
        let text = root.map_or_else(|| declared.text.clone(), |root| digest_of_text(root, entry));
        let spec = Value::Object(declared.spec.clone()).to_string();
        Some([text.as_bytes(), b"\n", spec.as_bytes()].concat())
    }

    /// A tool with what its function declares, where its `[[tool]]`, as written, says nothing.
    pub fn merge(
        &self,
        entry: &str,
        written: Map<String, Value>,
    ) -> Result<ToolConfig, MergeError> {
        let mut merged = written;
        let spec = self.0.get(entry).map(|declared| &declared.spec);
        for (key, value) in spec.into_iter().flatten() {
            if !OWN_KEYS.contains(&key.as_str()) {
                merged.entry(key).or_insert_with(|| value.clone());
            }
        }
        let declared = spec.and_then(|spec| spec.get("runner")?.as_object());
        if let Some(runner) = merged.get_mut("runner").and_then(Value::as_object_mut) {
            let declared = declared.into_iter().flatten();
            for (key, value) in declared.filter(|(key, _)| RUNNER_KEYS.contains(&key.as_str())) {
                runner.entry(key).or_insert_with(|| value.clone());
            }
        }
        serde_json::from_value(Value::Object(merged)).map_err(|source| MergeError {
            entry: entry.to_owned(),
            source,
        })
    }
}

/// The entry of a tool whose function may declare something: Python of the workspace itself.
pub fn entry_of(tool: &ToolConfig) -> Option<&str> {
    match (&tool.runner, &tool.bound) {
        (Some(RunnerConfig::Python { entry, .. }), None) => Some(entry),
        _ => None,
    }
}

/// Returns whether the module of an entry may declare tools, so that it is worth a look: some
/// file of its package mentions this SDK.
pub fn may_declare(root: &Path, entry: &str) -> bool {
    let top = entry.split([':', '.']).next().unwrap_or_default();
    let mentions =
        |path: &Path| plain::read_text(path, BYTES_MAX).is_ok_and(|text| text.contains("callgate"));
    const FILES_MAX: usize = 1000;
    let mut left = vec![root.join(top)];
    let mut seen = 0;
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            seen += 1;
            let path = entry.path();
            let is_python = path.extension().is_some_and(|end| end == "py");
            if seen > FILES_MAX || is_python && mentions(&path) {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(path);
            }
        }
    }
    mentions(&root.join(format!("{top}.py")))
}

/// The digest of the text by which a function declares what it is: its decorators and its
/// signature, or all of its module where they cannot be told apart.
fn digest_of_text(root: &Path, entry: &str) -> String {
    let (module, function) = entry.split_once(':').unwrap_or((entry, ""));
    let path = root.join(module.replace('.', "/"));
    let files = [path.with_extension("py"), path.join("__init__.py")];
    let text = files
        .iter()
        .find_map(|file| plain::read_text(file, BYTES_MAX).ok())
        .unwrap_or_default();
    let name = function.rsplit('.').next().unwrap_or_default();
    let declared = declaration(&text, name).unwrap_or(text);
    Digest::of_bytes(declared.as_bytes()).to_hex()
}

/// The decorators and the signature of a function in the text of a module.
fn declaration(text: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = |line: &str| {
        let line = line.trim_start();
        let rest = line.strip_prefix("async ").map_or(line, str::trim_start);
        let rest = rest
            .strip_prefix("def ")
            .and_then(|rest| rest.trim_start().strip_prefix(name));
        rest.is_some_and(|rest| rest.trim_start().starts_with(['(', '[']))
    };
    let mut found = lines.iter().enumerate().filter(|(_, line)| starts(line));
    let (at, line) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let indentation = line.len() - line.trim_start().len();
    // Upwards to the first decorator: blank lines end it, and whatever else is not further in.
    let mut first = at;
    for (index, line) in lines[..at].iter().enumerate().rev() {
        let inner = line.len() - line.trim_start().len();
        let rest = line.trim_start();
        if rest.is_empty() || inner < indentation {
            break;
        }
        if inner == indentation && !rest.starts_with(['@', ')', ']', '}', '"', '\'', '#']) {
            break;
        }
        if inner == indentation && rest.starts_with('@') {
            first = index;
        }
    }
    let last = lines[at..]
        .iter()
        .position(|line| line.trim_end().ends_with(':'))?;
    Some(lines[first..=at + last].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_that_declares() {
        let text = "\
import x

@tool(
    writes=[\"out\"],
)
def one(a: int,
        b: str) -> int:
    return a

async def two(a): pass

class C:
    @staticmethod
    @tool
    def inner(a):
        pass
";
        let one = "@tool(\n    writes=[\"out\"],\n)\ndef one(a: int,\n        b: str) -> int:";
        assert_eq!(declaration(text, "one").as_deref(), Some(one));
        let inner = "    @staticmethod\n    @tool\n    def inner(a):";
        assert_eq!(declaration(text, "inner").as_deref(), Some(inner));
        for absent in ["three", "on", "C"] {
            assert_eq!(declaration(text, absent), None, "{absent}");
        }
        let twice = format!("{text}\ndef one(a):\n    pass\n");
        assert_eq!(declaration(&twice, "one"), None);
    }

    #[test]
    fn what_a_tool_says_itself_counts() {
        let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap();
        let mut all = Declarations::default();
        let spec = r#"{"name":"f","aid":"AID.X.F.v1","input_schema":{"type":"object"},"writes":["out"],
            "network":true,"runner":{"kind":"python","entry":"m:f","env":{"A":"1"},"preload":["json"]}}"#;
        all.add(Path::new("/nowhere"), "m:f", object(spec));
        let written =
            object(r#"{"name":"t","writes":[],"runner":{"kind":"python","entry":"m:f","env":{}}}"#);
        let tool = all.merge("m:f", written).unwrap();
        assert_eq!((tool.name.as_str(), tool.aid), ("t", None));
        assert!(tool.writes.is_empty() && tool.network.is_some() && tool.input_schema.is_some());
        let Some(RunnerConfig::Python { env, preload, .. }) = tool.runner else {
            panic!("another runner");
        };
        assert!(env.is_empty() && preload == ["json"]);
        let unknown = r#"{"name":"f","levitates":true}"#;
        all.add(Path::new("/nowhere"), "m:g", object(unknown));
        let written = object(r#"{"name":"t"}"#);
        let error = all.merge("m:g", written).unwrap_err();
        assert!(callgate_call::chain(&error).contains("levitates"));
    }
}
