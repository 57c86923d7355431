//! The vectors in `vectors/tool-protocol/messages.json`: messages as their types spell them. Read and
//! written again they are the same JSON.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use callgate_testing::{fits, vectors};
use callgate_wires::tool_protocol::{
    HandshakeReply, HandshakeRequest, LocalRequest, Reply, ServiceRequest, Told, write_local,
    write_service,
};
use serde_json::Value;

fn check_all(name: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let path = vectors().join(format!("tool-protocol/{name}.json"));
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let reason = check(case).err()?;
            Some(format!("{}: {reason}", case["name"]))
        })
        .collect();
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

/// A text as it is, anything else as JSON.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        value => value.to_string().into_bytes(),
    }
}

#[test]
fn messages() {
    check_all("messages", |case| {
        let (bytes, mut out) = (bytes(&case["message"]), Vec::new());
        let wrong = |error: &dyn std::fmt::Display| error.to_string();
        match case["kind"].as_str().unwrap() {
            "local request" => LocalRequest::parse(&bytes)
                .map_err(|e| wrong(&e))?
                .write(&mut out),
            "service request" => {
                ServiceRequest::parse(&bytes)
                    .map_err(|e| wrong(&e))?
                    .write(&mut out);
            }
            "handshake request" => {
                HandshakeRequest::parse(&bytes)
                    .map_err(|e| wrong(&e))?
                    .write(&mut out);
            }
            "handshake reply" => {
                HandshakeReply::parse(&bytes)
                    .map_err(|e| wrong(&e))?
                    .write(&mut out);
            }
            kind => {
                let reply = Reply::parse(&bytes).map_err(|e| wrong(&e))?;
                let text = reply.result.as_ref().map(Value::to_string);
                let has_checks = !case["message"]["capability_checks"].is_null();
                let told = Told {
                    result: text.as_deref().map_err(|said| *said),
                    checks: has_checks.then_some(&reply.checks),
                    call: None,
                };
                match kind {
                    "local reply" => write_local(&told, &mut out),
                    "service reply" => write_service(&told, &mut out),
                    other => panic!("no kind {other}"),
                }
            }
        }
        let written = serde_json::from_slice(&out).unwrap();
        fits(&case["message"], &written)
    });
}
