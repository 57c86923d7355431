//! Changes of `callgate.toml` by commands: servers added, removed and allowed more. Everything else
//! in the file, comments included, stays as it is.

use std::collections::BTreeMap;

use crate::lock::LockedServers;

use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TomlError, Value, value,
};

/// A server to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewServer {
    /// Its name.
    pub name: String,
    /// Its command, where it is no package.
    pub command: Vec<String>,
    /// Its package.
    pub package: Option<String>,
    /// Packages beside it.
    pub with: Vec<String>,
    /// Its Python.
    pub python: Option<String>,
    /// Its program.
    pub program: Option<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Its working folder.
    pub cwd: Option<String>,
    /// The word of its preset; none for the usual one.
    pub preset: Option<&'static str>,
    /// Hosts that it may reach.
    pub hosts: Vec<String>,
    /// Paths that it may read.
    pub reads: Vec<String>,
    /// Paths that it may write.
    pub writes: Vec<String>,
    /// Ports that lead to a host.
    pub forward: BTreeMap<String, String>,
    /// Patterns of tools that are offered.
    pub allow: Vec<String>,
    /// Patterns of tools that are not.
    pub deny: Vec<String>,
    /// It is written and not served.
    pub disabled: bool,
    /// Its times in milliseconds: `start_timeout_ms`, `timeout_ms`.
    pub times: Vec<(&'static str, u64)>,
    /// Where it comes from: client, file, place.
    pub imported: Option<[String; 3]>,
}

/// Why a file is not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It is no TOML.
    #[error("callgate.toml")]
    Text(#[from] TomlError),
    /// Something else has the place of servers or clients.
    #[error("callgate.toml: `{0}` is no list of tables")]
    Shape(&'static str),
    /// A server of this name is there.
    #[error("callgate.toml has a server `{0}`")]
    Taken(String),
    /// No server of this name is there.
    #[error("callgate.toml has no server `{0}`")]
    Missing(String),
    /// A setting that has another form.
    #[error("callgate.toml: `{field}` of `{server}` has another form: change it by hand")]
    Form {
        /// The server.
        server: String,
        /// The setting.
        field: &'static str,
    },
}

/// The text of a configuration while it is changed.
pub struct ConfigEdit(DocumentMut);

impl ConfigEdit {
    /// Begins with a text; an empty one is a configuration too.
    pub fn new(text: &str) -> Result<Self, EditError> {
        Ok(Self(text.parse()?))
    }

    /// The text now.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// Adds a server at the end.
    pub fn add(&mut self, server: &NewServer) -> Result<(), EditError> {
        if self.find(&server.name)?.is_some() {
            return Err(EditError::Taken(server.name.clone()));
        }
        let table = server.table();
        self.list("server")?.push(table);
        Ok(())
    }

    /// Removes a server, and its name from the clients that see it.
    pub fn remove(&mut self, name: &str) -> Result<(), EditError> {
        let at = self.find(name)?;
        let at = at.ok_or_else(|| EditError::Missing(name.to_owned()))?;
        self.list("server")?.remove(at);
        for client in self.list("client")?.iter_mut() {
            if let Some(servers) = client.get_mut("servers").and_then(Item::as_array_mut) {
                servers.retain(|known| known.as_str() != Some(name));
            }
        }
        for name in ["server", "client"] {
            if self.list(name)?.is_empty() {
                self.0.remove(name);
            }
        }
        Ok(())
    }

    /// Allows a server one more host. Returns false if the host was allowed before.
    pub fn allow_host(&mut self, name: &str, host: &str) -> Result<bool, EditError> {
        let table = self.server(name)?;
        let form = || EditError::Form {
            server: name.to_owned(),
            field: "network",
        };
        let network = table.entry("network").or_insert_with(|| {
            let mut hosts = InlineTable::new();
            hosts.insert("allow", Value::Array(Array::new()));
            value(hosts)
        });
        if network.as_bool() == Some(true) {
            return Ok(false);
        }
        if network.as_bool() == Some(false) {
            let mut hosts = InlineTable::new();
            hosts.insert("allow", Value::Array(Array::new()));
            *network = value(hosts);
        }
        let hosts = network.as_table_like_mut().ok_or_else(form)?;
        let hosts = hosts.get_mut("allow").and_then(Item::as_array_mut);
        let hosts = hosts.ok_or_else(form)?;
        if hosts.iter().any(|known| known.as_str() == Some(host)) {
            return Ok(false);
        }
        hosts.push(host);
        Ok(true)
    }

    /// Sets the package of a server.
    pub fn set_package(&mut self, name: &str, package: &str) -> Result<(), EditError> {
        self.server(name)?["package"] = value(package);
        Ok(())
    }

    /// Writes which servers and tools a client sees, in place of what was written of it.
    pub fn set_client(
        &mut self,
        name: &str,
        servers: &[String],
        deny: &[String],
    ) -> Result<(), EditError> {
        let mut table = Table::new();
        table["name"] = value(name);
        table["servers"] = value(array(servers));
        if !deny.is_empty() {
            table["deny"] = value(array(deny));
        }
        let clients = self.list("client")?;
        let is_it = |client: &Table| client.get("name").and_then(Item::as_str) == Some(name);
        let at = clients.iter().position(is_it);
        match at.and_then(|at| clients.get_mut(at)) {
            Some(client) => {
                for key in ["servers", "deny"] {
                    match table.remove(key) {
                        Some(item) => client[key] = item,
                        None => drop(client.remove(key)),
                    }
                }
            }
            None => clients.push(table),
        }
        Ok(())
    }

    /// Adds a rule that asks before the tools of a lock that say they destroy something.
    pub fn ask_before_destructive(&mut self, lock: &LockedServers) -> Result<(), EditError> {
        let mut tools = Vec::new();
        for server in lock.iter() {
            for tool in &server.tools {
                let hint = tool.definition.pointer("/annotations/destructiveHint");
                if hint == Some(&serde_json::Value::Bool(true)) {
                    tools.push(format!("{}/{}", server.name, tool.name));
                }
            }
        }
        if tools.is_empty() {
            return Ok(());
        }
        let mut rule = Table::new();
        rule["tools"] = value(array(&tools));
        rule["decision"] = value("ask");
        self.list("policy")?.push(rule);
        Ok(())
    }

    /// The names of all servers.
    pub fn names(&mut self) -> Result<Vec<String>, EditError> {
        let servers = self.list("server")?.iter();
        let names = servers.filter_map(|server| server.get("name")?.as_str().map(str::to_owned));
        Ok(names.collect())
    }

    fn list(&mut self, name: &'static str) -> Result<&mut ArrayOfTables, EditError> {
        let list = self
            .0
            .entry(name)
            .or_insert_with(|| ArrayOfTables::new().into());
        list.as_array_of_tables_mut().ok_or(EditError::Shape(name))
    }

    fn find(&mut self, name: &str) -> Result<Option<usize>, EditError> {
        let named = |server: &Table| server.get("name").and_then(Item::as_str) == Some(name);
        Ok(self.list("server")?.iter().position(named))
    }

    fn server(&mut self, name: &str) -> Result<&mut Table, EditError> {
        let missing = || EditError::Missing(name.to_owned());
        let at = self.find(name)?.ok_or_else(missing)?;
        self.list("server")?.get_mut(at).ok_or_else(missing)
    }
}

impl NewServer {
    /// The lines that write it, for people to look at.
    pub fn text(&self) -> String {
        let mut edit = ConfigEdit(DocumentMut::new());
        // An empty document has no server of this name.
        let _ = edit.add(self);
        edit.text()
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table["name"] = value(&self.name);
        if let Some(package) = &self.package {
            table["package"] = value(package);
        }
        for (name, word) in [("python", &self.python), ("program", &self.program)] {
            if let Some(word) = word {
                table[name] = value(word);
            }
        }
        let mut list = |name: &str, words: &[String]| {
            if !words.is_empty() {
                table[name] = value(array(words));
            }
        };
        list("with", &self.with);
        list("command", &self.command);
        list("args", &self.args);
        if !self.env.is_empty() {
            table["env"] = value(inline(&self.env));
        }
        if let Some(cwd) = &self.cwd {
            table["cwd"] = value(cwd);
        }
        if let Some(preset) = self.preset {
            table["preset"] = value(preset);
        }
        if !self.hosts.is_empty() {
            let mut hosts = InlineTable::new();
            hosts.insert("allow", Value::Array(array(&self.hosts)));
            table["network"] = value(hosts);
        }
        let mut list = |name: &str, words: &[String]| {
            if !words.is_empty() {
                table[name] = value(array(words));
            }
        };
        list("reads", &self.reads);
        list("writes", &self.writes);
        if !self.forward.is_empty() {
            table["forward"] = value(inline(&self.forward));
        }
        let mut tools = InlineTable::new();
        for (name, patterns) in [("allow", &self.allow), ("deny", &self.deny)] {
            if !patterns.is_empty() {
                tools.insert(name, Value::Array(array(patterns)));
            }
        }
        if !tools.is_empty() {
            table["tools"] = value(tools);
        }
        for (name, ms) in &self.times {
            table[*name] = value(i64::try_from(*ms).unwrap_or(i64::MAX));
        }
        if self.disabled {
            table["disabled"] = value(true);
        }
        if let Some(source) = &self.imported {
            let mut imported = InlineTable::new();
            for (name, word) in ["from", "file", "at"].into_iter().zip(source) {
                imported.insert(name, Value::from(word));
            }
            table["imported"] = value(imported);
        }
        table
    }
}

fn array(words: &[String]) -> Array {
    words.iter().map(String::as_str).collect()
}

fn inline(pairs: &BTreeMap<String, String>) -> InlineTable {
    let pairs = pairs.iter();
    pairs
        .map(|(name, text)| (name.as_str(), Value::from(text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const BEFORE: &str = "# mine\n[[tool]] # first\nname = \"t\"\nrunner = { kind = \"process\", command = [\"x\"] }\n";

    fn server(name: &str) -> NewServer {
        NewServer {
            name: name.to_owned(),
            package: Some("npm:x@1.0.0".to_owned()),
            args: vec!["a \"b\"".to_owned()],
            env: [("K".to_owned(), "${secret:k}".to_owned())].into(),
            preset: Some("web"),
            hosts: vec!["h:443".to_owned()],
            forward: [("5432".to_owned(), "db:5432".to_owned())].into(),
            deny: vec!["delete_*".to_owned()],
            times: vec![("timeout_ms", 5)],
            imported: Some(["c".to_owned(), "f".to_owned(), "/p".to_owned()]),
            ..NewServer::default()
        }
    }

    #[test]
    fn added_and_removed() {
        let mut edit = ConfigEdit::new(BEFORE).unwrap();
        edit.add(&server("a")).unwrap();
        edit.add(&server("b")).unwrap();
        edit.set_client("claude", &["a".to_owned(), "b".to_owned()], &[])
            .unwrap();
        assert!(matches!(edit.add(&server("a")), Err(EditError::Taken(_))));
        let text = edit.text();
        assert!(text.starts_with(BEFORE), "{text}");
        let config = parse(&text).unwrap();
        assert_eq!(config.servers.len(), 2);
        let read = &config.servers[0];
        assert_eq!(
            (read.args[0].as_str(), &*read.env["K"]),
            ("a \"b\"", "${secret:k}")
        );
        assert_eq!(read.forward["5432"], "db:5432");
        assert_eq!(config.clients[0].servers, ["a", "b"]);
        edit.remove("a").unwrap();
        assert_eq!(parse(&edit.text()).unwrap().clients[0].servers, ["b"]);
        edit.remove("b").unwrap();
        assert!(matches!(edit.remove("b"), Err(EditError::Missing(_))));
        assert!(edit.text().starts_with(BEFORE));
        assert!(parse(&edit.text()).unwrap().servers.is_empty());
    }

    #[test]
    fn hosts() {
        for network in ["", "network = false\n", "network = { allow = [] } # none\n"] {
            let text = format!("[[server]]\nname = \"a\"\ncommand = [\"x\"]\n{network}");
            let mut edit = ConfigEdit::new(&text).unwrap();
            assert!(edit.allow_host("a", "h:1").unwrap());
            assert!(!edit.allow_host("a", "h:1").unwrap());
            assert!(edit.allow_host("a", "i:2").unwrap());
            let text = edit.text();
            assert!(text.contains("allow = [\"h:1\", \"i:2\"]"), "{text}");
            assert!(parse(&text).is_ok(), "{text}");
        }
        let mut edit = ConfigEdit::new("[[server]]\nname = \"a\"\nnetwork = true\n").unwrap();
        assert!(!edit.allow_host("a", "h:1").unwrap());
        assert!(matches!(
            edit.allow_host("b", "h:1"),
            Err(EditError::Missing(_))
        ));
    }
}
