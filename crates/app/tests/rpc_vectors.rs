//! The vectors in `vectors/rpc/`: the examples of the contract.
//!
//! A vector has `files` of its workspace, `programs` of its `PATH` and `steps`. A step is what is
//! sent (`send`: a text as it is, all else as JSON), the `reply` it gets, and the notifications
//! that are `heard`, in their order and no others. What `keep` names is found in the reply, and
//! stands for `$NAME` from then on. Each vector is run on pipes, over a WebSocket and over HTTP
//! with a stream of events, and has the same replies. What is heard fits what `rpc/discover` says
//! of it.

use std::collections::{BTreeMap, VecDeque};
use std::process::Command;

use crate::support::Folder;
use crate::support::drive::Host;
use crate::support::rpc::{Events, Posts, Ws};
use crate::support::web::Web;
use callgate_gate::Schema;
use callgate_testing::fits;
use serde_json::{Map, Value, json};

const LEASES: &str = "[leases]\nenforce_from_tier = 3\n";

/// A way to send, and to hear what comes.
enum Wire {
    Pipes(Host),
    Socket(Ws),
    Posts(Posts, Events),
}

/// A conversation, and what was heard and not expected yet.
struct Talk {
    wire: Wire,
    heard: VecDeque<Value>,
}

impl Talk {
    /// The reply to a message.
    fn reply(&mut self, message: &str) -> Value {
        match &mut self.wire {
            Wire::Pipes(host) => assert!(host.send_bytes(format!("{message}\n").as_bytes())),
            Wire::Socket(ws) => ws.text(message.as_bytes()),
            Wire::Posts(posts, _) => {
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
            self.heard.push_back(message);
        }
    }

    fn next(&mut self) -> Value {
        match &mut self.wire {
            Wire::Pipes(host) => host.reply(),
            Wire::Socket(ws) => serde_json::from_slice(&ws.frame().1).expect("JSON"),
            Wire::Posts(_, events) => events.next(),
        }
    }

    fn event(&mut self) -> Value {
        self.heard.pop_front().unwrap_or_else(|| self.next())
    }
}

/// The check of each notification that there is.
fn notifications(talk: &mut Talk) -> BTreeMap<String, Schema> {
    let ask = json!({ "jsonrpc": "2.0", "id": 0, "method": "rpc/discover" }).to_string();
    let told = talk.reply(&ask)["result"]["x-notifications"].clone();
    let all = told.as_array().expect("notifications").iter();
    all.map(|one| {
        let name = one["name"].as_str().expect("a name").to_owned();
        (name, Schema::compile(&one["schema"]).expect("it compiles"))
    })
    .collect()
}

fn run(vector: &Value, talk: &mut Talk) -> Result<(), String> {
    let mut kept: Map<String, Value> = Map::new();
    let checks = notifications(talk);
    for step in vector["steps"].as_array().ok_or("no steps")? {
        let message = match &step["send"] {
            Value::String(text) => text.clone(),
            message => filled(message, &kept).to_string(),
        };
        let reply = talk.reply(&message);
        for (name, place) in step["keep"].as_object().into_iter().flatten() {
            let found = place.as_str().and_then(|place| reply.pointer(place));
            kept.insert(format!("${name}"), found.ok_or("nothing to keep")?.clone());
        }
        fits(&filled(&step["reply"], &kept), &reply)?;
        for wanted in step["heard"].as_array().into_iter().flatten() {
            let event = talk.event();
            fits(&filled(wanted, &kept), &event)?;
            let check = &checks[event["method"].as_str().unwrap_or_default()];
            let checked = check.check_input(&event["params"]);
            checked.map_err(|fault| format!("{fault}: {event}"))?;
        }
    }
    match talk.heard.pop_front() {
        None => Ok(()),
        Some(event) => Err(format!("nobody expected {event}")),
    }
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

/// The folders of a vector: its workspace, and one that is first in its `PATH`.
fn prepared(vector: &Value) -> (Folder, Folder) {
    let (folder, programs) = (Folder::new(), Folder::new());
    for (name, text) in vector["files"].as_object().into_iter().flatten() {
        folder.write(name, text.as_str().expect("a text"));
    }
    for (name, text) in vector["programs"].as_object().into_iter().flatten() {
        programs.executable(name, text.as_str().expect("a text"));
    }
    // The examples bring no leases, which a port asks for above the files (G-5).
    let config = folder.read("callgate.toml").unwrap_or_default();
    folder.write("callgate.toml", &format!("{LEASES}{config}"));
    crate::support::drive::cli(&folder, &["trust"]).good();
    (folder, programs)
}

#[test]
fn examples() {
    let text = std::fs::read(crate::support::vectors().join("rpc/examples.json")).expect("vectors");
    let vectors: Vec<Value> = serde_json::from_slice(&text).expect("JSON");
    let mut wrong = Vec::new();
    for vector in &vectors {
        for kind in 0..3 {
            let (folder, programs) = prepared(vector);
            let path = format!("{}:/usr/bin:/bin", programs.path().display());
            let with_path = |command: &mut Command| {
                command.env("PATH", &path);
            };
            let (_web, wire) = if kind == 0 {
                let mut command = crate::support::callgate(&folder);
                with_path(command.arg("rpc"));
                (None, Wire::Pipes(Host::spawn(&mut command)))
            } else {
                let web = Web::start_with(&folder, |command| {
                    with_path(command.arg("--no-auth"));
                });
                let port = web.port;
                let wire = match kind {
                    1 => Wire::Socket(Ws::open(port, None)),
                    _ => Wire::Posts(Posts::new(port, "/rpc"), Events::open(port, None)),
                };
                (Some(web), wire)
            };
            let heard = VecDeque::new();
            if let Err(error) = run(vector, &mut Talk { wire, heard }) {
                wrong.push(json!([vector["name"], kind, error]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(vectors.len() >= 12);
}
