//! A tool that asks its caller's user, at the real program with a real Python worker: in rounds,
//! by elicitation, and told as a failure where nobody can be asked. F-24.

use crate::support::drive::{Host, Serve, chain, cli, verified};
use crate::support::mcp::{initialize, legacy_call, mcp, modern_call};
use crate::support::workspace::{effects, trusted_with};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[[tool]]
name = "commit"
aid = "AID.TEST.COMMIT.v1"
tier = 1
writes = ["effects.log"]
runner = { kind = "python", entry = "kit:commit" }
"#;

/// Asks twice, and does something once it knows.
const KIT: &str = r#"
from typing import Literal

from callgate import ask, tool

@tool
def commit(text: str) -> str:
    branch = ask("Which branch?")
    if ask(f"Commit to {branch}?", Literal["yes", "no"]) == "no":
        return "left alone"
    with open("effects.log", "a") as effects:
        effects.write(f"{text} on {branch}\n")
    return f"{text} on {branch}"
"#;

fn workspace() -> crate::support::Folder {
    trusted_with(&[("callgate.toml", CONFIG), ("kit.py", KIT)])
}

fn input() -> Value {
    json!({ "text": "fix" })
}

fn accept(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

/// A modern call, and its next rounds: each question is answered by one of `answers`.
fn rounds(host: &mut Host, meta: &Value, answers: &[(&str, Value)]) -> Value {
    let mut call = modern_call(1, "commit", &input(), meta);
    for (wanted, answer) in answers {
        let asked = host.ask(&call);
        let result = &asked["result"];
        assert_eq!(result["resultType"], "input_required", "{asked}");
        let requests = result["inputRequests"].as_object().expect("questions");
        let (key, request) = requests.iter().next().expect("a question");
        assert_eq!(request["method"], "elicitation/create");
        assert_eq!(request["params"]["message"], *wanted, "{asked}");
        // Answers are those to the last questions only; the state has the rest.
        call["params"]["inputResponses"] = json!({ key: answer });
        call["params"]["requestState"] = result["requestState"].clone();
    }
    host.ask(&call)
}

fn said(reply: &Value) -> &str {
    reply["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {reply}"))
}

fn fault_of(reply: &Value) -> &Value {
    &reply["result"]["_meta"]["callgate/call"]["fault"]
}

#[test]
fn a_modern_client_answers_in_rounds() {
    let folder = workspace();
    let mut host = mcp(&folder, &["--standalone"]);
    let both = [
        ("Which branch?", accept("main")),
        ("Commit to main?", accept("yes")),
    ];
    // A question leaves the key free; what is done is done once.
    let key = json!({ "callgate/idempotencyKey": "k" });
    let done = rounds(&mut host, &key, &both);
    assert_eq!(said(&done), "fix on main", "{done}");
    assert_eq!(effects(&folder), 1);
    let again = host.ask(&modern_call(2, "commit", &input(), &key));
    assert_eq!(said(&again), said(&done));
    assert_eq!(effects(&folder), 1);

    let no = [
        ("Which branch?", accept("main")),
        ("Commit to main?", accept("no")),
    ];
    assert_eq!(said(&rounds(&mut host, &json!({}), &no)), "left alone");
    let declined = [("Which branch?", json!({ "action": "decline" }))];
    let failed = rounds(&mut host, &json!({}), &declined);
    assert_eq!(fault_of(&failed), "tool_failed", "{failed}");
    assert_eq!(said(&failed), "not answered (decline): Which branch?");
    assert_eq!(effects(&folder), 1);
    assert!(host.end().success());
    let faults = chain(&folder);
    let asked = faults
        .iter()
        .filter(|record| record["fault"] == "needs_input");
    assert_eq!(asked.count(), 5);
    verified(&folder);
}

#[test]
fn a_legacy_client_is_asked() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    host.ask(&initialize(0));
    host.send(&legacy_call(1, "commit", &input(), &json!({})));
    for (wanted, answer) in [("Which branch?", "main"), ("Commit to main?", "yes")] {
        let question = host.reply();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert_eq!(question["params"]["message"], wanted);
        host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept(answer) }));
    }
    assert_eq!(said(&host.reply()), "fix on main");
    assert_eq!(effects(&folder), 1);
    assert!(host.end().success());
    assert!(serve.stop().success());
}

/// F-24: where nobody can be asked, the failure says what was to be asked.
#[test]
fn other_wires_say_what_is_asked() {
    let folder = workspace();
    let words = "needs answers of the caller's user: Which branch?";
    let serve = Serve::start(&folder);
    let body = json!({ "tool": "commit", "input": input(), "idempotency_key": "k" });
    for _ in 0..2 {
        let reply = serve.call(&body);
        assert_eq!(reply["fault"]["kind"], "needs_input", "{reply}");
        assert_eq!(reply["fault"]["message"], words);
        let requests = &reply["fault"]["data"]["requests"];
        assert_eq!(requests.as_object().map(serde_json::Map::len), Some(1));
    }
    assert!(serve.stop().success());

    let mut toolhost = Host::start(&folder, ".");
    let reply = toolhost.ask(&json!({ "aid": "AID.TEST.COMMIT.v1", "inputs": input() }));
    assert_eq!(
        (&reply["status"], &reply["error"]),
        (&json!("TOOL_ERROR"), &json!(words))
    );
    assert!(toolhost.end().success());

    let mut rpc = crate::support::rpc::rpc(&folder);
    let error = rpc.ask("commit", input())["error"].clone();
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(1002), &json!(words))
    );
    let requests = error["data"]["requests"].as_object();
    assert_eq!(requests.map(serde_json::Map::len), Some(1), "{error}");
    assert!(rpc.end());

    // A client that can not ask is told so: by a result in the older era, by the capability it
    // lacks in the newer.
    let mut host = mcp(&folder, &["--standalone"]);
    let mut silent = initialize(0);
    silent["params"]["capabilities"] = json!({});
    host.ask(&silent);
    let reply = host.ask(&legacy_call(1, "commit", &input(), &json!({})));
    assert_eq!(
        (fault_of(&reply), said(&reply)),
        (&json!("needs_input"), words)
    );
    let none = json!({ "io.modelcontextprotocol/clientCapabilities": {} });
    let reply = host.ask(&modern_call(2, "commit", &input(), &none));
    let needed = &reply["error"]["data"]["requiredCapabilities"];
    assert_eq!(needed, &json!({ "elicitation": {} }), "{reply}");
    assert!(host.end().success());
    assert_eq!(effects(&folder), 0);
    let shown = cli(&folder, &["call", "commit", r#"{"text":"fix"}"#]);
    assert!(
        !shown.status.success() && shown.err.contains(words),
        "{shown:?}"
    );
}
