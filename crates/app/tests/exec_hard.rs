//! Programs that print without end and fork without end, by `exec/run` and on terminals: bounded,
//! ended, and told as it was..

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use crate::exec::{ask, good, rpc, sh};
use crate::support::arena::{Arena, Users, side_by_side};
use crate::support::drive::{Host, run};
use crate::support::processes::{forever, gone, most_while, peak_kib, started_with};
use crate::support::{Folder, unused_uid, wait_for};
use crate::tree_limits::limits;
use serde_json::{Value, json};

/// What an answer has of a stream.
const SHOWN_MAX: u64 = 8 << 20;
/// What an artifact has of it.
const KEPT_MAX: u64 = 256 << 20;

/// The line that stands for what is left out of a text: where that is, how many bytes are left out,
/// how many are kept and how many there were.
fn cut(text: &str) -> (&str, &str, [u64; 3]) {
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("[callgate: "));
    let line = line.expect("something is left out");
    let words = || line.split([' ', ',']);
    let name = words().find(|word| word.starts_with("artifact:b3-"));
    let numbers: Vec<u64> = words().filter_map(|word| word.parse().ok()).collect();
    let numbers = numbers.try_into().unwrap_or_else(|_| panic!("{line}"));
    (line, name.expect("an artifact"), numbers)
}

fn read(host: &mut Host, params: Value) -> Value {
    host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "files/read", "params": params }))
}

fn part(host: &mut Host, path: &str, offset: u64, length: u64) -> Value {
    let params = json!({ "path": path, "offset": offset, "length": length });
    read(host, params)["result"].clone()
}

/// what is too long is cut in the middle, and the artifact has all of it.
#[test]
fn long_output_is_an_artifact() {
    let folder = Folder::new();
    let mut host = rpc(&folder);
    let exact = format!("head -c {SHOWN_MAX} /dev/zero | tr '\\0' x");
    let whole = sh(&mut host, &exact)["stdout"].as_str().unwrap().len();
    assert_eq!(whole as u64, SHOWN_MAX, "as much as there may be");
    let lines = "i=0; while [ $i -lt 200000 ]; do echo \"line $i é\"; i=$((i+1)); done; \
        head -c 12000000 /dev/zero | tr '\\0' y; printf end; \
        head -c 9000000 /dev/zero | tr '\\0' z >&2";
    let result = sh(&mut host, lines);
    let text = result["stdout"].as_str().unwrap();
    assert!(text.starts_with("line 0 é\n") && text.ends_with("yyend"));
    let (line, name, [left_out, kept, total]) = cut(text);
    assert_eq!(kept, total);
    let shown = text.len() as u64 - (line.len() as u64 + 2);
    assert_eq!(shown + left_out, total, "{line}");
    assert!(result["stderr"].as_str().unwrap().contains("artifact:b3-"));
    // no tool lists the names of what was too large for an answer.
    let digest = name.trim_start_matches("artifact:b3-");
    for (method, params) in [
        ("files/list", json!({ "path": ".", "depth": 5 })),
        ("files/search", json!({ "pattern": "x" })),
        ("runs/list", json!({})),
        ("terminals/list", json!({})),
        ("planner/list_plans", json!({})),
        ("memory/query", json!({ "query": digest })),
        ("vector/search", json!({ "query": digest })),
    ] {
        let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let told = host.ask(&asked).to_string();
        assert!(!told.contains(digest), "{method}: {told}");
    }
    let end = part(&mut host, name, total - 3, 3);
    assert_eq!(
        (&end["content"], &end["size"]),
        (&json!("end"), &json!(total))
    );
    assert_eq!(part(&mut host, name, 0, 9)["content"], "line 0 é");
    let none = format!("artifact:b3-{}", "0".repeat(64));
    let answer = read(&mut host, json!({ "path": none }));
    assert_eq!(answer["error"]["code"], 1001);
}

/// far beyond what an artifact holds, all is counted and no more is kept, in memory neither.
#[test]
fn output_far_beyond_every_bound() {
    const LINE: &str = "0123456789abcde\n";
    const TOTAL: u64 = KEPT_MAX + (32 << 20);
    let folder = Folder::new();
    let mut host = rpc(&folder);
    host.patience *= 5;
    let pid = host.pid();
    let mut print = |bytes: u64| {
        let script = format!("yes 0123456789abcde | head -c {bytes}; echo \"it is $?\" >&2");
        let params = json!({ "command": script, "shell": true, "timeout_ms": 300_000 });
        let result = good(&mut host, params);
        let how = [
            &result["exit_code"],
            &result["timed_out"],
            &result["stderr"],
        ];
        assert_eq!(how, [&json!(0), &json!(false), &json!("it is 0\n")]);
        result["stdout"].as_str().unwrap().to_owned()
    };
    // What an answer as long takes that has its whole stream in an artifact.
    cut(&print(2 * SHOWN_MAX));
    let before_kib = peak_kib(pid);
    let text = print(TOTAL);
    let after_kib = peak_kib(pid);
    assert!(
        after_kib < before_kib + 16 * 1024,
        "{before_kib} KiB, {after_kib} KiB"
    );
    let (line, name, [left_out, kept, total]) = cut(&text);
    assert_eq!([kept, total], [KEPT_MAX, TOTAL], "{line}");
    let words = format!("{kept} of all {total}");
    assert!(line.contains(&words), "{line}");
    let (head, rest) = text.split_once(line).unwrap();
    let (head, tail) = (head.strip_suffix('\n').unwrap(), &rest[1..]);
    let half = usize::try_from(SHOWN_MAX / 2).unwrap();
    let wanted = LINE.repeat(half / LINE.len());
    assert!(
        head == wanted && tail == wanted,
        "{} {}",
        head.len(),
        tail.len()
    );
    assert_eq!(left_out, TOTAL - SHOWN_MAX);
    // The artifact has the first of it, to the byte.
    let last = part(&mut host, name, KEPT_MAX - 16, 32);
    assert_eq!(
        (&last["content"], &last["size"]),
        (&json!(LINE), &json!(KEPT_MAX))
    );
    let hex = name.strip_prefix("artifact:b3-").unwrap();
    let file = folder.join("state/artifacts").join(hex);
    assert_eq!(std::fs::metadata(file).unwrap().len(), KEPT_MAX);
}

/// What lives of a bomb at its bound, at least: those that could not fork are dead, and count until
/// somebody asks for them, which nobody does.
const ALIVE_MIN: usize = 16;

/// Processes of a program and all it starts. As root each has a user of its own; else those count
/// that our user has already, and those that other tests of ours will have meanwhile.
fn processes_max() -> usize {
    let own = rustix::process::geteuid();
    if own.is_root() {
        return 64;
    }
    let all = std::fs::read_dir("/proc").expect("a /proc").flatten();
    let ours = all.filter(|entry| {
        let about = entry.metadata();
        about.is_ok_and(|about| about.uid() == own.as_raw())
    });
    let tasks = ours.filter_map(|entry| std::fs::read_dir(entry.path().join("task")).ok());
    tasks.map(Iterator::count).sum::<usize>() + 256
}

/// Each is two more, and all that could fork stay: what can be counted. The program itself forks
/// once, when it surely can.
fn growing(word: &str) -> String {
    format!("bomb() {{ bomb & bomb & exec sleep {word}; }}; bomb & exec sleep {word}")
}

/// As everybody knows it: they come and go.
fn churning(word: &str) -> String {
    format!("bomb() {{ bomb | bomb & }}; bomb & exec sleep {word}")
}

/// A gate of an arena on which `hidden` is not to be had.
fn gate(arena: &Arena, hidden: &str) -> Host {
    Host::spawn(arena.callgate(&["rpc"]).env("CALLGATE_HIDE", hidden))
}

fn arena(users: Users, processes: usize) -> Arena {
    let arena = Arena::new(users, &format!("[exec]\nprocesses = {processes}\n"));
    arena.cli(&["trust"]).good();
    arena
}

/// R-9, P-3: a fork bomb meets its bound and its end, and the answer says so. The bound is kept by a
/// group where there are any, whoever runs it; else it is that of the user who runs it, and none of
/// root's count.
#[test]
fn a_fork_bomb_is_bounded() {
    let (mut cases, processes) = (Vec::new(), processes_max());
    for users in Users::all() {
        cases.push((users, ""));
        if users.gate == 0 && !users.is_root() {
            // Another one: those of a user count together.
            let owner = unused_uid();
            cases.push((Users { owner, ..users }, "cgroup"));
        }
    }
    let numbered: Vec<_> = (654_321..).zip(cases).collect();
    side_by_side(numbered, |(digits, (users, hidden))| {
        let (arena, word) = (arena(users, processes), forever(digits));
        let has_groups = hidden.is_empty() && arena.has_groups();
        let call = ["call", "exec/run", "command=true", "--json", "--standalone"];
        let reply = run(arena.callgate(&call).env("CALLGATE_HIDE", hidden)).json();
        let (level, by) = match has_groups {
            true => ("enforced", "cgroup"),
            false => ("partial", "rlimit"),
        };
        assert_eq!(limits(&reply), (level.to_owned(), by.to_owned()), "{reply}");
        if users.is_root() && !has_groups {
            // Nothing would hold it but its time.
            return;
        }
        let mut host = gate(&arena, hidden);
        for bomb in [growing(&word), churning(&word)] {
            let most = meets_its_bound(&mut host, &word, &bomb);
            assert!(most <= processes, "{users:?}: {most}");
        }
        // One that is left behind by a program that ends.
        let left = format!("({}) >/dev/null 2>&1 & exit 7", growing(&word));
        let result = sh(&mut host, &left);
        let how = [&result["exit_code"], &result["timed_out"]];
        assert_eq!(how, [&json!(7), &json!(false)], "{result}");
        gone(&word);
        assert_eq!(sh(&mut host, "echo still here")["stdout"], "still here\n");
    });
}

/// How many there were at most.
fn meets_its_bound(host: &mut Host, word: &str, bomb: &str) -> usize {
    host.patience = Duration::from_secs(120);
    // Long enough to get there, however busy the machine.
    for timeout_ms in [2_000, 20_000, 80_000] {
        let params = json!({ "command": bomb, "shell": true, "timeout_ms": timeout_ms });
        let (result, most) = most_while(word, || good(host, params));
        // What stays is itself ended by the timeout, in time or not.
        let code = result["exit_code"].as_u64();
        let ended = [128 + 15, 128 + 9].map(Some).contains(&code);
        assert!(ended && result["timed_out"] == true, "{code:?}: {bomb}");
        gone(word);
        let said = result["stderr"].as_str().expect("text").to_lowercase();
        let counts = bomb == growing(word);
        if said.contains("fork") && (!counts || most >= ALIVE_MIN) {
            return most;
        }
    }
    panic!("it never came so far: {bomb}");
}

/// the same on a terminal. Others of the same gate do not notice.
#[test]
fn a_fork_bomb_on_a_terminal() {
    let users = *Users::all().first().expect("somebody");
    let processes = processes_max();
    let (arena, word) = (arena(users, processes), forever(654_399));
    let mut host = gate(&arena, "");
    let mut terminals = |method: &str, params: Value| {
        let method = format!("terminals/{method}");
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = host.ask(&request);
        assert_eq!(answer.get("error"), None, "{method}");
        answer["result"].clone()
    };
    let params = json!({ "command": growing(&word), "shell": true, "attach": false });
    let session = terminals("create", params)["session_id"].clone();
    let alive = wait_for("its bound", || {
        let [one, other] = [(); 2].map(|()| started_with(&word));
        (one == other && one.len() >= ALIVE_MIN).then_some(one.len())
    });
    assert!(alive <= processes, "{alive}");
    let on = json!({ "session_id": session });
    wait_for("its complaints", || {
        let logs = terminals("read_logs", on.clone()).to_string();
        logs.to_lowercase().contains("fork").then_some(())
    });
    let other = terminals("create", json!({ "command": "cat", "attach": false }));
    let typed = json!({ "session_id": other["session_id"], "data": "words\n" });
    assert_eq!(terminals("write", typed), json!({ "bytes": 6 }));
    wait_for("the other session", || {
        let on = json!({ "session_id": other["session_id"] });
        let logs = terminals("read_logs", on).to_string();
        logs.contains("words").then_some(())
    });
    let listed = terminals("list", json!({}));
    assert_eq!(listed["sessions"][0]["status"], "running", "{listed}");
    let kill = json!({ "session_id": session, "signal": "SIGKILL" });
    assert_eq!(terminals("kill", kill), json!({ "ok": true }));
    wait_for("its end", || {
        let listed = terminals("list", json!({}));
        (listed["sessions"][0]["status"] == "killed").then_some(())
    });
    gone(&word);
    let result = ask(
        &mut host,
        json!({ "command": "echo", "args": ["still here"] }),
    );
    assert_eq!(result["result"]["stdout"], "still here\n", "{result}");
}
