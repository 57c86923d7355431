//! What the program says to people: a slip is named with what was meant, a bad value is quoted,
//! an empty list says that it is empty, and `--json` has the same as data.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::drive::{Serve, cli, run, run_with};
use crate::support::workspace::{ONE, TOOL, effects, trusted, trusted_with, workspace};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

/// A tool nobody knows: the nearest one is named, with and without a running gate. On the
/// toolhost the words are the contract's. TH-41.
#[test]
fn an_unknown_tool_names_the_nearest() {
    let folder = trusted(ONE);
    let check = || {
        for (asked, near) in [("oen", "one"), ("ehco", "builtin/echo")] {
            for args in [
                &["call", asked][..],
                &["call", asked, "--standalone"],
                &["tools", "show", asked],
                &["lease", "grant", asked],
            ] {
                let ran = cli(&folder, args);
                let words = format!("tool not found: {asked}; did you mean `{near}`?");
                assert_eq!((ran.code(), ran.out.as_str()), (1, ""), "{args:?}");
                assert!(ran.err.contains(&words), "{args:?}: {}", ran.err);
            }
        }
        let far = cli(&folder, &["call", "something-else"]);
        assert!(!far.err.contains("did you mean"), "{}", far.err);
    };
    check();
    let serve = Serve::start(&folder);
    check();
    let fault = &serve.call(&json!({ "tool": "oen", "input": {} }))["fault"];
    assert_eq!(fault["message"], "tool not found: oen");
    assert!(serve.stop().success());
    let reply = run_with(
        callgate(&folder).args(["toolhost", "--serve", "."]),
        b"{\"aid\":\"AID.TEST.OEN.v1\"}\n",
    );
    assert_eq!(reply.json()["error"], "tool not found: AID.TEST.OEN.v1");
}

/// A bad value is quoted before anything runs; in a configuration with its place.
#[test]
fn bad_values_are_quoted() {
    let folder = trusted(ONE);
    for (pair, words) in [
        ("n=abc", "error: n: \"abc\" is not an integer\n"),
        ("n=1.5", "error: n: \"1.5\" is not an integer\n"),
    ] {
        let ran = cli(&folder, &["call", "one", pair]);
        assert_eq!((ran.code(), ran.err.as_str()), (1, words));
        let told = cli(&folder, &["call", "one", pair, "--json"]);
        let message = told.json()["fault"]["message"].clone();
        assert_eq!(
            format!("error: {}\n", message.as_str().unwrap_or("")),
            words
        );
    }
    assert_eq!(effects(&folder), 0);

    for (config, words) in [
        (ONE.replace("tier = 1", "teir = 1"), "did you mean `tier`?"),
        (
            ONE.replace("tier = 1", "tier = \"one\""),
            "tier: \"one\" is not a number from 0 to 3",
        ),
        (
            ONE.replace("tier = 1", "tier = 7"),
            "tier: 7 is not a number from 0 to 3",
        ),
        (
            ONE.replace("tier = 1", "timeout_ms = 0"),
            "timeout_ms: 0 is not 1 to 86400000",
        ),
        (
            format!("[leases]\nenforce_from_tier = 9\n{ONE}"),
            "leases.enforce_from_tier: 9 is not",
        ),
    ] {
        folder.write("callgate.toml", &config);
        let ran = cli(&folder, &["trust"]);
        assert_eq!(ran.code(), 1, "{words}");
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    for timeout in ["0s", "25h", "18446744073709551615h", "soon"] {
        let ran = cli(&folder, &["call", "one", "--timeout", timeout]);
        assert_eq!(ran.code(), 2, "{timeout}");
        assert!(ran.err.contains(timeout), "{timeout}: {}", ran.err);
    }
}

/// A socket that was named and where nobody listens is an error: going on alone could use
/// another state than was meant.
#[test]
fn a_socket_that_was_named_must_answer() {
    let folder = trusted(ONE);
    let socket = folder.join("elsewhere/deep/gate.sock");
    let named = socket.to_str().expect("a text path");
    for args in [
        &["call", "one", "--socket", named][..],
        &["call", "one", "n=1", "--socket", named],
        &["tools", "--socket", named],
    ] {
        let ran = cli(&folder, args);
        assert_eq!((ran.code(), ran.out.as_str()), (1, ""), "{args:?}");
        let wanted = format!("callgate serve --socket {named}");
        assert!(ran.err.contains(&wanted), "{args:?}: {}", ran.err);
    }
    assert_eq!(effects(&folder), 0);
    let alone = ["call", "one", "n=1", "--socket", named, "--standalone"];
    cli(&folder, &alone).good();
    cli(&folder, &["call", "one"]).good();

    // `serve` makes the folder, for its user only.
    let mut command = callgate(&folder);
    let serve = Serve::spawn(command.args(["serve", "--socket", named]), socket.clone());
    for made in ["elsewhere", "elsewhere/deep"] {
        let mode = std::fs::metadata(folder.join(made))
            .expect("made")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{made}");
    }
    cli(&folder, &["call", "one", "--socket", named]).good();
    assert!(serve.stop().success());

    // Where it can not, it says what it tried.
    folder.write("file", "");
    let ran = cli(&folder, &["serve", "--socket", "file/gate.sock"]);
    assert_eq!(ran.code(), 1);
    assert!(ran.err.contains("make the socket's folder"), "{}", ran.err);
}

/// `--json` has what goes wrong as one object on standard output, with the same exit code.
#[test]
fn failures_as_json() {
    let folder = trusted(ONE);
    let empty = Folder::new();
    for (place, args, kind) in [
        (&folder, &["lease", "grant", "nobody"][..], "unknown_tool"),
        (
            &folder,
            &["lease", "grant", "one", "--input", "{"],
            "command_failed",
        ),
        (
            &folder,
            &["lease", "grant", "one", "--input", "[]"],
            "command_failed",
        ),
        (&folder, &["runs", "show", ""], "not_found"),
        (&folder, &["lease", "revoke", "nothing"], "not_found"),
        (&folder, &["approvals", "grant", "nothing"], "not_found"),
        (&folder, &["approvals", "deny", "nothing"], "not_found"),
        (&folder, &["tools", "show", "nobody"], "command_failed"),
        (&folder, &["call", "nobody"], "unknown_tool"),
        (&folder, &["call", "one", "n=x"], "command_failed"),
        (&empty, &["trust"], "command_failed"),
        (
            &empty,
            &["trust", "--workspace", "nowhere"],
            "command_failed",
        ),
    ] {
        let words = cli(place, args);
        assert_eq!((words.code(), words.out.as_str()), (1, ""), "{args:?}");
        assert!(words.err.starts_with("error: "), "{args:?}: {}", words.err);
        let told = cli(place, &[args, &["--json"]].concat());
        assert_eq!((told.code(), told.err.as_str()), (1, ""), "{args:?}");
        assert_eq!(told.out.lines().count(), 1, "{args:?}: {}", told.out);
        let body = told.json();
        assert_eq!(
            (&body["ok"], &body["fault"]["kind"]),
            (&json!(false), &json!(kind)),
            "{args:?}"
        );
        assert!(body["fault"]["data"].is_object(), "{args:?}: {body}");
    }
    let revoked = cli(&folder, &["trust", "--revoke", "--json"]).good();
    assert_eq!(
        revoked.json(),
        json!({ "trusted": false, "was_trusted": true })
    );
}

/// A list without entries says so; as JSON it is empty.
#[test]
fn empty_lists_say_so() {
    let folder = Folder::new();
    for (args, words, name) in [
        (
            &["approvals"][..],
            "nothing waits for approval",
            "approvals",
        ),
        (
            &["approvals", "list"],
            "nothing waits for approval",
            "approvals",
        ),
        (&["lease", "list"], "no leases", "leases"),
    ] {
        let said = cli(&folder, args).good();
        assert_eq!(
            (said.out.as_str(), said.err.trim_end()),
            ("", words),
            "{args:?}"
        );
        let told = cli(&folder, &[args, &["--json"]].concat()).good();
        assert_eq!(told.json(), json!({ name: [] }), "{args:?}");
    }
    let said = cli(&folder, &["audit", "show"]).good();
    assert_eq!(
        (said.out.as_str(), said.err.as_str()),
        ("", "no such records\n")
    );
}

/// Started below a workspace: the way up is told, and nothing up there counts by itself. G-9.
#[test]
fn a_configuration_further_up_is_hinted_at() {
    let folder = trusted(ONE);
    std::fs::create_dir_all(folder.join("src/deep")).expect("make folders");
    let root = folder.path().display();
    let hint = format!("there is one in {root}: go there or pass --workspace {root}");
    for args in [&["tools"][..], &["call", "one"], &["trust"], &["doctor"]] {
        let ran = run(callgate(&folder)
            .args(args)
            .current_dir(folder.join("src/deep")));
        let said = format!("{}{}", ran.out, ran.err);
        assert!(said.contains(&hint), "{args:?}: {said}");
    }
    assert_eq!(effects(&folder), 0);
    let above = Folder::new();
    let told = cli(&above, &["tools"]).good();
    assert!(!told.err.contains("there is one"), "{}", told.err);
}

fn findings(folder: &Folder, name: &str) -> Vec<(bool, String)> {
    let report = cli(folder, &["doctor", "--json"]).json();
    let checks = report["checks"].as_array().expect("a list");
    let finding = |check: &Value| {
        let words = check["finding"].as_str().unwrap_or_default().to_owned();
        (check["ok"] == true, words)
    };
    checks
        .iter()
        .filter(|check| check["name"] == name)
        .map(finding)
        .collect()
}

/// `doctor` looks for each tool's program, and the planner's, as its start would.
#[test]
fn doctor_looks_for_programs() {
    let runs = |name: &str, runner: &str| {
        format!("[[tool]]\nname = \"{name}\"\nrunner = {{ {runner} }}\n")
    };
    let good = trusted(ONE);
    let all = findings(&good, "programs");
    assert_eq!(all, [(true, "of 1 tools, all there".to_owned())]);
    assert_eq!(findings(&good, "program"), []);

    let config = [
        ONE.to_owned(),
        runs(
            "absent",
            "kind = \"process\", command = [\"no-such-program\"]",
        ),
        runs("plain", "kind = \"pool\", command = [\"./plain.txt\"]")
            .replace("runner", "code = [\"plain.txt\"]\nrunner"),
        runs(
            "snake",
            "kind = \"python\", entry = \"a:b\", python = \"./no-python\"",
        ),
        "[planner]\ncommand = [\"no-such-planner\"]\n".to_owned(),
    ]
    .concat();
    let bad = trusted_with(&[
        ("callgate.toml", &config),
        ("plain.txt", "text"),
        ("tool.sh", TOOL),
    ]);
    assert_eq!(cli(&bad, &["doctor"]).code(), 1);
    let found = findings(&bad, "program");
    for (index, (whose, reason)) in [
        ("tool `absent`", "not found"),
        ("tool `plain`", "not executable"),
        ("tool `snake`", "not found"),
        ("[planner]", "not found"),
    ]
    .into_iter()
    .enumerate()
    {
        let (ok, words) = &found[index];
        assert!(
            !ok && words.starts_with(whose) && words.contains(reason),
            "{found:?}"
        );
    }
    assert_eq!((found.len(), findings(&bad, "programs")), (4, vec![]));
}

/// A rule that no tool meets protects nothing: told when it is trusted, when it is loaded and
/// by `doctor`, and never on the toolhost's streams. TH-20.
#[test]
fn rules_without_tools_are_told() {
    let rule = |tools: &str| format!("[[policy]]\ntools = [{tools}]\ndecision = \"deny\"\n");
    let words = "policy: no tool fits tools = [\"oen\"]; did you mean `one`?";
    let folder = workspace(&format!("{}{ONE}", rule("\"oen\"")));
    let trusted = cli(&folder, &["trust"]).good();
    assert_eq!(trusted.err.matches(words).count(), 1, "{}", trusted.err);
    assert!(trusted.err.starts_with("warning: "), "{}", trusted.err);
    assert_eq!(findings(&folder, "policy"), [(false, words.to_owned())]);
    let serve = Serve::start(&folder);
    serve.wait_said(words);
    let called = cli(&folder, &["call", "one"]).good();
    assert_eq!(called.err, "", "once, and not with every call");
    let listed = cli(&folder, &["toolhost", "--list", "."]).good();
    assert_eq!(listed.err, "");

    for fits in ["\"one\"", "\"x*\", \"AID.TEST.*\"", "\"builtin/*\"", ""] {
        folder.write("callgate.toml", &format!("{}{ONE}", rule(fits)));
        let trusted = cli(&folder, &["trust"]).good();
        assert!(
            !trusted.err.contains("no tool fits"),
            "{fits}: {}",
            trusted.err
        );
        assert_eq!(findings(&folder, "policy"), [], "{fits}");
    }
    serve.wait_said("reloaded");
    assert_eq!(serve.said().matches(words).count(), 1);
    assert!(serve.stop().success());
}

/// What a crashed tool wrote last is in the message; a worker that leaves in good order while a
/// call waits is told as what it is. T-13.
#[test]
fn crashes_bring_their_last_words() {
    let config = "[[tool]]\nname = \"dies\"\n\
        code = [\"dies.sh\"]\nrunner = { kind = \"process\", command = [\"/bin/sh\", \"dies.sh\"] }\n\
        [[tool]]\nname = \"leaves\"\n\
        runner = { kind = \"pool\", command = [\"/bin/sh\", \"-c\", \"read -r line <&3\"] }\n";
    let script = "for n in 1 2 3 4 5; do echo line $n >&2; done; exit 3\n";
    let folder = trusted_with(&[("callgate.toml", config), ("dies.sh", script)]);
    let ran = cli(&folder, &["call", "dies"]);
    assert_eq!(ran.err, "error: crash: exit 3: line 3 | line 4 | line 5\n");
    let ran = cli(&folder, &["call", "leaves"]);
    assert_eq!(
        ran.err,
        "error: crash: the worker ended (exit 0) without answering\n"
    );
}

/// `call --help` says how values are typed, how long a call may take and what the exit code
/// means.
#[test]
fn the_help_of_call() {
    let help = cli(&Folder::new(), &["call", "--help"]).good().out;
    for words in [
        "n:=3",
        "name=Ada",
        "timeout_ms",
        "60 s",
        "Exit codes",
        "--standalone",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
}
