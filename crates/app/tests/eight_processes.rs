//! Eight processes on one workspace, any of which may be killed at any moment: nothing is
//! blocked for ever, every keyed effect takes place at most once, and the chain verifies. Then
//! the chain is tampered with, and the first bad record is named.

#![cfg(feature = "failpoints")]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::drive::{Host, Ran, Serve, cli, end_of, line, lines_of, post, run, verified};
use crate::support::workspace::{APPEND_TEXT, trusted_with};
use crate::support::{Folder, callgate};
use callgate_testing::Random;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tier = 1
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }
"#;

fn workspace() -> Folder {
    let append = format!("{APPEND_TEXT}echo '{{\"appended\":true}}'\n");
    trusted_with(&[("callgate.toml", CONFIG), ("append.sh", &append)])
}

/// What all threads share.
struct World {
    folder: Folder,
    next_key: AtomicUsize,
    /// Keys whose call was answered with an output.
    answered: Mutex<HashSet<String>>,
    kills: AtomicUsize,
}

const POINTS: [&str; 10] = [
    "begin.before",
    "begin.before_write",
    "begin.after_write",
    "begin.after",
    "run.after",
    "finish.before",
    "finish.before_write",
    "settle.after_write",
    "answer.before",
    "append.torn",
];

impl World {
    /// Mostly a key of its own, at times one that another process has or had.
    fn key(&self, random: &mut Random) -> String {
        let newest = self.next_key.load(Ordering::Relaxed);
        if newest > 0 && random.one_in(3) {
            return format!("key-{}", newest - random.below(newest.min(12)));
        }
        format!("key-{}", self.next_key.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn answered(&self, key: &str) {
        self.answered
            .lock()
            .expect("no panic holds it")
            .insert(key.to_owned());
    }

    /// One time in four the process is to die at some crash point it may or may not come by.
    fn arm(&self, random: &mut Random, command: &mut Command) {
        if random.one_in(4) {
            let point = random.pick(&POINTS);
            let action = if *point == "append.torn" {
                "torn"
            } else {
                "kill"
            };
            let skip = random.below(3);
            command.env("CALLGATE_FAILPOINT", format!("{point}={action}:{skip}"));
        }
    }

    fn input(key: &str) -> Value {
        json!({ "text": key })
    }

    /// Lines to one `--serve` process, and SIGKILL in the middle at times.
    fn host(&self, random: &mut Random) {
        let place = self.folder.path().to_str().expect("a text path");
        let mut command = callgate(&self.folder);
        self.arm(random, command.args(["toolhost", "--serve", place]));
        let mut host = Host::spawn(&mut command);
        let keys: Vec<String> = (0..1 + random.below(6)).map(|_| self.key(random)).collect();
        for key in &keys {
            if !host.send(&line("AID.TEST.APPEND.v1", &Self::input(key), key)) {
                break;
            }
        }
        if random.one_in(2) {
            thread::sleep(Duration::from_millis(random.below(25) as u64));
            self.kills.fetch_add(1, Ordering::Relaxed);
            host.kill();
            return;
        }
        for key in &keys {
            let Some(reply) = host.try_reply() else { break };
            if reply["status"] == "OK" {
                self.answered(key);
            }
        }
        let _ = host.end();
    }

    /// One call from the shell, alone or through a gate that may be there.
    fn call(&self, random: &mut Random, alone: bool) {
        let key = self.key(random);
        let mut command = callgate(&self.folder);
        command.args(["call", "--json", "--key", &key, "append"]);
        command.arg(Self::input(&key).to_string());
        if alone {
            command.arg("--standalone");
        }
        self.arm(random, &mut command);
        if random.one_in(3) {
            let mut child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("start the program");
            thread::sleep(Duration::from_millis(random.below(25) as u64));
            self.kills.fetch_add(1, Ordering::Relaxed);
            let _ = child.kill();
            end_of(&mut child, "a killed call");
        } else {
            let ran = run(&mut command);
            if ran.out.starts_with("{\"") && ran.json()["ok"] == true {
                self.answered(&key);
            }
        }
    }

    /// A daemon on a socket of its own and some calls at once, ended in order or not.
    fn gate(&self, random: &mut Random, number: usize) {
        let socket = self.folder.join(&format!("gate{number}.sock"));
        let mut command = callgate(&self.folder);
        command.args(["serve", "--socket"]).arg(&socket);
        self.arm(random, &mut command);
        let serve = Serve::spawn(&mut command, socket.clone());
        let keys: Vec<String> = (0..1 + random.below(4)).map(|_| self.key(random)).collect();
        let dies = random.one_in(2);
        let delay = Duration::from_millis(random.below(25) as u64);
        thread::scope(|scope| {
            for key in &keys {
                let socket = &socket;
                scope.spawn(move || {
                    let body = json!({
                        "tool": "append", "input": Self::input(key), "idempotency_key": key,
                    });
                    if post(socket, &body).is_some_and(|body| body["ok"] == true) {
                        self.answered(key);
                    }
                });
            }
            if dies {
                thread::sleep(delay);
                self.kills.fetch_add(1, Ordering::Relaxed);
                serve.kill();
            } else {
                let _ = serve.stop();
            }
        });
    }

    /// Readers do not mind the writers, nor hold them up.
    fn look(&self, random: &mut Random) {
        match random.below(3) {
            0 => drop(verified(&self.folder)),
            1 => drop(cli(&self.folder, &["audit", "show", "--last", "3"]).good()),
            _ => drop(cli(&self.folder, &["audit", "head"]).good()),
        }
    }
}

/// G-3, G-4, G-8, D-1, D-2, D-5, T-18: eight processes at a time, killed at random.
#[test]
fn eight_processes_and_random_kills() {
    const ROUNDS: usize = 40;
    let mut random = Random::new("eight processes");
    let world = World {
        folder: workspace(),
        next_key: AtomicUsize::new(0),
        answered: Mutex::default(),
        kills: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        for number in 0..8 {
            let (world, mut random) = (&world, random.fork());
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    match number {
                        0..=2 => world.host(&mut random),
                        3 | 4 => world.gate(&mut random, number),
                        5 => world.call(&mut random, true),
                        6 => world.call(&mut random, false),
                        _ => world.look(&mut random),
                    }
                }
            });
        }
    });
    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines_of(&world.folder.join("effects.log")) {
        *effects.entry(line).or_default() += 1;
    }
    let twice: Vec<_> = effects.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "took place twice: {twice:?}");
    let answered = world.answered.into_inner().expect("no panic holds it");
    for key in &answered {
        assert_eq!(effects.get(key), Some(&1), "{key} was answered");
    }
    assert!(answered.len() > 10, "only {} answers", answered.len());
    let records = verified(&world.folder);
    eprintln!(
        "{} keys, {} answered, {} effects, {} kills, {records} records",
        world.next_key.load(Ordering::Relaxed),
        answered.len(),
        effects.len(),
        world.kills.load(Ordering::Relaxed)
    );
    // Everything answered is told again, and every key still answers something.
    for key in answered.iter().take(20) {
        let input = World::input(key).to_string();
        let args = ["call", "--json", "--key", key, "append", &input];
        assert_eq!(
            cli(&world.folder, &args).good().json()["idempotent_hit"],
            true
        );
    }
    verified(&world.folder);
}

/// D-5, D-8: whoever verifies while others write, and leave torn frames behind, is not alarmed.
#[test]
fn verifying_while_others_write() {
    let mut random = Random::new("verifying while others write");
    let folder = workspace();
    let writing = AtomicUsize::new(4);
    thread::scope(|scope| {
        for writer in 0..4 {
            let (folder, writing, mut random) = (&folder, &writing, random.fork());
            scope.spawn(move || {
                for round in 0..40 {
                    let mut command = callgate(folder);
                    command.args(["toolhost", "--serve", "builtin"]);
                    let point = format!("append.torn=torn:{}", random.below(6));
                    let mut host = Host::spawn(command.env("CALLGATE_FAILPOINT", point));
                    for number in 0..6 {
                        let input = json!({ "text": "x".repeat(random.below(3000)) });
                        let key = format!("{writer}-{round}-{number}");
                        host.send(&line("AID.BUILTIN.ECHO.v1", &input, &key));
                    }
                    host.end();
                }
                writing.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for _ in 0..4 {
            scope.spawn(|| {
                while writing.load(Ordering::Relaxed) > 0 {
                    verified(&folder);
                }
            });
        }
    });
    verified(&folder);
}

/// The journal's segments, in order.
fn segments(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.join("journal"))
        .expect("a journal")
        .flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("make a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("its type");
        if kind.is_dir() {
            copy_folder(&from, &to);
        } else if kind.is_file() {
            fs::copy(&from, &to).expect("copy a file");
        }
    }
}

/// The record `audit verify` names as bad, in words and in JSON.
fn named(verify: impl Fn(&[&str]) -> Ran, what: &str) -> Value {
    let told = verify(&["--json"]);
    assert_eq!(told.code(), 1, "{what}: {told:?}");
    let bad = told.json()["bad"].clone();
    let words = verify(&[]);
    assert_eq!(words.code(), 1, "{what}: {words:?}");
    let wanted = format!("record {} is bad: ", bad["seq"]);
    assert!(
        words.err.contains(&wanted),
        "{what}: no `{wanted}` in {}",
        words.err
    );
    bad
}

/// D-5, D-8: in a copy of the state a byte is flipped, a record removed, two put in the other
/// order, the newest cut off; the command names the record and exits 1.
#[test]
fn tampering_with_the_journal_is_named() {
    let mut random = Random::new("tampering with the journal");
    let folder = workspace();
    let place = folder.path().to_str().expect("a text path");
    let mut host = Host::start(&folder, place);
    for number in 0..20 {
        let key = format!("k{number}");
        assert_eq!(
            host.ask(&line("AID.TEST.APPEND.v1", &json!({ "text": key }), &key))["status"],
            "OK"
        );
    }
    assert!(host.end().success());
    let records = verified(&folder);
    let state = folder.join("state");
    let [segment] = segments(&state)
        .try_into()
        .expect("one segment holds it all");
    let whole = fs::read(&segment).expect("the journal");
    let copy = folder.join("copy");
    let with = |bytes: &[u8]| {
        if copy.exists() {
            fs::remove_dir_all(&copy).expect("remove the last copy");
        }
        copy_folder(&state, &copy);
        fs::write(segments(&copy).remove(0), bytes).expect("tamper");
    };
    let verify = |args: &[&str]| {
        let mut command = callgate(&folder);
        command.args(["audit", "verify", "--state"]).arg(&copy);
        run(command.args(args))
    };

    // A flipped byte: also tells where transactions begin.
    let mut begins: BTreeMap<u64, u64> = BTreeMap::new();
    for step in 0..60 {
        let at = if step == 0 {
            whole.len() - 1
        } else {
            random.below(whole.len())
        };
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random.below(8);
        with(&bytes);
        let bad = named(verify, &format!("byte {at}"));
        let (seq, offset) = (
            bad["seq"].as_u64().expect("a number"),
            bad["offset"].as_u64(),
        );
        assert!((1..=records).contains(&seq), "byte {at}: {bad}");
        let offset = offset.expect("a number");
        assert!(offset <= at as u64, "byte {at}: {bad}");
        begins.insert(
            offset,
            begins.get(&offset).map_or(seq, |&first| first.min(seq)),
        );
    }
    begins.remove(&0);
    let offsets: Vec<usize> = begins
        .keys()
        .map(|&at| usize::try_from(at).expect("small"))
        .collect();
    assert!(offsets.len() > 5, "{offsets:?}");

    // A run of records removed: the next one is in the place of the first of them.
    for pair in offsets.windows(2).take(8) {
        let bytes = [&whole[..pair[0]], &whole[pair[1]..]].concat();
        with(&bytes);
        let bad = named(verify, &format!("removed {pair:?}"));
        assert!(
            bad["seq"].as_u64() <= begins.get(&(pair[0] as u64)).copied(),
            "{pair:?}: {bad}"
        );
    }
    // Two runs of records change places.
    for three in offsets.windows(3).take(8) {
        let (a, b, c) = (three[0], three[1], three[2]);
        let bytes = [&whole[..a], &whole[b..c], &whole[a..b], &whole[c..]].concat();
        with(&bytes);
        named(verify, &format!("reordered {three:?}"));
    }
    // The newest cut off, wholly and in part: the signed head covers it.
    let newest = *offsets.last().expect("some");
    for end in [
        newest,
        newest + 1,
        newest + (whole.len() - newest) / 2,
        whole.len() - 1,
    ] {
        with(&whole[..end]);
        let bad = named(verify, &format!("cut at {end}"));
        assert!(bad["seq"].as_u64().expect("a number") <= records, "{bad}");
    }
    // The whole segment is gone, and so is the head.
    with(&whole);
    fs::remove_file(segments(&copy).remove(0)).expect("remove the segment");
    assert_eq!(named(verify, "no segment")["seq"], 1);
    with(&whole);
    fs::remove_file(copy.join("head.json")).expect("remove the head");
    named(verify, "no head");
    with(&whole);
    assert_eq!(verify(&[]).good().err, "");
}

/// D-8: an exported chain verifies by itself, against a key that was kept, and a change in any
/// line is named.
#[test]
fn tampering_with_an_export_is_named() {
    let mut random = Random::new("tampering with an export");
    let folder = workspace();
    for number in 0..6 {
        let input = json!({ "text": number.to_string() }).to_string();
        cli(
            &folder,
            &["call", "append", &input, "--key", &number.to_string()],
        )
        .good();
    }
    let head = cli(&folder, &["audit", "head"]).good().json();
    let key = head["public_key"].as_str().expect("a key").to_owned();
    cli(&folder, &["audit", "export", "chain.jsonl"]).good();
    let text = folder.read("chain.jsonl").expect("an export");
    let lines: Vec<&str> = text.lines().collect();
    let records = head["seq"].as_u64().expect("a number");
    assert_eq!(lines.len() as u64, records + 1, "each record and the head");

    let verify = |args: &[&str]| {
        cli(
            &folder,
            &[&["audit", "verify", "chain.jsonl"], args].concat(),
        )
    };
    assert!(
        verify(&[])
            .good()
            .out
            .contains(&format!("{records} records"))
    );
    verify(&["--public-key", &key]).good();
    let other = "0".repeat(64);
    assert_eq!(
        verify(&["--public-key", &other]).code(),
        1,
        "signed by somebody else"
    );

    let check = |tampered: String, first: usize, what: &str| {
        folder.write("chain.jsonl", &tampered);
        let bad = named(verify, what);
        let seq = bad["seq"].as_u64().expect("a number");
        assert!(seq >= 1 && seq <= first as u64 + 1, "{what}: {bad}");
    };
    let join = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    for _ in 0..20 {
        let number = random.below(lines.len());
        let at = random.below(lines[number].len());
        let mut changed = lines[number].as_bytes().to_vec();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(changed).expect("records are ASCII here");
        let mut all = lines.clone();
        all[number] = &changed;
        check(join(&all), number, &format!("line {number} byte {at}"));
    }
    for number in 0..lines.len() {
        let mut all = lines.clone();
        all.remove(number);
        check(join(&all), number, &format!("line {number} removed"));
    }
    for number in 1..lines.len() {
        let mut all = lines.clone();
        all.swap(number - 1, number);
        check(
            join(&all),
            number - 1,
            &format!("line {number} before the one before it"),
        );
    }
    check(
        format!("{text}{}\n", lines[0]),
        lines.len(),
        "a line after the head",
    );
    check(
        text.trim_end().to_owned(),
        lines.len(),
        "the last newline is missing",
    );
    folder.write("chain.jsonl", &text);
    verify(&[]).good();
    verified(&folder);
}
