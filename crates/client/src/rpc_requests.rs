//! What a JSON-RPC client said and waits for. A new gate gets the calls again that a key keeps
//! from running twice; of the others nobody knows whether they ran, and their client is told so.

use std::time::Duration;

use callgate_doors::rpc::BATCH_MAX;
use callgate_wires::jsonrpc::{self, Batch, Id, Malformed, Message, RpcError, parse_batch};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::relay::PendingRequests;

/// Longest message that is kept to be sent again. Longer ones are answered as if they had no key.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// What every notification of a gate begins with: there are many, and none is an answer.
const NOTIFICATION: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":";
/// Events may have been missed, and nobody knows how many. R-3.
const GAP: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"rpc/gap\",\"params\":{\"missed\":null}}\n";
/// As the fault `outcome_unknown` on this wire.
const CONFLICT: i32 = 1005;

const LOST: &str = "the gate went away before it answered: outcome unknown, the call may have \
                    run. It was not made again, because it has no idempotency key";

/// What was said and not answered yet, in its order. The gate reads no more than it works on,
/// which bounds it.
#[derive(Default)]
pub struct RpcRequests {
    open: Vec<Open>,
}

/// A message without an answer.
struct Open {
    /// The ids of its answer, as the answer has them.
    key: String,
    /// Whom to answer; `None` stands for null.
    ids: Vec<Option<Id>>,
    is_batch: bool,
    /// The whole line, if it may be said again.
    kept: Option<Vec<u8>>,
}

/// As much of an answer as matters here.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

impl Open {
    /// `None` if nothing of it is answered, or nobody is named in the answer.
    fn of(line: &[u8]) -> Option<Self> {
        let came = parse_batch(line, BATCH_MAX);
        let (messages, is_batch) = match &came {
            Batch::One(one) => (std::slice::from_ref(one), false),
            Batch::Many(all) => (all.as_slice(), true),
        };
        let ids: Vec<Option<Id>> = messages.iter().filter_map(asker).collect();
        if ids.is_empty() || (!is_batch && ids[0].is_none()) {
            return None;
        }
        let may_repeat = line.len() <= KEPT_BYTES_MAX && messages.iter().all(runs_once);
        Some(Self {
            key: key(ids.iter().map(shown), is_batch),
            ids,
            is_batch,
            kept: may_repeat.then(|| line.to_vec()),
        })
    }

    fn write_lost(&self, out: &mut Vec<u8>) {
        let error = RpcError::new(CONFLICT, LOST).with(json!({ "outcome": "unknown" }));
        if self.is_batch {
            out.push(b'[');
        }
        for (index, id) in self.ids.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            jsonrpc::write_error(id.as_ref(), &error, out);
        }
        if self.is_batch {
            out.push(b']');
        }
        out.push(b'\n');
    }
}

/// Whom the answer to a message names; `None` if there is none.
fn asker(message: &Result<Message, Malformed>) -> Option<Option<Id>> {
    match message {
        Ok(Message::Request { id, .. }) => Some(Some(id.clone())),
        Ok(Message::Notification { .. } | Message::Response { .. }) => None,
        Err(malformed) => Some(malformed.id.clone()),
    }
}

/// True if a message may be said twice: what it asks for runs once under its key, or is refused.
fn runs_once(message: &Result<Message, Malformed>) -> bool {
    match message {
        Ok(Message::Request { ours, .. }) => {
            let key = ours.as_ref().and_then(|ours| ours.get("idempotency_key"));
            key.and_then(Value::as_str)
                .is_some_and(|key| !key.is_empty())
        }
        Ok(Message::Notification { .. }) => false,
        Ok(Message::Response { .. }) | Err(_) => true,
    }
}

fn shown(id: &Option<Id>) -> &str {
    id.as_ref().map_or("null", Id::as_json)
}

/// Ids as one text. A batch of one is another answer than its one message.
fn key<'a>(ids: impl Iterator<Item = &'a str>, is_batch: bool) -> String {
    let mut key = String::from(if is_batch { "[" } else { "" });
    for id in ids {
        key.push_str(id);
        key.push(',');
    }
    key
}

/// The ids a gate's answer names.
fn answer_key(line: &[u8]) -> Option<String> {
    let named = |answer: &Answer<'_>| {
        answer
            .id
            .map_or("null".to_owned(), |id| id.get().to_owned())
    };
    let (ids, is_batch) = if line.first() == Some(&b'[') {
        let all: Vec<Answer<'_>> = serde_json::from_slice(line).ok()?;
        (all.iter().map(named).collect::<Vec<_>>(), true)
    } else {
        (vec![named(&serde_json::from_slice(line).ok()?)], false)
    };
    Some(key(ids.iter().map(String::as_str), is_batch))
}

impl PendingRequests for RpcRequests {
    const GRACE: Duration = Duration::MAX;

    fn said(&mut self, line: &[u8]) {
        self.open.extend(Open::of(line));
    }

    fn answered(&mut self, line: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(line);
        out.push(b'\n');
        if line.starts_with(NOTIFICATION) {
            return false;
        }
        let key = answer_key(line);
        // Answers come about as they were asked for, so that it is one of the first.
        let found = self
            .open
            .iter()
            .position(|open| Some(&open.key) == key.as_ref());
        if let Some(at) = found {
            self.open.remove(at);
        }
        found.is_some()
    }

    fn waited_for(&self) -> usize {
        self.open.len()
    }

    fn again(&self) -> Vec<u8> {
        let kept = self.open.iter().filter_map(|open| open.kept.as_ref());
        kept.flat_map(|line| [line.as_slice(), b"\n"])
            .flatten()
            .copied()
            .collect()
    }

    fn has_kept(&self) -> bool {
        !self.open.is_empty()
    }

    fn lost(&mut self) -> Vec<u8> {
        let mut told = Vec::new();
        self.open.retain(|open| {
            if open.kept.is_none() {
                open.write_lost(&mut told);
            }
            open.kept.is_some()
        });
        told.extend_from_slice(GAP);
        told
    }

    fn forget(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> RpcRequests {
        let mut requests = RpcRequests::default();
        lines.iter().for_each(|line| requests.said(line.as_bytes()));
        requests
    }

    fn heard(requests: &mut RpcRequests, line: &str) -> bool {
        let mut out = Vec::new();
        let is_answer = requests.answered(line.as_bytes(), &mut out);
        assert_eq!(out, format!("{line}\n").as_bytes(), "handed on as it is");
        is_answer
    }

    const ONE: &str = r#"{"jsonrpc":"2.0","id":1.50,"method":"a"}"#;

    #[test]
    fn what_is_waited_for() {
        let quiet = [
            r#"{"jsonrpc":"2.0","method":"a"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            "nonsense",
            "",
        ];
        assert!(said(&quiet).is_quiet());
        let mut requests = said(&[ONE, ONE]);
        for _ in 0..2 {
            assert!(!requests.is_quiet());
            assert!(!heard(
                &mut requests,
                r#"{"jsonrpc":"2.0","id":2,"result":{}}"#
            ));
            assert!(!heard(
                &mut requests,
                r#"{"jsonrpc":"2.0","method":"x","params":{"id":1.50}}"#
            ));
            assert!(heard(
                &mut requests,
                r#"{"jsonrpc":"2.0","id":1.50,"result":{}}"#
            ));
        }
        assert!(requests.is_quiet());
    }

    #[test]
    fn batches_are_answered_whole() {
        let batch = r#"[{"jsonrpc":"2.0","id":"a","method":"x"},7,{"jsonrpc":"2.0","method":"x"}]"#;
        let mut requests = said(&[r#"{"jsonrpc":"2.0","id":"a","method":"x"}"#, batch]);
        assert!(heard(
            &mut requests,
            r#"[{"jsonrpc":"2.0","id":"a","result":1},{"jsonrpc":"2.0","id":null,"error":{}}]"#
        ));
        assert_eq!(requests.open.len(), 1);
        let mut requests = said(&[batch]);
        let told = String::from_utf8(requests.lost()).unwrap();
        let (answer, gap) = told.split_once('\n').unwrap();
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_eq!(
            (&answer[0]["id"], &answer[1]["id"]),
            (&json!("a"), &Value::Null)
        );
        assert_eq!(answer[0]["error"]["data"], json!({ "outcome": "unknown" }));
        assert_eq!(gap.as_bytes(), GAP);
        assert!(requests.is_quiet());
    }

    #[test]
    fn what_has_a_key_is_said_again() {
        let keyed = r#"{"jsonrpc":"2.0","id":2,"method":"a","callgate":{"idempotency_key":"k"}}"#;
        let batch = format!("[{keyed}]");
        let mixed = format!("[{keyed},{ONE}]");
        let mut requests = said(&[keyed, ONE, &batch, &mixed]);
        let told = String::from_utf8(requests.lost()).unwrap();
        assert_eq!(told.lines().count(), 3, "{told}");
        assert_eq!(requests.again(), format!("{keyed}\n{batch}\n").as_bytes());
    }
}
