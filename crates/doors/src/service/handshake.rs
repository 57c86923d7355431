//! What a service would hold a tool to. TP-53 to TP-56, P-5.
//!
//! A call that follows a handshake does not repeat what was required, so only what the tool is
//! held to in every call counts: a promise that could be kept and that nobody asks for then is
//! none.

use std::collections::BTreeSet;

use callgate_call::{Guarantee, Held, Level, Tool};
use callgate_wires::tool_protocol::{GuaranteeSet, HandshakeReply, HandshakeRequest};

use super::ServiceDoor;
use crate::tool::{Peer, flags, said};

impl ServiceDoor {
    /// The answer for one tool. Refused only where the caller knows of no such tool.
    pub(super) fn handshake(&self, peer: &Peer, request: &HandshakeRequest) -> HandshakeReply {
        let scope = peer.scope.as_deref();
        let (entry, held) = match self.gate.outlook(&request.tool_name, &peer.caller, scope) {
            Ok(known) => known,
            Err(fault) => return HandshakeReply::Refused(said(&fault)),
        };
        let promises = Promises {
            tool: &entry.tool,
            held: &held,
        };
        HandshakeReply::Levels {
            enforcement: Some(promises.level(&request.required).as_str().to_owned()),
            supported: promises.supported(&request.required),
            service_version: Some(self.settings.version.clone()),
        }
    }
}

/// A tool and how each guarantee is kept.
struct Promises<'a> {
    tool: &'a Tool,
    held: &'a [Held],
}

impl Promises<'_> {
    /// How far every call of the tool is held to it.
    fn kept(&self, guarantee: Guarantee) -> Level {
        let needs = self.tool.needs.as_deref();
        if !needs.is_some_and(|needs| needs.guarantees.requires(guarantee)) {
            return Level::None;
        }
        let held = self
            .held
            .iter()
            .find(|held| held.guarantee == Some(guarantee));
        held.map_or(Level::None, |held| held.level)
    }

    /// The same for a list of secrets: what the tool may read must all be in it.
    fn keeps_to(&self, names: &[String]) -> Level {
        let needs = self.tool.needs.as_deref();
        let own = needs.and_then(|needs| needs.guarantees.secrets());
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        match own {
            Some(own) if own.iter().all(|name| names.contains(name.as_str())) => {
                self.kept(Guarantee::SecretsAllowed)
            }
            _ => Level::None,
        }
    }

    /// The weakest of what is required; of all that the tool is held to where nothing is.
    fn level(&self, required: &GuaranteeSet) -> Level {
        if !required.unknown.is_empty() {
            return Level::None;
        }
        if required.is_empty() {
            let needs = self.tool.needs.as_deref();
            let own = needs.into_iter().flat_map(|needs| needs.guarantees.iter());
            return own
                .map(|(guarantee, _)| self.kept(guarantee))
                .min()
                .unwrap_or_default();
        }
        let secrets = required.secrets_allowed.as_deref();
        flags(required)
            .map(|guarantee| self.kept(guarantee))
            .chain(secrets.map(|names| self.keeps_to(names)))
            .min()
            .unwrap_or_default()
    }

    /// All that is enforced. A list of secrets is the caller's own where the tool keeps to it:
    /// callers look for theirs in ours.
    fn supported(&self, required: &GuaranteeSet) -> GuaranteeSet {
        let mut supported = GuaranteeSet::default();
        for guarantee in Guarantee::ALL {
            if self.kept(guarantee) == Level::Enforced {
                supported.require(guarantee.name());
            }
        }
        let needs = self.tool.needs.as_deref();
        let own = needs.and_then(|needs| needs.guarantees.secrets());
        supported.secrets_allowed = match &required.secrets_allowed {
            Some(names) => (self.keeps_to(names) == Level::Enforced).then(|| names.clone()),
            None if self.kept(Guarantee::SecretsAllowed) == Level::Enforced => {
                own.map(|own| own.iter().cloned().collect())
            }
            None => None,
        };
        supported
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use callgate_call::{Asker, Guarantees, Job, Needs, RunFuture, Runner};
    use serde_json::{Value, json};

    use super::*;

    struct NoRunner;

    impl Runner for NoRunner {
        fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
            unreachable!("nothing is called here")
        }

        fn kind(&self) -> &'static str {
            "none"
        }
    }

    fn tool(guarantees: Guarantees) -> Tool {
        let mut tool = Tool::new("t", Arc::new(NoRunner));
        tool.needs = Some(Arc::new(Needs {
            guarantees,
            ..Needs::default()
        }));
        tool
    }

    fn outlook(level: impl Fn(Guarantee) -> Level) -> Vec<Held> {
        let held = |guarantee| Held {
            guarantee: Some(guarantee),
            asker: Asker::Tool,
            level: level(guarantee),
            mechanisms: Vec::new(),
            missing: String::new(),
        };
        Guarantee::ALL.map(held).to_vec()
    }

    fn required(value: Value) -> GuaranteeSet {
        GuaranteeSet::required(value.as_object().cloned().unwrap()).unwrap()
    }

    fn two() -> Guarantees {
        let mut guarantees = Guarantees::default();
        guarantees.require(Guarantee::NoNetwork, Asker::Engine);
        guarantees.require(Guarantee::NoSubprocess, Asker::Tool);
        guarantees
    }

    /// P-5, TP-54, TP-55: the weakest of what is required, and only what every call is held to.
    #[test]
    fn levels() {
        let tool = tool(two());
        let held = outlook(|guarantee| match guarantee {
            Guarantee::NoSubprocess => Level::Partial,
            _ => Level::Enforced,
        });
        let promises = Promises {
            tool: &tool,
            held: &held,
        };
        for (asked, level) in [
            (json!({"no_network": true}), Level::Enforced),
            (
                json!({"no_network": true, "no_subprocess": true}),
                Level::Partial,
            ),
            (
                json!({"no_network": true, "no_env_read": true}),
                Level::None,
            ),
            (
                json!({"no_network": true, "no_env_read": false}),
                Level::Enforced,
            ),
            (json!({"no_network": true, "no_gpu": true}), Level::None),
            (json!({"secrets_allowed": []}), Level::None),
            (json!({}), Level::Partial),
        ] {
            assert_eq!(promises.level(&required(asked.clone())), level, "{asked}");
        }
        let supported = promises.supported(&GuaranteeSet::default());
        assert_eq!(
            Value::Object(supported.to_object()),
            json!({"no_network": true})
        );
    }

    /// TP-55, TP-57: a tool that may read fewer secrets keeps to a longer list, not to a shorter.
    #[test]
    fn secrets() {
        let mut guarantees = two();
        guarantees.allow_secrets(["A".to_owned()].into(), Asker::Tool);
        let (tool, held) = (tool(guarantees), outlook(|_| Level::Enforced));
        let promises = Promises {
            tool: &tool,
            held: &held,
        };
        for (names, keeps) in [
            (json!(["A", "B"]), true),
            (json!(["A"]), true),
            (json!([]), false),
        ] {
            let required = required(json!({ "secrets_allowed": names }));
            let supported = promises.supported(&required).secrets_allowed;
            assert_eq!(
                supported,
                required.secrets_allowed.clone().filter(|_| keeps)
            );
            assert_eq!(promises.level(&required) == Level::Enforced, keeps);
        }
        let own = promises.supported(&GuaranteeSet::default()).secrets_allowed;
        assert_eq!(own, Some(vec!["A".to_owned()]));
    }

    /// A tool without a child is held to nothing.
    #[test]
    fn no_child() {
        let tool = Tool::new("t", Arc::new(NoRunner));
        let promises = Promises {
            tool: &tool,
            held: &[],
        };
        assert_eq!(
            promises.level(&required(json!({"no_network": true}))),
            Level::None
        );
        assert_eq!(promises.level(&GuaranteeSet::default()), Level::None);
        assert!(promises.supported(&GuaranteeSet::default()).is_empty());
    }
}
