//! Which guarantees are asked for, and by whom.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{Fields, RequestError, wrong};
use super::limits::{READ_ROOTS_MAX, SECRETS_MAX};

/// The guarantees that are asked for or not, in the contract's order. TP-29.
pub const FLAGS: [&str; 6] = [
    "no_filesystem_read",
    "no_filesystem_write",
    "no_network",
    "no_subprocess",
    "no_env_read",
    "no_env_write",
];

/// The one that is a list.
pub const SECRETS_ALLOWED: &str = "secrets_allowed";

/// Guarantees as messages write them. TP-10, P-2: what is missing or false asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuaranteeSet {
    flags: [bool; 6],
    /// Nothing but these secrets, where it is said.
    pub secrets_allowed: Option<Vec<String>>,
    /// Asked for, and nothing we know. Whoever asks for these must be refused.
    pub unknown: Vec<String>,
}

impl GuaranteeSet {
    /// Reads what somebody requires. A value that is no flag may be a slip for one that is, so
    /// it is refused.
    pub fn required(members: Map<String, Value>) -> Result<Self, RequestError> {
        let mut set = Self::default();
        let mut fields = Fields::of_map(members);
        for (flag, name) in set.flags.iter_mut().zip(FLAGS) {
            *flag = fields.flag(name)?.unwrap_or(false);
        }
        set.secrets_allowed = fields.texts(SECRETS_ALLOWED, SECRETS_MAX)?;
        for (name, value) in fields.into_map() {
            match value {
                Value::Bool(false) | Value::Null => {}
                _ => set.unknown.push(name),
            }
        }
        Ok(set)
    }

    /// Reads what somebody claims to support: only `true` is a claim.
    #[must_use]
    pub fn claimed(members: &Map<String, Value>) -> Self {
        let mut set = Self::default();
        for (flag, name) in set.flags.iter_mut().zip(FLAGS) {
            *flag = members.get(name) == Some(&Value::Bool(true));
        }
        let names = members.get(SECRETS_ALLOWED).and_then(Value::as_array);
        set.secrets_allowed = names.map(|names| {
            let texts = names.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        });
        set
    }

    /// Asks for one of the six; false if it is none of them.
    pub fn require(&mut self, name: &str) -> bool {
        let place = FLAGS.iter().position(|&known| known == name);
        if let Some(place) = place {
            self.flags[place] = true;
        }
        place.is_some()
    }

    /// True if this one of the six is asked for.
    #[must_use]
    pub fn requires(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Those of the six that are asked for, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        let asked = FLAGS.into_iter().zip(self.flags);
        asked.filter_map(|(name, flag)| flag.then_some(name))
    }

    /// True if nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.flags.contains(&true) && self.secrets_allowed.is_none() && self.unknown.is_empty()
    }

    /// As an object that names only what is asked for.
    #[must_use]
    pub fn to_object(&self) -> Map<String, Value> {
        let mut object: Map<String, Value> = self
            .names()
            .map(|name| (name.to_owned(), true.into()))
            .collect();
        if let Some(secrets) = &self.secrets_allowed {
            object.insert(SECRETS_ALLOWED.to_owned(), secrets.clone().into());
        }
        for name in &self.unknown {
            object.insert(name.clone(), true.into());
        }
        object
    }
}

/// `capability_context`. TP-9 to TP-13; what else it may carry says nothing that would be
/// enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapabilityContext {
    /// What the tool is to be held to.
    pub guarantees: GuaranteeSet,
    /// Who asked, by the guarantee's name. TP-11.
    pub sources: BTreeMap<String, String>,
    /// Writes must stay inside. TP-12.
    pub filesystem_root: Option<String>,
    /// Reads may go here too.
    pub filesystem_read_roots: Vec<String>,
}

impl CapabilityContext {
    pub(super) fn read(members: Map<String, Value>) -> Result<Self, RequestError> {
        let mut fields = Fields::of_map(members);
        let guarantees = fields.object("guarantees")?.unwrap_or_default();
        let sources = fields.object("sources")?.unwrap_or_default();
        let source = |(name, value): (String, Value)| match value {
            Value::String(word) => Some(Ok((name, word))),
            Value::Null => None,
            _ => Some(Err(wrong("sources", "an object of strings"))),
        };
        Ok(Self {
            guarantees: GuaranteeSet::required(guarantees)?,
            sources: sources
                .into_iter()
                .filter_map(source)
                .collect::<Result<_, _>>()?,
            filesystem_root: fields.text("filesystem_root")?,
            filesystem_read_roots: fields
                .texts("filesystem_read_roots", READ_ROOTS_MAX)?
                .unwrap_or_default(),
        })
    }

    pub(super) fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("guarantees".into(), self.guarantees.to_object().into());
        if !self.sources.is_empty() {
            let sources = self.sources.iter();
            let sources = sources.map(|(name, word)| (name.clone(), word.as_str().into()));
            object.insert("sources".into(), Value::Object(sources.collect()));
        }
        if let Some(root) = &self.filesystem_root {
            object.insert("filesystem_root".into(), root.as_str().into());
        }
        if !self.filesystem_read_roots.is_empty() {
            let roots = self.filesystem_read_roots.clone();
            object.insert("filesystem_read_roots".into(), roots.into());
        }
        object.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(context: Value) -> Result<CapabilityContext, RequestError> {
        CapabilityContext::read(context.as_object().cloned().unwrap())
    }

    /// TP-10, TP-29, P-2: false, null and missing ask for nothing; another type is refused.
    #[test]
    fn guarantees() {
        let context = read(json!({"guarantees": {
            "no_network": true, "no_subprocess": false, "no_env_read": null, "secrets_allowed": ["A"],
        }}));
        let set = context.unwrap().guarantees;
        assert_eq!(set.names().collect::<Vec<_>>(), ["no_network"]);
        assert_eq!(set.secrets_allowed.as_deref(), Some(&["A".to_owned()][..]));
        assert!(set.requires("no_network") && !set.requires("no_subprocess"));
        assert!(read(json!({})).unwrap().guarantees.is_empty());
        for bad in [
            json!({"no_network": "true"}),
            json!({"no_network": 1}),
            json!({"secrets_allowed": "A"}),
            json!({"secrets_allowed": [1]}),
            json!({"secrets_allowed": vec!["x"; SECRETS_MAX + 1]}),
        ] {
            assert!(read(json!({ "guarantees": bad })).is_err(), "{bad}");
        }
        let most = json!({"guarantees": {"secrets_allowed": vec!["x"; SECRETS_MAX]}});
        assert!(read(most).is_ok());
    }

    /// What we do not know and somebody wants is kept apart; what nobody wants is ignored.
    #[test]
    fn unknown_guarantees() {
        let asked = json!({"guarantees": {"no_gpu": true, "no_clock": false, "level": 3}});
        let set = read(asked).unwrap().guarantees;
        assert_eq!(set.unknown, ["level", "no_gpu"]);
        assert!(!set.is_empty());
    }

    /// TP-11, TP-12, TP-13.
    #[test]
    fn the_rest_of_the_context() {
        let whole = json!({
            "tool_name": "greeter", "resolved_source": "binding", "runner": "local",
            "protocol_version": 1,
            "guarantees": {"no_network": true},
            "sources": {"no_network": "tool"},
            "filesystem_root": "/app",
            "filesystem_read_roots": ["/usr/share"],
        });
        let context = read(whole).unwrap();
        assert_eq!(context.sources["no_network"], "tool");
        assert_eq!(context.filesystem_root.as_deref(), Some("/app"));
        assert_eq!(context.filesystem_read_roots, ["/usr/share"]);
        assert_eq!(read(context.to_value()).unwrap(), context);
        for bad in [
            json!({"guarantees": []}),
            json!({"sources": {"no_network": 1}}),
            json!({"filesystem_root": 7}),
            json!({"filesystem_read_roots": vec!["/"; READ_ROOTS_MAX + 1]}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    /// TP-55: only what is plainly claimed counts.
    #[test]
    fn claims() {
        let claimed =
            json!({"no_network": true, "no_subprocess": "yes", "secrets_allowed": ["A", 1]});
        let set = GuaranteeSet::claimed(claimed.as_object().unwrap());
        assert_eq!(set.names().collect::<Vec<_>>(), ["no_network"]);
        assert_eq!(set.secrets_allowed, Some(vec!["A".to_owned()]));
    }
}
