//! MCP in lines: approvals that a client's user gives, the state that a client keeps for them, and
//! junk between messages. G-6, G-6b.

use callgate_testing::mcp::{initialize, legacy_call, modern_call};
use callgate_testing::scripts::{EVERY_BUILTIN, ONE, SLOW, TOOL, effects};
use callgate_testing::wait_for;
use serde_json::{Value, json};

use crate::support::host::Host;
use callgate_testing_workspace::{Folder, Opened, records, trusted, trusted_with, verified};

const ASKED: &str = r#"
[[policy]]
tools = ["one", "builtin/echo"]
decision = "ask"
"#;

fn text_of(reply: &Value) -> &str {
    reply["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {reply}"))
}

/// A modern call of `one`, with more in its params.
fn round(id: u64, n: u64, more: Value) -> Value {
    let mut call = modern_call(id, "one", &json!({ "n": n }), &json!({}));
    for (key, value) in more.as_object().into_iter().flatten() {
        call["params"][key] = value.clone();
    }
    call
}

/// G-6, G-6b: a pending approval is put to the client's user: in rounds where the era has them, by
/// elicitation where not. A decline is a denial, recorded as that user's.
#[test]
fn a_client_s_user_approves() {
    let folder = trusted(&format!("{ONE}{ASKED}{EVERY_BUILTIN}"));
    let mut host = Host::mcp(&folder, &[]);
    let accept = json!({ "action": "accept", "content": { "approve": true } });

    let asked = host.ask(&round(1, 1, json!({})));
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let state = result["requestState"].clone();
    let answers = json!({ "callgate_approval": accept });
    // State that was given for another input is not good for this one.
    let stolen = host.ask(&round(
        2,
        2,
        json!({ "requestState": state, "inputResponses": answers }),
    ));
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    assert_eq!(effects(&folder), 0);
    let done = host.ask(&round(
        3,
        1,
        json!({ "requestState": state, "inputResponses": answers }),
    ));
    assert_eq!(text_of(&done), r#"{"got":{"n":1}}"#);

    let asked = host.ask(&round(4, 3, json!({})));
    let state = asked["result"]["requestState"].clone();
    let answers = json!({ "callgate_approval": { "action": "decline" } });
    let denied = host.ask(&round(
        5,
        3,
        json!({ "requestState": state, "inputResponses": answers }),
    ));
    assert_eq!(
        denied["result"]["_meta"]["callgate/call"]["fault"], "denied",
        "{denied}"
    );

    // Whoever closes the question, or answers something else, has not said no: nothing is
    // decided, and it is not asked once more.
    for (n, left) in [
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": { "approve": "yes" } }),
        json!("yes"),
    ]
    .into_iter()
    .enumerate()
    {
        let n = 10 + n as u64;
        let asked = host.ask(&round(50, n, json!({})));
        let state = asked["result"]["requestState"].clone();
        let answers = json!({ "callgate_approval": left });
        let open = host.ask(&round(
            51,
            n,
            json!({ "requestState": state, "inputResponses": answers }),
        ));
        let fault = &open["result"]["_meta"]["callgate/call"]["fault"];
        assert_eq!(fault, "needs_approval", "{left}: {open}");
    }

    host.ask(&initialize(6));
    host.send(&legacy_call(59, "one", &json!({ "n": 20 }), &json!({})));
    let question = host.reply();
    let left = json!({ "action": "cancel" });
    host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": left }));
    let open = host.reply();
    let fault = &open["result"]["_meta"]["callgate/call"]["fault"];
    assert_eq!(fault, "needs_approval", "{open}");
    // Also for a tool that would answer at once: the pipe goes on meanwhile.
    host.send(&legacy_call(
        60,
        "builtin_echo",
        &json!({ "n": 4 }),
        &json!({}),
    ));
    let question = host.reply();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(
        host.ask(&json!({ "jsonrpc": "2.0", "id": 61, "method": "ping" }))["id"],
        61
    );
    host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept }));
    assert_eq!(text_of(&host.reply()), r#"{"n":4}"#);
    host.send(&legacy_call(7, "one", &json!({ "n": 4 }), &json!({})));
    let question = host.reply();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept }));
    assert_eq!(text_of(&host.reply()), r#"{"got":{"n":4}}"#);
    assert_eq!(effects(&folder), 2);
    host.end();
    let by: Vec<Value> = records(&folder)
        .into_iter()
        .filter(|record| record["kind"] == "approval.grant")
        .map(|record| record["by"].clone())
        .collect();
    assert_eq!(by.len(), 3, "{by:?}");
    let denied = records(&folder)
        .iter()
        .filter(|record| record["kind"] == "approval.deny")
        .count();
    assert_eq!(denied, 1, "the one that was declined");
}

/// `slow` beside `one`, which its user must approve.
fn asking_workspace() -> Folder {
    let slow = ONE.replace("\"one\"", "\"slow\"").replace("ONE", "SLOW");
    let config = format!("{ONE}{ASKED}{}", slow.replace("tool.sh", "slow.sh"));
    let files = [
        ("callgate.toml", config.as_str()),
        ("tool.sh", TOOL),
        ("slow.sh", SLOW),
    ];
    trusted_with(&files)
}

/// Asks with each of these states while another call of the pipe is at work: each is refused and
/// decides nothing, and the other call ends as if nothing had been.
fn refused_meanwhile(folder: &Folder, host: &mut Host, n: u64, states: &[Value]) {
    let before = effects(folder);
    host.send(&modern_call(100, "slow", &json!({}), &json!({})));
    wait_for("the start", || {
        (effects(folder) == before + 1).then_some(())
    });
    let accept = json!({ "action": "accept", "content": { "approve": true } });
    let answers = json!({ "callgate_approval": accept });
    for state in states {
        let more = json!({ "requestState": state, "inputResponses": answers });
        let refused = host.ask(&round(101, n, more));
        assert_eq!(refused["id"], 101, "{refused}");
        assert_eq!(refused["error"]["code"], -32602, "{state}: {refused}");
        let words = refused["error"]["message"].as_str().expect("words");
        assert!(words.starts_with("`requestState` "), "{words}");
        assert!(refused["error"]["data"].is_null(), "{refused}");
    }
    assert_eq!(effects(folder), before + 1);
    folder.write("go", "");
    let done = host.reply();
    assert_eq!(
        (&done["id"], text_of(&done)),
        (&json!(100), r#"{"done":true}"#)
    );
    std::fs::remove_file(folder.join("go")).expect("it was written just now");
}

/// What was granted and denied so far.
fn decisions(folder: &Folder) -> Vec<Value> {
    let kinds = records(folder).into_iter().map(|mut r| r["kind"].take());
    kinds
        .filter(|kind| {
            ["approval.grant", "approval.deny"]
                .iter()
                .any(|k| kind == k)
        })
        .collect()
}

/// State that was changed anywhere, or cut, approves nothing and harms no other call; as it was
/// given it is still good.
#[test]
fn changed_state_is_refused() {
    let folder = asking_workspace();
    let mut host = Host::mcp(&folder, &[]);
    let asked = host.ask(&round(1, 1, json!({})));
    let state = asked["result"]["requestState"].as_str().expect("a state");
    let flipped = (0..state.len()).step_by(7).map(|at| {
        let mut bytes = state.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        json!(String::from_utf8(bytes).expect("text"))
    });
    let cut = [
        0,
        1,
        16,
        32,
        state.len() / 2,
        state.len() - 2,
        state.len() - 1,
    ];
    let cut = cut.map(|at| json!(state[..at]));
    let longer = [json!(format!("{state}00")), json!(state.to_uppercase())];
    let others = [json!(7), json!({ "approval": "x" }), json!([state])];
    let states: Vec<Value> = flipped.chain(cut).chain(longer).chain(others).collect();
    refused_meanwhile(&folder, &mut host, 1, &states);
    assert_eq!(decisions(&folder), [Value::Null; 0]);

    let accept = json!({ "action": "accept", "content": { "approve": true } });
    let answers = json!({ "callgate_approval": accept });
    let more = json!({ "requestState": state, "inputResponses": answers });
    assert_eq!(text_of(&host.ask(&round(2, 1, more))), r#"{"got":{"n":1}}"#);
    assert_eq!(decisions(&folder), ["approval.grant"]);
    host.end();
    verified(&folder);
}

/// State is good for an hour, whoever serves the workspace then; later it approves nothing and
/// harms no other call, and the user is asked anew.
#[test]
fn old_state_is_refused() {
    let folder = asking_workspace();
    let at = |ahead_ms: u64| Host::mcp_of(Opened::ahead(&folder, ahead_ms), &[]);
    let mut first = at(0);
    let states =
        [1, 2].map(|n| first.ask(&round(n, n, json!({})))["result"]["requestState"].clone());
    first.end();
    let accept = json!({ "action": "accept", "content": { "approve": true } });
    let answers = json!({ "callgate_approval": accept });

    // A minute for a machine that is slow.
    let mut soon = at(3_600_000 - 60_000);
    let more = json!({ "requestState": states[0], "inputResponses": answers });
    let done = soon.ask(&round(3, 1, more));
    assert_eq!(text_of(&done), r#"{"got":{"n":1}}"#);
    soon.end();

    let mut late = at(3_600_001);
    refused_meanwhile(&folder, &mut late, 2, &states[1..]);
    assert_eq!(decisions(&folder), ["approval.grant"]);
    let asked = late.ask(&round(4, 2, json!({})));
    let more = json!({
        "requestState": asked["result"]["requestState"], "inputResponses": answers,
    });
    let done = late.ask(&round(5, 2, more));
    assert_eq!(text_of(&done), r#"{"got":{"n":2}}"#);
    late.end();
}

/// Junk between messages is refused line by line; ids come back as the bytes they were.
#[test]
fn junk_costs_its_own_line() {
    let folder = trusted(ONE);
    let mut host = Host::mcp(&folder, &[]);
    for (line, code) in [
        ("nonsense", -32700),
        (
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
        ),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no/such\"}",
            -32601,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nope\"}}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"cursor\":7}}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\"}",
            -32602,
        ),
    ] {
        assert!(host.send_bytes(format!("{line}\n").as_bytes()));
        assert_eq!(host.reply()["error"]["code"], code, "{line}");
    }
    let mut long = vec![b'x'; (16 << 20) + 2];
    long.push(b'\n');
    assert!(host.send_bytes(&long));
    assert_eq!(host.reply()["error"]["code"], -32600);
    let big = "123456789012345678901234567890";
    assert!(host.send_bytes(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{big},\"method\":\"ping\"}}\n").as_bytes()
    ));
    assert_eq!(host.reply()["result"], json!({}));
    host.end();
}
