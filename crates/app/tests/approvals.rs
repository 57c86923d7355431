//! Approvals at the real program: a person sees all that is approved, on every way to decide.

use serde_json::{Value, json};

use crate::support::drive::{Host, Serve, chain, cli, lines_of, run_with};
use crate::support::mcp::{initialize, legacy_call, mcp, modern_call};
use crate::support::workspace::{ONE, effects, trusted, trusted_with};
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

/// G-6d: a larger input than is shown is refused with the reason; the largest that is shown can be
/// approved.
#[test]
fn larger_inputs_are_refused() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let call = |length: usize| {
        let input = json!({ "text": "x".repeat(length) });
        serve.call(&json!({ "tool": "one", "input": input }))
    };
    let around = json!({ "text": "" }).to_string().len();
    let fits = call(64 * 1024 - around);
    assert_eq!(fits["fault"]["kind"], "needs_approval", "{fits}");
    let id = fits["fault"]["data"]["approval"].as_str().expect("an id");
    cli(&folder, &["approvals", "grant", id]).good();
    assert_eq!(call(64 * 1024 - around)["ok"], true);
    let more = call(64 * 1024 - around + 1);
    assert_eq!(more["fault"]["kind"], "too_large", "{more}");
    let words = more["fault"]["message"].as_str().expect("words");
    assert_eq!(
        words,
        "the input that a person must approve exceeds 65536 bytes"
    );
    assert_eq!(effects(&folder), 1);
    assert!(serve.stop().success());
}

/// G-6e: the caller's 65th approval is refused for the time being, and says what to do; a decision
/// makes room.
#[test]
fn a_caller_has_so_many_pending_approvals() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let call = |n: u64| serve.call(&json!({ "tool": "one", "input": { "n": n } }))["fault"].clone();
    let ids: Vec<Value> = (0..64)
        .map(|n| call(n)["data"]["approval"].clone())
        .collect();
    assert!(ids.iter().all(Value::is_string), "{ids:?}");
    let full = call(64);
    assert_eq!(full["kind"], "rate_limited", "{full}");
    let words = full["message"].as_str().expect("words");
    assert!(
        words.contains("64 approvals of this caller wait"),
        "{words}"
    );
    assert_eq!(call(0)["data"]["approval"], ids[0]);
    cli(
        &folder,
        &["approvals", "deny", ids[1].as_str().expect("an id")],
    )
    .good();
    assert_eq!(call(64)["kind"], "needs_approval");
    assert!(serve.stop().success());
}

/// A client's answer to a question in the newer era.
fn answered(host: &mut Host, input: &Value, asked: &Value, answer: &Value) -> Value {
    let mut again = modern_call(2, "one", input, &json!({}));
    again["params"]["requestState"] = asked["result"]["requestState"].clone();
    again["params"]["inputResponses"] = json!({ "callgate_approval": answer });
    host.ask(&again)
}

/// G-6b, G-6d: a client's user is asked where the whole input fits the message; else the call waits
/// for a person like any other, and what a client says to that counts for nothing.
#[test]
fn a_client_is_asked_only_with_the_whole_input() {
    let folder = workspace();
    let mut host = mcp(&folder, &["--standalone"]);
    let yes = json!({ "action": "accept", "content": { "approve": true } });
    let whole = "May `one` be called with {\"text\":\"\"}?".len();
    for (length, fits) in [(2000 - whole, true), (2000 - whole + 1, false)] {
        let input = json!({ "text": "x".repeat(length) });
        let reply = host.ask(&modern_call(1, "one", &input, &json!({})));
        let asks = reply["result"]["resultType"] == "input_required";
        assert_eq!(asks, fits, "{reply}");
        if fits {
            let done = answered(&mut host, &input, &reply, &yes);
            assert_eq!(done["result"]["isError"], false, "{done}");
        } else {
            let fault = &reply["result"]["_meta"]["callgate/call"]["fault"];
            assert_eq!(fault, "needs_approval", "{reply}");
        }
    }
    host.ask(&initialize(3));
    let long = json!({ "text": "y".repeat(2000) });
    let reply = host.ask(&legacy_call(4, "one", &long, &json!({})));
    let fault = &reply["result"]["_meta"]["callgate/call"]["fault"];
    assert_eq!(fault, "needs_approval", "{reply}");
    assert_eq!(effects(&folder), 1);
    assert!(host.end().success());
    let granted = chain(&folder);
    let granted: Vec<_> = granted
        .iter()
        .filter(|r| r["kind"] == "approval.grant")
        .collect();
    assert_eq!(granted.len(), 1);
    assert!(granted[0]["displayed"].is_string() && granted[0]["input"].is_string());
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

/// G-6f, S-18: a secret in a slot is not displayed, however it is written; slots that differ only in
/// what is not displayed are told apart all the same.
#[test]
fn secrets_in_slots_are_not_displayed() {
    let folder = trusted_with(&[("callgate.toml", SLOTTED), ("tool.sh", NOTE)]);
    let mut seen = Vec::new();
    for content in [
        r#"{"token":"swordfish-7"}"#,
        r#"{"token":"\u0073wordfish-7"}"#,
    ] {
        with_slot(&folder, "AID.SL.v1", Some(content), None);
        let shown = newest(&folder)["shown"]
            .as_str()
            .expect("a text")
            .to_owned();
        assert!(
            !shown.contains("wordfish") && shown.contains("\"digest\":"),
            "{shown}"
        );
        seen.push(shown);
    }
    assert_ne!(seen[0], seen[1]);
}

/// G-5, G-6f: a lease for one input opens no call that brings slots, and is not spent by it.
#[test]
fn a_lease_for_an_input_is_not_for_slots() {
    let folder = trusted_with(&[("callgate.toml", SLOTTED), ("tool.sh", NOTE)]);
    let grant = |more: &[&str]| {
        let args = [&["lease", "grant", "leased"], more].concat();
        cli(&folder, &args).good().out.trim().to_owned()
    };
    let call = |content, lease: &str| with_slot(&folder, "AID.LEASED.v1", content, Some(lease));
    let slots = Some("{\"cmd\": \"ls\"}");
    let bound = grant(&["--input", "{}"]);
    let refused = call(slots, &bound);
    assert_eq!(
        (&refused["error"], &refused["reason"]),
        (&json!("lease_rejected"), &json!("input mismatch")),
        "{refused}"
    );
    let got = refused["got"].as_str().expect("what came");
    assert!(got.contains("without `--input`"), "{got}");
    assert_eq!(call(None, &bound)["status"], "OK");
    assert_eq!(call(slots, &grant(&[]))["status"], "OK");
}
