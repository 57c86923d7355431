//! `callgate.lock`: what the MCP servers of a configuration were when their owner looked at them.
//!
//! For each server it has the installed package and every definition that the server listed. Lists
//! of tools are made of it, so that no server is started for a list; a server that lists something
//! else later is held to it (the pins). The file is text, sorted, part of what `callgate trust`
//! covers, and written by `callgate` alone.
//!
//! Not here: installing packages, and starting servers to list them.

use std::collections::BTreeMap;

use callgate_call::Digest;
use callgate_wires::json;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The file, beside `callgate.toml`.
pub const LOCK_FILE: &str = "callgate.lock";

/// The version of the format.
const VERSION: u32 = 1;

/// Most definitions of one server.
const DEFINITIONS_MAX: usize = 4_000;

/// Most resources of one server, and most templates. A server may list more: they can be read, and no
/// list shows them.
pub const RESOURCES_MAX: usize = 500;

const HEAD: &str = "\
# What the MCP servers of callgate.toml were when they were trusted: packages and definitions.
# Written by callgate. Commit it; a change of it counts after `callgate trust`.
";

/// The text of the file, which is parsed only where it is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServersLock(Option<String>);

/// What the file says, by the names of servers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LockedServers(BTreeMap<String, LockedServer>);

/// One server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedServer {
    /// Its name in the configuration.
    pub name: String,
    /// The revision of MCP that it answered with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// Its own name and version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// Its words for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The package that was installed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<LockedPackage>,
    /// Its tools.
    #[serde(default, rename = "tool", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<LockedDefinition>,
    /// Its prompts.
    #[serde(default, rename = "prompt", skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<LockedDefinition>,
    /// Its resources, for lists only: what differs later is no change.
    #[serde(default, rename = "resource", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<LockedResource>,
    /// Its templates of resources, likewise.
    #[serde(default, rename = "template", skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<LockedResource>,
}

/// An installed package.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPackage {
    /// `npm:NAME@VERSION` or `pypi:NAME==VERSION`.
    pub spec: String,
    /// The registry's digest of the package itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub integrity: String,
    /// The digest over all packages that were resolved with it; names the folder.
    pub tree: String,
    /// The program and its first arguments; `{package}` stands for the folder.
    pub entry: Vec<String>,
    /// Folders in front of the program's `PATH`; `{package}` stands for the folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Variables that the program needs; `{package}` stands for the folder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The day on which the version was released, where the registry says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
    /// What the installer resolved, from which the same tree is installed again.
    pub resolved: String,
}

/// The definition of a tool or a prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedDefinition {
    /// Its name at the server.
    pub name: String,
    /// The digest of the definition in canonical form.
    pub digest: String,
    /// The definition as it was listed.
    #[serde(with = "as_text")]
    pub definition: Value,
}

/// The definition of a resource, or of a template of resources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedResource {
    /// Its address at the server; a template's has places in braces.
    pub uri: String,
    /// The definition as it was listed.
    #[serde(with = "as_text")]
    pub definition: Value,
}

/// The file as TOML has it.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default, rename = "server")]
    servers: Vec<LockedServer>,
}

/// Why the file does not count.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It is no TOML of this form.
    #[error("{LOCK_FILE}")]
    Text(#[from] toml::de::Error),
    /// Another release wrote it.
    #[error("{LOCK_FILE}: version {0} is not {VERSION}, which this release reads")]
    Version(u32),
    /// Two entries of one server.
    #[error("{LOCK_FILE}: `{0}` has two entries")]
    Twice(String),
    /// More than is held.
    #[error("{LOCK_FILE}: `{server}` has more than {DEFINITIONS_MAX} definitions")]
    TooMany {
        /// The server.
        server: String,
    },
    /// A definition that was edited.
    #[error("{LOCK_FILE}: `{definition}` of `{server}` is not what its digest says")]
    Digest {
        /// The server.
        server: String,
        /// The tool or prompt.
        definition: String,
    },
}

impl ServersLock {
    /// The lock with this text; none where there is no file.
    pub fn new(text: Option<String>) -> Self {
        Self(text)
    }

    /// Parses it.
    pub fn read(&self) -> Result<LockedServers, LockError> {
        match &self.0 {
            None => Ok(LockedServers::default()),
            Some(text) => LockedServers::parse(text),
        }
    }
}

impl LockedServers {
    /// Parses the text of the file. Digests are compared, so that a definition cannot be edited by
    /// itself.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let file: File = toml::from_str(text)?;
        if file.version != VERSION {
            return Err(LockError::Version(file.version));
        }
        let mut servers = BTreeMap::new();
        for server in file.servers {
            server.check()?;
            let name = server.name.clone();
            if servers.insert(name.clone(), server).is_some() {
                return Err(LockError::Twice(name));
            }
        }
        Ok(Self(servers))
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let file = File {
            version: VERSION,
            servers: self.0.values().cloned().collect(),
        };
        // Strings, lists and tables: nothing that TOML cannot say.
        let tables = toml::to_string(&file).unwrap_or_default();
        format!("{HEAD}{tables}")
    }

    /// The entry of a server.
    pub fn get(&self, name: &str) -> Option<&LockedServer> {
        self.0.get(name)
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = &LockedServer> {
        self.0.values()
    }

    /// Puts an entry in place of the one of the same name. Definitions are sorted by their names.
    pub fn put(&mut self, mut server: LockedServer) {
        for list in [&mut server.tools, &mut server.prompts] {
            list.sort_by(|a, b| a.name.cmp(&b.name));
        }
        for list in [&mut server.resources, &mut server.templates] {
            list.sort_by(|a, b| a.uri.cmp(&b.uri));
        }
        self.0.insert(server.name.clone(), server);
    }

    /// Keeps the entries that `keep` wants.
    pub fn retain(&mut self, keep: impl Fn(&LockedServer) -> bool) {
        self.0.retain(|_, server| keep(server));
    }

    /// Removes an entry.
    pub fn remove(&mut self, name: &str) -> Option<LockedServer> {
        self.0.remove(name)
    }
}

impl LockedServer {
    fn check(&self) -> Result<(), LockError> {
        let all = || self.tools.iter().chain(&self.prompts);
        let resources = self.resources.len().max(self.templates.len());
        if all().count() > DEFINITIONS_MAX || resources > RESOURCES_MAX {
            return Err(LockError::TooMany {
                server: self.name.clone(),
            });
        }
        match all().find(|one| Digest::of_json(&one.definition).to_hex() != one.digest) {
            None => Ok(()),
            Some(edited) => Err(LockError::Digest {
                server: self.name.clone(),
                definition: edited.name.clone(),
            }),
        }
    }
}

impl LockedDefinition {
    /// The entry of a definition as a server lists it; none for one without a name.
    pub fn of(definition: Value) -> Option<Self> {
        let name = definition.get("name")?.as_str()?.to_owned();
        let digest = Digest::of_json(&definition).to_hex();
        Some(Self {
            name,
            digest,
            definition,
        })
    }
}

impl LockedResource {
    /// The entry of a resource (`uri`) or a template (`uriTemplate`) as a server lists it; none for
    /// one without an address.
    pub fn of(definition: Value) -> Option<Self> {
        let uri = definition
            .get("uri")
            .or_else(|| definition.get("uriTemplate"));
        let uri = uri?.as_str()?.to_owned();
        Some(Self { uri, definition })
    }
}

/// A JSON value as text within TOML.
mod as_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::Value;

    use super::json;

    pub fn serialize<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.to_string())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        let text = String::deserialize(deserializer)?;
        json::parse(text.as_bytes(), json::DEPTH_MAX).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> LockedDefinition {
        let definition = json!({
            "name": name, "description": "It's \"quoted\"\n'''and''' \u{7f}",
            "inputSchema": { "type": "object", "z": 1, "a": [1.5, null] },
        });
        LockedDefinition::of(definition).unwrap()
    }

    fn lock() -> LockedServers {
        let mut lock = LockedServers::default();
        lock.put(LockedServer {
            name: "time".to_owned(),
            tools: vec![tool("b"), tool("a")],
            package: Some(LockedPackage {
                spec: "pypi:mcp-server-time==1.0".to_owned(),
                tree: "ab".to_owned(),
                entry: vec!["python3".to_owned()],
                resolved: "a==1\n".to_owned(),
                ..LockedPackage::default()
            }),
            ..LockedServer::default()
        });
        lock.put(LockedServer {
            name: "files".to_owned(),
            instructions: Some("Use it.".to_owned()),
            resources: vec![
                LockedResource::of(json!({ "uri": "file:///b", "name": "b" })).unwrap(),
                LockedResource::of(json!({ "uri": "file:///a", "name": "a" })).unwrap(),
            ],
            templates: vec![LockedResource::of(json!({ "uriTemplate": "file:///{x}" })).unwrap()],
            ..LockedServer::default()
        });
        lock
    }

    #[test]
    fn written_and_read() {
        let lock = lock();
        let text = lock.text();
        assert_eq!(LockedServers::parse(&text).unwrap(), lock);
        let names: Vec<_> = lock.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["files", "time"]);
        let tools: Vec<_> = lock
            .get("time")
            .unwrap()
            .tools
            .iter()
            .map(|tool| &*tool.name)
            .collect();
        assert_eq!(tools, ["a", "b"]);
    }

    #[test]
    fn resources_are_bounded() {
        let with = |count: usize| {
            let resource = |n| LockedResource::of(json!({ "uri": format!("a:{n}") })).unwrap();
            let mut lock = LockedServers::default();
            lock.put(LockedServer {
                name: "s".to_owned(),
                resources: (0..count).map(resource).collect(),
                ..LockedServer::default()
            });
            LockedServers::parse(&lock.text())
        };
        assert!(with(RESOURCES_MAX).is_ok());
        let refused = with(RESOURCES_MAX + 1);
        assert!(matches!(refused, Err(LockError::TooMany { .. })));
    }

    #[test]
    fn an_edited_definition_does_not_count() {
        let text = lock().text().replacen("quoted", "hidden", 1);
        let refused = LockedServers::parse(&text).unwrap_err();
        assert!(matches!(refused, LockError::Digest { definition, .. } if definition == "a"));
    }

    #[test]
    fn what_does_not_count() {
        for (text, words) in [
            ("version = 2", "version 2 is not 1"),
            (
                "version = 1\n[[server]]\nname = \"a\"\n[[server]]\nname = \"a\"",
                "two entries",
            ),
            ("version = 1\nwhat = 1", "callgate.lock"),
            ("", "callgate.lock"),
        ] {
            let refused = LockedServers::parse(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
