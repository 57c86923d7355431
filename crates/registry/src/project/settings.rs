//! What we read of a project's `namel3ss.toml`: the keys about tools and packs. All other
//! tables are somebody else's.

use std::collections::{BTreeMap, BTreeSet};

use callgate_call::{Asker, Guarantee, Guarantees};
use serde::Deserialize;
use toml::{Table, Value};

use crate::environment::Environment;
use crate::suggest;

/// The project's word on its tools.
#[derive(Debug, Default)]
pub struct Settings {
    /// For tools that do not say.
    pub timeout_ms: Option<u64>,
    /// For service tools that name no address.
    pub service_url: Option<String>,
    /// Services must say first what they enforce.
    pub handshake: bool,
    /// Only these packs, if any are named.
    pub enabled: BTreeSet<String>,
    /// Never these.
    pub disabled: BTreeSet<String>,
    /// Whose tool a name stands for, where several packs have it.
    pub pinned: BTreeMap<String, String>,
    /// What the user asks of tools, by name.
    pub overrides: BTreeMap<String, Override>,
}

/// What the user asks of one tool.
#[derive(Debug, Default, Clone)]
pub struct Override {
    pub guarantees: Guarantees,
    /// It may run even where a promise can not be kept.
    pub unsafe_execution: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PythonTools {
    timeout_seconds: Option<u64>,
    service_url: Option<String>,
    service_handshake_required: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolPacks {
    enabled_packs: BTreeSet<String>,
    disabled_packs: BTreeSet<String>,
    pinned_tools: BTreeMap<String, String>,
}

/// Why a `namel3ss.toml` cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum ProjectSettingsError {
    /// A text that is no TOML.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Something else where a table is expected.
    #[error("{0} is not a table")]
    NoTable(&'static str),
    /// A table that is there under both of its names.
    #[error("[{}] and [{}] are one table: keep one", .0[0], .0[1])]
    Twice([&'static str; 2]),
    /// A key that is nearly one of a table's.
    #[error("{table}.{key}: did you mean `{near}`?")]
    NearKey {
        /// The table.
        table: &'static str,
        /// As written.
        key: String,
        /// The key that may have been meant.
        near: &'static str,
    },
    /// A value of the wrong kind in a table.
    #[error("[{table}]: {message}")]
    Value {
        /// The table.
        table: &'static str,
        /// The reader's message.
        message: String,
    },
    /// A timeout outside its range.
    #[error("{key}: {given} is not 1 to 86400")]
    Seconds {
        /// The key or the variable.
        key: &'static str,
        /// As written.
        given: u64,
    },
    /// A variable that is no number.
    #[error("{variable}: `{text}` is not a number")]
    NoNumber {
        /// The variable.
        variable: &'static str,
        /// Its value.
        text: String,
    },
    /// What the user asks of one tool.
    #[error("capability_overrides.{tool:?}")]
    Override {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        source: OverrideError,
    },
}

/// Why what a user asks of a tool cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    /// Something else than a table.
    #[error("is not a table")]
    NoTable,
    /// `secrets_allowed`.
    #[error("secrets_allowed is not a list of names")]
    Secrets,
    /// A guarantee that is neither asked for nor not.
    #[error("{0} is not true or false")]
    NoBoolean(String),
    /// A key that is no guarantee's name.
    #[error("`{key}` is no guarantee{near}")]
    Unknown {
        /// As written.
        key: String,
        /// The question whether another name was meant, or nothing.
        near: String,
    },
}

impl Settings {
    /// Reads `namel3ss.toml`.
    pub fn read(text: &str) -> Result<Self, ProjectSettingsError> {
        let doc: Table = toml::from_str(text)?;
        let python_keys = [
            "timeout_seconds",
            "service_url",
            "service_handshake_required",
        ];
        let python: PythonTools = section(&doc, ["python_tools", "python"], &python_keys)?;
        let pack_keys = ["enabled_packs", "disabled_packs", "pinned_tools"];
        let packs: ToolPacks = section(&doc, ["tool_packs", "packs"], &pack_keys)?;
        let overrides = match doc.get("capability_overrides") {
            None => BTreeMap::new(),
            Some(Value::Table(table)) => {
                let read = |(tool, said): (&String, &Value)| {
                    let said = read_override(said);
                    let said = said.map_err(|source| ProjectSettingsError::Override {
                        tool: tool.clone(),
                        source,
                    })?;
                    Ok((tool.clone(), said))
                };
                table
                    .iter()
                    .map(read)
                    .collect::<Result<_, ProjectSettingsError>>()?
            }
            Some(_) => return Err(ProjectSettingsError::NoTable("capability_overrides")),
        };
        Ok(Self {
            timeout_ms: seconds("python_tools.timeout_seconds", python.timeout_seconds)?,
            service_url: python.service_url,
            handshake: python.service_handshake_required,
            enabled: packs.enabled_packs,
            disabled: packs.disabled_packs,
            pinned: packs.pinned_tools,
            overrides,
        })
    }

    /// What the environment says outranks the file.
    pub fn overlay(&mut self, environment: &Environment) -> Result<(), ProjectSettingsError> {
        const TIMEOUT: &str = "N3_PYTHON_TOOL_TIMEOUT_SECONDS";
        if let Some(text) = environment.text(TIMEOUT) {
            let number = text.parse().map_err(|_| ProjectSettingsError::NoNumber {
                variable: TIMEOUT,
                text: text.to_owned(),
            })?;
            self.timeout_ms = seconds(TIMEOUT, Some(number))?;
        }
        if let Some(url) = environment.text("N3_TOOL_SERVICE_URL") {
            self.service_url = Some(url.to_owned());
        }
        Ok(())
    }

    /// True if a pack of this id is used.
    pub fn enables(&self, id: &str) -> bool {
        !self.disabled.contains(id) && (self.enabled.is_empty() || self.enabled.contains(id))
    }
}

fn seconds(key: &'static str, seconds: Option<u64>) -> Result<Option<u64>, ProjectSettingsError> {
    match seconds {
        None => Ok(None),
        Some(1..=86_400) => Ok(seconds.map(|seconds| seconds * 1000)),
        Some(given) => Err(ProjectSettingsError::Seconds { key, given }),
    }
}

/// A table under either of its names. Keys that are nearly ours are slips; all others are
/// somebody else's.
fn section<T: Default + serde::de::DeserializeOwned>(
    doc: &Table,
    names: [&'static str; 2],
    keys: &[&'static str],
) -> Result<T, ProjectSettingsError> {
    let mut found = names
        .iter()
        .filter_map(|name| Some((*name, doc.get(*name)?)));
    let Some((name, value)) = found.next() else {
        return Ok(T::default());
    };
    if found.next().is_some() {
        return Err(ProjectSettingsError::Twice(names));
    }
    let Value::Table(table) = value else {
        return Err(ProjectSettingsError::NoTable(name));
    };
    for key in table.keys().filter(|key| !keys.contains(&key.as_str())) {
        if let Some(near) = suggest::nearest(key, keys.iter().copied()) {
            return Err(ProjectSettingsError::NearKey {
                table: name,
                key: key.clone(),
                near,
            });
        }
    }
    let read = T::deserialize(value.clone());
    read.map_err(|error| ProjectSettingsError::Value {
        table: name,
        message: error.message().to_owned(),
    })
}

fn read_override(said: &Value) -> Result<Override, OverrideError> {
    let Value::Table(table) = said else {
        return Err(OverrideError::NoTable);
    };
    let mut read = Override::default();
    for (key, value) in table {
        match (key.as_str(), value) {
            ("allow_unsafe_execution", Value::Boolean(said)) => read.unsafe_execution = *said,
            ("secrets_allowed", Value::Array(items)) => {
                let names: Option<BTreeSet<String>> = items
                    .iter()
                    .map(|item| Some(item.as_str()?.to_owned()))
                    .collect();
                let names = names.ok_or(OverrideError::Secrets)?;
                read.guarantees.allow_secrets(names, Asker::User);
            }
            ("secrets_allowed", _) => {
                return Err(OverrideError::Secrets);
            }
            (key, value) => {
                let known = Guarantee::from_name(key);
                match (known, value) {
                    (Some(one), Value::Boolean(true)) => read.guarantees.require(one, Asker::User),
                    // It asks for nothing, and takes nothing back that others ask for.
                    (Some(_), Value::Boolean(false)) => {}
                    (Some(_), _) => return Err(OverrideError::NoBoolean(key.to_owned())),
                    (None, _) => {
                        let names = Guarantee::ALL.map(Guarantee::name);
                        let all = names.into_iter().chain(["allow_unsafe_execution"]);
                        return Err(OverrideError::Unknown {
                            key: key.to_owned(),
                            near: suggest::question(key, all),
                        });
                    }
                }
            }
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"
[ai]
provider = "x"
[python_tools]
timeout_seconds = 5
service_url = "http://127.0.0.1:1/tools"
service_handshake_required = true
[packs]
enabled_packs = ["a.b"]
disabled_packs = ["c"]
pinned_tools = { "say hello" = "a.b" }
[capability_overrides]
"say hello" = { no_network = true, no_env_read = false, secrets_allowed = ["K"], allow_unsafe_execution = true }
"#;

    #[test]
    fn everything() {
        let read = Settings::read(ALL).unwrap();
        assert_eq!((read.timeout_ms, read.handshake), (Some(5000), true));
        assert!(read.enables("a.b") && !read.enables("c") && !read.enables("d"));
        assert_eq!(read.pinned["say hello"], "a.b");
        let said = &read.overrides["say hello"];
        assert!(said.unsafe_execution);
        assert_eq!(
            said.guarantees.asker(Guarantee::NoNetwork),
            Some(Asker::User)
        );
        assert!(!said.guarantees.requires(Guarantee::NoEnvRead));
        assert_eq!(said.guarantees.secrets().unwrap().len(), 1);
        assert!(Settings::read("").unwrap().enables("any"));
    }

    #[test]
    fn refused() {
        for (text, words) in [
            (
                "[python_tools]\ntimeout_second = 5",
                "did you mean `timeout_seconds`?",
            ),
            ("[python_tools]\ntimeout_seconds = 0", "not 1 to 86400"),
            ("[python_tools]\ntimeout_seconds = \"5\"", "python_tools"),
            ("[packs]\n[tool_packs]", "are one table"),
            (
                "[capability_overrides]\nx = { no_netwrk = true }",
                "did you mean `no_network`?",
            ),
            (
                "[capability_overrides]\nx = { no_network = 1 }",
                "not true or false",
            ),
            ("[capability_overrides]\nx = 1", "is not a table"),
            (
                "[capability_overrides]\nx = { secrets_allowed = [1] }",
                "list of names",
            ),
            ("= 1", "line 1"),
        ] {
            let error = callgate_call::chain(&Settings::read(text).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(Settings::read("[python_tools]\ninterpreter_args = []").is_ok());
    }

    /// 50,000 mutations: none panics.
    #[test]
    fn mutations() {
        use callgate_testing::{Random, mutant};
        let words: [&[u8]; 10] = [
            b"[",
            b"]",
            b"=",
            b"\"",
            b"\n",
            b"{",
            b"}",
            b"true",
            b"[packs]\n",
            b"secrets_allowed = [1]\n",
        ];
        let mut random = Random::new("projects");
        let mut accepted = 0;
        for _ in 0..50_000 {
            let bytes = mutant(&mut random, &[ALL.as_bytes()], &words);
            if let Ok(text) = String::from_utf8(bytes) {
                accepted += usize::from(Settings::read(&text).is_ok());
            }
        }
        assert!(accepted > 0 && accepted < 50_000, "{accepted}");
    }
}
