//! What a request wants its tool held to, in the gate's words.

use std::collections::BTreeSet;

use callgate_call::{Asker, Fault, Guarantee, Guarantees};
use callgate_wires::tool_protocol::{CapabilityContext, GuaranteeSet};

/// The guarantees of a request, each with who asked for it. TP-10, TP-11.
pub(super) fn read(context: &CapabilityContext) -> Result<Guarantees, Fault> {
    if let [first, ..] = context.guarantees.unknown.as_slice() {
        // Somebody counts on it; to run all the same would be to promise it.
        return Err(Fault::BadRequest {
            reason: format!("`{first}` is a guarantee nobody here knows"),
        });
    }
    let asker = |guarantee: Guarantee| {
        let word = context.sources.get(guarantee.name());
        // Whoever it was, it came with the request of a user.
        word.and_then(|word| Asker::from_word(word))
            .unwrap_or(Asker::User)
    };
    let mut asks = Guarantees::default();
    for guarantee in flags(&context.guarantees) {
        asks.require(guarantee, asker(guarantee));
    }
    if let Some(names) = &context.guarantees.secrets_allowed {
        let names: BTreeSet<String> = names.iter().cloned().collect();
        asks.allow_secrets(names, asker(Guarantee::SecretsAllowed));
    }
    Ok(asks)
}

/// Those of the six that are asked for.
pub(crate) fn flags(set: &GuaranteeSet) -> impl Iterator<Item = Guarantee> + '_ {
    set.names().filter_map(Guarantee::from_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_wires::tool_protocol::{FLAGS, LocalRequest};
    use serde_json::{Value, json};

    fn asks(context: Value) -> Result<Guarantees, Fault> {
        let request = json!({
            "protocol_version": 1, "tool": "t", "entry": "m:f", "payload": {},
            "capability_context": context,
        });
        let request = LocalRequest::parse(request.to_string().as_bytes()).unwrap();
        read(&request.context.unwrap())
    }

    /// TP-10, TP-11, P-2.
    #[test]
    fn guarantees_and_askers() {
        let asks = asks(json!({
            "guarantees": {"no_network": true, "no_subprocess": true, "no_env_read": false,
                           "no_env_write": true, "secrets_allowed": ["A"]},
            "sources": {"no_network": "tool", "no_env_write": "nobody", "secrets_allowed": "policy"},
        }))
        .unwrap();
        let found: Vec<_> = asks.iter().collect();
        let wanted = [
            (Guarantee::NoNetwork, Asker::Tool),
            (Guarantee::NoSubprocess, Asker::User),
            (Guarantee::NoEnvWrite, Asker::User),
            (Guarantee::SecretsAllowed, Asker::Policy),
        ];
        assert_eq!(found, wanted);
        assert_eq!(asks.secrets(), Some(&BTreeSet::from(["A".to_owned()])));
    }

    /// TP-29: the wire's names are the gate's.
    #[test]
    fn every_flag_is_known() {
        let all: Vec<_> = FLAGS
            .iter()
            .filter_map(|name| Guarantee::from_name(name))
            .collect();
        assert_eq!(all, Guarantee::ALL[..6]);
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        let refused = asks(json!({"guarantees": {"no_gpu": true}})).unwrap_err();
        assert!(refused.to_string().contains("no_gpu"), "{refused}");
        assert!(
            asks(json!({"guarantees": {"no_gpu": false}}))
                .unwrap()
                .is_empty()
        );
    }
}
