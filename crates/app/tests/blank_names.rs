//! Tools whose names have blanks, as the contract's hosts have them, on every wire. TP-64, P-18.

use crate::support::drive::{Host, Serve, cli, line, run, run_with};
use crate::support::mcp::{mcp, modern_call};
use crate::support::workspace::trusted_with;
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

const NAME: &str = "Fetch a page";
const ID: &str = "fetch_a_page";

/// A worker that gives back the name under which it was asked.
const WORKER: &str = r#"
import json, os, socket
gate = socket.socket(fileno=int(os.environ["CALLGATE_FD"])).makefile("rw")
for text in gate:
    request = json.loads(text)
    gate.write(json.dumps({"call": request["call"], "output": {"tool": request["tool"]}}) + "\n")
    gate.flush()
"#;

fn config(more: &str) -> String {
    format!(
        "[[tool]]\nname = \"{NAME}\"\ntier = 1\ntags = [\"tag.page\"]\n\
         input_schema = {{ type = \"object\" }}\n\
         runner = {{ kind = \"pool\", command = [\"{}\", \"worker/run.py\"] }}\n{more}",
        crate::support::drive::python()
    )
}

fn workspace(more: &str) -> Folder {
    trusted_with(&[("callgate.toml", &config(more)), ("worker/run.py", WORKER)])
}

fn same(value: &Value) {
    assert_eq!(*value, json!({ "tool": NAME }));
}

#[test]
fn every_wire_knows_it() {
    let folder = workspace("[service]\nallow_entries = []\n");
    for name in [NAME, ID, "AID.TOOL.FETCH_A_PAGE.v1"] {
        same(&cli(&folder, &["call", name, "{}"]).good().json());
    }
    let shown = cli(&folder, &["tools", "show", NAME]).good().json();
    assert_eq!(shown["name"], ID);

    let place = folder.path().to_str().expect("a path");
    let listed = run(callgate(&folder).args(["toolhost", "--list", place])).good();
    assert!(listed.out.contains(NAME), "{}", listed.out);
    let mut host = Host::start(&folder, place);
    let reply = host.ask(&line("AID.TOOL.FETCH_A_PAGE.v1", &json!({}), ""));
    let output = reply["output_json"].as_str().expect("an output");
    same(&serde_json::from_str(output).expect("JSON"));
    assert!(host.end().success());

    let mut host = mcp(&folder, &["--standalone"]);
    let reply = host.ask(&modern_call(1, ID, &json!({}), &json!({})));
    let text = reply["result"]["content"][0]["text"].as_str();
    same(&serde_json::from_str(text.expect("a text")).expect("JSON"));
    host.close_input();
    assert!(host.end().success());

    let serve = Serve::start(&folder);
    for name in [NAME, ID] {
        let body = serve.call(&json!({ "tool": name, "input": {} }));
        same(&body["output"]);
    }
    assert!(serve.stop().success());
    let request = json!({ "protocol_version": 1, "tool": NAME, "entry": NAME, "payload": {} });
    let told = run_with(
        callgate(&folder).arg("tool"),
        request.to_string().as_bytes(),
    );
    same(&told.good().json()["result"]);

    // Traces have the name it was declared by, and are found by both.
    let trace = cli(&folder, &["trace", "--last", "--json"]).good().json();
    let names = [&trace["tool"], &trace["tool_name"], &trace["tool_id"]];
    assert_eq!(names, [&json!(NAME), &json!(NAME), &json!(ID)]);
    for name in [NAME, ID] {
        let found = cli(&folder, &["trace", "list", "--tool", name, "--json"]).good();
        assert!(!found.out.trim().is_empty(), "{name}");
    }
}

/// What the owner says of it by either name counts.
#[test]
fn rules_mean_it_by_both_names() {
    for name in [NAME, ID] {
        let folder = workspace(&format!(
            "[[policy]]\ntools = [\"{name}\"]\ndecision = \"deny\"\n"
        ));
        for called in [NAME, ID] {
            let ran = cli(&folder, &["call", called, "{}"]);
            assert!(ran.err.contains("denied"), "{name} {called}: {ran:?}");
        }
    }
    let folder = workspace("[leases]\nenforce_from_tier = 1\n");
    let granted = cli(&folder, &["lease", "grant", NAME, "--json"])
        .good()
        .json();
    let token = granted["token"].as_str().expect("a token");
    let ran = cli(&folder, &["call", ID, "{}", "--lease", token]);
    same(&ran.good().json());
}
