//! What came of a call, read off the reply of each wire, in words all wires share.

use serde_json::{Value, json};

/// What came of a call, in words all wires share.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Output { value: Value, replayed: bool },
    Fault(String),
}

/// A refusal of an integer beyond 64 bits: each wire has its own place for it, and the same words.
fn wide_integer(reply: &Value) -> Option<Seen> {
    let is_refusal = reply.get("output").is_none() && reply.get("output_json").is_none();
    let says = is_refusal && reply.to_string().contains("does not fit 64 bits");
    says.then(|| Seen::Fault("bad_input".to_owned()))
}

/// HTTP on the gate's own socket.
pub fn gate_seen(reply: &Value) -> Seen {
    if let Some(seen) = wide_integer(reply) {
        return seen;
    }
    match reply["fault"]["kind"].as_str() {
        Some(kind) => Seen::Fault(kind.to_owned()),
        None => Seen::Output {
            value: reply["output"].clone(),
            replayed: reply["idempotent_hit"] == true,
        },
    }
}

/// A run of the pilot that made one call, as `runs show` has it.
pub fn pilot_seen(shown: &Value) -> Seen {
    let report = &shown["report"];
    let text = |value: &Value| {
        let text = value.as_str();
        text.unwrap_or_else(|| panic!("no text: {shown}"))
            .to_owned()
    };
    match report["end"].as_str() {
        Some("tool_error") => return Seen::Fault(text(&report["data"]["fault"])),
        Some("ask_sup") => return Seen::Fault("needs_approval".to_owned()),
        Some("breaker") => {
            let reason = text(&report["data"]["reason"]);
            let kind = reason.split(' ').next().unwrap_or_default();
            return Seen::Fault(kind.to_owned());
        }
        _ => {}
    }
    match report["steps"][0]["status"].as_str() {
        Some("OK") => {
            let output = text(&shown["slots"]["7"]["content_json"]);
            let value = serde_json::from_str(&output).expect("an output is JSON");
            let replayed = false;
            Seen::Output { value, replayed }
        }
        Some("INVALID_PICK") => Seen::Fault("bad_input".to_owned()),
        _ => panic!("no call: {shown}"),
    }
}

/// MCP, in either era.
pub fn mcp_seen(reply: &Value) -> Seen {
    if let Some(seen) = wide_integer(reply) {
        return seen;
    }
    // Nobody is asked whose client can not ask: it is told what it lacks.
    if reply["error"]["data"]["requiredCapabilities"] == json!({ "elicitation": {} }) {
        return Seen::Fault("needs_input".to_owned());
    }
    match reply["error"]["code"].as_i64() {
        Some(-32600) => return Seen::Fault("bad_request".to_owned()),
        Some(-32602) => return Seen::Fault("unknown_tool".to_owned()),
        Some(-32603) => return Seen::Fault("internal".to_owned()),
        Some(code) => panic!("code {code}: {reply}"),
        None => {}
    }
    let call = &reply["result"]["_meta"]["callgate/call"];
    match call["fault"].as_str() {
        Some(kind) => {
            assert_eq!(reply["result"]["isError"], true, "{reply}");
            Seen::Fault(kind.to_owned())
        }
        None => Seen::Output {
            value: content_value(&reply["result"]),
            replayed: call["replayed"] == true,
        },
    }
}

fn content_value(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no text: {result}"));
    serde_json::from_str(text).expect("JSON in a text")
}

/// The fault's own name is told beside the contract's words, which must fit it.
pub fn protocol_seen(reply: &Value) -> Seen {
    if let Some(seen) = wide_integer(reply) {
        return seen;
    }
    let call = &reply["callgate/call"];
    // What is no request, and a workspace that does not open, have no call to tell of.
    let uncalled = match reply["error"]["type"].as_str() {
        Some("ProtocolError") => Some("bad_request"),
        Some("RuntimeError") => Some("internal"),
        _ => None,
    };
    let Some(kind) = call["fault"].as_str().or(uncalled) else {
        assert_eq!(reply["ok"], true, "{reply}");
        return Seen::Output {
            value: reply["result"].clone(),
            replayed: call["replayed"] == true,
        };
    };
    let words = |name: &str| reply["error"][name].as_str().unwrap_or_default();
    let wanted = match kind {
        "unknown_tool" => ["ToolNotFoundError", ""],
        "bad_request" => ["ProtocolError", ""],
        "bad_input" | "bad_value" | "too_large" => ["ValueError", ""],
        "not_found" => ["FileNotFoundError", ""],
        "cancelled" => ["CancelledError", ""],
        "internal" => ["RuntimeError", ""],
        "denied" | "needs_approval" | "needs_input" => ["PermissionError", "policy_denied"],
        "lease_required" | "lease_rejected" => ["PermissionError", kind],
        "conflict" => ["ConflictError", ""],
        "outcome_unknown" => ["OutcomeUnknownError", ""],
        "rate_limited" => ["RateLimitError", ""],
        "breaker_open" | "unavailable" => ["ToolUnavailableError", ""],
        "timeout" => ["TimeoutError", ""],
        "crash" => ["ToolCrashError", ""],
        "bad_output" => ["ToolOutputError", ""],
        "unenforceable" => ["CapabilityViolation", "coverage_missing"],
        "guarantee_blocked" => ["CapabilityViolation", "guarantee_blocked"],
        "tool_failed" if words("type") == "executor_crash" => ["executor_crash", ""],
        "tool_failed" => ["OwnError", ""],
        other => panic!("fault {other}: {reply}"),
    };
    assert_eq!([words("type"), words("reason_code")], wanted, "{reply}");
    Seen::Fault(kind.to_owned())
}

/// The fault's own name is told beside the contract's code, which must fit it. Table F.
pub fn rpc_seen(reply: &Value) -> Seen {
    if let Some(seen) = wide_integer(reply) {
        return seen;
    }
    let call = &reply["callgate"];
    // What is no request has no call to tell of.
    let uncalled = (reply["error"]["code"] == -32600).then_some("bad_request");
    let Some(kind) = call["fault"].as_str().or(uncalled) else {
        let result = reply.get("result");
        return Seen::Output {
            value: result.unwrap_or_else(|| panic!("{reply}")).clone(),
            replayed: call["idempotent_hit"] == true,
        };
    };
    let wanted = match kind {
        "bad_request" => -32600,
        "unknown_tool" => -32601,
        "bad_input" => -32602,
        "bad_value" => 1003,
        "not_found" => 1001,
        "denied" | "needs_approval" | "needs_input" | "lease_required" | "lease_rejected"
        | "unenforceable" | "guarantee_blocked" => 1002,
        "conflict" | "outcome_unknown" => 1005,
        "rate_limited" => 1004,
        "unavailable"
            if reply["error"]["message"]
                .to_string()
                .contains("search index") =>
        {
            1010
        }
        "breaker_open" | "unavailable" => 1006,
        "too_large" => 1007,
        "timeout" | "crash" | "bad_output" | "tool_failed" | "cancelled" | "internal" => -32603,
        other => panic!("fault {other}: {reply}"),
    };
    assert_eq!(reply["error"]["code"], wanted, "{reply}");
    let data = &reply["error"]["data"];
    match kind {
        "bad_input" => assert!(
            data["field"].is_string() && data["reason"].is_string(),
            "{reply}"
        ),
        "needs_approval" => assert!(data["approval"].is_string(), "{reply}"),
        "needs_input" => assert!(data["requests"].is_object(), "{reply}"),
        "lease_required" | "lease_rejected" => assert!(data["reason"].is_string(), "{reply}"),
        "outcome_unknown" => assert_eq!(data["outcome"], "unknown"),
        "rate_limited" => assert!(data["retry_after_ms"].is_u64(), "{reply}"),
        _ if wanted == -32603 => assert_eq!(data["kind"], kind, "{reply}"),
        _ => {}
    }
    Seen::Fault(kind.to_owned())
}

/// Several faults share a type here; the message tells them apart.
pub fn bridge_seen(reply: &Value) -> Seen {
    if let Some(seen) = wide_integer(reply) {
        return seen;
    }
    let Some(error) = reply.get("error") else {
        // A failure that has more to show than words is a result.
        if reply["result"]["isError"] == true {
            return Seen::Fault("tool_failed".to_owned());
        }
        return Seen::Output {
            value: content_value(&reply["result"]),
            replayed: reply["result"]["_meta"]["callgate/call"]["replayed"] == true,
        };
    };
    let message = error["message"].as_str().unwrap_or_default();
    let kind = match error["type"].as_str().unwrap_or_default() {
        "ToolNotFoundError" => "unknown_tool",
        "ValueError" if message.starts_with("bad input") => "bad_input",
        "ValueError" if message.ends_with(": expected string") => "bad_request",
        "ValueError" => "bad_value",
        "FileNotFoundError" => "not_found",
        "CancelledError" => "cancelled",
        "RuntimeError" => "internal",
        "PermissionError" if message.starts_with("denied") => "denied",
        "PermissionError" if message.starts_with("needs approval") => "needs_approval",
        "PermissionError" if message.starts_with("needs answers") => "needs_input",
        "PermissionError" if message.starts_with("cannot be enforced") => "unenforceable",
        "PermissionError" if message.starts_with("blocked by guarantee") => "guarantee_blocked",
        "PermissionError" if message.starts_with("lease_required") => "lease_required",
        "PermissionError" if message.starts_with("lease_rejected") => "lease_rejected",
        "ConflictError" => "conflict",
        "OutcomeUnknownError" => "outcome_unknown",
        "RateLimitError" => "rate_limited",
        "ToolUnavailableError" if message.starts_with("breaker open") => "breaker_open",
        "ToolUnavailableError" => "unavailable",
        "IPCMessageSizeError" => "too_large",
        "TimeoutError" => "timeout",
        "ToolCrashError" => "crash",
        "ToolOutputError" => "bad_output",
        "OwnError" | "executor_crash" => "tool_failed",
        other => panic!("type {other}: {reply}"),
    };
    Seen::Fault(kind.to_owned())
}

/// What the relay made of a parent's answer, for its MCP client. B-1.
pub fn relay_seen(reply: &Value) -> Seen {
    if reply.get("error").is_some() {
        return mcp_seen(reply);
    }
    let is_error = reply["result"]["isError"] == true;
    let text = reply["result"]["content"][0]["text"].as_str();
    let said = text
        .filter(|_| is_error)
        .and_then(|text| text.strip_suffix(')')?.rsplit_once(" (type: "));
    match said {
        Some((message, kind)) => {
            bridge_seen(&json!({ "error": { "type": kind, "message": message } }))
        }
        None => bridge_seen(reply),
    }
}

/// The contract has three words for all faults; the message tells the rest.
pub fn toolhost_seen(reply: &Value) -> Seen {
    if let Some(seen) = wide_integer(reply) {
        return seen;
    }
    if reply["status"] == "OK" {
        let text = reply["output_json"].as_str().expect("an output");
        return Seen::Output {
            value: serde_json::from_str(text).expect("JSON"),
            replayed: reply["idempotent_hit"] == true,
        };
    }
    let error = reply["error"].as_str().unwrap_or_default();
    let status = reply["status"].as_str().unwrap_or("refused");
    let kind = match (status, error) {
        ("refused", "lease_required") => "lease_required",
        ("refused", "lease_rejected") => "lease_rejected",
        ("refused", error) if error.starts_with("tool not found") => "unknown_tool",
        ("refused", "idempotency_key must be a string") => "bad_request",
        ("INVALID_PICK", _) => "bad_input",
        ("BREAKER_TRIP", error) if error.starts_with("rate limited") => "rate_limited",
        ("BREAKER_TRIP", error) if error.starts_with("breaker open") => "breaker_open",
        ("BREAKER_TRIP", error) if error.starts_with("unavailable") => "unavailable",
        ("TOOL_ERROR", error) => [
            ("denied", "denied"),
            ("needs approval", "needs_approval"),
            ("needs answers", "needs_input"),
            ("cannot be enforced", "unenforceable"),
            ("blocked by guarantee", "guarantee_blocked"),
            ("idempotency_conflict", "conflict"),
            ("outcome unknown", "outcome_unknown"),
            ("output exceeds", "too_large"),
            ("timed out", "timeout"),
            ("exit 3", "crash"),
            ("bad output", "bad_output"),
            ("own words", "tool_failed"),
            ("exit 4", "tool_failed"),
            ("k must be", "bad_value"),
            ("no such thing", "not_found"),
            ("missing.txt: no such file", "not_found"),
            ("cancelled", "cancelled"),
            ("internal", "internal"),
        ]
        .into_iter()
        .find_map(|(words, kind)| error.starts_with(words).then_some(kind))
        .unwrap_or_else(|| panic!("{reply}")),
        _ => panic!("{reply}"),
    };
    Seen::Fault(kind.to_owned())
}
