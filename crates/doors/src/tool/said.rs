//! Faults in this protocol's words.

use callgate_call::Fault;
use callgate_wires::tool_protocol::Said;

/// One fault, on this wire. Table F.
pub(crate) fn said(fault: &Fault) -> Said {
    let (kind, reason_code) = match fault {
        Fault::UnknownTool { .. } => ("ToolNotFoundError", None),
        Fault::BadRequest { .. } => ("ProtocolError", None),
        Fault::BadInput { .. } | Fault::BadValue { .. } | Fault::TooLarge { .. } => {
            ("ValueError", None)
        }
        Fault::NotFound { .. } => ("FileNotFoundError", None),
        // Nobody can be asked on this wire: like an approval, it must come by another one.
        Fault::Denied { .. } | Fault::NeedsApproval { .. } | Fault::NeedsInput { .. } => {
            ("PermissionError", Some("policy_denied"))
        }
        Fault::LeaseRequired { .. } => ("PermissionError", Some("lease_required")),
        Fault::LeaseRejected { .. } => ("PermissionError", Some("lease_rejected")),
        Fault::Conflict { .. } => ("ConflictError", None),
        Fault::OutcomeUnknown { .. } => ("OutcomeUnknownError", None),
        Fault::RateLimited { .. } => ("RateLimitError", None),
        Fault::BreakerOpen { .. } | Fault::Unavailable { .. } => ("ToolUnavailableError", None),
        Fault::Unenforceable { .. } => ("CapabilityViolation", Some("coverage_missing")),
        Fault::GuaranteeBlocked { .. } => ("CapabilityViolation", Some("guarantee_blocked")),
        Fault::Timeout { .. } => ("TimeoutError", None),
        Fault::Crash { .. } => ("ToolCrashError", None),
        Fault::BadOutput { .. } => ("ToolOutputError", None),
        Fault::ToolFailed { error_type, .. } if error_type.is_empty() => ("ToolError", None),
        Fault::ToolFailed { error_type, .. } => (error_type.as_str(), None),
        Fault::Cancelled => ("CancelledError", None),
        Fault::Internal { .. } => ("RuntimeError", None),
    };
    let message = match fault {
        // The contract's whole text.
        Fault::UnknownTool { tool, .. } => format!("tool not found: {tool}"),
        fault => fault.to_string(),
    };
    Said {
        reason_code: reason_code.map(str::to_owned),
        ..Said::new(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use callgate_call::LeaseRefusal;

    use super::*;

    /// F-1 to F-23: type and reason code of each.
    #[test]
    fn faults() {
        let text = String::new;
        let (time, refusal) = (Duration::ZERO, LeaseRefusal::Expired);
        let own = |error_type: &str| Fault::ToolFailed {
            error_type: error_type.to_owned(),
            message: text(),
            content: None,
        };
        for (fault, wanted) in [
            (Fault::unknown_tool(""), "ToolNotFoundError"),
            (Fault::BadRequest { reason: text() }, "ProtocolError"),
            (
                Fault::BadInput {
                    field: text(),
                    reason: text(),
                },
                "ValueError",
            ),
            (Fault::bad_value(text()), "ValueError"),
            (Fault::NotFound { message: text() }, "FileNotFoundError"),
            (Fault::denied(text()), "PermissionError / policy_denied"),
            (
                Fault::NeedsApproval { approval: text() },
                "PermissionError / policy_denied",
            ),
            (
                Fault::LeaseRequired {
                    tier: 1,
                    tool: text(),
                    aid: text(),
                },
                "PermissionError / lease_required",
            ),
            (
                Fault::LeaseRejected { refusal },
                "PermissionError / lease_rejected",
            ),
            (Fault::conflict(text()), "ConflictError"),
            (
                Fault::OutcomeUnknown {
                    call: text(),
                    reason: None,
                },
                "OutcomeUnknownError",
            ),
            (Fault::rate_limited(time), "RateLimitError"),
            (
                Fault::BreakerOpen { retry_after: time },
                "ToolUnavailableError",
            ),
            (
                Fault::Unavailable { reason: text() },
                "ToolUnavailableError",
            ),
            (
                Fault::Unenforceable {
                    missing: Vec::new(),
                },
                "CapabilityViolation / coverage_missing",
            ),
            (
                Fault::GuaranteeBlocked {
                    guarantee: text(),
                    detail: text(),
                },
                "CapabilityViolation / guarantee_blocked",
            ),
            (Fault::too_large(text(), 1), "ValueError"),
            (Fault::Timeout { after: time }, "TimeoutError"),
            (Fault::Crash { message: text() }, "ToolCrashError"),
            (Fault::BadOutput { reason: text() }, "ToolOutputError"),
            (own("KeyError"), "KeyError"),
            (own(""), "ToolError"),
            (Fault::Cancelled, "CancelledError"),
            (Fault::Internal { message: text() }, "RuntimeError"),
        ] {
            let said = said(&fault);
            let found = match said.reason_code {
                Some(code) => format!("{} / {code}", said.kind),
                None => said.kind,
            };
            assert_eq!(found, wanted, "{fault:?}");
        }
    }
}
