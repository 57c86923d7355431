//! Options of `callgate run` that say how a run is named, which browser its script drives, and that
//! nothing is to be run. ST-11, ST-17, S-20.

use crate::support::callgate;
use crate::support::drive::{Ran, chain, cli, run, verified};
use crate::support::play::{Theatre, done, item};
use crate::support::rpc::rpc;
use crate::support::workspace::trusted;
use callgate_testing::misbehave;
use serde_json::{Value, json};

fn theatre() -> Theatre {
    Theatre::new(misbehave(), "")
}

/// Runs an executor that keeps its request as `request.json` and ends without a word.
fn keeps_its_request(theatre: &Theatre, options: &[&str]) -> (Ran, Value) {
    let mut command = callgate(&theatre.folder);
    command.arg("run").args(options);
    command.args(["--", "/bin/sh", "-c", "head -n 1 > request.json"]);
    let ran = run(&mut command);
    let request = theatre.folder.read("request.json");
    let request = request.and_then(|line| serde_json::from_str(&line).ok());
    (ran, request.unwrap_or_default())
}

/// ST-11, S-20: a run has the name that it is given, wherever it is named; a second one of that name
/// is refused before its executor starts.
#[test]
fn a_run_has_the_name_it_is_given() {
    let theatre = theatre();
    let acts = json!([item(1), done()]);
    let named = ["--run-id", "crawl.7_a-B", "--json", "-q"];
    let ran = theatre.run(&named, &acts).good();
    assert_eq!(ran.json()["run_id"], "crawl.7_a-B");
    for asked in ["crawl.7_a-B", "crawl", "last"] {
        let shown = theatre
            .cli(&["runs", "show", asked, "--json"])
            .good()
            .json();
        assert_eq!(shown["run"]["run_id"], "crawl.7_a-B", "{asked}");
    }
    let again = theatre.run(&named, &acts);
    assert_eq!(again.code(), 3, "{again:?}");
    assert!(again.out.contains("crawl.7_a-B"), "{again:?}");
    assert_eq!(theatre.runs().len(), 1);

    // Under a key it is the same run, told again.
    let keyed = ["--run-id", "keyed", "--key", "k", "--json", "-q"];
    for _ in 0..2 {
        let ran = theatre.run(&keyed, &acts).good();
        assert_eq!(ran.json()["run_id"], "keyed");
    }
    assert_eq!(theatre.runs().len(), 2);

    let (ran, request) = keeps_its_request(&theatre, &["--run-id", "request-1", "--json", "-q"]);
    assert_eq!(ran.code(), 2, "it sent no stream: {ran:?}");
    assert_eq!(
        (&request["run_id"], &ran.json()["run_id"]),
        (&json!("request-1"), &json!("request-1"))
    );
    assert_eq!(request["storage"]["run_id"], "request-1");
    verified(&theatre.folder);
}

/// S-20: what it enqueues has names of its own.
#[test]
fn only_the_first_run_has_the_name() {
    let theatre = theatre();
    let child = json!({ "acts": [item(1), done()] });
    let enqueue = json!({ "emit": { "type": "enqueue", "payload": { "target": "executor", "params": child } } });
    let options = ["--run-id", "root", "--depth", "1", "--json", "-q"];
    let ran = theatre.run(&options, &json!([enqueue, done()])).good();
    assert_eq!(ran.json()["run_id"], "root", "{ran:?}");
    let runs = theatre.runs();
    let names: Vec<&str> = runs
        .iter()
        .filter_map(|run| run["run_id"].as_str())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(
        names.iter().filter(|name| **name == "root").count(),
        1,
        "{names:?}"
    );
}

/// Names and addresses are bounded and looked at, on the command line and by `runs/start`.
#[test]
fn names_and_addresses_are_checked() {
    let theatre = theatre();
    let long = "x".repeat(129);
    let far = format!("ws://h/{}", "x".repeat(2048));
    let mut client = rpc(&theatre.folder);
    let mut wrong = |option: &str, field: &str, values: &[&str]| {
        for value in values {
            let (ran, _) = keeps_its_request(&theatre, &[option, value]);
            assert_eq!(ran.code(), 2, "{option} {value}: {ran:?}");
            assert!(ran.err.contains("--"), "{ran:?}");
            let mut params = json!({ "command": ["/bin/true"] });
            params[field] = json!(value);
            let (_, data) = client.bad("runs/start", params);
            assert_eq!(data["field"], field, "{option} {value}: {data}");
        }
    };
    let names = [
        "", "last", "a/b", "..", ".a", "-a", "a b", "é", "a\n", &long,
    ];
    wrong("--run-id", "run_id", &names);
    let addresses = [
        "",
        "http://h:1",
        "ws://",
        "ws:///x",
        "wss:// h",
        "ws://h/\n",
        "h:9222",
        &far,
    ];
    wrong("--browser-ws-endpoint", "browser_ws_endpoint", &addresses);
    assert!(client.end());
    assert_eq!(theatre.runs(), [] as [Value; 0]);
}

/// ST-17: the executor gets the address of the browser that its script is to drive.
#[test]
fn the_script_gets_its_browser() {
    let theatre = theatre();
    for address in [
        "ws://127.0.0.1:9222/devtools/browser/1a-2b",
        "wss://browsers.example/?token=t",
    ] {
        let (_, request) = keeps_its_request(&theatre, &["--browser-ws-endpoint", address]);
        assert_eq!(request["browser_ws_endpoint"], address);
    }
    let (_, request) = keeps_its_request(&theatre, &[]);
    assert_eq!(request.get("browser_ws_endpoint"), None);
}

/// A rehearsal checks what a run would be refused for, and leaves nothing behind.
#[test]
fn a_dry_run_runs_nothing() {
    let theatre = theatre();
    let folder = &theatre.folder;
    folder.write("proxy.txt", "http://me:pass-word-1@proxy.example:8080");
    let before = chain(folder).len();
    let options = [
        "--dry-run",
        "--run-id",
        "r1",
        "--job",
        "[1]",
        "--proxy-from",
        "proxy.txt",
        "--key",
        "k",
    ];
    let (ran, request) = keeps_its_request(&theatre, &options);
    let shown = ran.good().json();
    assert_eq!(
        (
            &shown["run_id"],
            &shown["job"],
            &shown["command"][0],
            &shown["proxy"]["password"]
        ),
        (
            &json!("r1"),
            &json!([1]),
            &json!("/bin/sh"),
            &json!("[secret]")
        )
    );
    assert_eq!(request, Value::Null);
    let (ran, _) = keeps_its_request(&theatre, &["--dry-run", "--json"]);
    let shown = ran.good().json();
    assert_eq!(
        (&shown["dry_run"], &shown["needs_approval"]),
        (&json!(true), &json!(false))
    );
    assert_eq!((chain(folder).len(), theatre.runs().len()), (before, 0));

    // The name is still free, the key too; then the name is taken.
    let acts = json!([item(1), done()]);
    theatre
        .run(&["--run-id", "r1", "--key", "k", "-q"], &acts)
        .good();
    let taken = theatre.run(&["--run-id", "r1", "--dry-run"], &acts);
    assert_eq!(taken.code(), 1, "{taken:?}");
    assert!(taken.err.contains("r1 is there already"), "{taken:?}");
    let missing = run(callgate(folder).args(["run", "--dry-run", "--", "./missing"]));
    assert_eq!(missing.code(), 1, "{missing:?}");
    let bad = run(callgate(folder).args(["run", "--dry-run", "--job", "{", "--", "./misbehave"]));
    assert_eq!(bad.code(), 2, "{bad:?}");
    let report = theatre.run(&["--dry-run", "--report", "-"], &acts);
    assert_eq!(report.code(), 2, "{report:?}");
    verified(folder);
}

/// A rehearsal says what policy says.
#[test]
fn a_dry_run_asks_policy() {
    for (config, code, words) in [
        (
            "[[policy]]\ntools = [\"runs/start\"]\ndecision = \"deny\"\n",
            1,
            "policy forbids",
        ),
        (
            "[[policy]]\ntools = [\"runs/start\"]\ndecision = \"ask\"\n",
            1,
            "approval",
        ),
        ("[leases]\nenforce_from_tier = 1\n", 1, "lease_required"),
        ("[runs]\noff = true\n", 1, "tool not found"),
        ("[exec]\nallow = [\"git\"]\n", 1, "denied"),
        ("", 0, "nothing was run"),
    ] {
        let folder = trusted(config);
        let ran = run(callgate(&folder).args(["run", "--dry-run", "--", "/bin/true"]));
        assert_eq!(ran.code(), code, "{config}: {ran:?}");
        assert!(ran.err.contains(words), "{config}: {ran:?}");
        let approvals = cli(&folder, &["approvals", "list", "--json"]).good().json();
        assert_eq!(approvals["approvals"], json!([]), "{config}");
    }
}
