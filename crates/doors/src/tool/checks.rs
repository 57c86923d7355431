//! `capability_checks`: what is known of a call's capabilities, and nothing that is not.
//!
//! The kernel holds a tool to its promises and tells nobody what it let through, so a call that
//! went well has none to tell of, unless an override let it run with less than was asked for.

use callgate_call::{Asker, Fault, Guarantee, Guarantees, Held, Level, Outcome};
use callgate_wires::tool_protocol::Check;

/// The checks of one outcome. TP-21, TP-22, P-1.
pub(super) fn of(outcome: &Outcome, asks: Option<&Guarantees>) -> Vec<Check> {
    let detail = outcome.enforcement.detail.as_deref();
    let held = detail.map_or(&[][..], |detail| &detail.held);
    let mut checks: Vec<Check> = match detail {
        Some(detail) if detail.unsafe_override => {
            let lacking = held.iter().filter(|held| held.level != Level::Enforced);
            lacking
                .map(|held| check(held.guarantee, held.asker, true, "coverage_missing"))
                .collect()
        }
        _ => Vec::new(),
    };
    match &outcome.result {
        Err(Fault::Unenforceable { missing }) => checks.extend(
            missing
                .iter()
                .map(|held| check(held.guarantee, held.asker, false, "coverage_missing")),
        ),
        Err(Fault::GuaranteeBlocked { guarantee }) => {
            checks.extend(Guarantee::from_name(guarantee).map(|guarantee| {
                let asker = asker_of(guarantee, held, asks);
                check(guarantee, asker, false, blocked(guarantee))
            }));
        }
        _ => {}
    }
    checks
}

fn asker_of(guarantee: Guarantee, held: &[Held], asks: Option<&Guarantees>) -> Asker {
    let planned = held.iter().find(|held| held.guarantee == guarantee);
    let planned = planned.map(|held| held.asker);
    let asked = || asks.and_then(|asks| asks.asker(guarantee));
    planned.or_else(asked).unwrap_or(Asker::Engine)
}

fn blocked(guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::SecretsAllowed => "secrets_blocked",
        _ => "guarantee_blocked",
    }
}

fn check(guarantee: Guarantee, asker: Asker, allowed: bool, reason: &str) -> Check {
    Check {
        capability: guarantee.capability().to_owned(),
        allowed,
        guarantee_source: asker.as_str().to_owned(),
        reason: reason.to_owned(),
        duration_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use callgate_call::{CallId, Detail, Enforcement, Output};
    use serde_json::Value;

    use super::*;

    fn held(guarantee: Guarantee, asker: Asker, level: Level) -> Held {
        Held {
            guarantee,
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
            outcome(Err(Fault::GuaranteeBlocked { guarantee }), held, false)
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
