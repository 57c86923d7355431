//! Table F's column of JSON-RPC.

use callgate_call::Fault;
use callgate_wires::jsonrpc::{
    INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError,
};
use serde_json::{Value, json};

const NOT_FOUND: i32 = 1001;
const PERMISSION_DENIED: i32 = 1002;
const VALIDATION_ERROR: i32 = 1003;
const RATE_LIMITED: i32 = 1004;
const CONFLICT: i32 = 1005;
const TOOL_UNAVAILABLE: i32 = 1006;
const CONTENT_TOO_LARGE: i32 = 1007;
const VECTOR_DB_UNAVAILABLE: i32 = 1010;

/// The fault of a method's call: the vector store has a code of its own.
#[must_use]
pub fn error_of_method(method: &str, fault: &Fault) -> RpcError {
    let mut error = error_of(fault);
    if method.starts_with("vector/") && error.code == TOOL_UNAVAILABLE {
        error.code = VECTOR_DB_UNAVAILABLE;
    }
    error
}

/// A fault as this contract has it; what programs may want is in `data`.
#[must_use]
pub fn error_of(fault: &Fault) -> RpcError {
    let (code, more) = match fault {
        Fault::UnknownTool { .. } => (METHOD_NOT_FOUND, None),
        Fault::BadRequest { .. } => (INVALID_REQUEST, None),
        Fault::BadInput { .. } => (INVALID_PARAMS, None),
        Fault::BadValue { .. } => (VALIDATION_ERROR, None),
        Fault::NotFound { .. } => (NOT_FOUND, None),
        Fault::Denied { .. }
        | Fault::NeedsApproval { .. }
        | Fault::NeedsInput { .. }
        | Fault::Unenforceable { .. }
        | Fault::GuaranteeBlocked { .. } => (PERMISSION_DENIED, None),
        Fault::LeaseRequired { .. } => (PERMISSION_DENIED, Some(("reason", "lease_required"))),
        Fault::LeaseRejected { .. } => (PERMISSION_DENIED, Some(("kind", "lease_rejected"))),
        Fault::Conflict { .. } => (CONFLICT, None),
        Fault::OutcomeUnknown { .. } => (CONFLICT, Some(("outcome", "unknown"))),
        Fault::RateLimited { .. } => (RATE_LIMITED, None),
        Fault::BreakerOpen { .. } | Fault::Unavailable { .. } => (TOOL_UNAVAILABLE, None),
        Fault::TooLarge { .. } => (CONTENT_TOO_LARGE, None),
        Fault::Timeout { .. }
        | Fault::Crash { .. }
        | Fault::BadOutput { .. }
        | Fault::ToolFailed { .. }
        | Fault::Cancelled
        | Fault::Internal { .. } => (INTERNAL_ERROR, Some(("kind", fault.kind()))),
    };
    let mut data = fault.data();
    // A field of a field is named as `tools/list` names its own: `patch.status`.
    if let (Fault::BadInput { field, .. }, Value::Object(members)) = (fault, &mut data) {
        members.insert("field".to_owned(), json!(field.replace('/', ".")));
    }
    if let (Some((name, value)), Value::Object(members)) = (more, &mut data) {
        members.insert(name.to_owned(), json!(value));
    }
    let error = RpcError::new(code, fault.to_string());
    match &data {
        Value::Object(members) if members.is_empty() => error,
        _ => error.with(data),
    }
}
