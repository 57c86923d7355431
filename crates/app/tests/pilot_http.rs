//! The queue's face on HTTP: who may do what, requests queued and run at once, requests known
//! again after a restart, and an end in order. Contract toolhost, TH-150.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::SystemTime;

use crate::support::drive::{PATIENCE, cli, end_of, verified};
use crate::support::web::{Reply, Request, hear, owner, token};
use crate::support::workspace::{SLOW, TOOL, effects, trusted_with};
use crate::support::{Folder, callgate, wait_for};
use ring::{digest, hmac};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[[tool]]
name = "one"
aid = "AID.TEST.ONE.v1"
tags = ["tag.one"]
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }

[[tool]]
name = "slow"
aid = "AID.TEST.SLOW.v1"
tags = ["tag.slow"]
writes = ["effects.log"]
code = ["slow.sh"]
runner = { kind = "process", command = ["/bin/sh", "slow.sh"] }
"#;

const ASKS: &str = r#"
[[tool]]
name = "asks"
aid = "AID.TEST.ASKS.v1"
tags = ["tag.asks"]
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }

[[policy]]
tools = ["asks"]
decision = "ask"
"#;

fn workspace() -> Folder {
    trusted_with(&[
        ("callgate.toml", &format!("{CONFIG}{ASKS}")),
        ("tool.sh", TOOL),
        ("slow.sh", SLOW),
        ("effects.log", ""),
    ])
}

/// A worker with a face.
struct Face {
    child: Child,
    port: u16,
}

impl Face {
    fn start(folder: &Folder) -> Self {
        let mut child = callgate(folder)
            .args(["pilot", "--queue", "queue", "--port", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start it");
        let said = BufReader::new(child.stderr.take().expect("piped"));
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("the queue on http://127.0.0.1:")?;
            rest.split_once(',')?.0.parse().ok()
        });
        let port = port.expect("a port");
        Self { child, port }
    }

    fn send(&self, request: &Request) -> Reply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let bytes = request.bytes("connection: close\r\n");
        // The answer may come before all is said.
        let _ = stream.write_all(&bytes);
        hear(&mut stream)
    }

    fn get(&self, path: &str) -> Reply {
        self.send(&Request::new(&format!("GET {path}"), b""))
    }

    fn post(&self, token: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::new(&format!("POST {path}"), body.to_string().as_bytes());
        let reply = self.send(&request.by(token));
        (reply.status, reply.json())
    }
}

impl Drop for Face {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(tag: &str, id: &str) -> Value {
    json!({ "goal_id": "g", "candidate_tags": [tag], "request_id": id, "inputs": { "id": id } })
}

/// A request that its sender signs with the owner's token.
fn signed(token: &str, nonce: &str, body: &Value) -> Request {
    let body = body.to_string();
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let time = since.as_secs().to_string();
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let digest = hex(digest::digest(&digest::SHA256, body.as_bytes()).as_ref());
    let text = format!("{time}\n{nonce}\nPOST\n/enqueue\n{digest}\n");
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    let signature = hex(hmac::sign(&key, text.as_bytes()).as_ref());
    Request::new("POST /enqueue", body.as_bytes())
        .with("x-machina-ts", &time)
        .with("x-machina-nonce", nonce)
        .with("x-machina-signature", &signature)
}

fn count(folder: &Folder, of: &str) -> usize {
    let entries = std::fs::read_dir(folder.join(&format!("queue/{of}")));
    entries.expect("a folder").count()
}

/// TH-150, T-32: what is open, what needs the owner's token or signature, and what is refused.
#[test]
fn who_may_do_what() {
    let folder = workspace();
    let mut face = Face::start(&folder);
    let token_of_owner = owner(&folder);
    assert_eq!(face.get("/health").json(), json!({ "ok": true }));
    let stats = face.get("/stats").json();
    assert_eq!((&stats["inbox"], &stats["dlq"]), (&json!(0), &json!(0)));
    let page = face.get("/metrics").body;
    assert!(
        page.contains("callgate_queue_jobs{folder=\"done\"} 0"),
        "{page}"
    );
    assert_eq!(face.get("/nothing").status, 404);

    let job = request("tag.one", "r-1");
    let plain = Request::new("POST /enqueue", job.to_string().as_bytes());
    let told = |request: &Request| {
        let reply = face.send(request);
        (reply.status, reply.json()["error"].clone())
    };
    let scoped = token(&folder, &["friend"]);
    for (request, status, word) in [
        (plain.clone(), 401, "unauthorized"),
        (plain.clone().by("made_up"), 401, "unauthorized"),
        (
            plain.clone().with("x-api-token", "made_up"),
            401,
            "unauthorized",
        ),
        (plain.clone().by(&scoped), 403, "forbidden"),
        (
            plain
                .clone()
                .by(&token_of_owner)
                .with("host", "evil.example"),
            403,
            "forbidden",
        ),
        (
            plain
                .clone()
                .by(&token_of_owner)
                .with("origin", "http://evil.example"),
            403,
            "forbidden",
        ),
        (signed("another key", "n", &job), 401, "bad_signature"),
        (
            plain.clone().by(&token_of_owner).body(b"{"),
            400,
            "bad body",
        ),
        (
            plain.clone().by(&token_of_owner).body(b"{\"goal_id\":7}"),
            400,
            "bad body",
        ),
        (
            plain.clone().by(&token_of_owner).body(b"{}"),
            400,
            "missing goal_id",
        ),
        (
            plain
                .clone()
                .by(&token_of_owner)
                .body(&vec![b' '; 1024 * 1024 + 1]),
            413,
            "bad body",
        ),
    ] {
        assert_eq!(told(&request), (status, json!(word)), "{request:?}");
    }
    for path in ["/run_sync", "/shutdown"] {
        let request = Request::new(&format!("POST {path}"), job.to_string().as_bytes());
        assert_eq!(told(&request).0, 401, "{path}");
    }
    assert_eq!((effects(&folder), count(&folder, "done")), (0, 0));

    let good = signed(&token_of_owner, "n-1", &job);
    let queued = face.send(&good).json();
    let file = queued["queued"].as_str().expect("a name").to_owned();
    assert_eq!(told(&good), (401, json!("bad_signature")), "it came before");
    wait_for("the job", || (count(&folder, "done") == 1).then_some(()));
    assert!(folder.join(&format!("queue/done/{file}")).exists());
    let by_header = plain.with("x-api-token", &token_of_owner);
    let again = face.send(&by_header).json();
    assert_eq!(again, json!({ "ok": true, "deduplicated": true }));

    let (status, ended) = face.post(&token_of_owner, "/shutdown", &json!({}));
    assert_eq!((status, ended), (200, json!({ "ok": true })));
    assert!(
        end_of(&mut face.child, "the worker").success(),
        "and by itself"
    );
    assert_eq!(effects(&folder), 1);
    verified(&folder);
}

/// TH-150, T-32: a signature counts once, at the port of another worker and after a restart as well.
#[test]
fn a_signature_counts_once() {
    let folder = workspace();
    let face = Face::start(&folder);
    let token = owner(&folder);
    let mut job = request("tag.one", "r-1");
    job.as_object_mut().expect("an object").remove("request_id");
    let good = signed(&token, "n-1", &job);
    assert!(face.send(&good).json()["queued"].is_string());
    let other = Face::start(&folder);
    assert_eq!(other.send(&good).json()["error"], "bad_signature");
    wait_for("the job", || (count(&folder, "done") == 1).then_some(()));
    drop((face, other));
    let face = Face::start(&folder);
    assert_eq!(face.send(&good).json()["error"], "bad_signature");
    assert!(face.send(&signed(&token, "n-2", &job)).json()["queued"].is_string());
    wait_for("both jobs", || (count(&folder, "done") == 2).then_some(()));
    assert_eq!(effects(&folder), 2);
}

/// TH-150, T-29: a request that asked is known until a person says yes, and then goes on.
#[test]
fn queued_again_after_a_yes() {
    let folder = workspace();
    let face = Face::start(&folder);
    let token = owner(&folder);
    let job = request("tag.asks", "r-1");
    let (_, asked) = face.post(&token, "/run_sync", &job);
    let approval = asked["data"]["approval"].as_str().expect("an approval");
    let known = json!({ "ok": true, "deduplicated": true });
    assert_eq!(face.post(&token, "/enqueue", &job).1, known);
    cli(&folder, &["approvals", "grant", approval]).good();
    let (_, queued) = face.post(&token, "/enqueue", &job);
    assert!(queued["queued"].is_string(), "{queued}");
    wait_for("the job", || (count(&folder, "done") == 1).then_some(()));
    assert_eq!(effects(&folder), 1);
    assert_eq!(face.post(&token, "/enqueue", &job).1, known, "it is done");
}

/// TH-150: a request that is run at once, in the shape of `callgate pilot`; one that is known is
/// told again and not run again.
#[test]
fn run_at_once() {
    let folder = workspace();
    let face = Face::start(&folder);
    let token = owner(&folder);
    let job = request("tag.one", "r-1");
    let (status, report) = face.post(&token, "/run_sync", &job);
    assert_eq!(status, 200, "{report}");
    assert_eq!(
        (&report["end"], &report["exit_code"]),
        (&json!("noop"), &json!(0))
    );
    assert_eq!(report["steps"][0]["aid"], "AID.TEST.ONE.v1");
    assert_eq!(report["deduplicated"], false);
    let (_, again) = face.post(&token, "/run_sync", &job);
    assert_eq!(again["deduplicated"], true);
    assert_eq!(again["header"]["run_id"], report["header"]["run_id"]);
    let (_, queued) = face.post(&token, "/enqueue", &job);
    assert_eq!(queued["deduplicated"], true);
    assert_eq!(effects(&folder), 1);
}

/// TH-150, T-29: a request that waits, or that a killed worker was at, is known again by the next
/// worker, which ends both.
#[test]
fn known_after_a_restart() {
    let folder = workspace();
    let mut face = Face::start(&folder);
    let token = owner(&folder);
    let (slow, waits) = (request("tag.slow", "r-slow"), request("tag.one", "r-waits"));
    assert!(face.post(&token, "/enqueue", &slow).1["queued"].is_string());
    wait_for("the slow one", || (effects(&folder) == 1).then_some(()));
    assert!(face.post(&token, "/enqueue", &waits).1["queued"].is_string());
    let known = json!({ "ok": true, "deduplicated": true });
    for job in [&slow, &waits] {
        assert_eq!(face.post(&token, "/enqueue", job).1, known);
    }
    let stats = face.get("/stats").json();
    assert_eq!(
        (&stats["inbox"], &stats["processing"]),
        (&json!(1), &json!(1))
    );
    face.child.kill().expect("kill it");
    face.child.wait().expect("its end");
    let face = Face::start(&folder);
    for job in [&slow, &waits] {
        assert_eq!(face.post(&token, "/enqueue", job).1, known);
    }
    folder.write("go", "");
    wait_for("both", || {
        (count(&folder, "done") + count(&folder, "dlq") == 2).then_some(())
    });
    assert_eq!(effects(&folder), 2, "neither ran twice");
    verified(&folder);
}
