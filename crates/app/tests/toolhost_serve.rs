//! Conversations with `--serve` that bytes alone do not show: who waits for whom, what is
//! left behind, and what many lines cost.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::support::drive::{
    Host, Serve, cli, end_of, lines_of, python, run_with, signal, verified,
};
use crate::support::processes::{descendants, resident_bytes, started_with};
use crate::support::workspace::trusted_with;
use crate::support::{Folder, callgate, copy_pack, is_alive, wait_for};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

const ECHO: &str = "AID.BUILTIN.ECHO.v1";
const COUNT: &str = "AID.TEST.COUNT.v1";
const LONG: &str = "AID.TEST.LONG.v1";

fn nothing_changed() -> Value {
    json!({ "delta": true, "slots": {}, "removed_slots": [] })
}

fn ok(output: &str) -> Value {
    json!({ "ok": true, "status": "OK", "output_json": output, "error": "", "ds_state": nothing_changed() })
}

/// A folder with a copy of the pack.
fn with_pack() -> Folder {
    let folder = Folder::new();
    copy_pack(&folder);
    folder
}

/// Waits until a tool says in `file` that it and a child of its own are there. Pids would say
/// nothing, for a tool may have a pid namespace; but the worker's path is this test's own.
fn wait_begun(folder: &Folder, file: &str) {
    wait_for("the tool to begin", || folder.read(&format!("pack/{file}")));
    wait_processes(folder, 2);
}

/// Waits until the tools have so many processes.
fn wait_processes(folder: &Folder, count: usize) {
    wait_for("the tools' processes", || {
        (tool_processes(folder).len() == count).then_some(())
    });
}

fn tool_processes(folder: &Folder) -> Vec<u32> {
    started_with(folder.path().to_str().unwrap())
}

fn wait_gone(folder: &Folder) {
    wait_for("the tool's processes to go", || {
        tool_processes(folder).is_empty().then_some(())
    });
}

/// `--run` of a tool of the pack.
fn run_tool(folder: &Folder, aid: &str, request: &Value) -> Value {
    let mut command = callgate(folder);
    command.args(["toolhost", "--run", "pack", aid]);
    run_with(&mut command, request.to_string().as_bytes())
        .good()
        .json()
}

/// TH-44, T-18: every line gets its reply, in order, and lines do not add up in memory.
#[test]
fn a_hundred_thousand_lines_ahead() {
    const LINES: usize = 100_000;
    let folder = Folder::new();
    let mut child = callgate(&folder)
        .args(["toolhost", "--serve", "builtin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut replies = BufReader::new(child.stdout.take().unwrap()).lines();
    let (pid, mut after_a_tenth, mut at_the_end) = (child.id(), 0, 0);
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for number in 0..LINES {
                writeln!(
                    stdin,
                    r#"{{"aid":"{ECHO}","input_json":"{{\"n\":{number}}}"}}"#
                )
                .unwrap();
            }
            stdin // open until every reply was read
        });
        for number in 0..LINES {
            let reply: Value = serde_json::from_str(&replies.next().unwrap().unwrap()).unwrap();
            assert_eq!(reply, ok(&format!("{{\"n\":{number}}}")));
            if number + 1 == LINES / 10 {
                after_a_tenth = resident_bytes(pid);
            }
        }
        at_the_end = resident_bytes(pid);
        drop(writer.join().unwrap());
    });
    assert!(replies.next().is_none());
    assert!(child.wait().unwrap().success());
    let grown = at_the_end.saturating_sub(after_a_tenth);
    assert!(
        grown <= 8 << 20,
        "grew by {grown} bytes, from {after_a_tenth}"
    );
}

/// TH-44, T-8: lines that are refused do not add up either: a client that does not read holds up a
/// host that has no more than a batch of answers for it.
#[test]
fn refusals_are_written_in_batches() {
    let folder = Folder::new();
    let blocked_with = |lines: usize| {
        folder.write("lines", &"x\n".repeat(lines));
        let (unread, stdout) = std::io::pipe().unwrap();
        let mut host = callgate(&folder)
            .args(["toolhost", "--serve", "builtin"])
            .stdin(std::fs::File::open(folder.join("lines")).unwrap())
            .stdout(stdout.try_clone().unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("the pipe to be full", || (!has_room(&stdout)).then_some(()));
        let resident = resident_bytes(host.id());
        drop((unread, stdout));
        end_of(&mut host, "the host");
        resident
    };
    // The answers to these are a few more than a pipe holds; those, a read of the host's.
    let few = blocked_with(2_000);
    let many = blocked_with(128 * 1024);
    assert!(many < few + (4 << 20), "{many} bytes, and {few} for few");
}

/// TH-7: a reply waits neither for the next line nor for a tool that takes its time.
#[test]
fn no_reply_is_held_back() {
    let folder = with_pack();
    let mut host = Host::start(&folder, "pack");
    let quick = json!({ "aid": "AID.TEST.GIVE.v1", "inputs": { "name": "x", "output": { "greeting": "hi" } } });
    assert_eq!(host.ask(&quick), ok(r#"{"greeting":"hi"}"#));
    // Both lines in one write: the first is answered while the second runs.
    let slow = json!({ "aid": LONG, "inputs": { "pids": "pids" } });
    assert!(host.send_bytes(format!("{quick}\n{slow}\n").as_bytes()));
    assert_eq!(host.reply(), ok(r#"{"greeting":"hi"}"#));
    wait_begun(&folder, "pids");
}

/// TH-47, T-13: whatever a late tool has started is gone when it is answered.
#[test]
fn a_late_tool_is_ended_with_all_its_processes() {
    let folder = with_pack();
    // Long enough for the tool to begin, however busy the machine.
    let begun = [5_000, 20_000, 80_000].into_iter().find(|timeout_ms| {
        let mut command = callgate(&folder);
        command.args(["toolhost", "--serve", "pack"]).env(
            "MACHINA_TOOLHOST_TIMEOUT_MS",
            (timeout_ms + 500).to_string(),
        );
        let mut host = Host::spawn(&mut command);
        let reply = host.ask(&json!({ "aid": LONG, "inputs": { "pids": "pids" } }));
        assert_eq!(tool_processes(&folder), [] as [u32; 0], "{reply}");
        assert_eq!(
            (&reply["ok"], &reply["error"]),
            (
                &json!(true),
                &json!(format!("timed out after {timeout_ms} ms"))
            )
        );
        assert_eq!(
            host.ask(&json!({ "aid": "AID.TEST.SIZE.v1", "inputs": { "length": 1 } }))["status"],
            "OK"
        );
        folder.read("pack/pids").is_some()
    });
    assert!(begun.is_some(), "the tool never began");
}

/// TH-45: one host's call does not hold up another's, and their slots are apart.
#[test]
fn two_hosts_side_by_side() {
    let folder = with_pack();
    let (mut one, mut other) = (Host::start(&folder, "pack"), Host::start(&folder, "pack"));
    let change = json!({ "aid": "AID.TEST.CHANGE.v1", "inputs": { "put": { "1": {} } } });
    assert_eq!(one.ask(&change)["output_json"], r#"{"slots":[1]}"#);
    one.send(&json!({ "aid": LONG, "inputs": { "pids": "pids" } }));
    wait_begun(&folder, "pids");
    let keyed = json!({ "aid": COUNT, "inputs": { "file": "runs" }, "idempotency_key": "k" });
    assert_eq!(other.ask(&keyed)["status"], "OK");
    assert_eq!(
        other.ask(&json!({ "aid": "AID.TEST.CHANGE.v1" }))["output_json"],
        r#"{"slots":[]}"#
    );
    // The one that waits, its child, and ours.
    wait_processes(&folder, 3);
    one.kill();
    assert!(other.end().success());
    wait_gone(&folder);
    let mut third = Host::start(&folder, "pack");
    assert_eq!(third.ask(&keyed)["idempotent_hit"], true);
    assert_eq!(folder.read("pack/runs").as_deref(), Some("ran\n"));
}

/// TH-63: a key that was answered holds after SIGKILL of the process that answered it.
#[test]
fn a_key_outlives_its_process() {
    let folder = with_pack();
    let mut host = Host::start(&folder, "pack");
    let request = json!({ "aid": COUNT, "inputs": { "file": "runs" }, "idempotency_key": "k" });
    assert_eq!(host.ask(&request)["status"], "OK");
    host.kill();
    let reply = run_tool(&folder, COUNT, &request);
    assert_eq!(reply["idempotent_hit"], true);
    assert_eq!(reply["ds_state"], nothing_changed());
    assert_eq!(folder.read("pack/runs").as_deref(), Some("ran\n"));
}

/// F-11: a call that began and never ended is answered as such, with `ok` true, on every try.
#[test]
fn an_outcome_nobody_knows() {
    let folder = with_pack();
    let mut host = Host::start(&folder, "pack");
    let request = json!({ "aid": LONG, "inputs": { "pids": "pids" }, "idempotency_key": "k" });
    host.send(&request);
    wait_begun(&folder, "pids");
    host.kill();
    wait_gone(&folder);
    for _ in 0..2 {
        let reply = run_tool(&folder, LONG, &request);
        assert_eq!(
            (&reply["ok"], &reply["status"]),
            (&json!(true), &json!("TOOL_ERROR"))
        );
        assert!(
            reply["error"]
                .as_str()
                .unwrap()
                .starts_with("outcome unknown"),
            "{reply}"
        );
    }
}

/// F-22: a stop answers the call under way before the host ends.
#[test]
fn a_stop_cancels_the_call_under_way() {
    let folder = with_pack();
    let mut host = Host::start(&folder, "pack");
    host.send(
        &json!({ "aid": LONG, "inputs": { "pids": "pids" }, "ds_state": { "slots": { "1": {} } } }),
    );
    wait_begun(&folder, "pids");
    signal(host.pid(), Signal::TERM);
    let wanted = json!({ "ok": true, "status": "TOOL_ERROR", "output_json": "{}", "error": "cancelled",
        "ds_state": nothing_changed() });
    assert_eq!(host.reply(), wanted);
    assert!(host.end().success());
    wait_gone(&folder);
}

/// TH-125: the client's stop sequence, broken off after each of its steps, with and without
/// a call under way.
#[test]
fn the_client_s_stop_sequence() {
    for busy in [false, true] {
        for steps in 1..=3 {
            let folder = with_pack();
            let mut command = callgate(&folder);
            command
                .args(["toolhost", "--serve", "pack"])
                .process_group(0);
            let mut host = Host::spawn(&mut command);
            assert_eq!(
                host.ask(&json!({ "aid": COUNT, "inputs": { "file": "runs" } }))["status"],
                "OK"
            );
            if busy {
                host.send(&json!({ "aid": LONG, "inputs": { "pids": "pids" } }));
                wait_begun(&folder, "pids");
            }
            let group = Pid::from_raw(i32::try_from(host.pid()).unwrap()).unwrap();
            host.send_bytes(b"\n");
            for stop in [Signal::TERM, Signal::KILL].into_iter().take(steps - 1) {
                let _ = kill_process_group(group, stop);
            }
            if steps > 1 || !busy {
                host.end();
            } else {
                // A blank line behind a call that never ends: the client goes on to the next
                // step, and if it does not, its own death closes the pipes.
                host.kill();
            }
            wait_gone(&folder);
            let reply = run_tool(&folder, COUNT, &json!({ "inputs": { "file": "runs" } }));
            assert_eq!(reply["status"], "OK", "busy {busy}, {steps} steps: {reply}");
            verified(&folder);
        }
    }
}

/// What the client does between fork and exec, in a language that can.
const CLIENT: &str = r"
import ctypes, os, sys
os.setpgid(0, 0)
os.umask(0o077)
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
os.closerange(3, 4096)
os.execv(sys.argv[1], sys.argv[1:])
";

/// TH-124: descriptors above 2 closed, umask 077, no new privileges, a process group of its
/// own. The limits that go with them are T-12's.
#[test]
fn started_as_the_client_starts_it() {
    let folder = with_pack();
    let plain = callgate(&folder);
    let mut command = Command::new(python());
    command
        .args(["-c", CLIENT])
        .arg(plain.get_program())
        .args(["toolhost", "--serve", "pack"]);
    command.env_clear().envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(folder.path());
    let mut host = Host::spawn(&mut command);
    let wait = json!({ "aid": LONG, "inputs": { "pids": "pids" } });
    for aid in ["AID.TEST.ECHO.v1", COUNT] {
        let reply =
            host.ask(&json!({ "aid": aid, "inputs": { "file": "runs" }, "idempotency_key": aid }));
        assert_eq!(reply["status"], "OK", "{reply}");
    }
    let mode = std::fs::metadata(folder.join("pack/runs"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "a tool's umask is the host's");
    host.send(&wait);
    wait_begun(&folder, "pids");
    let group = Pid::from_raw(i32::try_from(host.pid()).unwrap()).unwrap();
    assert_eq!(rustix::process::getpgid(Some(group)).unwrap(), group);
    kill_process_group(group, Signal::TERM).unwrap();
    assert_eq!(host.reply()["error"], "cancelled");
    assert!(host.end().success());
    wait_gone(&folder);
}

/// TH-3: a daemon of the same state that does not even run its own loop is nothing to us.
#[test]
fn it_stands_alone() {
    let folder = with_pack();
    let daemon = Serve::start(&folder);
    signal(daemon.pid(), Signal::STOP);
    let mut host = Host::start(&folder, "builtin");
    assert_eq!(host.ask(&json!({ "aid": ECHO })), ok("{}"));
    assert!(host.end().success());
    assert_eq!(run_tool(&folder, COUNT, &json!({}))["status"], "OK");
    let mut command = callgate(&folder);
    assert_eq!(
        run_with(command.args(["tool_exec", ECHO]), b"{}")
            .good()
            .json()["status"],
        "OK"
    );
    signal(daemon.pid(), Signal::CONT);
    assert!(daemon.stop().success());
}

/// TH-73, TH-74, T-4, T-15: a lease issued in band is spent once, on the tool it names.
#[test]
fn leases_in_band() {
    let folder = with_pack();
    folder.write(
        "pack/callgate.toml",
        "toolpacks = [\"toolpack.json\"]\n[leases]\nin_band = true\n",
    );
    let mut command = callgate(&folder);
    command
        .args(["toolhost", "--serve", "pack"])
        .env("MACHINA_LEASE_ENFORCE", "true");
    let mut host = Host::spawn(&mut command);
    let issued = host.ask(&json!({ "aid": "_lease.issue", "tool_aid": COUNT, "tier": 1 }));
    let token = issued["token_id"].as_str().unwrap().to_owned();
    let digits = token.strip_prefix("lease_").unwrap();
    assert!(
        digits.len() == 32
            && digits
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    );
    let mut call = |aid: &str| {
        host.ask(&json!({ "aid": aid, "inputs": { "file": "runs" }, "_lease_token": token }))
    };
    assert_eq!(call("AID.TEST.SPAWN.v1")["reason"], "tool mismatch");
    assert_eq!(call(COUNT)["status"], "OK");
    assert_eq!(call(COUNT)["reason"], "already consumed");
    let counts = host.ask(&json!({ "aid": "_lease.gc" }));
    assert_eq!(
        counts,
        json!({ "ok": true, "active": 0, "issued": 1, "consumed": 1, "rejected": 2 })
    );
    // Tier 0, which is what `_lease.issue` gives when none is named, opens nothing of tier 1.
    let low = host.ask(&json!({ "aid": "_lease.issue", "tool_aid": COUNT }));
    let low = json!({ "aid": COUNT, "_lease_token": low["token_id"] });
    assert_eq!(host.ask(&low)["reason"], "tier too low");
    assert_eq!(folder.read("pack/runs").as_deref(), Some("ran\n"));
}

/// TH-126: what the client does after a failure: the same call by `--run`, with a snapshot and
/// without a key. Each failure before it was answered `ok` true.
#[test]
fn the_client_repeats_by_run() {
    let folder = with_pack();
    let mut command = callgate(&folder);
    command
        .args(["toolhost", "--serve", "pack"])
        .env("MACHINA_TOOLHOST_TIMEOUT_MS", "800");
    let mut host = Host::spawn(&mut command);
    for aid in ["AID.TEST.LEAVE.v1", LONG, "AID.TEST.FAIL.v1"] {
        assert_eq!(
            host.ask(&json!({ "aid": aid, "ds_state": { "delta": true } }))["ok"],
            true,
            "{aid}"
        );
    }
    let snapshot = json!({ "slots": { "1": { "type": "text" } } });
    let reply = run_tool(
        &folder,
        "AID.TEST.ECHO.v1",
        &json!({ "input_json": "{}", "ds_state": snapshot }),
    );
    assert_eq!(reply["ds_state"]["slots"]["1"]["type"], "text");
    assert!(
        reply["ds_state"]["slots"]["6"]["content_json"]
            .as_str()
            .unwrap()
            .contains("echo")
    );
}

/// T-2, G-3: a call that came too late for its client, or for its host's life, is not made again by
/// a retry with its key. The tool leaves a line for each time it runs, and waits for ever.
#[test]
fn a_slow_call_with_a_key_runs_once() {
    let folder = Folder::new();
    let config = r#"
[[tool]]
name = "slow"
aid = "AID.TEST.SLOW.v1"
writes = ["runs"]
runner = { kind = "process", command = ["/bin/sh", "-c", "echo ran >> runs/log; exec sleep 3600"] }
"#;
    folder.write("callgate.toml", config);
    let again = |key: &str| {
        let mut command = callgate(&folder);
        command.args(["toolhost", "--run", ".", "AID.TEST.SLOW.v1"]);
        let request = json!({ "idempotency_key": key }).to_string();
        run_with(&mut command, request.as_bytes()).good().json()
    };
    let mut command = callgate(&folder);
    command
        .args(["toolhost", "--serve", "."])
        .env("MACHINA_TOOLHOST_TIMEOUT_MS", "5500");
    let mut host = Host::spawn(&mut command);
    let call = |key: &str| json!({ "aid": "AID.TEST.SLOW.v1", "idempotency_key": key });
    let late = host.ask(&call("late"));
    assert_eq!(
        (&late["ok"], &late["error"]),
        (&json!(true), &json!("timed out after 5000 ms"))
    );
    let runs = || lines_of(&folder.join("runs/log")).len();
    assert_eq!(runs(), 1);
    let repeated = again("late");
    assert_eq!(repeated["error"], late["error"]);
    assert_eq!(repeated["idempotent_hit"], true);
    assert!(host.send(&call("killed")));
    wait_for("its second run", || (runs() == 2).then_some(()));
    host.kill();
    let unknown = again("killed");
    assert_eq!(unknown["status"], "TOOL_ERROR", "{unknown}");
    let error = unknown["error"].as_str().unwrap();
    assert!(error.starts_with("outcome unknown"), "{error}");
    assert_eq!(runs(), 2);
}

/// G-9, T-11: what is named on the command line is trusted by that, and records nothing.
#[test]
fn naming_a_plugin_records_no_trust() {
    let folder = with_pack();
    folder.write("pack/callgate.toml", "toolpacks = [\"toolpack.json\"]\n");
    assert_eq!(run_tool(&folder, COUNT, &json!({}))["status"], "OK");
    let shown = cli(&folder, &["tools", "--workspace", "pack", "--json"])
        .good()
        .out;
    assert!(!shown.contains(COUNT), "{shown}");
    assert!(Path::new(&folder.join("state")).exists());
}

/// T-2, G-8: SIGTERM ends a host whose client does not read, though an answer does not fit into
/// the pipe. What was answered is recorded, and nothing is left behind.
#[test]
fn a_client_that_does_not_read_does_not_keep_the_host() {
    let folder = Folder::new();
    let config = r#"
[[tool]]
name = "big"
aid = "AID.TEST.BIG.v1"
runner = { kind = "process", command = ["/bin/sh", "-c", "printf '\"%0200000d\"' 1"] }
"#;
    folder.write("callgate.toml", config);
    let (unread, stdout) = std::io::pipe().unwrap();
    let mut host = callgate(&folder)
        .args(["toolhost", "--serve", folder.path().to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(stdout.try_clone().unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let request = json!({ "aid": "AID.TEST.BIG.v1", "idempotency_key": "k" });
    writeln!(host.stdin.as_mut().unwrap(), "{request}").unwrap();
    wait_for("the pipe to be full", || (!has_room(&stdout)).then_some(()));
    let children = descendants(host.id());
    assert!(!children.is_empty(), "its spawner");
    signal(host.id(), Signal::TERM);
    let mut said = String::new();
    host.stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(end_of(&mut host, "the host").code(), Some(1), "{said}");
    assert!(said.contains("not read"), "{said}");
    wait_for("its children to go", || {
        (!children.iter().any(|&child| is_alive(child))).then_some(())
    });
    drop(unread);
    let reply = Host::start(&folder, folder.path().to_str().unwrap()).ask(&request);
    assert_eq!(reply["idempotent_hit"], true);
    verified(&folder);
}

fn has_room(pipe: &std::io::PipeWriter) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&now)).unwrap() > 0
}

/// T-19, T-19b: an output that is too large for a line is an artifact, which the reply names and
/// `files/read` reads; a retry by key gets the same name.
#[test]
fn an_oversize_output_is_kept() {
    const FLOOD: &str = "cat > /dev/null\nprintf '{\"x\":\"'\nhead -c 1100000 /dev/zero | tr '\\0' x\nprintf '\"}'\n";
    let config = "[[tool]]\nname = \"flood\"\naid = \"AID.TEST.FLOOD.v1\"\n\
                  code = [\"flood.sh\"]\nrunner = { kind = \"process\", command = [\"/bin/sh\", \"flood.sh\"], limits = { output_bytes = 2000000 } }\n";
    let folder = trusted_with(&[("callgate.toml", config), ("flood.sh", FLOOD)]);
    let mut host = Host::start(&folder, ".");
    let request = json!({ "aid": "AID.TEST.FLOOD.v1", "idempotency_key": "k" });
    let replies = [host.ask(&request), host.ask(&request)];
    let names = replies.map(|reply| {
        assert_eq!(reply["status"], "TOOL_ERROR", "{reply}");
        assert_eq!(reply["error"], "output exceeds 1 MiB");
        let output: Value = serde_json::from_str(reply["output_json"].as_str().unwrap()).unwrap();
        output["artifact"].as_str().unwrap().to_owned()
    });
    assert_eq!(names[0], names[1]);
    assert!(host.end().success());
    let input = json!({ "path": names[0] }).to_string();
    let read = cli(&folder, &["call", "files/read", &input, "--json"]).good();
    let content = read.json()["output"]["content"].clone();
    let content: Value = serde_json::from_str(content.as_str().unwrap()).unwrap();
    assert_eq!(content["x"].as_str().map(str::len), Some(1_100_000));
}
