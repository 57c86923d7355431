//! Approvals at the real program: a person sees all that is approved, on every way to decide.

use serde_json::{Value, json};

use crate::support::drive::{cli, lines_of, run_with};
use crate::support::mcp::{mcp, modern_call};
use crate::support::workspace::{ONE, trusted, trusted_with};
use crate::support::{Folder, callgate};

const ASKED: &str = r#"
[secrets]
env = ["APPROVAL_SECRET"]
[[policy]]
decision = "ask"
"#;

fn workspace() -> Folder {
    trusted(&format!("{ONE}{ASKED}"))
}

/// Calls, is to be approved, and gives the approval's id.
fn asked(folder: &Folder, text: &str) -> String {
    let input = json!({ "text": text }).to_string();
    let body = cli(folder, &["--json", "call", "one", "--standalone", &input]).json();
    let id = body["fault"]["data"]["approval"].as_str();
    id.unwrap_or_else(|| panic!("{body}")).to_owned()
}

/// G-6d: the list says where it cuts and what shows the rest, which shows all of it.
#[test]
fn the_end_of_a_long_input_is_seen() {
    let folder = workspace();
    let text = format!("{}; rm -rf ~", "echo good; ".repeat(245));
    let id = asked(&folder, &text);
    let listed = cli(&folder, &["approvals"]).good().out;
    let row = listed
        .lines()
        .find(|line| line.contains(&id))
        .expect("a row");
    assert!(!row.contains("rm -rf"), "{row}");
    assert!(
        row.contains("…cut, ") && row.ends_with(&format!("approvals show {id}")),
        "{row}"
    );
    let shown = cli(&folder, &["approvals", "show", &id]).good().out;
    assert!(shown.contains("; rm -rf ~\""), "{shown}");
    let body = cli(&folder, &["--json", "approvals", "show", &id])
        .good()
        .json();
    let input = json!({ "text": text }).to_string();
    assert_eq!(
        (&body["shown"], &body["whole"]),
        (&json!(input), &json!(true))
    );
    let digest = callgate_call::Digest::of_bytes(input.as_bytes()).to_hex();
    assert_eq!(body["displayed"], digest, "{body}");
    assert!(shown.contains(&digest), "{shown}");

    // A short one is not said to be cut, and nothing is hidden in it.
    let short = asked(&folder, "short");
    let listed = cli(&folder, &["approvals"]).good().out;
    let row = listed
        .lines()
        .find(|line| line.contains(&short))
        .expect("a row");
    assert!(row.ends_with(r#"{"text":"short"}"#), "{row}");
    let missing = cli(&folder, &["approvals", "show", "a-nothing"]);
    assert!(
        missing.code() == 1 && missing.err.contains("not found"),
        "{}",
        missing.err
    );
}

/// G-6d: what would hide or reorder text is an escape, for a person at a terminal and for the user
/// of a client; what was approved is run as it was.
#[test]
fn invisible_characters_are_seen() {
    let folder = workspace();
    let text = "a\u{202e}b\u{200b}c\u{1b}[2K\u{9b}d\u{e0041}\ne";
    let escaped = r"a\u202eb\u200bc\u001b[2K\u009bd\udb40\udc41\ne";
    let id = asked(&folder, text);
    for args in [&["approvals"][..], &["approvals", "show", &id]] {
        let shown = cli(&folder, args).good().out;
        assert!(shown.contains(escaped), "{shown:?}");
        let hidden = |c: char| !c.is_ascii() && c != '…';
        assert!(
            !shown.contains(hidden) && !shown.contains('\u{1b}'),
            "{shown:?}"
        );
    }
    let mut host = mcp(&folder, &["--standalone"]);
    let reply = host.ask(&modern_call(1, "one", &json!({ "text": text }), &json!({})));
    let question = &reply["result"]["inputRequests"]["callgate_approval"];
    let message = question["params"]["message"].as_str().expect("a question");
    assert_eq!(
        message,
        format!("May `one` be called with {{\"text\":\"{escaped}\"}}?")
    );
    assert!(host.end().success());
}

/// G-1b, G-6d: what is displayed otherwise has an approval of its own, and a decision can name what
/// it is on.
#[test]
fn a_decision_is_on_what_was_displayed() {
    let folder = workspace();
    let call = |n: &str| {
        let input = format!("{{\"n\":{n}}}");
        cli(&folder, &["--json", "call", "one", "--standalone", &input]).json()
    };
    let id = |body: &Value| {
        body["fault"]["data"]["approval"]
            .as_str()
            .map(str::to_owned)
    };
    let one = id(&call("1")).expect("an approval");
    let other = id(&call("1.0")).expect("an approval");
    assert_ne!(one, other);
    let digest = |id: &str| {
        let body = cli(&folder, &["--json", "approvals", "show", id])
            .good()
            .json();
        body["displayed"].as_str().expect("a digest").to_owned()
    };
    let grant =
        |id: &str, digest: &str| cli(&folder, &["approvals", "grant", id, "--displayed", digest]);
    let wrong = grant(&one, &digest(&other));
    assert_eq!(wrong.code(), 1);
    assert!(
        wrong.err.contains("what was displayed is not"),
        "{}",
        wrong.err
    );
    grant(&one, &digest(&one)).good();
    assert_eq!(call("1.0")["fault"]["kind"], "needs_approval");
    assert_eq!(call("1")["ok"], true);
}

const SLOTTED: &str = r#"
[leases]
enforce_from_tier = 2
[secrets]
env = ["APPROVAL_SECRET"]
[[tool]]
name = "sl"
aid = "AID.SL.v1"
tier = 1
slots = true
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
[[tool]]
name = "leased"
aid = "AID.LEASED.v1"
tier = 2
slots = true
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
[[policy]]
tools = ["sl"]
decision = "ask"
"#;

/// Answers with no change of the slots, and notes what it received.
const NOTE: &str = r#"
read -r all
printf '%s\n' "$all" >> effects.log
echo '{"output":{}}'
"#;

/// One call by `toolhost --run`, with `content` in slot 6, or without slots.
fn with_slot(folder: &Folder, aid: &str, content: Option<&str>, lease: Option<&str>) -> Value {
    let mut request = json!({ "input_json": "{}" });
    if let Some(content) = content {
        let artifact = json!({
            "type": "json", "provenance": "p", "content_json": content, "size_bytes": 13,
        });
        request["ds_state"] = json!({ "slots": { "6": artifact } });
    }
    if let Some(lease) = lease {
        request["_lease_token"] = lease.into();
    }
    let mut command = callgate(folder);
    command.args(["toolhost", "--run", ".", aid]);
    command.env("APPROVAL_SECRET", "swordfish-7");
    let ran = run_with(&mut command, request.to_string().as_bytes());
    ran.good().json()
}

/// The newest approval, as programs see it.
fn newest(folder: &Folder) -> Value {
    cli(folder, &["--json", "approvals"]).good().json()["approvals"][0].clone()
}

/// G-6f: slots are displayed with the input, and an approval is for these slots alone.
#[test]
fn an_approval_is_for_the_slots_it_displays() {
    let folder = trusted_with(&[("callgate.toml", SLOTTED), ("tool.sh", NOTE)]);
    let call = |content| with_slot(&folder, "AID.SL.v1", content, None);
    let waits = |reply: &Value| {
        let error = reply["error"].as_str().unwrap_or_default();
        error.starts_with("needs approval")
    };
    let good = Some("{\"cmd\": \"ls\"}");
    let bad = Some("{\"cmd\": \"rm -rf /\"}");
    assert!(waits(&call(good)));
    let asked = newest(&folder);
    let shown = r#"{} and beside it {"slots":{"6":{"content_json":"{\"cmd\": \"ls\"}","provenance":"p","size_bytes":13,"type":"json"}}}"#;
    assert_eq!(asked["shown"], shown);
    assert_eq!(
        asked["input"],
        callgate_call::Digest::of_bytes(b"{}").to_hex()
    );
    let id = asked["id"].as_str().expect("an id");
    let page = cli(&folder, &["approvals", "show", id]).good().out;
    assert!(
        page.contains("and beside it") && page.contains("ls"),
        "{page}"
    );
    cli(&folder, &["approvals", "grant", id]).good();

    assert!(
        waits(&call(bad)) && waits(&call(None)),
        "other slots were approved"
    );
    assert_eq!(newest(&folder)["shown"], "{}");
    assert_eq!(lines_of(&folder.join("effects.log")).len(), 0);
    assert_eq!(call(good)["status"], "OK");
    let received = lines_of(&folder.join("effects.log"));
    assert!(
        received.len() == 1 && received[0].contains("ls"),
        "{received:?}"
    );
    assert!(waits(&call(good)), "it is spent");
}
