//! `capabilities.yaml`: what a pack's tools need. A tool that is not listed needs nothing.
//! TP-63.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::bindings::word_of;
use super::lines::{LineError, Pair, below, blocks, quoted};

/// What one tool needs; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Files.
    pub filesystem: Filesystem,
    /// Hosts.
    pub network: Network,
    /// Variables.
    pub env: Env,
    /// Programs.
    pub subprocess: Subprocess,
    /// The secrets it reads, by name.
    pub secrets: BTreeSet<String>,
}

macro_rules! levels {
    ($($(#[$doc:meta])* $name:ident: $none:literal $first:ident, $($word:literal $level:ident),*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum $name {
            #[default]
            $first,
            $($level),*
        }

        impl $name {
            pub(super) const WORDS: &[(&str, Self)] = &[($none, Self::$first), $(($word, Self::$level)),*];

            /// The word in files.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                word_of(Self::WORDS, self)
            }

            /// The level of a word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                let known = Self::WORDS.iter().find(|(known, _)| *known == word);
                known.map(|(_, level)| *level)
            }
        }
    )*};
}

levels! {
    /// Levels of reaching files.
    Filesystem: "none" None, "read" Read, "write" Write;
    /// Levels of reaching hosts.
    Network: "none" None, "outbound" Outbound;
    /// Levels of reaching variables.
    Env: "none" None, "read" Read;
    /// Levels of starting programs.
    Subprocess: "none" None, "allow" Allow;
    /// How much harm a tool can do by what it needs.
    Risk: "low" Low, "medium" Medium, "high" High;
}

impl Capabilities {
    /// High where it writes files or starts programs, low where it needs nothing.
    #[must_use]
    pub fn risk(&self) -> Risk {
        if self.filesystem == Filesystem::Write || self.subprocess == Subprocess::Allow {
            Risk::High
        } else if *self == Self::default() {
            Risk::Low
        } else {
            Risk::Medium
        }
    }
}

/// Reads a capabilities file.
pub fn read_capabilities(text: &str) -> Result<BTreeMap<String, Capabilities>, LineError> {
    let blocks = blocks(&below(text, "capabilities:")?)?;
    blocks
        .into_iter()
        .map(|(name, fields)| {
            let capabilities = capabilities(&name, &fields)?;
            Ok((name.key, capabilities))
        })
        .collect()
}

fn capabilities(name: &Pair<'_>, fields: &[Pair<'_>]) -> Result<Capabilities, LineError> {
    let mut said = Capabilities::default();
    for field in fields {
        match field.key.as_str() {
            "filesystem" => said.filesystem = field.word(Filesystem::WORDS)?,
            "network" => said.network = field.word(Network::WORDS)?,
            "env" => said.env = field.word(Env::WORDS)?,
            "subprocess" => said.subprocess = field.word(Subprocess::WORDS)?,
            "secrets" => said.secrets = field.texts()?.into_iter().collect(),
            other => {
                return Err(field.wrong_key(format!(
                    "`{other}` is not a capability: filesystem, network, env, subprocess and \
                     secrets are"
                )));
            }
        }
    }
    // Nobody should have to know what is meant where nothing is said.
    let said_of = |key: &str| fields.iter().any(|field| field.key == key);
    for key in ["filesystem", "network", "env", "subprocess"] {
        if !said_of(key) {
            return Err(name.wrong_key(format!("`{}` needs `{key}`: none, or a level", name.key)));
        }
    }
    if said.secrets.contains("") {
        return Err(name.wrong_key("a secret without a name"));
    }
    Ok(said)
}

/// Writes a capabilities file.
#[must_use]
pub fn write_capabilities(all: &BTreeMap<String, Capabilities>) -> String {
    let mut out = "capabilities:\n".to_owned();
    for (name, said) in all {
        let secrets: Value = said.secrets.iter().cloned().collect();
        let _ = write!(
            out,
            "  {}:\n    filesystem: \"{}\"\n    network: \"{}\"\n    env: \"{}\"\n    \
             subprocess: \"{}\"\n    secrets: {secrets}\n",
            quoted(name),
            said.filesystem.as_str(),
            said.network.as_str(),
            said.env.as_str(),
            said.subprocess.as_str(),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"capabilities:
  "fetch a page":
    filesystem: "none"
    network: "outbound"
    env: "read"
    subprocess: "none"
    secrets: ["API_KEY", "OTHER"]
"#;

    /// TP-63: levels and secrets, and what they amount to.
    #[test]
    fn levels_and_risk() {
        let all = read_capabilities(ONE).unwrap();
        let said = &all["fetch a page"];
        assert_eq!((said.network, said.env), (Network::Outbound, Env::Read));
        assert_eq!(said.secrets.len(), 2);
        assert_eq!(said.risk(), Risk::Medium);
        assert_eq!(Capabilities::default().risk(), Risk::Low);
        let writes = Capabilities {
            filesystem: Filesystem::Write,
            ..Capabilities::default()
        };
        assert_eq!(writes.risk(), Risk::High);
        assert_eq!(read_capabilities(&write_capabilities(&all)).unwrap(), all);
        assert!(Filesystem::Read < Filesystem::Write);
    }

    #[test]
    fn refused() {
        for (from, to, line, words) in [
            (
                "network: \"outbound\"",
                "network: \"all\"",
                4,
                "none, outbound",
            ),
            (
                "network: \"outbound\"",
                "net: \"none\"",
                4,
                "not a capability",
            ),
            ("    env: \"read\"\n", "", 2, "needs `env`"),
            ("[\"API_KEY\", \"OTHER\"]", "API_KEY", 7, "not JSON"),
            ("\"API_KEY\"", "1", 7, "list of texts"),
            ("\"API_KEY\"", "\"\"", 2, "without a name"),
            ("capabilities:", "tools:", 1, "must be `capabilities:`"),
        ] {
            let error = read_capabilities(&ONE.replace(from, to)).unwrap_err();
            assert_eq!(error.line, line, "{to}: {error}");
            assert!(error.reason.contains(words), "{to}: {error}");
        }
    }
}
