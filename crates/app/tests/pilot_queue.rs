//! The queue: order, retries, dead letters, requests known again after a restart; and the program
//! killed at every step of a queued run, which is then taken up again with no step done twice.

#![cfg(feature = "failpoints")]

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;

use crate::support::drive::{Ran, chain, cli, count_of, end_of, lines_of, run, signal, verified};
use crate::support::workspace::{APPEND_TEXT, trusted_with};
use crate::support::{Folder, callgate, wait_for};
use callgate_call::{ManualClock, Timestamp};
use callgate_store::{Options, Store};
use rustix::process::Signal;
use serde_json::{Value, json};

/// After the text is appended with the tool's letter: a slot of its own, made of what it saw.
const STEP: &str = r#"
read -r input
case $input in *'}') ;; *) exit 1 ;; esac
text=${input#*'"text":"'}; text=${text%%'"'*}
echo "$text-$1" >> effects.log || exit 1
seen=${input#*'"slots":'}
printf '{"output":{"did":"%s"},"slots":{"%s":{"type":"text","provenance":"%s","content_json":"%s","size_bytes":1}},"removed_slots":[]}' $1 $2 $1 ${#seen}
"#;

/// Fails until the file `fixed` is there.
const FLAKY: &str = "[ -e fixed ] || exit 5\necho '{\"appended\":true}'\n";

fn config() -> String {
    let mut config = String::from("[breaker]\nfailures_max = 0\n");
    for (slot, letter) in ["A", "B", "C"].iter().enumerate() {
        config.push_str(&format!(
            "[[tool]]\nname = \"step{letter}\"\naid = \"AID.TEST.STEP_{letter}.v1\"\n\
             tags = [\"tag.steps\", \"tag.flaky\"]\ntier = 1\nslots = true\nwrites = [\"effects.log\"]\n\
             code = [\"step.sh\"]\nrunner = {{ kind = \"process\", command = [\"/bin/sh\", \"step.sh\", \"{letter}\", \"{slot}\"] }}\n"
        ));
    }
    config.push_str(
        "[pilot]\npolicy = [\"/bin/sh\", \"policy.sh\"]\ncode = [\"policy.sh\"]\ntimeout_ms = 60000\n\
         [pilot.goals]\n\"goal.b\" = [1]\n\
         [[tool]]\nname = \"strict\"\naid = \"AID.TEST.STRICT.v1\"\ntags = [\"tag.strict\"]\n\
         input_schema = { type = \"object\", required = [\"n\"] }\n\
         code = [\"flaky.sh\"]\nrunner = { kind = \"process\", command = [\"/bin/sh\", \"flaky.sh\"] }\n",
    );
    config.push_str(
        "[[tool]]\nname = \"asks\"\naid = \"AID.TEST.ASKS.v1\"\ntags = [\"tag.asks\"]\ntier = 1\n\
         writes = [\"effects.log\"]\n\
         code = [\"flaky.sh\"]\nrunner = { kind = \"process\", command = [\"/bin/sh\", \"flaky.sh\"] }\n\
         [[policy]]\ntools = [\"asks\"]\ndecision = \"ask\"\n",
    );
    config.push_str(
        "[[tool]]\nname = \"flaky\"\naid = \"AID.TEST.FLAKY.v1\"\ntags = [\"tag.flaky\"]\ntier = 1\n\
         writes = [\"effects.log\"]\n\
         code = [\"flaky.sh\"]\nrunner = { kind = \"process\", command = [\"/bin/sh\", \"flaky.sh\"] }\n",
    );
    config
}

fn workspace() -> Folder {
    let folder = trusted_with(&[
        ("callgate.toml", &config()),
        ("policy.sh", "echo '<PICK><SID0001><END>'"),
        ("step.sh", STEP),
        ("flaky.sh", &format!("{APPEND_TEXT}{FLAKY}")),
        ("effects.log", ""),
    ]);
    // The folders are made by the first look at them.
    work(&folder).good();
    folder
}

fn work(folder: &Folder) -> Ran {
    cli(folder, &["pilot", "--queue", "queue", "--once", "--json"])
}

fn killed_at(folder: &Folder, point: &str, skip: usize) -> bool {
    let mut command = callgate(folder);
    command.args(["pilot", "--queue", "queue", "--once"]);
    command.env("CALLGATE_FAILPOINT", format!("{point}=kill:{skip}"));
    run(&mut command).was_killed()
}

fn enqueue(folder: &Folder, name: &str, request: &Value) {
    let path = folder.write(&format!("queue/tmp/{name}.json"), &request.to_string());
    std::fs::rename(path, folder.join(&format!("queue/inbox/{name}.json"))).expect("enqueue");
}

fn request(text: &str, tag: &str) -> Value {
    json!({ "goal_id": "g", "candidate_tags": [tag], "inputs": { "text": text },
            "_queue": { "base_delay_ms": 0 } })
}

fn names(folder: &Folder, of: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join(&format!("queue/{of}"))).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("UTF-8")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

fn result(folder: &Folder, name: &str, attempt: u32) -> Value {
    let path = format!("queue/out/{name}.attempt{attempt}.result.json");
    serde_json::from_str(&folder.read(&path).unwrap_or_else(|| panic!("no {path}"))).expect("JSON")
}

/// The lines that steps of a job left.
fn effects(folder: &Folder, text: &str) -> Vec<String> {
    let mut lines = lines_of(&folder.join("effects.log"));
    lines.retain(|line| line.split('-').next() == Some(text));
    lines
}

/// TH-149: by number, then by name; what came of each; and where each is.
#[test]
fn worked_off_in_order() {
    let folder = workspace();
    for name in ["b", "p0002_c", "a", "p0001_d", "p9000_e"] {
        enqueue(&folder, name, &request(name, "tag.steps"));
    }
    folder.write("queue/inbox/x.json", "no request");
    work(&folder).good();
    let order: Vec<String> = lines_of(&folder.join("effects.log"));
    let order: Vec<&str> = order
        .iter()
        .filter_map(|line| line.strip_suffix("-A"))
        .collect();
    assert_eq!(order, ["p0001_d", "p0002_c", "a", "b", "p9000_e"]);
    assert_eq!(names(&folder, "done").len(), 5);
    assert_eq!(names(&folder, "failed"), ["x.json"]);
    for empty in ["inbox", "processing", "retry", "dlq", "tmp"] {
        assert_eq!(names(&folder, empty), [""; 0], "{empty}");
    }
    let told = result(&folder, "a", 1);
    for (field, value) in [
        ("ok", json!(true)),
        ("exit_code", json!(0)),
        ("job", json!("a")),
        ("attempt", json!(1)),
        ("max_attempts", json!(5)),
        ("scheduled_retry", json!(false)),
        ("deadletter", json!(false)),
        ("end", json!("noop")),
    ] {
        assert_eq!(told[field], value, "{field}: {told}");
    }
    assert!(std::path::Path::new(told["log"].as_str().expect("a log")).exists());
    assert_eq!(result(&folder, "x", 1)["end"], "refused");
    verified(&folder);
}

/// TH-149: a job that can not be worked on is shelved with the reason, whatever it is, and the
/// others do not wait for it to be mended.
#[test]
fn a_bad_job_holds_up_no_other() {
    let folder = workspace();
    let broken = "0123456789abcdef0123456789abcdef";
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    let store = Store::open(&folder.join("state"), Options::default(), clock).expect("the state");
    let nonsense = store.pilot_begin(broken, None, "nonsense", &json!({}));
    nonsense.expect("a run that makes no sense");
    drop(store);
    let long = "a".repeat(240);
    enqueue(&folder, &long, &request("long", "tag.steps"));
    enqueue(
        &folder,
        &format!("b.r{broken}.a1"),
        &request("b", "tag.steps"),
    );
    enqueue(&folder, "d", &request("d", "tag.steps"));
    work(&folder).good();
    assert_eq!(names(&folder, "done"), ["d.json"]);
    let failed = names(&folder, "failed");
    assert_eq!(failed.len(), 2, "{failed:?}");
    let cut = failed[0].strip_suffix(".json").expect("a job");
    for (job, words) in [
        (cut, "177 bytes at most"),
        ("b", "a run begins with `begin`"),
    ] {
        let told = result(&folder, job, 1);
        let reason = told["data"]["reason"].as_str().expect("a reason");
        assert_eq!(
            (&told["end"], reason.contains(words)),
            (&json!("refused"), true),
            "{told}"
        );
    }
    for empty in ["inbox", "processing", "retry", "dlq", "tmp"] {
        assert_eq!(names(&folder, empty), [""; 0], "{empty}");
    }
}

/// TH-149, T-30: tried as often as it may be, then given up; steps that were done stay done.
#[test]
fn retries_and_dead_letters() {
    let folder = workspace();
    let mut job = request("f", "tag.flaky");
    job["_queue"]["max_attempts"] = json!(3);
    enqueue(&folder, "f", &job);
    // Jitter is all there is to wait for.
    wait_for("the dead letter", || {
        work(&folder).good();
        (names(&folder, "dlq") == ["f.json"]).then_some(())
    });
    for attempt in 1..=3 {
        let told = result(&folder, "f", attempt);
        assert_eq!(told["end"], "tool_error", "{told}");
        assert_eq!(told["scheduled_retry"], json!(attempt < 3));
        assert_eq!(told["deadletter"], json!(attempt == 3));
        assert_eq!(told["next_run_at_ms"].is_u64(), attempt < 3);
    }
    assert_eq!(
        effects(&folder, "f")
            .iter()
            .filter(|line| *line == "f")
            .count(),
        3
    );

    enqueue(&folder, "g", &request("g", "tag.flaky"));
    work(&folder).good();
    assert_eq!(names(&folder, "retry").len(), 1);
    folder.write("fixed", "");
    wait_for("the job", || {
        work(&folder).good();
        names(&folder, "done")
            .contains(&"g.json".to_owned())
            .then_some(())
    });
    assert_eq!(
        effects(&folder, "g")
            .iter()
            .filter(|line| *line == "g-A")
            .count(),
        1
    );
    verified(&folder);
}

/// T-29, TH-149: a request that was a run before is known, after a restart too.
#[test]
fn requests_are_known_again() {
    let folder = workspace();
    let mut job = request("d", "tag.steps");
    job["request_id"] = json!("req-1");
    enqueue(&folder, "one", &job);
    work(&folder).good();
    enqueue(&folder, "two", &job);
    work(&folder).good();
    let (one, two) = (result(&folder, "one", 1), result(&folder, "two", 1));
    assert_eq!(
        (&one["deduplicated"], &two["deduplicated"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(one["header"], two["header"]);
    assert_eq!(effects(&folder, "d"), ["d-A", "d-B", "d-C"]);
    assert_eq!(names(&folder, "done"), ["one.json", "two.json"]);
}

/// TH-149, T-30: killed at every point of a queued run, again and again until it comes through: each step
/// at most once, the job in one folder, and the slots those of a run that nobody killed. A call
/// whose end nobody knows is not made again: the job is a dead letter that says so.
#[test]
fn killed_at_every_step() {
    let folder = workspace();
    enqueue(&folder, "whole", &request("whole", "tag.steps"));
    work(&folder).good();
    let slots = result(&folder, "whole", 1)["ds_digest"].clone();
    let unknown_at = [
        "begin.after",
        "run.after",
        "finish.before",
        "finish.before_write",
    ];
    let mut kills = 0;
    let mut doubtful = 0;
    for point in [
        "queue.after_claim",
        "pilot.before_note",
        "pilot.after_note",
        "commit.before_write",
        "commit.after_write",
        "begin.before",
        "begin.after",
        "run.after",
        "finish.before",
        "finish.before_write",
        "settle.after_write",
        "answer.before",
        "queue.after_tell",
        "queue.before_shelve",
        "queue.after_shelve",
    ] {
        for skip in 0.. {
            let text = format!("{}{skip}", point.replace(['.', '_'], ""));
            let mut job = request(&text, "tag.steps");
            job["request_id"] = json!(text);
            enqueue(&folder, &text, &job);
            let killed = killed_at(&folder, point, skip);
            work(&folder).good();
            let done = names(&folder, "done").contains(&format!("{text}.json"));
            let dead = names(&folder, "dlq").contains(&format!("{text}.json"));
            assert!(done != dead, "{text}: done {done}, dead {dead}");
            for folder_name in ["inbox", "processing", "retry"] {
                assert_eq!(names(&folder, folder_name), [""; 0], "{text}");
            }
            let did = effects(&folder, &text);
            let steps = [
                format!("{text}-A"),
                format!("{text}-B"),
                format!("{text}-C"),
            ];
            let told = result(&folder, &text, 1);
            if done {
                assert_eq!(did, steps, "{text}");
                assert_eq!(told["ds_digest"], slots, "{text}");
                let run = told["header"]["run_id"].as_str().expect("an id");
                cli(&folder, &["replay", run]).good();
            } else {
                assert!(steps.starts_with(&did), "at most once: {did:?}");
                assert_eq!(told["data"]["outcome_unknown"], true, "{told}");
                assert!(unknown_at.contains(&point), "{text}: {told}");
                doubtful += 1;
            }
            work(&folder).good();
            assert_eq!(effects(&folder, &text), did, "nothing is done again");
            if !killed {
                assert!(skip > 0, "{point} is never passed");
                break;
            }
            kills += 1;
        }
    }
    assert!(
        kills > 30 && doubtful > 5,
        "{kills} kills, {doubtful} in doubt"
    );
    verified(&folder);
}

/// TH-149, T-30: killed while a job that failed is put off, or one whose worker is gone is put back:
/// it waits in one folder, and its tries are as many as they would have been.
#[test]
fn killed_between_two_tries() {
    for point in ["queue.before_put_off", "queue.after_put_off"] {
        let folder = workspace();
        let mut job = request("f", "tag.flaky");
        job["_queue"]["max_attempts"] = json!(2);
        enqueue(&folder, "f", &job);
        assert!(killed_at(&folder, point, 0), "{point}");
        let left = names(&folder, "processing");
        assert_eq!(left.len(), usize::from(point == "queue.before_put_off"));
        if !left.is_empty() {
            assert!(killed_at(&folder, "queue.before_recover", 0));
            assert_eq!(names(&folder, "processing"), left, "it waits where it was");
        }
        wait_for("the dead letter", || {
            work(&folder).good();
            (names(&folder, "dlq") == ["f.json"]).then_some(())
        });
        for empty in ["inbox", "processing", "retry", "done"] {
            assert_eq!(names(&folder, empty), [""; 0], "{point}: {empty}");
        }
        assert_eq!(effects(&folder, "f"), ["f", "f"], "{point}");
        verified(&folder);
    }
}

/// TH-145, TH-146: killed after each record of a run that reaches its goal at the second of three
/// steps: the third is never taken.
#[test]
fn killed_at_its_goal() {
    let folder = workspace();
    for skip in 0.. {
        let text = format!("g{skip}");
        let mut job = request(&text, "tag.steps");
        job["goal_id"] = json!("goal.b");
        enqueue(&folder, &text, &job);
        let killed = killed_at(&folder, "pilot.after_note", skip);
        work(&folder).good();
        let told = result(&folder, &text, 1);
        assert_eq!(told["end"], "goal_done", "{told}");
        assert_eq!(
            effects(&folder, &text),
            [format!("{text}-A"), format!("{text}-B")]
        );
        let run = told["header"]["run_id"].as_str().expect("an id");
        cli(&folder, &["replay", run]).good();
        if !killed {
            assert!(skip > 4, "{skip} records");
            break;
        }
    }
}

/// TH-145: killed after the record of the 9th invalid pick: there is no tenth.
#[test]
fn killed_at_its_limit() {
    let folder = workspace();
    let mut job = request("i", "tag.strict");
    job["control_mode"] = json!("POLICY_ONLY");
    job["_queue"]["max_attempts"] = json!(1);
    enqueue(&folder, "i", &job);
    // A choice and what comes of it, nine times.
    assert!(killed_at(&folder, "pilot.after_note", 17));
    assert_eq!(count_of(&folder, "pilot.invalid_pick"), 9);
    work(&folder).good();
    let told = result(&folder, "i", 1);
    assert_eq!(told["data"]["reason"], "max_invalid_picks", "{told}");
    assert_eq!(told["steps"].as_array().expect("steps").len(), 9);
    assert_eq!(names(&folder, "dlq"), ["i.json"]);
}

/// T-29: a queued request that asked goes on when it is queued again after a yes, and is told again
/// before it; what fails then is tried again as any job is.
#[test]
fn a_queued_request_that_asked_goes_on() {
    let folder = workspace();
    let mut job = request("q", "tag.asks");
    job["request_id"] = json!("asked");
    job["_queue"]["max_attempts"] = json!(2);
    enqueue(&folder, "one", &job);
    work(&folder).good();
    let asked = result(&folder, "one", 1);
    assert_eq!(asked["end"], "ask_sup", "{asked}");
    enqueue(&folder, "two", &job);
    work(&folder).good();
    let told = result(&folder, "two", 1);
    assert_eq!(
        (&told["end"], &told["deduplicated"]),
        (&json!("ask_sup"), &json!(true))
    );
    let approval = asked["data"]["approval"].as_str().expect("an approval");
    cli(&folder, &["approvals", "grant", approval]).good();
    enqueue(&folder, "three", &job);
    work(&folder).good();
    let on = result(&folder, "three", 1);
    assert_eq!(on["header"], asked["header"], "the same run");
    assert_eq!(on["end"], "tool_error", "{on}");
    assert_eq!(effects(&folder, "q"), ["q"]);
    // The next try is another call, which a person sees first as well.
    let again = wait_for("the second try", || {
        work(&folder).good();
        let path = "queue/out/three.attempt2.result.json";
        let text = folder.read(path)?;
        Some(serde_json::from_str::<Value>(&text).expect("JSON"))
    });
    assert_eq!(again["end"], "ask_sup", "{again}");
    assert_eq!(
        names(&folder, "done"),
        ["one.json", "three.json", "two.json"]
    );
    verified(&folder);
}

/// T-29, TH-149: a job whose request is being run elsewhere waits for that, without using up a try,
/// and is then told how it ended; that it waits is told once.
#[test]
fn a_job_waits_for_its_run_elsewhere() {
    let folder = workspace();
    folder.write(
        "step.sh",
        &format!("while [ ! -e go ]; do sleep 0.05; done\n{STEP}"),
    );
    cli(&folder, &["trust"]).good();
    let mut job = request("w", "tag.steps");
    job["request_id"] = json!("w");
    job["_queue"]["max_attempts"] = json!(1);
    folder.write("request.json", &job.to_string());
    let mut elsewhere = callgate(&folder)
        .args(["pilot", "request.json"])
        .spawn()
        .expect("start the run");
    wait_for("the call", || {
        (count_of(&folder, "start") > 0).then_some(())
    });
    enqueue(&folder, "w", &job);
    work(&folder).good();
    let told = result(&folder, "w", 1);
    assert_eq!(
        (&told["end"], &told["scheduled_retry"]),
        (&json!("busy"), &json!(true)),
        "{told}"
    );
    let waits = names(&folder, "retry");
    assert!(
        waits.len() == 1 && waits[0].ends_with(".a1.json"),
        "{waits:?}"
    );
    let mut worker = callgate(&folder)
        .args(["pilot", "--queue", "queue", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start a worker");
    let mut seen = BTreeSet::from_iter(waits);
    wait_for("two looks at it", || {
        seen.extend(names(&folder, "retry"));
        (seen.len() > 2).then_some(())
    });
    folder.write("go", "");
    assert!(end_of(&mut elsewhere, "the run").success());
    wait_for("the job", || {
        (names(&folder, "done") == ["w.json"]).then_some(())
    });
    signal(worker.id(), Signal::TERM);
    assert!(end_of(&mut worker, "the worker").success());
    let said = std::io::read_to_string(worker.stdout.take().expect("piped")).expect("text");
    assert_eq!(said.matches("\"busy\"").count(), 1, "{said}");
    let told = result(&folder, "w", 1);
    assert_eq!(
        (&told["end"], &told["deduplicated"]),
        (&json!("noop"), &json!(true)),
        "{told}"
    );
    assert_eq!(effects(&folder, "w"), ["w-A", "w-B", "w-C"]);
    verified(&folder);
}

/// TH-149: two workers on one queue share the jobs, and each job is done once.
#[test]
fn two_workers() {
    let folder = workspace();
    for number in 0..6 {
        let text = format!("j{number}");
        enqueue(&folder, &text, &request(&text, "tag.steps"));
    }
    std::thread::scope(|scope| {
        let workers = [scope.spawn(|| work(&folder)), scope.spawn(|| work(&folder))];
        for worker in workers {
            worker.join().expect("a worker").good();
        }
    });
    work(&folder).good();
    assert_eq!(names(&folder, "done").len(), 6);
    assert_eq!(lines_of(&folder.join("effects.log")).len(), 18);
    verified(&folder);
}

/// TH-149: a worker stays, takes what comes, and ends in order when it is told to; what it was at is
/// taken up again.
#[test]
fn a_worker_that_stays() {
    let folder = workspace();
    let mut worker = callgate(&folder)
        .args(["pilot", "--queue", "queue"])
        .spawn()
        .expect("start the worker");
    enqueue(&folder, "one", &request("one", "tag.steps"));
    wait_for("the job", || {
        (names(&folder, "done") == ["one.json"]).then_some(())
    });
    signal(worker.id(), Signal::TERM);
    assert!(end_of(&mut worker, "the worker").success());
    // Told to stop in the middle of a call: it is cancelled, and the run goes on later.
    folder.write(
        "step.sh",
        &format!("[ -e go ] || {{ touch waits; sleep 600; }}\n{STEP}"),
    );
    cli(&folder, &["trust"]).good();
    let mut worker = callgate(&folder)
        .args(["pilot", "--queue", "queue"])
        .spawn()
        .expect("start the worker");
    let mut two = request("two", "tag.steps");
    two["_queue"]["max_attempts"] = json!(1);
    enqueue(&folder, "two", &two);
    wait_for("the call", || {
        let started = chain(&folder)
            .into_iter()
            .rev()
            .find(|record| record["kind"] == "start");
        let job = names(&folder, "processing")
            .iter()
            .any(|name| name.starts_with("two"));
        (job && started.is_some_and(|start| start["tool"] == "stepA")).then_some(())
    });
    signal(worker.id(), Signal::TERM);
    assert!(end_of(&mut worker, "the worker").success());
    folder.write("go", "");
    work(&folder).good();
    // Its one try was not used up by the stop.
    assert_eq!(names(&folder, "done"), ["one.json", "two.json"]);
    assert_eq!(result(&folder, "two", 1)["attempt"], json!(1));
    assert_eq!(effects(&folder, "two"), ["two-A", "two-B", "two-C"]);
    verified(&folder);
}
