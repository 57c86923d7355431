//! At most once: the program is killed at every step of a keyed call, on every entry, and a
//! retry never repeats the effect, which is a line appended to a file.

#![cfg(feature = "failpoints")]

use std::process::Command;

use crate::support::drive::{Host, Serve, chain, line, lines_of, run, run_with, signal, verified};
use crate::support::processes::{descendants, words_of};
use crate::support::workspace::{APPEND_TEXT, trusted_with};
use crate::support::{Folder, callgate, is_alive, wait_for};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[breaker]
failures_max = 0

[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tier = 1
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "again"
aid = "AID.TEST.AGAIN.v1"
tier = 1
idempotent = true
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "slow"
aid = "AID.TEST.SLOW.v1"
tier = 1
writes = ["effects.log"]
code = ["slow.sh"]
runner = { kind = "process", command = ["/bin/sh", "slow.sh"] }

[[tool]]
name = "worker"
aid = "AID.TEST.WORKER.v1"
tier = 1
writes = ["effects.log"]
runner = { kind = "python", entry = "worker:append" }

[[tool]]
name = "big"
aid = "AID.TEST.BIG.v1"
writes = ["effects.log"]
code = ["big.sh"]
runner = { kind = "process", command = ["/bin/sh", "big.sh"] }
"#;

/// After the text is appended: ends as it is told.
const THEN_END: &str = r#"
case $input in
  *'"then":"exit"'*) exit 3 ;;
  *'"then":"die"'*) kill -9 $$ ;;
esac
echo '{"appended":true}'
"#;

/// After the text is appended: tells its process and waits until `go` is there.
const THEN_WAIT: &str = r#"
echo $$ > slow.pid
while [ ! -e go ]; do sleep 0.02; done
echo '{"appended":true}'
"#;

const WORKER: &str = r#"
import os, time

def append(payload):
    with open("effects.log", "a") as effects:
        effects.write(payload["text"] + "\n")
    if payload.get("then") == "die":
        os._exit(3)
    if payload.get("then") == "wait":
        while not os.path.exists("go"):
            time.sleep(0.02)
    return {"appended": True}
"#;

/// 200 kB, so that a few of them are worth folding.
const BIG: &str = r#"
read -r input
printf '{"text":"'
head -c 200000 /dev/zero | tr '\0' x
printf '"}'
"#;

fn workspace() -> Folder {
    trusted_with(&[
        ("callgate.toml", CONFIG),
        ("append.sh", &format!("{APPEND_TEXT}{THEN_END}")),
        ("slow.sh", &format!("{APPEND_TEXT}{THEN_WAIT}")),
        ("worker.py", WORKER),
        ("big.sh", BIG),
    ])
}

/// How often the effect of `text` took place.
fn effects(folder: &Folder, text: &str) -> usize {
    lines_of(&folder.join("effects.log"))
        .iter()
        .filter(|line| *line == text)
        .count()
}

/// The ways in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Serve,
    Run,
    Exec,
    Call,
    Post,
}

/// What an entry made of a call, in one language for all of them.
#[derive(Debug, PartialEq)]
enum Answer {
    /// An output; true if it is a recorded one.
    Output {
        hit: bool,
    },
    /// A fault; true if it is a recorded one.
    Fault {
        hit: bool,
        text: String,
    },
    Unknown,
    /// The process was killed before it answered.
    Killed,
    /// It answered, and was killed after that.
    KilledAfter,
}

fn of_toolhost(reply: &Value) -> Answer {
    let hit = reply["idempotent_hit"] == true;
    let error = reply["error"].as_str().unwrap_or_default().to_owned();
    match reply["status"].as_str() {
        Some("OK") => Answer::Output { hit },
        // F-11: `ok` stays true, lest the client run it again.
        _ if error.starts_with("outcome unknown") => {
            assert_eq!(
                (&reply["ok"], &reply["status"]),
                (&json!(true), &json!("TOOL_ERROR"))
            );
            Answer::Unknown
        }
        _ => Answer::Fault { hit, text: error },
    }
}

fn of_gate(body: &Value) -> Answer {
    let hit = body["idempotent_hit"] == true;
    match (body["ok"] == true, body["fault"]["kind"].as_str()) {
        (true, _) => Answer::Output { hit },
        (_, Some("outcome_unknown")) => Answer::Unknown,
        _ => Answer::Fault {
            hit,
            text: body["fault"].to_string(),
        },
    }
}

/// How a process is started: armed, or with its clock ahead.
#[derive(Clone, Copy, Default)]
struct Set<'a> {
    failpoint: Option<&'a str>,
    ahead_ms: u64,
}

impl Set<'_> {
    fn on(self, command: &mut Command) -> &mut Command {
        if let Some(point) = self.failpoint {
            command.env("CALLGATE_FAILPOINT", point);
        }
        if self.ahead_ms > 0 {
            command.env("CALLGATE_CLOCK_AHEAD_MS", self.ahead_ms.to_string());
        }
        command
    }
}

/// Calls a tool of the workspace once over `entry`, in a fresh process.
fn attempt(
    folder: &Folder,
    entry: Entry,
    set: Set<'_>,
    tool: &str,
    input: &Value,
    key: &str,
) -> Answer {
    let aid = format!("AID.TEST.{}.v1", tool.to_uppercase());
    let place = folder.path().to_str().expect("a text path");
    match entry {
        Entry::Serve => {
            let mut command = callgate(folder);
            let mut host = Host::spawn(set.on(command.args(["toolhost", "--serve", place])));
            match host.try_ask(&line(&aid, input, key)) {
                None => Answer::Killed,
                Some(reply) if host.end().success() => of_toolhost(&reply),
                Some(_) => Answer::KilledAfter,
            }
        }
        Entry::Run | Entry::Exec => {
            let mut command = callgate(folder);
            match entry {
                Entry::Run => command.args(["toolhost", "--run", place, &aid]),
                _ => command.args(["tool_exec", &aid]),
            };
            let request = json!({ "inputs": input, "idempotency_key": key }).to_string();
            let ran = run_with(set.on(&mut command), request.as_bytes());
            match (ran.was_killed(), ran.out.is_empty()) {
                (true, true) => Answer::Killed,
                (true, false) => Answer::KilledAfter,
                (false, _) => of_toolhost(&ran.json()),
            }
        }
        Entry::Call => {
            let mut command = callgate(folder);
            command.args(["call", "--standalone", "--json", "--key", key, tool]);
            let ran = run(set.on(command.arg(input.to_string())));
            // The body is printed after the store is closed, so a fold comes before it.
            if ran.was_killed() {
                Answer::Killed
            } else {
                of_gate(&ran.json())
            }
        }
        Entry::Post => {
            let mut command = callgate(folder);
            let socket = folder.join("state/gate.sock");
            let serve = Serve::spawn(set.on(command.arg("serve")), socket);
            let body = json!({ "tool": tool, "input": input, "idempotency_key": key });
            match serve.try_call(&body) {
                None => Answer::Killed,
                Some(body) if serve.stop().success() => of_gate(&body),
                Some(_) => Answer::KilledAfter,
            }
        }
    }
}

/// What a crash at a point leaves behind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    /// Nothing was recorded and nothing ran: the retry runs it.
    Nothing,
    /// The start was recorded; the effect took place so many times.
    Start(usize),
    /// The outcome was recorded.
    Outcome,
}

/// Every crash point on the way of a keyed call, in order.
const POINTS: [(&str, Left); 11] = [
    ("begin.before=kill", Left::Nothing),
    ("begin.before_write=kill", Left::Nothing),
    ("append.torn=torn", Left::Nothing),
    ("begin.after_write=kill", Left::Start(0)),
    ("begin.after=kill", Left::Start(0)),
    ("run.after=kill", Left::Start(1)),
    ("finish.before=kill", Left::Start(1)),
    ("finish.before_write=kill", Left::Start(1)),
    // The second append is the outcome's.
    ("append.torn=torn:1", Left::Start(1)),
    ("settle.after_write=kill", Left::Outcome),
    ("answer.before=kill", Left::Outcome),
];

const LATER_MS: [u64; 3] = [0, 61_000, 23 * 3_600_000];

/// Kills at every point of one entry and retries over the same entry and others.
fn walk(entry: Entry) {
    let folder = workspace();
    for (point, left) in POINTS {
        // On the toolhost the answer is what follows the settling; it has no point of its own.
        let is_toolhost = matches!(entry, Entry::Serve | Entry::Run | Entry::Exec);
        if is_toolhost && point.starts_with("answer.before") {
            continue;
        }
        let key = format!("{entry:?}-{point}");
        let input = json!({ "text": key });
        let armed = Set {
            failpoint: Some(point),
            ahead_ms: 0,
        };
        let at = format!("{entry:?} killed at {point}");
        assert_eq!(
            attempt(&folder, entry, armed, "append", &input, &key),
            Answer::Killed,
            "{at}"
        );
        let retry = |entry, ahead_ms| {
            let set = Set {
                failpoint: None,
                ahead_ms,
            };
            attempt(&folder, entry, set, "append", &input, &key)
        };
        match left {
            Left::Nothing => {
                assert_eq!(effects(&folder, &key), 0, "{at}");
                assert_eq!(retry(entry, 0), Answer::Output { hit: false }, "{at}");
                assert_eq!(retry(Entry::Call, 0), Answer::Output { hit: true }, "{at}");
                assert_eq!(effects(&folder, &key), 1, "{at}");
            }
            Left::Start(ran) => {
                assert_eq!(effects(&folder, &key), ran, "{at}");
                assert_eq!(retry(entry, 0), Answer::Unknown, "{at}");
                for ahead_ms in LATER_MS {
                    for other in [Entry::Serve, Entry::Call] {
                        assert_eq!(
                            retry(other, ahead_ms),
                            Answer::Unknown,
                            "{at}, {ahead_ms} ms"
                        );
                    }
                }
                assert_eq!(effects(&folder, &key), ran, "{at}");
            }
            Left::Outcome => {
                for again in [entry, Entry::Run, Entry::Call] {
                    assert_eq!(
                        retry(again, 0),
                        Answer::Output { hit: true },
                        "{at}, {again:?}"
                    );
                }
                assert_eq!(
                    retry(Entry::Call, 61_000),
                    Answer::Output { hit: true },
                    "{at}"
                );
                assert_eq!(effects(&folder, &key), 1, "{at}");
            }
        }
        verified(&folder);
    }
    nothing_ran_without_a_start(&folder);
}

/// Every effect has a start in the chain, and no key has two.
fn nothing_ran_without_a_start(folder: &Folder) {
    let starts = chain(folder)
        .iter()
        .filter(|record| record["kind"] == "start")
        .count();
    let ran = lines_of(&folder.join("effects.log")).len();
    assert!(ran <= starts, "{ran} effects, {starts} starts");
}

/// G-3, G-4, D-1, D-5, D-7, TH-63, F-11: killed at every step of a line of `--serve`.
#[test]
fn killed_at_every_step_of_serve() {
    walk(Entry::Serve);
}

/// G-3, G-4, D-1, D-5, D-7, TH-63, F-11: killed at every step of `--run`.
#[test]
fn killed_at_every_step_of_run() {
    walk(Entry::Run);
}

/// G-3, G-4, TH-63, F-11: killed at every step of `tool_exec`.
#[test]
fn killed_at_every_step_of_tool_exec() {
    walk(Entry::Exec);
}

/// G-3, G-4, D-7, F-11: killed at every step of `callgate call`.
#[test]
fn killed_at_every_step_of_call() {
    walk(Entry::Call);
}

/// G-3, G-4, D-7, F-11, G-11: killed at every step of `POST /v1/call`; the retries on other
/// wires are by the same caller and so see the same key.
#[test]
fn killed_at_every_step_of_a_post() {
    walk(Entry::Post);
}

/// G-3: a tool that is marked idempotent simply runs again where the outcome is not known, and
/// not where it is.
#[test]
fn an_idempotent_tool_runs_again() {
    let folder = workspace();
    for (point, left) in POINTS {
        if point.starts_with("answer.before") {
            continue;
        }
        let key = format!("again-{point}");
        let input = json!({ "text": key });
        let call = |set| attempt(&folder, Entry::Run, set, "again", &input, &key);
        assert_eq!(
            call(Set {
                failpoint: Some(point),
                ahead_ms: 0
            }),
            Answer::Killed,
            "{point}"
        );
        let before = effects(&folder, &key);
        let hit = left == Left::Outcome;
        assert_eq!(call(Set::default()), Answer::Output { hit }, "{point}");
        assert_eq!(
            effects(&folder, &key),
            before + usize::from(!hit),
            "{point}"
        );
        assert_eq!(
            call(Set::default()),
            Answer::Output { hit: true },
            "{point}"
        );
    }
    verified(&folder);
}

/// D-4, G-8: killed in the middle of folding, after the answer; nothing answered is lost.
#[test]
fn killed_while_folding() {
    let folder = workspace();
    for entry in [Entry::Run, Entry::Serve, Entry::Post, Entry::Call] {
        // Enough journal to be folded at the next orderly stop, left by a process that had none.
        let mut host = Host::start(&folder, folder.path().to_str().expect("a text path"));
        for number in 0..7 {
            let reply = host.ask(&line(
                "AID.TEST.BIG.v1",
                &json!({}),
                &format!("{entry:?}{number}"),
            ));
            assert_eq!(reply["status"], "OK");
        }
        host.kill();
        let key = format!("fold-{entry:?}");
        let input = json!({ "text": key });
        let armed = Set {
            failpoint: Some("fold.mid=kill"),
            ahead_ms: 0,
        };
        let answer = attempt(&folder, entry, armed, "append", &input, &key);
        assert!(
            matches!(answer, Answer::Killed | Answer::KilledAfter),
            "{entry:?}: {answer:?}"
        );
        let retry = attempt(&folder, entry, Set::default(), "append", &input, &key);
        assert_eq!(retry, Answer::Output { hit: true }, "{entry:?}");
        assert_eq!(effects(&folder, &key), 1);
        verified(&folder);
    }
}

/// T-7, TH-60, F-19, F-21: a tool that dies after its effect has failed, and the failure is
/// what the key answers; as a program and as a worker.
#[test]
fn the_tool_dies_after_its_effect() {
    let folder = workspace();
    for (tool, then) in [("append", "exit"), ("append", "die"), ("worker", "die")] {
        for entry in [Entry::Serve, Entry::Run, Entry::Call, Entry::Post] {
            let key = format!("{tool}-{then}-{entry:?}");
            let input = json!({ "text": key, "then": then });
            let first = attempt(&folder, entry, Set::default(), tool, &input, &key);
            let Answer::Fault { hit: false, text } = first else {
                panic!("{key}: {first:?}")
            };
            for again in [entry, Entry::Run, Entry::Call] {
                match attempt(&folder, again, Set::default(), tool, &input, &key) {
                    Answer::Fault { hit: true, .. } => {}
                    other => panic!("{key} over {again:?}: {other:?} after {text}"),
                }
            }
            assert_eq!(effects(&folder, &key), 1, "{key}");
        }
    }
    verified(&folder);
}

/// G-3, G-4: the gate is killed while the tool runs. The tool dies with it, and its outcome is
/// unknown; as a program and as a worker.
#[test]
fn the_gate_dies_while_the_tool_runs() {
    let folder = workspace();
    for (tool, then) in [("slow", ""), ("worker", "wait")] {
        let key = format!("{tool}-{then}");
        let input = json!({ "text": key, "then": then });
        let mut host = Host::start(&folder, folder.path().to_str().expect("a text path"));
        let before = descendants(host.pid());
        assert!(host.send(&line(
            &format!("AID.TEST.{}.v1", tool.to_uppercase()),
            &input,
            &key
        )));
        wait_for("the effect", || (effects(&folder, &key) == 1).then_some(()));
        let children = descendants(host.pid());
        assert!(
            before.is_empty() && !children.is_empty(),
            "{before:?} {children:?}"
        );
        host.kill();
        wait_for("the end of the tool", || {
            children.iter().all(|&pid| !is_alive(pid)).then_some(())
        });
        for ahead_ms in LATER_MS {
            for entry in [Entry::Serve, Entry::Call] {
                let set = Set {
                    failpoint: None,
                    ahead_ms,
                };
                assert_eq!(
                    attempt(&folder, entry, set, tool, &input, &key),
                    Answer::Unknown
                );
            }
        }
        assert_eq!(effects(&folder, &key), 1);
    }
    verified(&folder);
}

/// G-3: while the first call runs, others with its key wait and share its outcome, in the same
/// process and in others.
#[test]
fn calls_in_flight_are_shared() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let body = json!({ "tool": "slow", "input": { "text": "shared" }, "idempotency_key": "s" });
    let (input, folder) = (&body["input"], &folder);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| serve.call(&body));
        wait_for("the effect", || {
            (effects(folder, "shared") == 1).then_some(())
        });
        let mut others = Vec::new();
        for _ in 0..4 {
            others.push(scope.spawn(|| of_gate(&serve.call(&body))));
        }
        for entry in [Entry::Serve, Entry::Run, Entry::Call] {
            let call = move || attempt(folder, entry, Set::default(), "slow", input, "s");
            others.push(scope.spawn(call));
        }
        folder.write("go", "");
        assert_eq!(
            of_gate(&first.join().expect("an answer")),
            Answer::Output { hit: false }
        );
        for other in others {
            assert_eq!(
                other.join().expect("an answer"),
                Answer::Output { hit: true }
            );
        }
    });
    assert_eq!(effects(folder, "shared"), 1);
    assert!(serve.stop().success());
    verified(folder);
}

/// T-13: what carries out the calls is killed beneath the gate. The call under way has failed or
/// is unknown, never run again, and the host serves the next one.
#[test]
fn workers_and_spawner_are_killed() {
    let folder = workspace();
    let place = folder.path().to_str().expect("a text path").to_owned();
    for (number, tool) in ["slow", "worker", "slow", "worker"].into_iter().enumerate() {
        let kill_spawner = number < 2;
        let key = format!("under-{number}");
        let input = json!({ "text": key, "then": "wait" });
        let request = line(
            &format!("AID.TEST.{}.v1", tool.to_uppercase()),
            &input,
            &key,
        );
        let mut host = Host::start(&folder, &place);
        assert!(host.send(&request));
        wait_for("the effect", || (effects(&folder, &key) == 1).then_some(()));
        // The nearest descendant is the spawner; the tool itself is known by its words.
        let mut under = descendants(host.pid());
        if kill_spawner {
            under.truncate(1);
        } else {
            under.retain(|&pid| {
                words_of(pid).contains("slow.sh") || words_of(pid).contains("worker")
            });
        }
        assert!(!under.is_empty());
        under
            .iter()
            .for_each(|&pid| signal(pid, rustix::process::Signal::KILL));
        let first = of_toolhost(&host.reply());
        assert!(
            matches!(first, Answer::Fault { hit: false, .. }),
            "{tool} {kill_spawner}: {first:?}"
        );
        let second = of_toolhost(&host.ask(&request));
        assert!(
            matches!(second, Answer::Fault { hit: true, .. } | Answer::Unknown),
            "{tool} {kill_spawner}: {second:?}"
        );
        assert_eq!(effects(&folder, &key), 1);
        let next = format!("next-{number}");
        let healthy = line("AID.TEST.APPEND.v1", &json!({ "text": next }), &next);
        assert_eq!(
            of_toolhost(&host.ask(&healthy)),
            Answer::Output { hit: false }
        );
        assert_eq!(effects(&folder, &next), 1);
        assert!(host.end().success());
    }
    verified(&folder);
}
