//! What is known of a call's capabilities, and nothing that is not.
//!
//! The kernel holds a tool to its promises and tells nobody what it let through, so a call that
//! went well has none to tell of, unless an override let it run with less than was asked for.

use crate::{Asker, Enforcement, Fault, Guarantee, Guarantees, Held, Level, Output};

/// One capability of a call that was blocked, or let through by an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapabilityCheck {
    /// Which.
    pub guarantee: Guarantee,
    /// Who asked for it to be withheld.
    pub asker: Asker,
    /// It could be used all the same.
    pub allowed: bool,
    /// `coverage_missing`, `guarantee_blocked` or `secrets_blocked`.
    pub reason: &'static str,
}

/// The checks of one end. `blocked_attempts` are those that the runner knows of, each of which is
/// one check. TP-21, TP-22, P-1.
#[must_use]
pub fn capability_checks(
    result: &Result<Output, Fault>,
    enforcement: &Enforcement,
    asks: Option<&Guarantees>,
    blocked_attempts: &[Guarantee],
) -> Vec<CapabilityCheck> {
    let detail = enforcement.detail.as_deref();
    let held = detail.map_or(&[][..], |detail| &detail.held);
    // Limits are no capability.
    let missing = |held: &Held, allowed| {
        Some(CapabilityCheck {
            guarantee: held.guarantee?,
            asker: held.asker,
            allowed,
            reason: "coverage_missing",
        })
    };
    let mut checks: Vec<CapabilityCheck> = match detail {
        Some(detail) if detail.unsafe_override => {
            let lacking = held.iter().filter(|held| held.level != Level::Enforced);
            lacking.filter_map(|held| missing(held, true)).collect()
        }
        _ => Vec::new(),
    };
    let denied = |guarantee| CapabilityCheck {
        guarantee,
        asker: asker_of(guarantee, held, asks),
        allowed: false,
        reason: blocked(guarantee),
    };
    checks.extend(blocked_attempts.iter().copied().map(denied));
    match result {
        Err(Fault::Unenforceable { missing: lacking }) => {
            checks.extend(lacking.iter().filter_map(|held| missing(held, false)));
        }
        Err(Fault::GuaranteeBlocked { guarantee, .. }) => {
            let named = Guarantee::from_name(guarantee);
            // The attempt behind the failure may be among those that are known.
            let unknown = named.filter(|guarantee| !blocked_attempts.contains(guarantee));
            checks.extend(unknown.map(denied));
        }
        _ => {}
    }
    checks
}

fn asker_of(guarantee: Guarantee, held: &[Held], asks: Option<&Guarantees>) -> Asker {
    let planned = held.iter().find(|held| held.guarantee == Some(guarantee));
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
