//! A client as there are: ids from 1, `params` left out where there are none, one connection that
//! stays, no ear for notifications, 15 s of patience, and every status but 200 is the end of its
//! request. It gets through a session with every method there is, over HTTP and on pipes.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::Folder;
use crate::support::drive::Host;
use crate::support::mcp::serve_http;
use crate::support::web::hear_one;
use crate::support::workspace::trusted;
use serde_json::{Value, json};

/// How long it waits for each answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// One request of the session. `$name` in its params is the text that an earlier result had there.
struct Step {
    method: &'static str,
    params: Option<Value>,
    /// Where its result has a text for later steps, and the name it gets.
    keeps: &'static [(&'static str, &'static str)],
}

const fn step(
    method: &'static str,
    params: Option<Value>,
    keeps: &'static [(&'static str, &'static str)],
) -> Step {
    Step {
        method,
        params,
        keeps,
    }
}

/// An executor of one artifact: the stream's frames, as a shell can write them. A run's id has 32
/// letters, so the lengths before it are known.
const EXECUTOR: &str = r#"read -r request
run=${request#*'"run_id":"'}
run=${run%%'"'*}
printf '\000\000\000=\205\244type\256artifact_chunk\253artifact_id\241a\243seq\001\247is_last\303\244data\304\005hello'
printf '\000\000\000\314\210\260contract_version\2460.13.4\250event_id\242e1\246run_id\331 %s\244type\250artifact\242ts\2702026-11-15T12:00:00.000Z\247payload\204\253artifact_id\241a\244name\245a.txt\254content_type\252text/plain\252size_bytes\005\247attempt\001\243seq\001' "$run"
printf '\000\000\000\223\210\260contract_version\2460.13.4\250event_id\242e2\246run_id\331 %s\244type\254run_complete\242ts\2702026-11-15T12:00:00.000Z\247payload\200\247attempt\001\243seq\002' "$run"
printf '\000\000\000+\202\244type\252run_result\247outcome\201\246status\251completed'
"#;

/// Every method, a line each.
fn session() -> Vec<Step> {
    let with = |method, params| step(method, Some(params), &[]);
    let keeping = |method, params, keeps| step(method, Some(params), keeps);
    vec![
        step("rpc/discover", None, &[]),
        step("tools/list", None, &[]),
        with("builtin/echo", json!({ "hello": "world" })),
        with("memory/append", json!({ "text": "a plain client" })),
        with("memory/query", json!({ "query": "plain" })),
        keeping(
            "files/write",
            json!({ "path": "src/main.rs", "content": "fn main() {}" }),
            &[("/etag", "etag")],
        ),
        with("files/read", json!({ "path": "src/main.rs" })),
        with("files/stat", json!({ "path": "src/main.rs" })),
        with("files/list", json!({ "path": "src" })),
        with("files/search", json!({ "query": "main" })),
        with(
            "files/edit",
            json!({ "path": "src/main.rs", "edits": [{ "old": "{}", "new": "{ }" }], "etag": "$etag" }),
        ),
        with(
            "files/move",
            json!({ "from": "src/main.rs", "to": "src/lib.rs" }),
        ),
        with("files/delete", json!({ "path": "src/lib.rs" })),
        with("exec/run", json!({ "command": "true" })),
        with(
            "files/write",
            json!({ "path": "executor.sh", "content": EXECUTOR }),
        ),
        keeping(
            "runs/start",
            json!({ "command": ["sh", "executor.sh"], "job": null }),
            &[("/run_id", "run"), ("/resources/0/digest", "digest")],
        ),
        with("runs/list", json!({})),
        with("runs/get", json!({ "run_id": "$run" })),
        with("artifacts/read", json!({ "digest": "$digest" })),
        with(
            "vector/upsert",
            json!({ "namespace": "n", "items": [{ "id": "a", "text": "a plain client" }] }),
        ),
        with(
            "vector/search",
            json!({ "namespace": "n", "query": "plain" }),
        ),
        with("vector/delete", json!({ "namespace": "n", "ids": ["a"] })),
        keeping(
            "terminals/create",
            json!({ "command": "cat" }),
            &[("/session_id", "session")],
        ),
        with(
            "terminals/write",
            json!({ "session_id": "$session", "data": "hello\n" }),
        ),
        with(
            "terminals/resize",
            json!({ "session_id": "$session", "cols": 100, "rows": 40 }),
        ),
        with("terminals/attach", json!({ "session_id": "$session" })),
        step("terminals/list", None, &[]),
        with("terminals/read_logs", json!({ "session_id": "$session" })),
        with("terminals/kill", json!({ "session_id": "$session" })),
        keeping(
            "planner/create_plan",
            json!({ "title": "a plan", "user_request": "1. one\n2. two" }),
            &[("/plan/id", "plan"), ("/plan/tasks/0/id", "task")],
        ),
        with("planner/get_plan", json!({ "plan_id": "$plan" })),
        with(
            "planner/update_task",
            json!({ "plan_id": "$plan", "task_id": "$task", "patch": { "status": "done" } }),
        ),
        step("planner/list_plans", None, &[]),
        with("planner/delete_plan", json!({ "plan_id": "$plan" })),
    ]
}

/// The client: its transport sends one message and gives what came for it.
struct Plain<T> {
    transport: T,
    id: u64,
}

trait Transport {
    fn exchange(&mut self, message: &Value) -> Value;
}

impl<T: Transport> Plain<T> {
    fn new(transport: T) -> Self {
        Self { transport, id: 0 }
    }

    fn ask(&mut self, method: &str, params: Option<&Value>) -> Result<Value, (i64, Value)> {
        self.id += 1;
        let mut message = json!({ "jsonrpc": "2.0", "method": method, "id": self.id });
        if let Some(params) = params {
            message["params"] = params.clone();
        }
        let asked = Instant::now();
        let reply = self.transport.exchange(&message);
        assert!(asked.elapsed() <= PATIENCE, "{method}: it has left");
        assert_eq!(
            (&reply["jsonrpc"], &reply["id"]),
            (&json!("2.0"), &json!(self.id))
        );
        match (reply.get("result"), reply.get("error")) {
            (Some(result), None) => Ok(result.clone()),
            (None, Some(error)) => {
                let code = error["code"].as_i64().expect("a code");
                assert!(error["message"].is_string());
                Err((code, error["data"].clone()))
            }
            _ => panic!("one of the two: {reply}"),
        }
    }

    fn go_through(&mut self) {
        let discovered = self.ask("rpc/discover", None).expect("a document");
        let methods = discovered["methods"].as_array().expect("methods").iter();
        let mut methods: BTreeSet<String> = methods
            .map(|method| method["name"].as_str().expect("a name").to_owned())
            .collect();
        methods.insert("rpc/discover".to_owned());
        let mut kept: Vec<(&str, String)> = Vec::new();
        let steps = session();
        for step in &steps {
            assert!(methods.contains(step.method), "no {}", step.method);
            let params = step.params.as_ref().map(|params| filled(params, &kept));
            let result = self
                .ask(step.method, params.as_ref())
                .unwrap_or_else(|error| panic!("{}: {error:?}", step.method));
            for (place, name) in step.keeps {
                let text = result.pointer(place).and_then(Value::as_str);
                kept.push((
                    name,
                    text.unwrap_or_else(|| panic!("{place}: {result}"))
                        .to_owned(),
                ));
            }
        }
        for step in steps {
            methods.remove(step.method);
        }
        assert!(methods.is_empty(), "add a step for {methods:?}");
        // JR-170: what goes wrong comes the same way, with its code.
        for (method, params, code) in [
            ("no/such", json!({}), -32601),
            ("files/read", json!({}), -32602),
            ("files/read", json!({ "path": "none" }), 1001),
            ("files/read", json!({ "path": "../x" }), 1002),
            ("planner/get_plan", json!({ "plan_id": "none" }), 1001),
        ] {
            let (found, _) = self.ask(method, Some(&params)).expect_err(method);
            assert_eq!(found, code, "{method}");
        }
    }
}

/// The params with what was kept.
fn filled(params: &Value, kept: &[(&str, String)]) -> Value {
    match params {
        Value::String(text) => {
            let name = text.strip_prefix('$');
            let found = kept.iter().find(|(known, _)| Some(*known) == name);
            found.map_or_else(|| params.clone(), |(_, value)| json!(value))
        }
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), filled(value, kept)))
            .collect(),
        other => other.clone(),
    }
}

/// Posts to the endpoint as it was given, which has no path.
struct Http(TcpStream);

impl Transport for Http {
    fn exchange(&mut self, message: &Value) -> Value {
        let body = message.to_string();
        let request = format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             accept: application/json, text/plain, */*\r\naccept-encoding: gzip, deflate, br\r\n\
             connection: keep-alive\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(request.as_bytes()).expect("write");
        let reply = hear_one(&mut self.0);
        assert_eq!(reply.status, 200, "it reads nothing else: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
        reply.json()
    }
}

/// A line each way; what has no id is dropped.
struct Pipes(Host);

impl Transport for Pipes {
    fn exchange(&mut self, message: &Value) -> Value {
        assert!(self.0.send_bytes(format!("{message}\r\n").as_bytes()));
        loop {
            let reply = self.0.reply();
            if reply.get("id").is_some() {
                return reply;
            }
        }
    }
}

/// JR-169, JR-170, JR-171: at `/`, on one connection, always 200.
#[test]
fn over_http() {
    // Such a client brings no leases, which this port asks for above the files (G-5).
    let folder = trusted("[leases]\nenforce_from_tier = 3\n");
    let (_serve, port) = serve_http(&folder);
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    Plain::new(Http(stream)).go_through();
}

/// JR-171, JR-172: a line ended by a newline, or by both; notifications between them are dropped.
#[test]
fn on_pipes() {
    let folder = Folder::new();
    let mut host = Host::spawn(crate::support::callgate(&folder).arg("rpc"));
    host.patience = PATIENCE;
    let mut client = Plain::new(Pipes(host));
    client.go_through();
    assert!(client.transport.0.end().success());
}
