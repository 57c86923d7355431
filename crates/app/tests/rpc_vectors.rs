//! The vectors in `vectors/rpc/`: the examples of the contract.
//!
//! A vector has `files` of its workspace and `steps`. A step is what is sent (`send`: a text as
//! it is, all else as JSON), the `reply` it gets, and the notification that is `heard`. What
//! `keep` names is found in the reply, and stands for `$NAME` from then on. Each vector is run on
//! pipes, over a WebSocket and over HTTP with a stream of events, and has the same replies.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

mod support;

use serde_json::{Map, Value, json};
use support::Folder;
use support::drive::Host;
use support::fits::fits;
use support::mcp::serve_http;
use support::rpc::{Events, Posts, Ws};

/// A way to send, and to hear what comes.
enum Wire {
    Pipes(Host),
    Socket(Ws),
    Posts(Posts, Events),
}

impl Wire {
    /// The reply to a message.
    fn reply(&mut self, message: &str, heard: &mut Vec<Value>) -> Value {
        match self {
            Self::Pipes(host) => assert!(host.send_bytes(format!("{message}\n").as_bytes())),
            Self::Socket(ws) => ws.text(message.as_bytes()),
            Self::Posts(posts, _) => {
                let reply = posts.post(message.as_bytes());
                assert_eq!(reply.status, 200);
                return reply.json();
            }
        }
        loop {
            let message = self.next();
            if message.get("id").is_some() {
                return message;
            }
            heard.push(message);
        }
    }

    fn next(&mut self) -> Value {
        match self {
            Self::Pipes(host) => host.reply(),
            Self::Socket(ws) => serde_json::from_slice(&ws.frame().1).expect("JSON"),
            Self::Posts(_, events) => events.next(),
        }
    }
}

fn run(vector: &Value, wire: &mut Wire) -> Result<(), String> {
    let mut kept: Map<String, Value> = Map::new();
    for step in vector["steps"].as_array().ok_or("no steps")? {
        let message = match &step["send"] {
            Value::String(text) => text.clone(),
            message => filled(message, &kept).to_string(),
        };
        let mut heard = Vec::new();
        let reply = wire.reply(&message, &mut heard);
        for (name, place) in step["keep"].as_object().into_iter().flatten() {
            let found = place.as_str().and_then(|place| reply.pointer(place));
            kept.insert(format!("${name}"), found.ok_or("nothing to keep")?.clone());
        }
        fits(&filled(&step["reply"], &kept), &reply)?;
        if let Some(wanted) = step.get("heard") {
            let event = heard.pop().unwrap_or_else(|| wire.next());
            fits(&filled(wanted, &kept), &event)?;
        }
    }
    Ok(())
}

/// A pattern with what was kept.
fn filled(pattern: &Value, kept: &Map<String, Value>) -> Value {
    match pattern {
        Value::String(text) => kept.get(text).unwrap_or(pattern).clone(),
        Value::Array(items) => items.iter().map(|item| filled(item, kept)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), filled(value, kept)))
            .collect(),
        other => other.clone(),
    }
}

#[test]
fn examples() {
    let text = std::fs::read(support::vectors().join("rpc/examples.json")).expect("vectors");
    let vectors: Vec<Value> = serde_json::from_slice(&text).expect("JSON");
    let mut wrong = Vec::new();
    for vector in &vectors {
        for kind in 0..3 {
            let folder = Folder::new();
            for (name, text) in vector["files"].as_object().into_iter().flatten() {
                folder.write(name, text.as_str().expect("a text"));
            }
            let (_serve, mut wire) = match kind {
                0 => {
                    let host = Host::spawn(support::callgate(&folder).arg("rpc"));
                    (None, Wire::Pipes(host))
                }
                1 => {
                    let (serve, port) = serve_http(&folder);
                    (Some(serve), Wire::Socket(Ws::open(port, None)))
                }
                _ => {
                    let (serve, port) = serve_http(&folder);
                    let (posts, events) = (Posts::new(port, "/rpc"), Events::open(port, None));
                    (Some(serve), Wire::Posts(posts, events))
                }
            };
            if let Err(error) = run(vector, &mut wire) {
                wrong.push(json!([vector["name"], kind, error]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(vectors.len() >= 7);
}
