//! `capability_checks` of a reply, from what is known of the call's capabilities.

use callgate_call::{CapabilityCheck, Guarantees, Outcome, capability_checks};
use callgate_wires::tool_protocol::Check;

/// The checks of one outcome. TP-21, TP-22, P-1.
pub(super) fn of(outcome: &Outcome, asks: Option<&Guarantees>) -> Vec<Check> {
    let known = capability_checks(
        &outcome.result,
        &outcome.enforcement,
        asks,
        &outcome.blocked,
    );
    known.into_iter().map(check).collect()
}

fn check(known: CapabilityCheck) -> Check {
    Check {
        capability: known.guarantee.capability().to_owned(),
        allowed: known.allowed,
        guarantee_source: known.asker.as_str().to_owned(),
        reason: known.reason.to_owned(),
        duration_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use callgate_call::{
        Asker, CallId, Detail, Enforcement, Fault, Guarantee, Held, Level, Output,
    };
    use serde_json::Value;

    use super::*;

    fn held(guarantee: Guarantee, asker: Asker, level: Level) -> Held {
        Held {
            guarantee: Some(guarantee),
            asker,
            level,
            mechanisms: Vec::new(),
            missing: String::new(),
        }
    }

    fn outcome(result: Result<Output, Fault>, held: Vec<Held>, unsafe_override: bool) -> Outcome {
        let detail = Detail {
            held,
            unsafe_override,
            ..Detail::default()
        };
        Outcome {
            call: CallId(1),
            result,
            replayed: false,
            enforcement: Enforcement {
                level: Level::None,
                detail: Some(Arc::new(detail)),
            },
            hint: None,
            blocked: Vec::new(),
        }
    }

    fn words(checks: &[Check]) -> Vec<String> {
        checks
            .iter()
            .map(|one| {
                format!(
                    "{} {} {} {}",
                    one.capability, one.allowed, one.guarantee_source, one.reason
                )
            })
            .collect()
    }

    /// TP-21, TP-22, TP-33: one check for each that could not be covered, in order.
    #[test]
    fn not_covered() {
        let missing = vec![
            held(Guarantee::NoFilesystemRead, Asker::Tool, Level::Partial),
            held(Guarantee::SecretsAllowed, Asker::User, Level::None),
        ];
        let refused = outcome(Err(Fault::Unenforceable { missing }), Vec::new(), false);
        assert_eq!(
            words(&of(&refused, None)),
            [
                "filesystem_read false tool coverage_missing",
                "secrets false user coverage_missing"
            ]
        );
    }

    /// A blocked attempt names who asked, as the plan has it or else the request.
    #[test]
    fn blocked_attempts() {
        let blocked = |guarantee: Guarantee, held| {
            let guarantee = guarantee.name().to_owned();
            let detail = String::new();
            outcome(
                Err(Fault::GuaranteeBlocked { guarantee, detail }),
                held,
                false,
            )
        };
        let planned = vec![held(Guarantee::NoNetwork, Asker::Pack, Level::Enforced)];
        let network = blocked(Guarantee::NoNetwork, planned);
        assert_eq!(
            words(&of(&network, None)),
            ["network false pack guarantee_blocked"]
        );
        let mut asks = Guarantees::default();
        asks.require(Guarantee::SecretsAllowed, Asker::Policy);
        let secrets = blocked(Guarantee::SecretsAllowed, Vec::new());
        assert_eq!(
            words(&of(&secrets, Some(&asks))),
            ["secrets false policy secrets_blocked"]
        );
        assert_eq!(
            words(&of(&secrets, None)),
            ["secrets false engine secrets_blocked"]
        );
    }

    /// TP-34: what an override let through is told; what was enforced needs no word.
    #[test]
    fn overrides() {
        let output = || Ok(Output::from_value(Value::Null));
        let planned = || {
            vec![
                held(Guarantee::NoNetwork, Asker::Tool, Level::Enforced),
                held(Guarantee::NoSubprocess, Asker::Tool, Level::Partial),
            ]
        };
        let quiet = outcome(output(), planned(), false);
        assert_eq!(of(&quiet, None), []);
        let overridden = outcome(output(), planned(), true);
        assert_eq!(
            words(&of(&overridden, None)),
            ["subprocess true tool coverage_missing"]
        );
    }
}
