//! `callgate mcp` outlives the gate it is attached to: what ran when that died is told as lost or
//! made again under its key, and the conversation goes on, with the next gate or alone.

use std::thread;

use crate::support::callgate;
use crate::support::drive::{Host, Ran, Serve, chain, run_with, verified};
use crate::support::mcp::{initialize, legacy_call, mcp, modern_call};
use crate::support::processes::{descendants, words_of};
use crate::support::workspace::{HANGS, ONE, OR_HANG, SLOW, effects, started, trusted_with};
use serde_json::{Value, json};

fn hang() -> Value {
    json!({ "text": "hang" })
}

/// Sends a call that hangs, kills the gate, and reads what the client is told.
fn lose(host: &mut Host, serve: Serve, folder: &crate::support::Folder, call: &Value) -> Value {
    let before = effects(folder);
    assert!(host.send(call));
    started(folder, before + 1);
    serve.kill();
    host.reply()
}

fn works(host: &mut Host, id: u64) {
    let input = json!({ "n": 1 });
    for call in [
        modern_call(id, "one", &input, &json!({})),
        legacy_call(id, "one", &input, &json!({})),
    ] {
        let reply = host.ask(&call);
        let text = &reply["result"]["content"][0]["text"];
        assert_eq!(text, r#"{"got":{"n":1}}"#, "{reply}");
        assert_eq!(reply["id"], id);
    }
}

#[test]
fn a_lost_call_is_told_and_the_next_one_works_alone() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", OR_HANG)]);
    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    works(&mut host, 1);
    let call = modern_call(7, "one", &hang(), &json!({}));
    let lost = lose(&mut host, serve, &folder, &call);
    assert_eq!(lost["id"], 7, "{lost}");
    assert_eq!(lost["error"]["code"], -32603);
    let words = lost["error"]["message"].as_str().expect("words");
    assert!(words.contains("the gate went away"), "{words}");
    let ran = effects(&folder);
    works(&mut host, 2);
    assert_eq!(effects(&folder), ran + 2, "what was lost did not run again");
    assert!(host.end().success());
    verified(&folder);
}

/// Also the last one of a client that asks nothing more.
#[test]
fn a_call_lost_after_the_end_of_input_is_told() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", OR_HANG)]);
    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    host.send(&modern_call(7, "one", &hang(), &json!({})));
    started(&folder, 1);
    host.close_input();
    serve.kill();
    let lost = host.reply();
    assert_eq!(
        (&lost["id"], &lost["error"]["code"]),
        (&json!(7), &json!(-32603))
    );
    assert!(host.end().success());
    assert_eq!(effects(&folder), 1);
}

#[test]
fn the_next_gate_is_found() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", OR_HANG)]);
    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    works(&mut host, 1);
    serve.kill();
    let serve = Serve::start(&folder);
    works(&mut host, 2);
    // It is the gate that runs the tool, and not the pipe's own process.
    let before = effects(&folder);
    host.send(&modern_call(3, "one", &hang(), &json!({})));
    started(&folder, before + 1);
    let sleeps = |pid: u32| {
        descendants(pid)
            .iter()
            .any(|&pid| words_of(pid).contains("1000"))
    };
    // It notes its start before it sleeps.
    crate::support::wait_for("the tool", || sleeps(serve.pid()).then_some(()));
    assert!(!sleeps(host.pid()));
    host.kill();
    assert!(serve.stop().success());
}

/// What a legacy client said in its handshake is known to whoever serves it next.
#[test]
fn a_handshake_outlives_its_gate() {
    let asked = format!("{ONE}\n[[policy]]\ntools = [\"one\"]\ndecision = \"ask\"\n");
    let folder = trusted_with(&[("callgate.toml", &asked), ("tool.sh", OR_HANG)]);
    let mut serve = Some(Serve::start(&folder));
    let mut host = mcp(&folder, &[]);
    host.ask(&initialize(0));
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    // By the first gate, by the second, and by none.
    for round in 1..=3 {
        host.send(&legacy_call(
            round,
            "one",
            &json!({ "n": round }),
            &json!({}),
        ));
        let question = host.reply();
        assert_eq!(
            question["method"], "elicitation/create",
            "{round}: {question}"
        );
        let accept = json!({ "action": "accept", "content": { "approve": true } });
        host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept }));
        let reply = host.reply();
        assert_eq!(reply["result"]["isError"], false, "{round}: {reply}");
        if let Some(serve) = serve.take() {
            serve.kill();
        }
        if round == 1 {
            serve = Some(Serve::start(&folder));
        }
    }
    // It was begun once as far as its client knows, and is not begun again.
    assert_eq!(host.ask(&initialize(9))["error"]["code"], -32600);
    assert!(host.end().success());
}

/// G-3: a call with a key is made again: it runs a second time only if its tool says that it may.
#[test]
fn a_key_makes_a_lost_call_safe_to_repeat() {
    let twice = ONE.replace("\"one\"", "\"twice\"").replace("ONE", "TWICE");
    let twice = twice.replace("tool.sh", "twice.sh") + "idempotent = true\n";
    let config = format!("{ONE}{twice}");
    let files = [
        ("callgate.toml", config.as_str()),
        ("tool.sh", OR_HANG),
        ("twice.sh", SLOW),
    ];
    let folder = trusted_with(&files);
    let key = |key: &str| json!({ "callgate/idempotencyKey": key });
    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    let call = modern_call(1, "one", &hang(), &key("k1"));
    let unknown = lose(&mut host, serve, &folder, &call);
    assert_eq!(unknown["id"], 1);
    let fault = &unknown["result"]["_meta"]["callgate/call"]["fault"];
    assert_eq!(fault, "outcome_unknown", "{unknown}");
    assert_eq!(effects(&folder), 1);
    drop(host);

    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    host.send(&modern_call(2, "twice", &json!({}), &key("k2")));
    started(&folder, 2);
    serve.kill();
    started(&folder, 3);
    folder.write("go", "");
    let reply = host.reply();
    let text = &reply["result"]["content"][0]["text"];
    assert_eq!(
        (&reply["id"], text),
        (&json!(2), &json!(r#"{"done":true}"#))
    );
    assert!(host.end().success());
    let ends = chain(&folder);
    assert_eq!(
        ends.iter().filter(|end| end["kind"] == "outcome").count(),
        1
    );
    verified(&folder);
}

/// What is too long for a gate is refused by it, and costs its own line.
#[test]
fn a_message_too_long_costs_its_own_line() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", OR_HANG)]);
    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    let mut long = vec![b'x'; (16 << 20) + 2];
    long.push(b'\n');
    assert!(host.send_bytes(&long));
    let refused = host.reply();
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    works(&mut host, 1);
    assert!(host.end().success());
    assert!(serve.stop().success());
}

/// A client that asks nothing more waits 5 s for its answers. What takes longer is ended, and
/// that is said: alone, attached and over a bridge.
#[test]
fn what_outlives_its_input_is_said_to_be_dropped() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", HANGS)]);
    let serve = Serve::start(&folder);
    let state = |name: &str| folder.join("state").join(name).display().to_string();
    let bridge = [
        "bridge".to_owned(),
        state("bridge.sock"),
        state("bridge-schema.json"),
    ];
    let ways = [
        vec!["mcp".to_owned(), "--standalone".to_owned()],
        vec!["mcp".to_owned()],
        bridge.to_vec(),
    ];
    let calls: String = [1, 2]
        .map(|id| modern_call(id, "one", &json!({}), &json!({})).to_string() + "\n")
        .concat();
    let said: Vec<Ran> = thread::scope(|scope| {
        let run = |args| run_with(callgate(&folder).args(args), calls.as_bytes());
        let running = ways.map(|args| scope.spawn(move || run(args)));
        running.map(|one| one.join().expect("it ends")).into()
    });
    for ran in said {
        let ran = ran.good();
        assert_eq!(ran.out, "", "{ran:?}");
        let words = "the input ended 5 s ago: 2 requests without an answer";
        assert_eq!(ran.err.matches(words).count(), 1, "{ran:?}");
    }
    // One that is answered in time leaves nothing to say.
    folder.write("tool.sh", crate::support::workspace::TOOL);
    let ran = run_with(callgate(&folder).arg("mcp"), calls.as_bytes()).good();
    assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
    assert!(!ran.err.contains("without an answer"), "{ran:?}");
    assert!(serve.stop().success());
}

/// Whoever names a socket means the gate there. Where none answers it is said that this process
/// serves alone; without a name that is as usual as the other, and nothing is said.
#[test]
fn a_named_socket_that_nobody_answers_is_told() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", OR_HANG)]);
    let ping = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    for command in ["mcp", "rpc"] {
        for (args, is_said) in [
            (&["--socket", "nobody.sock"][..], true),
            (&["--socket", "nobody.sock", "--standalone"], false),
            (&[], false),
        ] {
            let ran = run_with(callgate(&folder).arg(command).args(args), ping).good();
            assert_eq!(ran.out.lines().count(), 1, "{command}: {ran:?}");
            let words = "no gate of yours answers at nobody.sock: serving alone";
            assert_eq!(ran.err.contains(words), is_said, "{command}: {ran:?}");
        }
    }
}
