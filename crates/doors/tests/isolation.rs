//! What keeps one call of a tool from the next, as the configuration says it.

use serde_json::{Value, json};

use crate::support::called::Gateway;
use callgate_testing_workspace::{trust, trusted_with};

const TOOL: &str = r#"
import os, sys
calls = 0

def count(payload):
    global calls
    calls += 1
    return calls

def leave(payload):
    sys.exit(payload["code"])

def loaded(payload):
    return sorted(name for name in payload["names"] if name in sys.modules)
"#;

fn tool(name: &str, more: &str) -> String {
    let function = name.split('_').next().expect("a name");
    format!(
        "[[tool]]\nname = \"{name}\"\n{}\nrunner = {{ kind = \"python\", entry = \"t:{function}\"{} }}\n",
        more.split('|').next().unwrap_or_default(),
        more.split('|').nth(1).unwrap_or_default(),
    )
}

fn output(gate: &Gateway, tool: &str, input: Value) -> Value {
    let reply = gate.call(&json!({ "tool": tool, "input": input }));
    assert_eq!(reply["ok"], true, "{reply}");
    reply["output"].clone()
}

fn fault(gate: &Gateway, tool: &str, input: Value) -> Value {
    let reply = gate.call(&json!({ "tool": tool, "input": input }));
    assert_eq!(reply["ok"], false, "{reply}");
    reply["fault"].clone()
}

/// P-17: the same function under each of the three, and under none.
#[test]
fn isolation_is_what_the_configuration_says() {
    let config = [
        tool("count_usual", ""),
        tool("count_worker", "isolation = \"worker\""),
        tool("count_call", "isolation = \"call\""),
        tool("count_cold", "isolation = \"cold\""),
        tool("leave_worker", ""),
        tool("leave_call", "isolation = \"call\""),
        tool("loaded_call", "isolation = \"call\""),
        tool(
            "loaded_ahead",
            "isolation = \"call\"|, preload = [\"decimal\", \"fractions\"]",
        ),
    ];
    let folder = trusted_with(&[("callgate.toml", &config.concat()), ("t.py", TOOL)]);
    let gate = Gateway::start(&folder);
    for (tool, counts) in [
        ("count_usual", [1, 2, 3]),
        // They name the same program, so that they share its worker.
        ("count_worker", [4, 5, 6]),
        ("count_call", [1, 1, 1]),
        ("count_cold", [1, 1, 1]),
    ] {
        for count in counts {
            assert_eq!(output(&gate, tool, json!({})), count, "{tool}");
        }
    }
    // TP-24: the same words, whatever the process of the call was.
    for tool in ["leave_worker", "leave_call"] {
        let left = fault(&gate, tool, json!({ "code": 3 }));
        assert_eq!(
            (&left["kind"], &left["message"]),
            (&json!("crash"), &json!("exit 3"))
        );
    }
    assert_eq!(output(&gate, "count_usual", json!({})), 7);
    let names = json!({ "names": ["decimal", "fractions"] });
    assert_eq!(output(&gate, "loaded_call", names.clone()), json!([]));
    assert_eq!(
        output(&gate, "loaded_ahead", names),
        json!(["decimal", "fractions"])
    );
}

const CONFINED: &str = r#"
import contextlib, os, socket, subprocess, threading

@contextlib.contextmanager
def opened(path, mode):
    with open(path, mode) as file:
        yield file

def tries(payload):
    what = payload["what"]
    if what == "connect": socket.create_connection(("127.0.0.1", 1))
    if what == "resolve": socket.getaddrinfo("example.com", 443)
    if what == "write":
        with opened("new.txt", "w"): pass
    if what == "remove": os.remove("t.py")
    if what == "wrapped":
        try:
            with opened("new.txt", "w"): pass
        except OSError as error:
            raise RuntimeError("could not save") from error
    if what == "fork":
        if os.fork() == 0: os._exit(0)
    if what == "run": subprocess.run(["true"])
    if what == "system": return os.system("true")
    if what == "caught":
        try: socket.socket()
        except OSError: return "went on"
    if what == "own": raise PermissionError("not today")
    if what == "thread":
        done = []
        thread = threading.Thread(target=done.append, args=(1,))
        thread.start(); thread.join()
        return done
"#;

/// P-3: the kernel refuses, and the caller is told which guarantee it was; under every
/// isolation.
#[test]
fn a_blocked_attempt_is_told_as_such() {
    let confined = "guarantees = { no_subprocess = true }";
    let config = ["worker", "call", "cold"].map(|isolation| {
        tool(
            &format!("tries_{isolation}"),
            &format!("{confined}\nisolation = \"{isolation}\""),
        )
    });
    let folder = trusted_with(&[("callgate.toml", &config.concat()), ("t.py", CONFINED)]);
    let gate = Gateway::start(&folder);
    for isolation in ["worker", "call", "cold"] {
        let tool = format!("tries_{isolation}");
        for (what, guarantee) in [
            ("connect", "no_network"),
            ("resolve", "no_network"),
            ("write", "no_filesystem_write"),
            ("remove", "no_filesystem_write"),
            ("wrapped", "no_filesystem_write"),
            ("fork", "no_subprocess"),
            ("run", "no_subprocess"),
        ] {
            let reply = gate.call(&json!({ "tool": tool, "input": { "what": what } }));
            let fault = &reply["fault"];
            assert_eq!(fault["kind"], "guarantee_blocked", "{tool} {what}: {reply}");
            assert_eq!(fault["data"]["guarantee"], guarantee, "{tool} {what}");
        }
        let caught = gate.call(&json!({ "tool": tool, "input": { "what": "caught" } }));
        assert_eq!(caught["output"], "went on", "{caught}");
        assert_eq!(caught["enforcement"]["isolation"], isolation, "{caught}");
        assert_eq!(caught["enforcement"]["level"], "enforced", "{caught}");
        assert_ne!(output(&gate, &tool, json!({ "what": "system" })), 0);
        assert_eq!(
            output(&gate, &tool, json!({ "what": "thread" })),
            json!([1])
        );
        let own = fault(&gate, &tool, json!({ "what": "own" }));
        assert_eq!(own["kind"], "tool_failed", "{own}");
    }
    assert_eq!(folder.read("t.py").as_deref(), Some(CONFINED));
    assert_eq!(folder.read("new.txt"), None);
}

const OWN: &str = r#"
import json, random
from . import more

def work(payload):
    for name in payload["opens"]:
        try:
            open(name).read()
        except PermissionError:
            continue
        return name
    return {"helped": more.help(), "json": json.dumps(random.choice([7]))}
"#;

const ALONE: &str = "def work(payload):\n    import helper\n    return helper.help()\n";

const HELPER: &str = "def help():\n    return 'yes'\n";

/// TP-32, P-17: a tool that may read nothing but its own code has that, as a package and as a
/// module, in whatever process it runs; what else it imports of the workspace is named by
/// `code`. A process that serves many calls keeps no `no_env_write`, so that a pure tool gets
/// another unless it insists.
#[test]
fn a_pure_tool_has_its_own_code() {
    let python = |name: &str, more: &str, entry: &str| {
        format!(
            "[[tool]]\nname = \"{name}\"\n{more}\nrunner = {{ kind = \"python\", entry = \"{entry}\" }}\n"
        )
    };
    let pure = "purity = \"pure\"\n";
    let blind = "guarantees = { no_filesystem_read = true }\n";
    let reads = "code = [\"helper.py\"]\n";
    let mut config = String::new();
    for (name, said) in [
        ("usual", pure.to_owned()),
        ("call", format!("{pure}isolation = \"call\"")),
        ("cold", format!("{pure}isolation = \"cold\"")),
        ("worker", format!("{blind}isolation = \"worker\"")),
    ] {
        config += &python(&format!("package/{name}"), &said, "own.deep.code:work");
        config += &python(
            &format!("module/{name}"),
            &format!("{reads}{said}"),
            "alone:work",
        );
        config += &python(&format!("apart/{name}"), &said, "alone:work");
    }
    config += &python(
        "insists",
        &format!("{pure}isolation = \"worker\""),
        "alone:work",
    );
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        ("own/__init__.py", ""),
        ("own/deep/code.py", OWN),
        ("own/deep/more.py", HELPER),
        ("alone.py", ALONE),
        ("helper.py", HELPER),
        // Not the tool's own, so not in the way of the library's.
        ("random.py", "raise ValueError('not this one')\n"),
        ("secret.txt", "sesame"),
    ]);
    let gate = Gateway::start(&folder);
    for (name, isolation) in [
        ("usual", "call"),
        ("call", "call"),
        ("cold", "cold"),
        ("worker", "worker"),
    ] {
        for round in 0..2 {
            let opens = json!({ "opens": ["secret.txt", "alone.py", "callgate.toml"] });
            let reply = gate.call(&json!({ "tool": format!("package/{name}"), "input": opens }));
            let wanted = json!({ "helped": "yes", "json": "7" });
            assert_eq!(reply["output"], wanted, "{name} {round}: {reply}");
            assert_eq!(reply["enforcement"]["isolation"], isolation, "{reply}");
            assert_eq!(reply["enforcement"]["level"], "enforced", "{reply}");
            let helped = output(&gate, &format!("module/{name}"), json!({}));
            assert_eq!(helped, "yes", "{name} {round}");
            let apart = fault(&gate, &format!("apart/{name}"), json!({}));
            assert_eq!(
                apart["data"]["type"], "ModuleNotFoundError",
                "{name}: {apart}"
            );
        }
    }
    let refused = fault(&gate, "insists", json!({}));
    assert_eq!(
        refused["data"]["missing"],
        json!(["no_env_write"]),
        "{refused}"
    );
    // The same tool without the promise reads what it likes of the workspace.
    config += &python("free", "", "own.deep.code:work");
    folder.write("callgate.toml", &config);
    trust(&folder);
    std::fs::remove_file(folder.join("random.py")).expect("it is there");
    gate.reload();
    let free = output(&gate, "free", json!({ "opens": ["secret.txt"] }));
    assert_eq!(free, "secret.txt");
}
