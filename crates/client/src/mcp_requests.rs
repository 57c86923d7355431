//! What an MCP client said and waits for. Another gate is told what a legacy client said in its
//! handshake, and gets the calls again that a key keeps from running twice; of the others nobody
//! knows whether they ran, and their client is told so.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use callgate_doors::mcp::stdio::GRACE;
use callgate_wires::jsonrpc::{self, INTERNAL_ERROR, Id, Message, RpcError};
use callgate_wires::mcp::meta;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::relay::PendingRequests;

/// Longest call that is kept to be sent again. Longer ones are answered as if they had no key.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// What a legacy client may say of itself that is remembered.
const SESSION_LINES_MAX: usize = 1024;
/// The id under which a new gate hears it again. Nobody waits for the answer.
const AGAIN: &str = "\"callgate-again\"";

const LOST: &str = "the gate went away before it answered: whether the call took effect is not \
                    known. It was not made again, because it has no idempotency key";

/// What was said and not answered yet.
#[derive(Default)]
pub struct McpRequests {
    in_flight: HashMap<Id, Open>,
    /// What the handshake consists of, and the ids it came under.
    session: Vec<(Option<Id>, Vec<u8>)>,
}

/// A request without an answer.
enum Open {
    Asked,
    /// May be sent again: the whole line.
    Kept(Vec<u8>),
    /// Has no answer for as long as it is of use.
    Listens,
}

/// As much of an answer as matters here.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
}

impl McpRequests {
    fn note_session(&mut self, id: Option<&Id>, method: &str, line: &[u8]) {
        let is_session = matches!(
            method,
            "initialize"
                | "notifications/initialized"
                | "logging/setLevel"
                | "resources/subscribe"
                | "resources/unsubscribe"
        );
        if is_session && self.session.len() < SESSION_LINES_MAX {
            self.session.push((id.cloned(), line.to_vec()));
        }
    }
}

impl PendingRequests for McpRequests {
    const GRACE: Duration = GRACE;

    fn said(&mut self, line: &[u8]) {
        // Read as the gate reads it: of what that can not read it does not know the id either.
        match jsonrpc::parse(line) {
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                self.note_session(Some(&id), &method, line);
                let open = match &*method {
                    "tools/call" if line.len() <= KEPT_BYTES_MAX && has_key(params.as_ref()) => {
                        Open::Kept(line.to_vec())
                    }
                    "subscriptions/listen" => Open::Listens,
                    _ => Open::Asked,
                };
                self.in_flight.insert(id, open);
            }
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled"
                    && let Some(id) = params.as_ref().and_then(cancelled)
                {
                    self.in_flight.retain(|open, _| open.plain() != id);
                }
                self.note_session(None, &method, line);
            }
            Ok(Message::Response { .. }) => {}
            Err(malformed) => {
                if let Some(id) = malformed.id {
                    self.in_flight.insert(id, Open::Asked);
                }
            }
        }
    }

    fn answered(&mut self, line: &[u8], out: &mut Vec<u8>) -> bool {
        let mut is_answer = false;
        if let Ok(Envelope {
            id: Some(id),
            method: None,
            ..
        }) = serde_json::from_slice(line)
        {
            if id.get() == AGAIN {
                return false;
            }
            if let Some(id) = Id::from_json(id.get()) {
                self.in_flight.remove(&id);
            }
            is_answer = true;
        }
        out.extend_from_slice(line);
        out.push(b'\n');
        is_answer
    }

    fn waited_for(&self) -> usize {
        let listens = |open: &&Open| matches!(open, Open::Listens);
        self.in_flight.len() - self.in_flight.values().filter(listens).count()
    }

    fn again(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, line) in &self.session {
            match (id, serde_json::from_slice::<Value>(line)) {
                (Some(_), Ok(mut message)) => {
                    message["id"] = AGAIN.trim_matches('"').into();
                    out.extend_from_slice(message.to_string().as_bytes());
                }
                _ => out.extend_from_slice(line),
            }
            out.push(b'\n');
        }
        for open in self.in_flight.values() {
            if let Open::Kept(line) = open {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
        out
    }

    fn has_kept(&self) -> bool {
        !self.in_flight.is_empty()
    }

    fn lost(&mut self) -> Vec<u8> {
        let Self { in_flight, session } = self;
        // A handshake that nobody answered is the client's to begin again.
        session.retain(|(id, _)| id.as_ref().is_none_or(|id| !in_flight.contains_key(id)));
        let mut told = Vec::new();
        in_flight.retain(|id, kept| {
            let is_kept = matches!(kept, Open::Kept(_));
            if !is_kept {
                let error = RpcError::new(INTERNAL_ERROR, LOST);
                jsonrpc::write_error(Some(id), &error, &mut told);
                told.push(b'\n');
            }
            is_kept
        });
        told
    }

    fn forget(&mut self) {
        self.in_flight.clear();
    }
}

/// Which request is taken back, as the gate would find it.
fn cancelled(params: &Value) -> Option<Id> {
    params.get("requestId").and_then(Id::from_value)
}

/// True if a call runs once, however often it is sent.
fn has_key(params: Option<&Value>) -> bool {
    params.is_some_and(|params| params["_meta"][meta::KEY].is_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> McpRequests {
        let mut requests = McpRequests::default();
        requests.said(line.as_bytes());
        requests
    }

    /// The gate can not name whom it answers: nobody is waited for, nor told a second time.
    #[test]
    fn what_no_gate_can_read_is_not_waited_for() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":1,"a":2}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1e999}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":"\ud800"}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "nonsense",
        ] {
            let mut requests = said(line);
            assert!(requests.is_quiet(), "{line}");
            assert_eq!(requests.lost(), b"", "{line}");
        }
    }

    #[test]
    fn what_is_waited_for() {
        for (line, answer) in [
            (r#"{"jsonrpc":"2.0","id":1.50,"method":"ping"}"#, "1.50"),
            (
                r#"{"jsonrpc":"2.0","id":"\u0061","method":"x"}"#,
                "\"\\u0061\"",
            ),
            // Refused by its id.
            (r#"{"id":7,"method":"ping"}"#, "7"),
        ] {
            let mut requests = said(line);
            assert!(!requests.is_quiet(), "{line}");
            let told = String::from_utf8(said(line).lost()).unwrap();
            assert!(told.contains(&format!("\"id\":{answer},")), "{told}");
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{answer},"result":{{}}}}"#);
            let mut out = Vec::new();
            assert!(requests.answered(answer.as_bytes(), &mut out));
            assert_eq!(out, format!("{answer}\n").as_bytes());
            assert!(requests.is_quiet(), "{line}");
        }
    }

    #[test]
    fn what_was_taken_back_is_not_waited_for() {
        let mut requests = said(r#"{"jsonrpc":"2.0","id":"\u0061","method":"tools/call"}"#);
        let cancel = |id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            )
        };
        requests.said(cancel("1").as_bytes());
        assert!(!requests.is_quiet());
        requests.said(cancel("\"a\"").as_bytes());
        assert!(requests.is_quiet());
    }
}
