//! `callgate run` as people and scripts have it: exit codes, report, live display, Ctrl-C,
//! passwords, fan-out, webhooks. The executor is scripted.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::support::drive::{Host, PATIENCE, Ran, Serve, chain, end_of, run, signal, verified};
use crate::support::mcp::modern_call;
use crate::support::person::Person;
use crate::support::play::{Theatre, artifact, done, item};
use crate::support::{callgate, wait_for};
use callgate_testing::misbehave;
use ring::hmac;
use rustix::process::Signal;
use serde_json::{Value, json};

fn theatre() -> Theatre {
    Theatre::new(misbehave(), "")
}

fn report(ran: &Ran) -> Value {
    ran.json()
}

/// ST-80, ST-81, ST-82: each outcome and the exit code it has.
#[test]
fn outcomes_and_exit_codes() {
    let theatre = theatre();
    let old = json!({ "emit": { "type": "item", "contract_version": "99.0.0" } });
    let cases: [(&[&str], Value, &str, i32); 7] = [
        (&[], json!([item(1), done()]), "success", 0),
        (
            &[],
            json!([{ "fail": "no page" }, { "exit": 1 }]),
            "script_error",
            1,
        ),
        (&[], json!([item(1)]), "executor_crash", 2),
        (&[], json!([done(), { "exit": 7 }]), "executor_crash", 2),
        (&[], json!([{ "text": "Hello" }]), "executor_crash", 2),
        (
            &["--policy", "buffered", "--buffer-events", "1"],
            json!([item(1), item(2), done()]),
            "policy_failure",
            3,
        ),
        (&[], json!([old, done()]), "version_mismatch", 3),
    ];
    for (options, acts, outcome, code) in cases {
        let options = [options, &["--json", "-q"]].concat();
        let ran = theatre.run(&options, &acts);
        let report = report(&ran);
        assert_eq!(report["outcome"], outcome, "{acts}: {ran:?}");
        // An event that was refused is none of the run's.
        let by_type = report["events_by_type"].as_object().expect("counts");
        let counted: u64 = by_type.values().filter_map(Value::as_u64).sum();
        assert_eq!(report["event_count"], counted, "{report}");
        assert_eq!(ran.code(), code, "{acts}: {ran:?}");
        assert_eq!(ran.err, "", "quiet");
    }
    let states: Vec<Value> = theatre
        .runs()
        .iter()
        .map(|run| run["state"].clone())
        .collect();
    assert_eq!(states.len(), 7);
    verified(&theatre.folder);
}

/// ST-86: the report in a file, on standard output and in the state are one, and the summary says
/// the same in words.
#[test]
fn report_and_summary() {
    let theatre = theatre();
    let [chunk, commit] = artifact("a", "hello");
    let result = json!({ "result": { "status": "completed", "proxy": "proxy.example" } });
    let orphan = json!({ "chunk": { "id": "b", "seq": 1, "text": "lost", "last": true } });
    let acts = json!([{ "say": "one\ntwo\n" }, item(1), chunk, commit, orphan, done(), result]);
    let options = [
        "--report",
        "report.json",
        "--job-id",
        "j-1",
        "--source",
        "shop",
    ];
    let ran = theatre.run(&options, &acts).good();
    assert_eq!(ran.out, "", "the report goes to its file");
    let report = theatre.folder.read("report.json").expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["job_id"], "j-1");
    assert_eq!(
        (&report["attempt"], &report["outcome"]),
        (&json!(1), &json!("success"))
    );
    assert_eq!(
        (&report["exit_code"], &report["event_count"]),
        (&json!(0), &json!(3))
    );
    assert!(
        report["message"].is_string() && report["duration_ms"].is_u64(),
        "{report}"
    );
    let artifacts = json!({ "total": 2, "committed": 1, "orphaned": 1, "chunks": 2, "bytes": 9 });
    assert_eq!(report["artifacts"], artifacts);
    assert_eq!(report["policy"]["name"], "strict");
    assert_eq!(report["policy"]["events_persisted"], 3);
    assert_eq!(report["metrics"]["runs_completed_total"], 1);
    assert_eq!(report["terminal_summary"]["summary"]["pages"], 3);
    assert_eq!(report["proxy_used"]["host"], "proxy.example");
    assert_eq!(report["stderr"], "one\ntwo\n");
    for words in [
        "success",
        "events     3",
        "artifacts  1, 9 B; 1 orphaned",
        "two",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    let shown = theatre
        .cli(&["runs", "show", "last", "--json"])
        .good()
        .json();
    assert_eq!(shown["report"], report);
    assert_eq!(shown["run"]["source"], "shop");
    let again = theatre.run(&["--report", "-"], &json!([done()])).good();
    assert_eq!(again.json()["outcome"], "success");
    // A run is a call like any other.
    let calls = chain(&theatre.folder);
    let starts = calls
        .iter()
        .filter(|record| record["tool"] == "runs/start" && record["kind"] == "start");
    assert_eq!(starts.count(), 2, "{calls:?}");
}

/// S-18, ST-84, ST-85: a wrong command line runs nothing, and what was refused says so.
#[test]
fn nothing_is_run() {
    let theatre = theatre();
    for (options, words) in [
        (&["--policy", "buffered"][..], "bound in events or bytes"),
        (&["--policy", "streaming"], "count or an interval"),
        (&["--policy", "strict", "--flush-count", "3"], "no bounds"),
        (&["--policy", "loose"], "strict, buffered and streaming"),
        (&["--buffer-events", "3"], "--policy"),
        (&["--proxy", "http://me:s3cret@proxy:1"], "--proxy-from"),
        (&["--proxy", "ftp://proxy:1"], "socks5"),
        (&["--proxy-from", "env:NOT_SET"], "NOT_SET"),
        (&["--proxy-from", "nowhere.txt"], "nowhere.txt"),
        (&["--attempt", "2"], "--parent-run-id"),
        (&["--parent-run-id", "r"], "--attempt"),
        (&["--notify", "nowhere"], "--notify"),
        (&["--max-runs", "0"], "--max-runs"),
        (&["--job", "{"], "--job"),
    ] {
        let ran = match options[0] {
            "--job" => theatre.cli(&["run", "--job", options[1], "--", "./misbehave", "executor"]),
            _ => theatre.run(options, &json!([done()])),
        };
        assert_eq!(ran.code(), 2, "{options:?}: {ran:?}");
        assert!(ran.err.contains(words), "{options:?}: {}", ran.err);
        assert!(!ran.err.contains("s3cret"), "{}", ran.err);
    }
    let missing = theatre.cli(&["run", "--json", "--", "./nothing"]);
    assert_eq!(missing.code(), 2, "{missing:?}");
    assert_eq!(missing.json()["fault"]["kind"], "not_found");
    // What is no program is the executor's fault, and an older report does not stay.
    theatre.folder.write("plain.txt", "no program");
    for executor in ["./nothing", "./plain.txt"] {
        theatre
            .folder
            .write("report.json", "{\"outcome\": \"success\"}");
        let options = ["run", "--report", "report.json", "--job-id", "j", "--"];
        let ran = theatre.cli(&[&options[..], &[executor]].concat());
        assert_eq!(ran.code(), 2, "{executor}: {ran:?}");
        assert!(ran.err.contains("nothing was run"), "{}", ran.err);
        let report = theatre.folder.read("report.json").expect("a report");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["outcome"], "executor_crash", "{executor}");
        assert_eq!(report["job_id"], "j", "{executor}");
        assert_eq!(report["exit_code"], Value::Null, "{executor}");
        let message = report["message"].as_str().expect("a message");
        assert!(message.starts_with("not started: "), "{message}");
        let printed = theatre.cli(&["run", "--report", "-", "--", executor]);
        assert_eq!(printed.json()["outcome"], "executor_crash", "{printed:?}");
    }
    let denied = "[[policy]]\ntools = [\"runs/start\"]\ndecision = \"deny\"\n";
    let denied = Theatre::new(misbehave(), denied).run(&[], &json!([done()]));
    assert_eq!(denied.code(), 3, "{denied:?}");
    assert!(denied.err.contains("nothing was run"), "{}", denied.err);
    assert_eq!(theatre.runs(), Vec::<Value>::new());
}

/// S-13: a run that takes too long ends, whatever it does about it, and is reported.
#[test]
fn timeout() {
    let theatre = theatre();
    let acts = json!([item(1), { "ignore": 15 }, { "hang": true }]);
    // Long enough for a program to be started on a machine that has other things to do.
    let ran = theatre.run(&["--timeout", "15s", "--json"], &acts);
    let report = report(&ran);
    assert_eq!(
        (ran.code(), &report["outcome"]),
        (2, &json!("executor_crash"))
    );
    let message = report["message"].as_str().expect("a message");
    assert!(message.contains("timed out"), "{message}");
    assert_eq!(report["event_count"], 1);
    let took_ms = report["duration_ms"].as_u64().expect("a time");
    // Two seconds to end by itself, and what a busy machine takes to end it.
    assert!(
        (15_000..15_000 + 2_000 + 30_000).contains(&took_ms),
        "{report}"
    );
}

/// The time that a run has taken, as its display has it.
fn elapsed_ms(shown: &str) -> f64 {
    let title = shown.lines().find(|line| line.starts_with("run "));
    let words: Vec<&str> = title.expect("a title").split_whitespace().collect();
    let figures = words[2..].chunks_exact(2).map(|figure| {
        let number: f64 = figure[0].parse().expect("a number");
        match figure[1] {
            "ms" => number,
            "s" => number * 1000.0,
            "min" => number * 60_000.0,
            other => panic!("no unit of time: {other}"),
        }
    });
    figures.sum()
}

/// A person sees how far a run is, in place, and has their terminal back at the end.
#[test]
fn live_at_a_terminal() {
    let theatre = theatre();
    let [chunk, commit] = artifact("a", &"hello".repeat(1000));
    let log = json!({ "emit": { "type": "log", "payload": {
        "level": "warn", "message": "page \u{1b}[2J\u{7}three", "fields": {},
    } } });
    let acts = json!([item(1), item(2), log, { "wait_for": "more" }, chunk, commit,
        { "wait_for": "go" }, done()]);
    let words = theatre.words(&[], &acts);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut person = Person::start(&theatre.folder, &words);
    let settings = person.settings();
    person.sees_all(&["events     3  item 2", "artifacts  0  0 B  0 B/s"]);
    theatre.folder.write("more", "");
    // No bytes come after these, so that their rate is over soon.
    let shown = person.sees_all(&[
        "run 0",
        "events     4  item 2",
        "artifacts  1  5.0 kB  0 B/s",
        "log        warn: page  [2J three",
    ]);
    let elapsed = elapsed_ms(&shown);
    wait_for("time to go by", || {
        person.look();
        (elapsed_ms(&person.seen.screen().contents()) > elapsed).then_some(())
    });
    assert_eq!(
        shown.matches("events ").count(),
        1,
        "drawn in place: {shown}"
    );
    theatre.folder.write("go", "");
    // The last line of the summary.
    let shown = person.sees_all(&["success after", "artifacts  1, 5.0 kB"]);
    assert!(
        !shown.contains("log        warn"),
        "the display is gone: {shown}"
    );
    assert_eq!(shown.matches("events ").count(), 1, "{shown}");
    let (code, all) = person.ended(&settings);
    assert_eq!(code, Some(0));
    let rates = all.lines().filter(|line| line.contains("5.0 kB  "));
    let moving = rates.filter(|line| !line.contains("  0 B/s")).count();
    assert!(moving > 0, "their rate was shown when they came: {all}");
}

/// Ctrl-C ends the run and all it started; it is reported all the same.
#[test]
fn ctrl_c_at_a_terminal() {
    let theatre = theatre();
    let acts = json!([item(1), { "mark": "here" }, { "hang": true }]);
    let words = theatre.words(&["--report", "report.json"], &acts);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut person = Person::start(&theatre.folder, &words);
    let settings = person.settings();
    person.sees("events     1  item 1");
    person.types("\u{3}");
    person.sees("executor_crash after");
    let (code, _) = person.ended(&settings);
    assert_eq!(code, Some(2));
    let report = theatre.folder.read("report.json").expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["message"], "cancelled");
    assert_eq!(theatre.runs()[0]["state"], "executor_crash");
}

/// Without a terminal words go to standard error as lines, and SIGTERM is heard as well.
#[test]
fn told_to_stop_without_a_terminal() {
    let theatre = theatre();
    let acts = json!([item(1), { "mark": "here" }, { "hang": true }]);
    let mut command = theatre.command(&["--json"], &acts);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start it");
    wait_for("the executor", || theatre.folder.read("here"));
    signal(child.id(), Signal::TERM);
    assert_eq!(end_of(&mut child, "the run").code(), Some(2));
    let mut text = String::new();
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_to_string(&mut text).expect("read");
    let report: Value = serde_json::from_str(&text).expect("a report");
    assert_eq!(report["message"], "cancelled");
    let mut words = String::new();
    let mut stderr = child.stderr.take().expect("piped");
    stderr.read_to_string(&mut words).expect("read");
    assert!(!words.contains('\u{1b}'), "{words:?}");
}

fn enqueue(acts: Value) -> Value {
    let params = json!({ "acts": acts });
    json!({ "emit": { "type": "enqueue", "payload": {
        "target": "executor", "params": params, "source": "child",
    } } })
}

/// ST-39: what is enqueued is run, each as a call of its own and once, so deep and so many; the
/// exit code is the first one's.
#[test]
fn fan_out() {
    let theatre = theatre();
    let leaf = enqueue(json!([item("leaf"), done()]));
    let too_deep = enqueue(json!([item("too deep"), done()]));
    let grandchild = enqueue(json!([item("grandchild"), too_deep, done()]));
    let child = enqueue(json!([item("child"), leaf, grandchild, { "exit": 9 }]));
    let acts = json!([leaf, child, leaf, done()]);
    let options = [
        "--depth",
        "2",
        "--json",
        "--attempt",
        "2",
        "--parent-run-id",
        "r-1",
    ];
    let ran = theatre.run(&options, &acts).good();
    let fan_out = &ran.json()["fan_out"];
    let outcomes = |fan_out: &Value| {
        let runs = fan_out["runs"].as_array().expect("runs");
        let mut all: Vec<(u64, String)> = runs
            .iter()
            .map(|run| {
                let outcome = run["outcome"].as_str().expect("a word").to_owned();
                (run["depth"].as_u64().expect("a depth"), outcome)
            })
            .collect();
        all.sort();
        all
    };
    let crash = (1, "executor_crash".to_owned());
    let (near, far) = ((1, "success".to_owned()), (2, "success".to_owned()));
    assert_eq!(outcomes(fan_out), [crash, near, far], "{fan_out}");
    assert_eq!(
        (&fan_out["repeated"], &fan_out["too_deep"]),
        (&json!(2), &json!(1))
    );
    assert!(
        ran.err.contains("3 more, 1 executor_crash, 2 success"),
        "{}",
        ran.err
    );
    let runs = theatre.runs();
    assert_eq!(runs.len(), 4);
    let children = runs.iter().filter(|run| run["source"] == "child");
    for run in children.clone() {
        assert_eq!(
            (&run["attempt"], &run["parent_run_id"]),
            (&json!(1), &Value::Null)
        );
    }
    assert_eq!(children.count(), 3);
    let records = chain(&theatre.folder);
    let began = records.iter().filter(|record| record["kind"] == "start");
    let tool = began.filter(|record| record.to_string().contains("runs/start"));
    assert_eq!(tool.count(), 4, "each is a call");

    let none = theatre
        .run(&["--json"], &json!([enqueue(json!([done()])), done()]))
        .good();
    assert_eq!(
        none.json()["fan_out"],
        Value::Null,
        "nothing without --depth"
    );
    assert_eq!(theatre.runs().len(), 5);
}

/// The bound on runs, and that a policy's drop is no reason not to run what was enqueued.
#[test]
fn fan_out_is_bounded() {
    let theatre = theatre();
    let many: Vec<Value> = (0..6).map(|n| enqueue(json!([item(n), done()]))).collect();
    let acts = Value::Array([many, vec![item("root"), done()]].concat());
    let options = [
        "--depth",
        "1",
        "--max-runs",
        "4",
        "--parallel",
        "1",
        "--json",
        "--policy",
        "buffered",
        "--buffer-events",
        "2",
    ];
    let ran = theatre.run(&options, &acts).good();
    let report = ran.json();
    assert_eq!(
        report["policy"]["dropped_by_type"]["enqueue"], 6,
        "{report}"
    );
    let fan_out = &report["fan_out"];
    assert_eq!(
        fan_out["runs"].as_array().map(Vec::len),
        Some(3),
        "{fan_out}"
    );
    assert_eq!(fan_out["beyond_max"], 3);
    assert_eq!(theatre.runs().len(), 4);
}

/// A server of the test's: it answers what it is told to, one after the other, and repeats what
/// it was asked.
fn hook(answers: &'static [u16]) -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().expect("a connection");
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).expect("a line") > 0 {}
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").parse().expect("a number");
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            let body = String::from_utf8(body).expect("text");
            // Before it answers: who has its answer may ask at once what was sent.
            if sender.send((head, body)).is_err() {
                return;
            }
            let text =
                format!("HTTP/1.1 {answer} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            reader.get_mut().write_all(text.as_bytes()).expect("answer");
        }
    });
    (format!("http://127.0.0.1:{port}/hook?x=1"), receiver)
}

/// A webhook hears of each end once it listens, signed, and its troubles change no exit code.
#[test]
fn webhooks() {
    let (url, asked) = hook(&[503, 500, 200]);
    let config = format!("[runs]\nwebhook = {{ url = \"{url}\", secret_env = \"HOOK\" }}\n");
    let theatre = Theatre::new(misbehave(), &config);
    let unset = theatre.run(&[], &json!([done()]));
    assert_eq!(unset.code(), 3, "a secret that is not there: {unset:?}");
    let mut command = theatre.command(&["--job-id", "j-1", "--json"], &json!([item(1), done()]));
    let ran = run(command.env("HOOK", "the-secret")).good();
    let asked: Vec<(String, String)> = asked.try_iter().collect();
    assert_eq!(asked.len(), 3, "twice it had troubles");
    let (head, body) = &asked[2];
    assert!(head.starts_with("POST /hook?x=1 "), "{head}");
    let notice: Value = serde_json::from_str(body).expect("JSON");
    let report = ran.json();
    for (name, value) in [
        ("event_type", json!("run_completed")),
        ("outcome", json!("success")),
        ("run_id", report["run_id"].clone()),
        ("job_id", json!("j-1")),
        ("attempt", json!(1)),
        ("source", json!("default")),
        ("category", json!("default")),
        ("event_count", json!(2)),
        ("duration_ms", report["duration_ms"].clone()),
    ] {
        assert_eq!(notice[name], value, "{name}: {notice}");
    }
    let path = notice["storage_path"].as_str().expect("a path");
    assert!(
        theatre
            .folder
            .join("state")
            .join(path)
            .join("events.jsonl")
            .exists(),
        "{path}"
    );
    let signature = head
        .lines()
        .find_map(|line| line.strip_prefix("callgate-signature: t="));
    let (seconds, hex) = signature
        .expect("signed")
        .split_once(",v1=")
        .expect("two parts");
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"the-secret");
    let tag = hmac::sign(&key, format!("{seconds}.{body}").as_bytes());
    let wanted: String = tag
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hex.trim(), wanted);
    assert!(!format!("{asked:?}").contains("the-secret"));
}

/// A 4xx is final; nobody at the address is no reason to fail.
#[test]
fn webhooks_that_do_not_listen() {
    let theatre = theatre();
    let (url, asked) = hook(&[404, 200]);
    let ran = theatre.run(
        &["--notify", &url],
        &json!([{ "fail": "no" }, { "exit": 1 }]),
    );
    assert_eq!(ran.code(), 1, "{ran:?}");
    assert!(ran.err.contains("404"), "{}", ran.err);
    assert_eq!(asked.try_iter().count(), 1);
    let (port, _held) = crate::support::web::nobody();
    let url = format!("http://127.0.0.1:{port}/");
    let ran = theatre.run(&["--notify", &url], &json!([done()])).good();
    assert!(ran.err.contains("not told"), "{}", ran.err);
}

/// Runs that come by a wire are told of by the gate that serves it.
#[test]
fn webhooks_of_a_gate() {
    let (url, asked) = hook(&[500, 200]);
    let config = format!("[runs]\nwebhook = {{ url = \"{url}\" }}\n");
    let theatre = Theatre::new(misbehave(), &config);
    let serve = Serve::start(&theatre.folder);
    let input = json!({
        "command": ["./misbehave", "executor"], "job": { "acts": [done()] }, "job_id": "wired",
    });
    let answer = serve.call(&json!({ "tool": "runs/start", "input": input }));
    assert_eq!(answer["output"]["outcome"], "success", "{answer}");
    let first = asked.recv_timeout(PATIENCE).expect("told");
    let again = asked.recv_timeout(PATIENCE).expect("told again");
    assert_eq!(first.1, again.1, "the same words");
    let notice: Value = serde_json::from_str(&again.1).expect("JSON");
    assert_eq!(notice["job_id"], "wired");
    assert!(!again.0.contains("callgate-signature"), "{}", again.0);
    serve.stop();
}

/// An MCP server without a gate tells of the runs that it carries out.
#[test]
fn webhooks_of_a_lone_mcp_server() {
    let (url, asked) = hook(&[200]);
    let config = format!("[runs]\nwebhook = {{ url = \"{url}\" }}\n");
    let theatre = Theatre::new(misbehave(), &config);
    let mut mcp =
        Host::spawn(callgate(&theatre.folder).args(["mcp", "--standalone", "--only", "*"]));
    let input = json!({
        "command": ["./misbehave", "executor"], "job": { "acts": [done()] }, "job_id": "alone",
    });
    let reply = mcp.ask(&modern_call(1, "runs_start", &input, &json!({})));
    let report = &reply["result"]["structuredContent"];
    assert_eq!(report["outcome"], "success", "{reply}");
    let (_, body) = asked.recv_timeout(PATIENCE).expect("told");
    let notice: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(notice["job_id"], "alone");
    assert_eq!(notice["run_id"], report["run_id"]);
    assert!(mcp.end().success());
}
