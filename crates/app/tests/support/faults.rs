//! All faults there are, for tests that must leave none out.

use std::time::Duration;

use callgate_call::{Fault, LeaseRefusal};

/// One of each kind.
pub fn every_fault() -> impl Iterator<Item = Fault> {
    let first = Fault::unknown_tool("");
    std::iter::successors(Some(first), after)
}

/// One fault after another, so that a new one does not compile until it stands here.
fn after(fault: &Fault) -> Option<Fault> {
    let text = String::new;
    let time = Duration::from_secs(1);
    Some(match fault {
        Fault::UnknownTool { .. } => Fault::BadRequest { reason: text() },
        Fault::BadRequest { .. } => Fault::BadInput {
            field: text(),
            reason: text(),
        },
        Fault::BadInput { .. } => Fault::bad_value(text()),
        Fault::BadValue { .. } => Fault::NotFound { message: text() },
        Fault::NotFound { .. } => Fault::denied(text()),
        Fault::Denied { .. } => Fault::NeedsApproval { approval: text() },
        Fault::NeedsApproval { .. } => Fault::NeedsInput {
            requests: serde_json::Map::new(),
            state: None,
        },
        Fault::NeedsInput { .. } => Fault::LeaseRequired {
            tier: 1,
            tool: text(),
            aid: text(),
        },
        Fault::LeaseRequired { .. } => Fault::LeaseRejected {
            refusal: LeaseRefusal::TierTooLow {
                expected: 2,
                got: 1,
            },
        },
        Fault::LeaseRejected { .. } => Fault::conflict(text()),
        Fault::Conflict { .. } => Fault::OutcomeUnknown {
            call: text(),
            reason: None,
        },
        Fault::OutcomeUnknown { .. } => Fault::rate_limited(time),
        Fault::RateLimited { .. } => Fault::BreakerOpen { retry_after: time },
        Fault::BreakerOpen { .. } => Fault::Unavailable { reason: text() },
        Fault::Unavailable { .. } => Fault::Unenforceable {
            missing: Vec::new(),
        },
        Fault::Unenforceable { .. } => Fault::GuaranteeBlocked {
            guarantee: text(),
            detail: text(),
        },
        Fault::GuaranteeBlocked { .. } => Fault::too_large(text(), 1),
        Fault::TooLarge { .. } => Fault::Timeout { after: time },
        Fault::Timeout { .. } => Fault::Crash { message: text() },
        Fault::Crash { .. } => Fault::BadOutput { reason: text() },
        Fault::BadOutput { .. } => Fault::ToolFailed {
            error_type: text(),
            message: text(),
            content: None,
        },
        Fault::ToolFailed { .. } => Fault::Cancelled,
        Fault::Cancelled => Fault::Internal { message: text() },
        Fault::Internal { .. } => return None,
    })
}
