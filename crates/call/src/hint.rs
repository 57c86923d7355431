//! Hints: which access of a program its confinement refused, and the line of configuration that
//! allows it. A hint rests on what the plan refuses; what a program prints only says where to look.

use std::fmt;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{Needs, Network, Tool};

/// A kind of access that confinement can refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RefusedAccess {
    Read,
    Write,
    Execute,
    Network,
    Subprocess,
    SystemCall,
}

impl RefusedAccess {
    /// The word in replies and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Execute => "execute",
            Self::Network => "network",
            Self::Subprocess => "subprocess",
            Self::SystemCall => "system_call",
        }
    }

    /// The words in front of the subject.
    fn verb(self) -> &'static str {
        match self {
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Execute => "running",
            Self::Network => "connecting to",
            Self::Subprocess => "starting",
            Self::SystemCall => "calling",
        }
    }

    /// What it refused where the subject is not known.
    fn anything(self) -> &'static str {
        match self {
            Self::Read | Self::Write | Self::Execute => "a file",
            Self::Network => "another host",
            Self::Subprocess => "a program",
            Self::SystemCall => "the kernel",
        }
    }
}

/// Why confinement made a call fail, and what its owner can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfinementHint {
    /// The kind of access.
    pub refused: RefusedAccess,
    /// The path, or the host and its port, where that is known.
    pub subject: Option<String>,
    /// The line of configuration that allows it; none where no setting does.
    pub setting: Option<String>,
    /// What else the owner needs to know.
    pub note: Option<String>,
}

impl ConfinementHint {
    /// A connection that the gate's proxy refused. `needs` name the hosts that are allowed.
    #[must_use]
    pub fn refused_host(tool: &Tool, needs: &Needs, host: &str) -> Self {
        /// A list with more entries is not written out.
        const LISTED_MAX: usize = 8;
        let mut hosts = match needs.reach() {
            Network::Hosts(hosts) if hosts.len() < LISTED_MAX => hosts.clone(),
            _ => Vec::new(),
        };
        hosts.push(host.to_owned());
        let by_command = tool
            .server()
            .map(|server| format!("callgate servers allow {server} {host}"));
        let list = format!("{{ allow = {} }}", toml_list(&hosts));
        Self {
            refused: RefusedAccess::Network,
            subject: Some(host.to_owned()),
            setting: by_command.or_else(|| tool.setting("network", &list)),
            note: Some("the gate's egress rule refused it, and the host was not asked".to_owned()),
        }
    }

    /// The hint as an object. Its `message` is the whole of it in words.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({ "refused": self.refused.as_str(), "message": self.to_string() });
        let subject_field = match self.refused {
            RefusedAccess::Network => "host",
            _ => "path",
        };
        if let Some(subject) = &self.subject {
            value[subject_field] = subject.as_str().into();
        }
        if let Some(setting) = &self.setting {
            value["setting"] = setting.as_str().into();
        }
        value
    }
}

impl fmt::Display for ConfinementHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            refused,
            subject,
            setting,
            note,
        } = self;
        let subject = subject.as_deref().unwrap_or(refused.anything());
        write!(f, "confinement refused {} {subject}", refused.verb())?;
        if let Some(note) = note {
            write!(f, " ({note})")?;
        }
        match setting {
            Some(setting) => write!(f, "; the owner can allow it: {setting}"),
            None => Ok(()),
        }
    }
}

impl Tool {
    /// Returns the name of the MCP server whose tool it is, if it is one.
    fn server(&self) -> Option<&str> {
        let origin = self.of_server.as_ref()?;
        Some(&origin.server)
    }

    /// Returns the line of configuration that gives this tool `value` as `field` (`reads`, `writes`,
    /// `network`), or nothing where its configuration has no such field.
    ///
    /// Example: `[[tool]] name = "report": writes = ["out"]`.
    #[must_use]
    pub fn setting(&self, field: &str, value: &str) -> Option<String> {
        let is_builtin = self.runner.kind() == "builtin";
        let is_pack = self.origin.is_some();
        if let Some(server) = self.server() {
            let server = toml_text(server);
            return Some(format!("[[server]] name = {server}: {field} = {value}"));
        }
        match (self.name.as_str(), field) {
            // Programs of callers may write the whole workspace, and nothing else.
            ("exec/run" | "runs/start", "writes") if is_builtin => None,
            ("exec/run" | "runs/start", _) if is_builtin => {
                Some(format!("[exec] {field} = {value}"))
            }
            (name, "reads") if is_builtin && name.starts_with("terminals/") => {
                Some(format!("[exec] reads = {value}"))
            }
            (name, "network") if is_builtin && name.starts_with("terminals/") => {
                Some("[terminals] network = true".to_owned())
            }
            ("planner/create_plan", _) => None,
            ("pilot/policy", "writes") => None,
            ("pilot/policy", _) => Some(format!("[pilot] {field} = {value}")),
            (name, _) if is_pack || name.starts_with("entry/") || self.needs.is_none() => None,
            _ if is_builtin => None,
            (name, _) if self.in_toolpack => Some(format!(
                "`confinement` of {name} in its toolpack: {field} = {value}"
            )),
            (name, _) => Some(format!(
                "[[tool]] name = {}: {field} = {value}",
                toml_text(name)
            )),
        }
    }
}

/// A basic string of TOML.
#[must_use]
pub fn toml_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2); // bound: the text in memory
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                write!(out, "\\u{:04X}", u32::from(c)).expect("a String takes all");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A list of strings of TOML.
#[must_use]
pub fn toml_list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| toml_text(text)).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words() {
        let hint = ConfinementHint {
            refused: RefusedAccess::Read,
            subject: Some("/srv/data".to_owned()),
            setting: Some("[exec] reads = [\"/srv/data\"]".to_owned()),
            note: None,
        };
        assert_eq!(
            hint.to_string(),
            "confinement refused reading /srv/data; the owner can allow it: \
             [exec] reads = [\"/srv/data\"]"
        );
        let value = hint.to_value();
        assert_eq!(
            (&value["refused"], &value["path"]),
            (&json!("read"), &json!("/srv/data"))
        );
        let closed = ConfinementHint {
            setting: None,
            note: Some("it is the gate's".to_owned()),
            subject: None,
            ..hint
        };
        assert_eq!(
            closed.to_string(),
            "confinement refused reading a file (it is the gate's)"
        );
    }

    #[test]
    fn texts_of_toml() {
        assert_eq!(
            toml_text("a \"b\" \\ \u{7}"),
            "\"a \\\"b\\\" \\\\ \\u0007\""
        );
        assert_eq!(
            toml_list(&["a".to_owned(), "b".to_owned()]),
            "[\"a\", \"b\"]"
        );
    }
}
