//! What counts in a workspace, and the commands for people: trust, reload, the example that
//! ships, and each subcommand in words and as JSON.

use std::path::Path;

use crate::support::drive::{Serve, cli, count_of, lines_of, run_with, verified};
use crate::support::workspace::{ONE, SLOW, TOOL, effects, trusted, trusted_with, workspace};
use crate::support::{Folder, callgate, wait_for};
use serde_json::{Value, json};

const TWO: &str = r#"
[[tool]]
name = "two"
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
"#;

fn names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().expect("a list");
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap_or_default())
        .collect()
}

const BUILTINS: [&str; 31] = [
    "artifacts/read",
    "builtin/echo",
    "exec/run",
    "files/delete",
    "files/edit",
    "files/list",
    "files/move",
    "files/read",
    "files/search",
    "files/stat",
    "files/write",
    "memory/append",
    "memory/query",
    "planner/create_plan",
    "planner/delete_plan",
    "planner/get_plan",
    "planner/list_plans",
    "planner/update_task",
    "runs/get",
    "runs/list",
    "runs/start",
    "terminals/attach",
    "terminals/create",
    "terminals/kill",
    "terminals/list",
    "terminals/read_logs",
    "terminals/resize",
    "terminals/write",
    "vector/delete",
    "vector/search",
    "vector/upsert",
];

fn listed(folder: &Folder) -> Vec<String> {
    let list = cli(folder, &["tools", "--json"]).good().json();
    let mut names: Vec<String> = names(&list).into_iter().map(str::to_owned).collect();
    names.sort();
    names
}

/// G-9: a configuration has no effect until it is trusted, nor once it has changed, nor after
/// the trust is taken back; the line says what to do. `--workspace` trusts nothing.
#[test]
fn only_a_trusted_configuration_counts() {
    let folder = workspace(ONE);
    let place = folder.path().to_str().expect("a text path");
    let says = |words: &str| {
        for args in [&["tools"][..], &["tools", "--workspace", place]] {
            let told = cli(&folder, args).good();
            assert!(
                told.err.contains(words) && told.err.contains("callgate trust"),
                "{}",
                told.err
            );
        }
        let doctor = cli(&folder, &["doctor"]);
        assert!(
            doctor.code() == 1 && doctor.out.contains(words),
            "{}",
            doctor.out
        );
    };
    let check = |words: &str| {
        assert_eq!(listed(&folder), BUILTINS);
        says(words);
        let called = cli(&folder, &["call", "one", "{}"]);
        assert_eq!(called.code(), 1);
        assert!(called.err.contains(words) && called.err.contains("tool not found: one"));
        let exec = run_with(
            callgate(&folder).args(["tool_exec", "AID.TEST.ONE.v1"]),
            b"{}",
        );
        let exec = exec.good();
        assert_eq!(exec.json()["error"], "MISSING_TOOL: AID.TEST.ONE.v1");
        assert!(exec.err.contains(words), "{}", exec.err);
        let serve = Serve::start(&folder);
        serve.wait_said(words);
        assert_eq!(names(&serve.get("/v1/tools").1).len(), BUILTINS.len());
        let body = serve.call(&json!({ "tool": "one", "input": {} }));
        assert_eq!(body["fault"]["kind"], "unknown_tool");
        assert!(serve.stop().success());
    };
    check("not trusted yet");
    let shown = cli(&folder, &["trust", "--show"]).good();
    assert!(shown.out.contains("/bin/sh tool.sh"), "{}", shown.out);
    check("not trusted yet");

    let trusted = cli(&folder, &["trust", "--json"]).good().json();
    assert_eq!(
        (&trusted["trusted"], &trusted["tools"][0]["name"]),
        (&json!(true), &json!("one"))
    );
    assert_eq!(listed(&folder).len(), BUILTINS.len() + 1);
    assert_eq!(
        cli(&folder, &["call", "one", "{}"]).good().json(),
        json!({ "got": {} })
    );
    assert_eq!(effects(&folder), 1);

    folder.write("callgate.toml", &ONE.replace("tier = 1", "tier = 0"));
    says("changed since it was trusted");
    let tier = cli(&folder, &["tools", "show", "one", "--json"]).good();
    assert_eq!(tier.json()["tier"], 1, "the trusted form counts");
    folder.write("callgate.toml", ONE);
    assert_eq!(listed(&folder).len(), BUILTINS.len() + 1);
    cli(&folder, &["trust", "--revoke"]).good();
    check("not trusted yet");
    assert_eq!(effects(&folder), 1, "nothing ran untrusted");
    assert_eq!(
        (count_of(&folder, "trust"), count_of(&folder, "untrust")),
        (1, 1)
    );
    verified(&folder);
}

/// G-9: the daemon takes a new configuration on once it is trusted, without a restart, and calls
/// under way end under the old one. A bad file keeps the old configuration and is told with line
/// and column.
#[test]
fn hot_reload() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let has = |name: &str| names(&serve.get("/v1/tools").1).contains(&name);
    assert!(has("one") && !has("two"));

    folder.write("callgate.toml", &format!("{ONE}{TWO}"));
    serve.wait_said("kept the old configuration: callgate.toml changed since it was trusted");
    assert!(has("one") && !has("two"));
    cli(&folder, &["trust"]).good();
    wait_for("the new tool", || has("two").then_some(()));
    serve.wait_said("reloaded: callgate.toml trusted (2 tools)");
    assert_eq!(
        serve.call(&json!({ "tool": "two", "input": { "a": 1 } }))["ok"],
        true
    );

    folder.write("callgate.toml", &format!("{ONE}\n[[tool]]\nname = 7\n"));
    serve.wait_said("kept the old configuration: configuration not loaded");
    serve.wait_said("line 13, column 8");
    assert!(has("one") && has("two"));
    let refused = cli(&folder, &["trust"]);
    assert_eq!(refused.code(), 1);
    assert!(refused.err.contains("line 13, column 8"), "{}", refused.err);
    assert_eq!(
        serve.call(&json!({ "tool": "two", "input": {} }))["ok"],
        true
    );

    // It reads, but does not hold together: it can not be trusted, so it never counts.
    folder.write(
        "callgate.toml",
        &format!("{ONE}{}", ONE.replace("AID.TEST.ONE", "AID.TEST.TWO")),
    );
    let refused = cli(&folder, &["trust"]);
    assert!(
        refused.code() == 1 && refused.err.contains("not trusted"),
        "{}",
        refused.err
    );
    assert!(has("one") && has("two"));

    folder.write("callgate.toml", TWO);
    cli(&folder, &["trust"]).good();
    wait_for("the old tool to go", || (!has("one")).then_some(()));

    std::fs::remove_file(folder.join("callgate.toml")).unwrap();
    serve.wait_said("callgate.toml is gone: the configuration that was trusted last stays");
    assert!(has("two"));
    assert!(serve.stop().success());
}

/// A call that is under way when the configuration changes ends well.
#[test]
fn a_reload_leaves_calls_alone() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", SLOW)]);
    let serve = Serve::start(&folder);
    std::thread::scope(|scope| {
        let under_way = scope.spawn(|| serve.call(&json!({ "tool": "one", "input": {} })));
        wait_for("its start", || (effects(&folder) == 1).then_some(()));
        folder.write("callgate.toml", TWO);
        cli(&folder, &["trust"]).good();
        serve.wait_said("reloaded");
        assert!(!names(&serve.get("/v1/tools").1).contains(&"one"));
        folder.write("go", "");
        let body = under_way.join().expect("an answer");
        assert_eq!(
            (&body["ok"], &body["output"]),
            (&json!(true), &json!({ "done": true }))
        );
    });
    assert!(serve.stop().success());
    verified(&folder);
}

/// The example that ships, as its page says: a Python function, a program, a key, the chain.
#[test]
fn the_example_works() {
    let folder = Folder::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello");
    for name in [
        "callgate.toml",
        "tools/__init__.py",
        "tools/sample.py",
        "tools/append.py",
    ] {
        folder.write(
            name,
            &std::fs::read_to_string(example.join(name)).expect("the example"),
        );
    }
    cli(&folder, &["trust"]).good();
    let greeted = cli(&folder, &["call", "greet", "name=Ada"]).good();
    assert_eq!(greeted.out, "{\"message\":\"Hello Ada\"}\n");
    let append = ["call", "append_line", "line=hello", "--key", "k1"];
    assert_eq!(cli(&folder, &append).good().json(), json!({ "lines": 1 }));
    let again = cli(&folder, &append).good();
    assert_eq!(again.json(), json!({ "lines": 1 }));
    assert!(again.err.contains("recorded outcome"), "{}", again.err);
    assert_eq!(folder.read("notes.txt").as_deref(), Some("hello\n"));

    let request = br#"{"aid":"AID.DEMO.GREET.v1","input_json":"{\"name\":\"Ada\"}"}"#;
    let served = run_with(
        callgate(&folder).args(["toolhost", "--serve", "."]),
        request,
    )
    .good();
    let wanted = r#"{"ok":true,"status":"OK","output_json":"{\"message\":\"Hello Ada\"}","error":"","ds_state":{"delta":true,"slots":{},"removed_slots":[]}}"#;
    assert_eq!(served.out, format!("{wanted}\n"));

    let serve = Serve::start(&folder);
    let asked = cli(&folder, &["serve", "--where"]).good().out;
    assert_eq!(Path::new(asked.trim_end()), serve.socket);
    let body = serve
        .call(&json!({ "tool": "greet", "input": { "name": "Ada" }, "idempotency_key": "k2" }));
    assert_eq!(body["output"], json!({ "message": "Hello Ada" }));
    assert_eq!(body["enforcement"]["level"], "enforced", "{body}");
    // G-11: the key of one wire replays on another.
    let hit = cli(
        &folder,
        &[
            "call",
            "--standalone",
            "--json",
            "greet",
            "name=Ada",
            "--key",
            "k2",
        ],
    );
    assert_eq!(hit.good().json()["idempotent_hit"], true);
    let bad = cli(&folder, &["call", "greet", "--json"]);
    assert_eq!(
        (bad.code(), &bad.json()["fault"]["kind"]),
        (1, &json!("bad_input"))
    );
    assert!(serve.stop().success());
    verified(&folder);
}

/// Pairs follow the tool's schema; a whole object may come as text or on standard input.
#[test]
fn input_from_the_shell() {
    let folder = trusted(ONE);
    let got = |args: &[&str]| {
        cli(&folder, &[&["call", "one"], args].concat())
            .good()
            .json()
    };
    assert_eq!(
        got(&["n=3", "text=3"]),
        json!({ "got": { "n": 3, "text": "3" } })
    );
    assert_eq!(
        got(&["x:=[1,2]", "y=a=b"]),
        json!({ "got": { "x": [1, 2], "y": "a=b" } })
    );
    assert_eq!(got(&["{\"n\": 1}"]), json!({ "got": { "n": 1 } }));
    assert_eq!(got(&[]), json!({ "got": {} }));
    let piped = run_with(callgate(&folder).args(["call", "one", "-"]), b"{\"n\":2}").good();
    assert_eq!(piped.json(), json!({ "got": { "n": 2 } }));
    for (wrong, code) in [("n=three", 1), ("nothing", 2), ("{", 2), ("x:=[", 2)] {
        let ran = cli(&folder, &["call", "one", wrong]);
        assert_eq!((ran.code(), ran.out.as_str()), (code, ""), "{wrong}");
        assert!(ran.err.starts_with("error: "), "{wrong}: {}", ran.err);
    }
    let aid = cli(&folder, &["call", "AID.TEST.ONE.v1", "n=1", "--json"])
        .good()
        .json();
    assert_eq!(
        (&aid["ok"], &aid["output"]),
        (&json!(true), &json!({ "got": { "n": 1 } }))
    );
    assert_eq!(
        cli(&folder, &["call", "one", "n=x", "--timeout", "soon"]).code(),
        2
    );
}

/// `tools`, `tools show`, `doctor`, `completions`, `audit`: words for people, JSON for programs.
#[test]
fn commands_for_people() {
    let folder = trusted(ONE);
    let table = cli(&folder, &["tools"]).good();
    let mut lines = table.out.lines();
    let head: Vec<&str> = lines.next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["NAME", "AID", "TIER", "RUNNER", "DESCRIPTION"]);
    assert!(table.out.contains("AID.TEST.ONE.v1") && table.out.contains("The first"));
    assert!(!table.out.contains('\x1b'), "no colours into a pipe");
    for name in ["one", "AID.TEST.ONE.v1"] {
        let shown = cli(&folder, &["tools", "show", name, "--json"])
            .good()
            .json();
        assert_eq!((&shown["name"], &shown["tier"]), (&json!("one"), &json!(1)));
        assert_eq!(shown["input_schema"]["properties"]["n"]["type"], "integer");
    }
    let unknown = cli(&folder, &["tools", "show", "nobody"]);
    assert_eq!(unknown.code(), 1);
    assert!(unknown.err.contains("callgate tools"), "{}", unknown.err);

    let doctor = cli(&folder, &["doctor", "--json"]).good().json();
    let checks = doctor["checks"].as_array().expect("a list");
    for name in [
        "workspace",
        "state",
        "configuration",
        "chain",
        "gate",
        "python",
        "confinement",
    ] {
        assert!(
            checks
                .iter()
                .any(|check| check["name"] == name && check["ok"] == true),
            "{name}"
        );
    }
    assert!(cli(&folder, &["doctor"]).good().out.contains("confinement"));
    for shell in ["bash", "zsh", "fish"] {
        let script = cli(&folder, &["completions", shell]).good();
        assert!(
            script.out.contains("callgate") && script.out.contains("approvals"),
            "{shell}"
        );
    }

    cli(
        &folder,
        &["call", "one", "n=1", "--key", "k", "--trace-id", "t1"],
    )
    .good();
    let shown = cli(
        &folder,
        &[
            "audit", "show", "--kind", "outcome", "--tool", "one", "--json",
        ],
    )
    .good();
    let record: Value = serde_json::from_str(shown.out.lines().next().expect("a record")).unwrap();
    assert_eq!(
        (&record["tool"], &record["trace"]),
        (&json!("one"), &json!("t1"))
    );
    assert!(!shown.out.contains("\"n\""), "the chain has no arguments");
    let table = cli(&folder, &["audit", "show", "--last", "2"]).good();
    assert_eq!(table.out.lines().count(), 3, "{}", table.out);
    let head = cli(&folder, &["audit", "head", "--json"]).good().json();
    assert_eq!(head["signature"].as_str().map(str::len), Some(128));
    let words = cli(&folder, &["audit", "verify"]).good().out;
    assert!(
        words.starts_with("good: ") && words.contains("signed head"),
        "{words}"
    );

    for args in [&[][..], &["nonsense"], &["call"], &["audit"], &["lease"]] {
        let ran = cli(&folder, args);
        assert_eq!(ran.code(), 2, "{args:?}");
        assert!(
            ran.err.to_lowercase().contains("usage"),
            "{args:?}: {}",
            ran.err
        );
    }
    assert!(
        cli(&folder, &["--version"])
            .good()
            .out
            .starts_with("callgate ")
    );
    assert!(cli(&folder, &["--help"]).good().out.contains("hash chain"));
}

/// G-5: `lease grant`, `list` and `revoke`.
#[test]
fn the_lease_commands() {
    let folder = trusted(ONE);
    let granted = cli(&folder, &["lease", "grant", "one", "--ttl", "5m", "--json"])
        .good()
        .json();
    assert_eq!(
        (&granted["tool"], &granted["tier"]),
        (&json!("one"), &json!(1))
    );
    assert_eq!(granted["ttl_ms"], 300_000);
    let words = cli(
        &folder,
        &["lease", "grant", "AID.TEST.ONE.v1", "--caller", "uid:7"],
    )
    .good();
    assert!(words.out.starts_with("lease_") && words.err.contains("not shown again"));
    let list = cli(&folder, &["lease", "list", "--json"]).good().json();
    let states = |list: &Value| -> Vec<String> {
        let leases = list["leases"].as_array().expect("a list");
        leases
            .iter()
            .map(|lease| lease["state"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(states(&list), ["active", "active"]);
    let id = granted["id"].as_str().expect("an id");
    let revoked = cli(&folder, &["lease", "revoke", id, "--json"])
        .good()
        .json();
    assert_eq!(revoked["state"], "revoked");
    let token = words.out.trim_end();
    assert!(
        cli(&folder, &["lease", "revoke", token])
            .good()
            .err
            .contains("revoked")
    );
    let list = cli(&folder, &["lease", "list"]).good().out;
    assert_eq!(list.matches("revoked").count(), 2, "{list}");
    assert!(list.contains("uid:7") && !list.contains("lease_"), "{list}");
    for args in [
        &["lease", "grant", "nobody"][..],
        &["lease", "revoke", "nothing"],
    ] {
        assert_eq!(cli(&folder, args).code(), 1, "{args:?}");
    }
    verified(&folder);
}

/// G-6, F-6, F-7: a call that needs a person's word waits for it, passes once when it is given,
/// and is denied when it is refused.
#[test]
fn approvals() {
    let policy = "[[policy]]\ntools = [\"one\"]\ndecision = \"ask\"\n";
    let folder = trusted(&format!("{policy}{ONE}"));
    let serve = Serve::start(&folder);
    let ask = |n: u32| serve.call(&json!({ "tool": "one", "input": { "n": n } }));
    let pending = ask(1);
    assert_eq!(pending["fault"]["kind"], "needs_approval");
    let id = pending["fault"]["data"]["approval"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert!(
        pending["fault"]["message"]
            .as_str()
            .is_some_and(|m| m.contains("callgate approvals grant"))
    );
    assert_eq!(ask(1)["fault"]["data"]["approval"], json!(id), "asked once");
    let list = cli(&folder, &["approvals", "--json"]).good().json();
    assert_eq!(list["approvals"].as_array().map(Vec::len), Some(1));
    let first = &list["approvals"][0];
    assert_eq!(
        (&first["id"], &first["state"]),
        (&json!(id), &json!("pending"))
    );
    assert!(cli(&folder, &["approvals"]).good().out.contains(&id));

    let granted = cli(&folder, &["approvals", "grant", &id, "--json"])
        .good()
        .json();
    assert_eq!(granted["approvals"][0]["state"], "granted");
    assert_eq!(ask(2)["fault"]["kind"], "needs_approval", "another input");
    assert_eq!(ask(1)["ok"], true);
    let again = ask(1);
    assert_eq!(again["fault"]["kind"], "needs_approval", "once: {again}");
    let id = again["fault"]["data"]["approval"]
        .as_str()
        .expect("an id")
        .to_owned();
    cli(&folder, &["approvals", "deny", &id]).good();
    let denied = ask(1);
    assert_eq!(denied["fault"]["kind"], "denied", "{denied}");
    assert_eq!(
        cli(&folder, &["approvals", "grant", &id]).code(),
        1,
        "it was denied"
    );
    assert_eq!(cli(&folder, &["approvals", "grant", "nothing"]).code(), 1);
    assert_eq!(effects(&folder), 1);

    let shut = format!("[[policy]]\ntools = [\"o*\"]\ndecision = \"deny\"\n{ONE}");
    folder.write("callgate.toml", &shut);
    cli(&folder, &["trust"]).good();
    serve.wait_said("reloaded");
    assert_eq!(ask(1)["fault"]["kind"], "denied");
    assert!(serve.stop().success());
    verified(&folder);
}

/// G-2, T-2: what a tool has of its own counts, else what the environment says, and never more
/// than its client waits.
#[test]
fn timeouts() {
    let hang = "[[tool]]\nname = \"hang\"\naid = \"AID.TEST.HANG.v1\"\n\
                runner = { kind = \"process\", command = [\"/bin/sleep\", \"1000\"] }\n";
    let own = hang
        .replace("hang", "own")
        .replace("HANG", "OWN")
        .replace("[[tool]]", "[[tool]]\ntimeout_ms = 70");
    let folder = trusted(&format!("{hang}{own}"));
    let timed_out = |aid: &str, environment: &[(&str, &str)]| {
        let mut command = callgate(&folder);
        command
            .args(["toolhost", "--serve", "."])
            .envs(environment.iter().copied());
        let line = json!({ "aid": aid }).to_string();
        let reply = run_with(&mut command, line.as_bytes()).good().json();
        assert_eq!(
            (&reply["ok"], &reply["status"]),
            (&json!(true), &json!("TOOL_ERROR"))
        );
        reply["error"].as_str().unwrap_or_default().to_owned()
    };
    let seconds = ("MACHINA_TOOLHOST_TIMEOUT", "0.05");
    assert_eq!(
        timed_out("AID.TEST.HANG.v1", &[seconds]),
        "timed out after 50 ms"
    );
    assert_eq!(timed_out("AID.TEST.OWN.v1", &[]), "timed out after 70 ms");
    let client = ("MACHINA_TOOLHOST_TIMEOUT_MS", "560");
    assert_eq!(
        timed_out("AID.TEST.HANG.v1", &[client]),
        "timed out after 60 ms"
    );
    let body = cli(&folder, &["call", "hang", "--timeout", "40ms", "--json"]);
    assert_eq!(
        (
            body.code(),
            body.json()["fault"]["data"]["after_ms"].clone()
        ),
        (1, json!(40))
    );
}

/// T-22, TH-129, TH-19: `MACHINA_ROOT` is the workspace of `tool_exec`, from the working folder
/// if it is relative; empty it is none, and one that is not there is refused. No other command
/// reads it, and it trusts nothing (G-9).
#[test]
fn machina_root() {
    let folder = Folder::new();
    folder.write("root/callgate.toml", ONE);
    folder.write("root/tool.sh", TOOL);
    let root = folder.join("root");
    let exec = |root: &str| {
        let mut command = callgate(&folder);
        command.args(["tool_exec", "AID.TEST.ONE.v1"]);
        run_with(command.env("MACHINA_ROOT", root), b"{}")
    };
    let missing = "MISSING_TOOL: AID.TEST.ONE.v1";
    assert_eq!(exec("root").good().json()["error"], missing);
    cli(&folder, &["trust", "--workspace", "root"]).good();
    for given in ["root", "./root/", root.to_str().expect("a text path")] {
        let reply = exec(given).good().json();
        assert_eq!(
            (&reply["status"], &reply["error"]),
            (&json!("OK"), &json!(""))
        );
    }
    let ran = lines_of(&root.join("effects.log")).len();
    assert_eq!(ran, 3, "the tool ran in that folder");
    assert_eq!(exec("").good().json()["error"], missing);

    let refused = exec("nowhere");
    let reply = refused.json();
    assert_eq!(refused.code(), 3);
    assert_eq!(
        (&reply["ok"], &reply["status"]),
        (&json!(false), &json!("TOOL_ERROR"))
    );
    assert!(
        reply["error"]
            .as_str()
            .is_some_and(|e| e.contains("nowhere"))
    );

    for args in [&["tools", "--json"][..], &["toolhost", "--list", "builtin"]] {
        let listed = run_with(
            callgate(&folder).args(args).env("MACHINA_ROOT", "root"),
            b"",
        );
        assert_eq!(
            names(&listed.good().json()).len(),
            BUILTINS.len(),
            "{args:?}"
        );
    }
}
