//! The state folder of release 0.1.0 (`tests/state-0.1.0`, made by its own program) under the
//! present program: it opens, its chain verifies, its keys replay, its approvals and tokens count.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::Folder;
use crate::support::drive::{cli, verified};
use crate::support::web::{Request, Web};

/// Records in the chain of the earlier state.
const RECORDS: u64 = 25;

/// JSON-RPC over HTTP by the earlier state's token.
struct Client {
    web: Web,
    token: String,
}

impl Client {
    fn ask(&self, method: &str, params: &Value, key: Option<&str>) -> Value {
        let mut request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        if let Some(key) = key {
            request["callgate"] = json!({ "idempotency_key": key });
        }
        let request = Request::new("POST /rpc", request.to_string().as_bytes()).by(&self.token);
        self.web.send(&request).json()
    }

    /// The answer to a retry, which must be a replay.
    fn replayed(&self, method: &str, params: &Value, key: &str) -> Value {
        let answer = self.ask(method, params, Some(key));
        assert_eq!(answer["callgate"]["idempotent_hit"], true, "{answer}");
        answer
    }
}

/// A copy of the earlier workspace and state. Git keeps no modes, and the state must be private.
fn earlier() -> Folder {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/state-0.1.0");
    let folder = Folder::new();
    let copy = |name: PathBuf, to: PathBuf| {
        fs::copy(from.join(name), &to).expect("copy the earlier state");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("make it private");
    };
    for folder in [folder.join("state"), folder.join("state/journal")] {
        fs::create_dir(&folder).expect("make a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("make it private");
    }
    let names = [
        "head.json",
        "head.pub",
        "signing.key",
        "token",
        "journal/00000000000000000001.seg",
    ];
    for name in names {
        copy(
            Path::new("state").join(name),
            folder.join("state").join(name),
        );
    }
    copy("callgate.toml".into(), folder.join("callgate.toml"));
    folder
}

fn client(folder: &Folder) -> Client {
    let token = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/state-0.1.0/token");
    Client {
        web: Web::start(folder, &[]),
        token: fs::read_to_string(token).expect("the token"),
    }
}

/// G-3: the chain verifies before and after new calls, and keys answer with what was recorded.
#[test]
fn keys_of_an_earlier_release_replay() {
    let folder = earlier();
    assert_eq!(verified(&folder), RECORDS);
    let client = client(&folder);
    let small = client.replayed("copy", &json!({ "a": 1 }), "small");
    assert_eq!(small["result"], json!({ "a": 1 }));
    let real = client.replayed("copy", &json!({ "n": 1.0, "t": "é" }), "real");
    assert_eq!(real["result"], json!({ "n": 1.0, "t": "é" }));
    let failed = client.replayed("failing", &json!({}), "failed");
    assert_eq!(failed["error"]["data"]["kind"], "crash");
    let guarded = client.replayed("guarded", &json!({ "x": "granted" }), "guarded");
    assert_eq!(guarded["result"], json!({ "x": "granted" }));

    let fresh = client.ask("copy", &json!({ "a": 2 }), Some("fresh"));
    assert_eq!(fresh["result"], json!({ "a": 2 }), "{fresh}");
    assert!(client.web.serve.stop().success());
    assert!(verified(&folder) > RECORDS);
}

/// Plans and notes of an earlier release are there, and its trusted configuration counts.
#[test]
fn what_an_earlier_release_kept_is_there() {
    let folder = earlier();
    let client = client(&folder);
    let plans = client.ask("planner/list_plans", &json!({}), None);
    assert_eq!(plans["result"]["plans"][0]["title"], "Release", "{plans}");
    cli(&folder, &["approvals", "list"]).good();
    let tools = cli(&folder, &["tools", "--json"]).good().out;
    assert!(tools.contains("AID.STATE.GUARDED.v1"), "{tools}");
}
