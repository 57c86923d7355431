//! Traces with the real program: shown, listed, asked for over the socket, kept across a kill,
//! bounded, and without a secret on disk.

use std::path::Path;

use crate::support::drive::{Serve, cli, run};
use crate::support::workspace::{SLOW, effects, trusted_with};
use crate::support::{Folder, callgate, wait_for};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[[tool]]
name = "talk"
code = ["talk.sh"]
runner = { kind = "process", command = ["/bin/sh", "talk.sh"] }

[[tool]]
name = "slow"
writes = ["."]
code = ["slow.sh"]
runner = { kind = "process", command = ["/bin/sh", "slow.sh"] }

[[tool]]
name = "fail"
runner = { kind = "python", entry = "fail:run" }

[secrets]
env = ["TOKEN"]
"#;

const TALK: &str = r#"
read -r input
token=tok-5f2b9c1e77
echo "stderr has $token" >&2
printf '{"said":"%s"}' "$token"
"#;

const FAIL: &str =
    "def run(payload):\n    print('on my way')\n    raise ValueError(payload['why'])\n";

const TOKEN: &str = "tok-5f2b9c1e77";

fn folder() -> Folder {
    trusted_with(&[
        ("callgate.toml", CONFIG),
        ("talk.sh", TALK),
        ("slow.sh", SLOW),
        ("fail.py", FAIL),
    ])
}

fn with_token(folder: &Folder, args: &[&str]) -> crate::support::drive::Ran {
    run(callgate(folder).env("TOKEN", TOKEN).args(args))
}

fn traced(folder: &Folder, args: &[&str]) -> Value {
    let args: Vec<&str> = [&["trace"], args, &["--json"]].concat();
    cli(folder, &args).good().json()
}

/// The files under `place` that hold `word`.
fn holding(place: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holding(&path, word));
        } else if let Ok(bytes) = std::fs::read(&path)
            && String::from_utf8_lossy(&bytes).contains(word)
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// R-15, TP-85: a secret in the input, in the output, on stderr and in an error is on no disk.
#[test]
fn no_secret_is_on_disk() {
    let folder = folder();
    with_token(
        &folder,
        &["call", "talk", &format!("{{\"a\":1,\"{TOKEN}\":2}}")],
    )
    .good();
    let trace = traced(&folder, &["--last"]);
    assert_eq!(trace["stderr_tail"], "stderr has [secret]\n");
    assert_eq!(trace["input_summary"]["keys"], json!(["a", "[secret]"]));
    with_token(
        &folder,
        &["call", "fail", &format!("{{\"why\":\"no {TOKEN}\"}}")],
    );
    let trace = traced(&folder, &["--failed"]);
    assert_eq!(trace["error_message"], "no [secret]");
    let state = folder.join("state");
    assert!(!holding(&state, "[secret]").is_empty());
    assert_eq!(holding(&state, TOKEN), [""; 0]);
    assert_eq!(holding(&state, &TOKEN[..8]), [""; 0]);
}

/// TP-70, TP-71, TP-72, TP-85: a failing Python tool, for people and for programs.
#[test]
fn shown_listed_and_found() {
    let folder = folder();
    cli(&folder, &["call", "fail", "{\"why\":\"tired\"}"]);
    cli(&folder, &["call", "builtin/echo", "{}"]).good();
    let failed = traced(&folder, &["--failed"]);
    assert_eq!(
        (
            &failed["tool"],
            &failed["error_type"],
            &failed["error_message"]
        ),
        (&json!("fail"), &json!("ValueError"), &json!("tired"))
    );
    for fact in ["python_env", "python_path", "deps_source"] {
        assert!(failed[fact].is_string(), "{fact}: {failed}");
    }
    assert!(
        failed["stdout_tail"]
            .as_str()
            .is_some_and(|said| said.contains("on my way"))
    );
    let id = failed["call_id"].as_str().expect("an id");
    assert_eq!(traced(&folder, &[id]), failed);
    let shown = cli(&folder, &["trace", id]).good().out;
    for words in [
        "fail  error",
        "error: tired",
        "check input",
        "settle",
        "on my way",
        "python_path",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    // A pure call has its record, and is told of from there.
    let last = traced(&folder, &["--last"]);
    assert_eq!(
        (&last["tool"], &last["from"], &last["status"]),
        (&json!("builtin/echo"), &json!("chain"), &json!("ok"))
    );
    let rows = |args: &[&str]| {
        let args: Vec<&str> = [&["trace", "list", "--json"], args].concat();
        cli(&folder, &args).good().out.lines().count()
    };
    assert_eq!(rows(&[]), 2);
    assert_eq!(rows(&["--status", "error"]), 1);
    assert_eq!(rows(&["--tool", "builtin/echo"]), 1);
    assert_eq!(rows(&["--since", "1h", "--tool", "none"]), 0);
    // The first digits are the time's, which both share.
    let several = cli(&folder, &["trace", &id[..4]]);
    assert_eq!(several.code(), 1);
    assert!(
        several.err.contains(id) && several.err.contains("several"),
        "{}",
        several.err
    );
    assert_eq!(cli(&folder, &["trace", "ffff"]).code(), 1);
    assert_eq!(cli(&folder, &["trace"]).code(), 2);
}

/// A gate that is killed in the middle of a call leaves the traces before it whole, and the call
/// itself is told of by the chain.
#[test]
fn a_killed_gate_leaves_traces() {
    let folder = folder();
    let serve = Serve::start(&folder);
    let first = serve.call(&json!({ "tool": "talk", "input": {} }));
    let first = first["call_id"].as_str().expect("an id").to_owned();
    // It is there before its caller is told.
    let (status, trace) = serve.get(&format!("/v1/traces/{first}"));
    assert_eq!((status, &trace["tool"]), (200, &json!("talk")));
    let (status, told) = serve.get("/v1/traces/ffff");
    assert_eq!((status, &told["fault"]["kind"]), (404, &json!("not_found")));
    std::thread::scope(|scope| {
        scope.spawn(|| serve.try_call(&json!({ "tool": "slow", "input": {} })));
        wait_for("the slow tool", || (effects(&folder) > 0).then_some(()));
        crate::support::drive::signal(serve.pid(), rustix::process::Signal::KILL);
    });
    serve.ended();
    assert_eq!(traced(&folder, &[&first])["status"], "ok");
    let cut = traced(&folder, &["--failed"]);
    assert_eq!(
        (&cut["tool"], &cut["status"]),
        (&json!("slow"), &json!("unknown"))
    );
    // The next process goes on in the same file.
    cli(&folder, &["call", "talk", "{}"]).good();
    assert_eq!(traced(&folder, &["--last"])["tool"], "talk");
    assert_eq!(traced(&folder, &[&first])["status"], "ok");
}

/// `[traces] max_bytes`: 0 keeps none, too little is refused.
#[test]
fn configured() {
    let with = |bytes: &str| format!("{CONFIG}\n[traces]\nmax_bytes = {bytes}\n");
    let off = trusted_with(&[("callgate.toml", &with("0")), ("talk.sh", TALK)]);
    cli(&off, &["call", "talk", "{}"]).good();
    assert!(!off.join("state/traces").exists());
    assert_eq!(traced(&off, &["--last"])["from"], "chain");
    let wrong = crate::support::workspace::workspace(&with("5"));
    let told = cli(&wrong, &["trust"]);
    assert_eq!(told.code(), 1);
    assert!(
        told.err.contains("max_bytes: 5 is neither 0 nor 1048576"),
        "{}",
        told.err
    );
}
