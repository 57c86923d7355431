//! What programs print while they run, over a WebSocket and to whoever posts and has a stream of
//! events; and that a terminal which floods harms nobody's events but its own..

use std::thread;

use crate::support::Folder;
use crate::support::mcp::serve_http;
use crate::support::rpc::{Client, Events, Posts};
use crate::support::workspace::trusted;
use serde_json::{Value, json};

/// Nobody here brings leases, which a port asks for above the files (G-5).
const LEASES: &str = "[leases]\nenforce_from_tier = 3\n";

/// Says something, waits for the file `go`, and goes on.
const SCRIPT: &str = "echo one; echo wrong >&2; while [ ! -e go ]; do sleep 0.02; done; printf two";

fn params() -> Value {
    json!({ "command": SCRIPT, "shell": true, "stream": true })
}

/// Collects the chunks of one request, and lets its program go on once it has heard the first.
#[derive(Default)]
struct Chunks {
    told: [String; 2],
    seq: u64,
}

impl Chunks {
    fn take(&mut self, event: &Value, request: &Value, folder: &Folder) {
        assert_eq!(event["method"], "exec/stream", "{event}");
        let params = &event["params"];
        assert_eq!(
            (&params["request_id"], &params["seq"]),
            (request, &json!(self.seq)),
            "{event}"
        );
        self.seq += 1;
        let stream = usize::from(params["stream"] == "stderr");
        self.told[stream].push_str(params["data"].as_str().expect("a text"));
        if self.told == ["one\n", "wrong\n"] {
            folder.write("go", "");
        }
    }

    fn is_done(&self) -> bool {
        self.told == ["one\ntwo", "wrong\n"]
    }
}

/// JR-83, R-10: on the connection that asked, before the answer, and on no other.
#[test]
fn over_a_websocket() {
    let folder = trusted(LEASES);
    let (_serve, port) = serve_http(&folder);
    let (mut client, mut other) = (Client::ws(port), Client::ws(port));
    let id = client.send("exec/run", params());
    let mut chunks = Chunks::default();
    while !chunks.is_done() {
        chunks.take(&client.event(), &json!(id), &folder);
    }
    let answer = client.answer(id);
    assert_eq!(answer["result"]["stdout"], "one\ntwo", "{answer}");
    // The first thing that the other hears is what is for everyone.
    let plan = json!({ "title": "t", "user_request": "- a" });
    client.good("planner/create_plan", plan);
    assert_eq!(other.event()["method"], "planner/plan_updated");
}

/// JR-83, R-3, R-10: to the streams of whoever posted, also to one that broke in between and comes
/// back.
#[test]
fn over_server_sent_events() {
    let folder = trusted(LEASES);
    let (_serve, port) = serve_http(&folder);
    let mut events = Events::open(port, None);
    thread::scope(|scope| {
        let asked = scope.spawn(|| Posts::new(port, "/rpc").ask("exec/run", params()));
        let mut chunks = Chunks::default();
        while !chunks.is_done() {
            let event = events.next();
            // It comes back after each, and misses nothing.
            let last = events.last.clone();
            drop(std::mem::replace(
                &mut events,
                Events::open(port, Some(&last)),
            ));
            chunks.take(&event, &json!(1), &folder);
        }
        let answer = asked.join().expect("an answer");
        assert_eq!(answer["result"]["stdout"], "one\ntwo", "{answer}");
        assert_eq!(answer["result"]["stderr"], "wrong\n");
    });
}

/// a terminal whose output fills the ring many times over, for a viewer that does not read,
/// takes nothing from who listens for plans.
#[test]
fn a_flood_is_its_own_loss() {
    const PLANS: u64 = 40;
    let folder = trusted(LEASES);
    let (_serve, port) = serve_http(&folder);
    let (mut viewer, mut planner, mut hearer) =
        (Client::ws(port), Client::ws(port), Client::ws(port));
    let flood = "read go; head -c 100000000 /dev/zero | tr '\\0' y | fold -w 79; echo over";
    let dumb = json!({ "command": flood, "shell": true, "env": { "TERM": "dumb" } });
    let session = viewer.good("terminals/create", dumb)["session_id"].clone();
    assert_eq!(
        hearer.good("terminals/list", json!({}))["sessions"][0]["status"],
        "running"
    );
    for number in 0..PLANS {
        let plan = json!({ "title": number.to_string(), "user_request": "- a" });
        planner.good("planner/create_plan", plan);
    }
    let go = json!({ "session_id": session, "data": "go\n" });
    planner.good("terminals/write", go);
    crate::support::wait_minutes(10, "its end", || {
        let listed = planner.good("terminals/list", json!({}));
        (listed["sessions"][0]["status"] == "exited").then_some(())
    });
    // Nobody of them has read anything since; the sockets hold little of it.
    for number in 0..PLANS {
        let event = hearer.event();
        let title = &event["params"]["plan"]["title"];
        assert_eq!(title, &json!(number.to_string()), "{event}");
    }
    let (mut missed, mut plans, mut last) = (0, 0, String::new());
    loop {
        let event = viewer.event();
        match event["method"].as_str() {
            Some("rpc/gap") => missed += event["params"]["missed"].as_u64().expect("a number"),
            Some("planner/plan_updated") => plans += 1,
            Some("terminals/exit") => break,
            _ => {
                last = event["params"]["data"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            }
        }
    }
    assert!(missed > 0, "it was not enough of a flood");
    assert_eq!(plans, PLANS);
    assert!(last.ends_with("over\n"), "{last}");
}
