//! What the pipes of an MCP server alone can go wrong in: bytes of ids, dead clients, the end of input.
//! The messages themselves are tested in `doors`; `mcp.rs` has the junk.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::support::drive::end_of;
use crate::support::mcp::{initialize, legacy_call, mcp, modern_call, modern_meta};
use crate::support::processes::descendants;
use crate::support::workspace::{EVERY_BUILTIN, ONE, SLOW, effects, trusted, trusted_with};
use crate::support::{callgate, is_alive, wait_for};
use serde_json::{Value, json};

fn modern(id: Value, method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "_meta": modern_meta() } })
}

/// Ids come back as the bytes they were, and a message without a readable one has a null.
#[test]
fn ids_are_bytes() {
    let folder = trusted(ONE);
    let mut child = callgate(&folder)
        .args(["mcp", "--standalone"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the server");
    let mut stdin = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "123456789012345678901234567890",
        "\"\\u00e9 \u{1d11e}\"",
        "\"\"",
    ] {
        writeln!(
            stdin,
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}"
        )
        .expect("it reads");
        let line = lines.next().expect("an answer").expect("text");
        assert!(line.contains(&format!("\"id\":{id},")), "{id}: {line}");
    }
    for (line, code) in [
        ("{", -32700),
        ("[]", -32600),
        ("{\"jsonrpc\":\"2.0\"}", -32600),
    ] {
        writeln!(stdin, "{line}").expect("it reads");
        let answer: Value =
            serde_json::from_str(&lines.next().expect("one").expect("text")).expect("JSON");
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&Value::Null, &json!(code))
        );
        assert!(
            answer
                .as_object()
                .is_some_and(|answer| answer.contains_key("id"))
        );
    }
    drop(stdin);
    assert!(end_of(&mut child, "the server").success());
}

/// A client that dies while a tool runs, with answers unread, leaves no process.
#[test]
fn a_dead_client_leaves_nothing() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", SLOW)]);
    let mut child = callgate(&folder)
        .args(["mcp", "--standalone"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the server");
    let mut stdin = child.stdin.take().expect("piped");
    let call = modern_call(1, "one", &json!({}), &json!({}));
    writeln!(stdin, "{call}").expect("it reads");
    wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
    let processes = descendants(child.id());
    assert!(!processes.is_empty());
    // Its death closes both ends at once, without a word.
    drop(child.stdout.take());
    drop(stdin);
    end_of(&mut child, "the server");
    wait_for("the end of what it started", || {
        processes.iter().all(|&pid| !is_alive(pid)).then_some(())
    });
}

/// What was asked before the end of input is answered after it, by `echo … | callgate mcp` as by
/// anybody: alone, and attached to a gate.
#[test]
fn what_runs_at_the_end_of_input_is_answered() {
    for attached in [false, true] {
        let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", SLOW)]);
        let serve = attached.then(|| crate::support::drive::Serve::start(&folder));
        let args: &[&str] = if attached { &[] } else { &["--standalone"] };
        let mut child = callgate(&folder)
            .arg("mcp")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the server");
        let mut stdin = child.stdin.take().expect("piped");
        // Somebody who listens holds up nothing.
        let mut listen = modern(json!(1), "subscriptions/listen");
        listen["params"]["notifications"] = json!({ "toolsListChanged": true });
        let call = modern_call(2, "one", &json!({}), &json!({}));
        write!(stdin, "{listen}\n{call}").expect("it reads");
        drop(stdin);
        wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
        folder.write("go", "");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let answers: Vec<Value> = lines
            .map(|line| serde_json::from_str(&line.expect("a line")).expect("a message"))
            .filter(|message: &Value| message["id"] == 2)
            .collect();
        assert_eq!(answers.len(), 1, "attached: {attached}");
        let text = &answers[0]["result"]["content"][0]["text"];
        assert_eq!(text, r#"{"done":true}"#, "attached: {attached}");
        assert!(end_of(&mut child, "the server").success());
        if let Some(serve) = serve {
            assert!(serve.stop().success());
        }
    }
}

/// A tool that hangs, or a question nobody can answer any more, does not outlive the end of
/// input for long.
#[test]
fn what_hangs_at_the_end_of_input_is_ended() {
    let hangs = "read -r input\necho started >> effects.log\nexec sleep 1000\n";
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", hangs)]);
    let serve = crate::support::drive::Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    host.send(&modern_call(1, "one", &json!({}), &json!({})));
    wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
    assert!(host.end().success());
    wait_for("the tool's end", || {
        let words = |&pid: &u32| crate::support::processes::words_of(pid).contains("1000");
        (!descendants(serve.pid()).iter().any(words)).then_some(())
    });
    assert!(serve.stop().success());

    let asked = format!("{ONE}\n[[policy]]\ntools = [\"one\"]\ndecision = \"ask\"\n");
    let folder = trusted(&asked);
    let mut host = mcp(&folder, &["--standalone"]);
    host.ask(&initialize(0));
    host.send(&legacy_call(1, "one", &json!({}), &json!({})));
    assert_eq!(host.reply()["method"], "elicitation/create");
    assert!(host.end().success());
    assert_eq!(effects(&folder), 0);
}

/// A client that has closed its end and leaves the answers unread is given up, alone and
/// attached.
#[test]
fn answers_that_nobody_takes_do_not_hold_up_the_end() {
    let folder = trusted(&format!("{ONE}{EVERY_BUILTIN}"));
    let serve = crate::support::drive::Serve::start(&folder);
    let text = "x".repeat(200_000);
    let call = modern_call(1, "builtin_echo", &json!({ "text": text }), &json!({}));
    for args in [&["--standalone"][..], &[]] {
        let mut child = callgate(&folder)
            .arg("mcp")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the server");
        let stdout = child.stdout.take().expect("piped");
        let mut stdin = child.stdin.take().expect("piped");
        writeln!(stdin, "{call}").expect("it reads");
        drop(stdin);
        assert!(end_of(&mut child, "the server").success(), "{args:?}");
        drop(stdout);
    }
    assert!(serve.stop().success());
}
