//! Real runs of each executor SDK through the program: what a script emits is kept, a refused
//! file is no end, a stray print does no harm, and a slow store stalls the script.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::drive::{Host, PATIENCE, verified};
use crate::support::rpc::{Client, Line};
use crate::support::stage::ended;
use crate::support::workspace::trusted_with;
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

const PYTHON: &str = r#"
import os, pathlib, subprocess
from callgate.emit import StorageError

def run(ctx):
    if "events" in ctx.job:
        return flood(ctx)
    print("a stray print")
    os.write(1, b"a stray write\n")
    subprocess.run(["echo", "a stray child"], check=True)
    ctx.item("seen", {"job": ctx.job})
    ctx.storage.put("notes.txt", b"kept", "text/plain")
    try:
        ctx.storage.put("notes.txt", b"again", "text/plain")
    except StorageError:
        ctx.log("warn", "refused")
    ctx.artifact("small.txt", b"hello", "text/plain")
    ctx.artifact("large.bin", (bytes([7]) * (1 << 20) for _ in range(20)))

def flood(ctx):
    for number in range(ctx.job["events"]):
        ctx.item("n", {"number": number, "text": "x" * 2500})
        pathlib.Path("returned.new").write_text(str(number + 1))
        os.rename("returned.new", "returned")
"#;

const NODE: &str = r#"
import { renameSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";

export default async (ctx) => {
  if ("events" in ctx.job) return flood(ctx);
  console.log("a stray print");
  spawnSync("echo", ["a stray child"], { stdio: "inherit" });
  ctx.item("seen", { job: ctx.job });
  await ctx.storage.put("notes.txt", Buffer.from("kept"), { contentType: "text/plain" });
  try {
    await ctx.storage.put("notes.txt", Buffer.from("again"), { contentType: "text/plain" });
  } catch (error) {
    if (error.name !== "StorageError") throw error;
    ctx.log("warn", "refused");
  }
  await ctx.artifact("small.txt", Buffer.from("hello"), { contentType: "text/plain" });
  await ctx.artifact("large.bin", pieces());
};

async function* pieces() {
  for (let n = 0; n < 20; n += 1) yield Buffer.alloc(1 << 20, 7);
}

function flood(ctx) {
  for (let number = 0; number < ctx.job.events; number += 1) {
    ctx.item("n", { number, text: "x".repeat(2500) });
    writeFileSync("returned.new", String(number + 1));
    renameSync("returned.new", "returned");
  }
}
"#;

/// `python -m callgate.emit` of an SDK that is not installed. Calls can not say so by a variable.
const EMIT: &str = "import runpy, sys; sys.path.insert(1, sys.argv.pop(1)); \
    runpy.run_module('callgate.emit', run_name='__main__', alter_sys=True)";

/// An SDK and how its executor is started.
struct Sdk {
    name: &'static str,
    command: Vec<String>,
    env: Value,
    /// What is printed past the language's own functions is led away as well.
    strays: &'static [&'static str],
}

fn sdks() -> [Sdk; 3] {
    let python = given("CALLGATE_TEST_PYTHON");
    let node = given("CALLGATE_TEST_NODE");
    let executor = given("CALLGATE_TEST_NODE_SDK").join("src/bin.ts");
    let words = |words: &[&Path]| words.iter().map(|word| text(word)).collect();
    [
        Sdk {
            name: "Python",
            command: [
                &text(&python),
                "-c",
                EMIT,
                &text(&root().join("sdk/python")),
                "script.py",
            ]
            .map(str::to_owned)
            .to_vec(),
            env: json!({ "PYTHONDONTWRITEBYTECODE": "1" }),
            strays: &["a stray print", "a stray write", "a stray child"],
        },
        Sdk {
            name: "Node",
            command: words(&[&node, &executor, Path::new("script.mjs")]),
            env: json!({}),
            strays: &["a stray print", "a stray child"],
        },
        Sdk {
            name: "Rust",
            command: words(&[rust_executor()]),
            env: json!({}),
            strays: &["a stray print"],
        },
    ]
}

/// A workspace with the scripts, whose programs may read where the SDKs are.
fn workspace() -> Folder {
    let python = given("CALLGATE_TEST_PYTHON");
    let prefix = python.ancestors().nth(2).expect("PREFIX/bin/python");
    let sdk = given("CALLGATE_TEST_NODE_SDK");
    let packages = sdk.join("node_modules").canonicalize().expect("packages");
    let node = given("CALLGATE_TEST_NODE").canonicalize().expect("Node");
    let target = rust_executor().parent().expect("a folder").to_path_buf();
    let reads = [
        prefix.to_path_buf(),
        root().join("sdk/python"),
        sdk,
        packages,
        given("CALLGATE_TEST_MODULES").join(".bin"),
        node.parent().expect("a folder").to_path_buf(),
        target,
    ];
    let config = format!("[exec]\nreads = {:?}\n", reads.map(|path| text(&path)));
    trusted_with(&[
        ("callgate.toml", &config),
        ("script.py", PYTHON),
        ("script.mjs", NODE),
    ])
}

/// ST-36, ST-41, ST-43, ST-58, ST-67, ST-71, ST-76, ST-9: the same script in each language.
#[test]
fn every_sdk_through_the_program() {
    for sdk in sdks() {
        let folder = workspace();
        let mut client = crate::support::rpc::rpc(&folder);
        let order = json!({
            "command": sdk.command, "env": sdk.env, "job": { "n": [1, null, "é"] },
            "source": "shop", "category": "lamps",
        });
        let done = ended(&client.ask("runs/start", order));
        assert_eq!(done.outcome, "success", "{}: {}", sdk.name, done.report);
        let report = &done.report;
        let artifacts = json!({
            "total": 2, "committed": 2, "orphaned": 0, "chunks": 4, "bytes": (20 << 20) + 5,
        });
        assert_eq!(report["artifacts"], artifacts, "{}", sdk.name);
        for stray in sdk.strays {
            let stderr = report["stderr"].as_str().expect("what was printed");
            assert!(stderr.contains(stray), "{}: {stderr}", sdk.name);
        }
        let run_id = report["run_id"].as_str().expect("an id");
        let seen = client.good("runs/get", json!({ "run_id": run_id, "events_from": 0 }));
        let events = seen["events"].as_array().expect("events");
        let kinds: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
        assert_eq!(
            json!(kinds),
            json!(["item", "log", "artifact", "artifact", "run_complete"]),
            "{}",
            sdk.name
        );
        assert_eq!(
            events[0]["payload"]["data"]["job"]["n"],
            json!([1, null, "é"])
        );
        let day = seen["run"]["day"].as_str().expect("a day");
        let place = format!(
            "state/datasets/callgate/partitions/source=shop/category=lamps/day={day}/run_id={run_id}/files/notes.txt"
        );
        assert_eq!(folder.read(&place).as_deref(), Some("kept"), "{}", sdk.name);
        drop(client);
        verified(&folder);
    }
}

/// ST-77, ST-78, ST-79: a store that takes a megabyte a second stalls a script that emits as fast
/// as it can. No memory grows, no event is lost, and all are in order.
#[test]
fn a_slow_store_stalls_the_script() {
    /// Together some ten megabytes: held by anybody they would show.
    const EVENTS: u64 = 4000;
    const EVENT_BYTES: u64 = 2500;
    /// Beyond what is on disk: a batch that is being written (1 MiB), what was read (128 KiB) and
    /// the pipe (1 MiB).
    const AHEAD_MAX: u64 = (2 * 1024 + 256) * 1024 / EVENT_BYTES;
    /// How much more memory than a small run a large one may take: less than all the events, and
    /// more than a collector of garbage that comes late.
    const GROWTH_KIB: u64 = 7 * 1024;
    for sdk in sdks() {
        let folder = workspace();
        let mut slow = callgate(&folder);
        slow.arg("rpc")
            .env("CALLGATE_FAILPOINT", "run.write=pace:1000000");
        let mut client = Client::new(Line::Pipes(Host::spawn(&mut slow)));
        let order = |dataset: &str, events: u64| {
            json!({
                "command": sdk.command, "env": sdk.env, "job": { "events": events },
                "dataset": dataset,
            })
        };
        let small = ended(&client.ask("runs/start", order("small", EVENTS / 20)));
        assert_eq!(small.outcome, "success", "{}: {}", sdk.name, small.report);
        std::fs::remove_file(folder.join("returned")).expect("it was there");
        let gate_before = peak_kib(&client);
        let id = client.send("runs/start", order("large", EVENTS));
        let events = crate::support::wait_for("the events' file", || {
            find(&folder.join("state/datasets/large"))
        });
        let mut stalls = 0;
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "{}: it does not end", sdk.name);
            // In this order: what was returned is on disk by then, or on its way.
            let returned = folder
                .read("returned")
                .map_or(0, |text| text.parse().expect("a number"));
            let kept = lines(&events);
            assert!(
                returned <= kept + AHEAD_MAX,
                "{}: {returned} emits returned, {kept} events kept",
                sdk.name
            );
            if returned == EVENTS {
                break;
            }
            stalls += u64::from(returned > kept && kept > 0);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(stalls > 0, "{}: never seen ahead of the store", sdk.name);
        let done = ended(&client.answer(id));
        assert_eq!(done.outcome, "success", "{}: {}", sdk.name, done.report);
        let text = std::fs::read_to_string(&events).expect("the events");
        let kept: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(kept.len() as u64, EVENTS + 1, "{}", sdk.name);
        for (at, event) in kept.iter().enumerate() {
            assert_eq!(event["seq"], at + 1, "{}", sdk.name);
            if (at as u64) < EVENTS {
                assert_eq!(event["payload"]["data"]["number"], at, "{}", sdk.name);
            }
        }
        let script = |report: &Value| {
            let bytes = report["metrics"]["max_rss_bytes"].as_u64();
            bytes.expect("a size") / 1024
        };
        let (script_before, script) = (script(&small.report), script(&done.report));
        let gate = peak_kib(&client);
        // Past the capture of the test's output: figures are to be seen when they are good too.
        eprintln!(
            "{}: script {script_before} then {script} KiB, gate {gate_before} then {gate} KiB",
            sdk.name
        );
        assert!(
            script < script_before + GROWTH_KIB,
            "{}: {script_before} then {script} KiB",
            sdk.name
        );
        assert!(
            gate < gate_before + GROWTH_KIB,
            "{}: {gate_before} then {gate} KiB",
            sdk.name
        );
    }
}

/// The most memory that the gate behind this conversation had so far.
fn peak_kib(client: &Client) -> u64 {
    let Line::Pipes(host) = &client.line else {
        panic!("a gate of our own");
    };
    crate::support::processes::peak_kib(host.pid())
}

fn lines(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap_or_default();
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// The one file of events below a folder.
fn find(folder: &Path) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let found = match path.is_dir() {
            true => find(&path),
            false => path.ends_with("events.jsonl").then_some(path),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// `sdk/emit`'s example, built if need be into the folder that this test came from.
fn rust_executor() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("the test's own path");
        let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "--package", "callgate-emit"])
            .args(["--example", "streams", "--target-dir"])
            .arg(profile.parent().expect("target"))
            .current_dir(root());
        let built = cargo.status().expect("run cargo");
        assert!(built.success(), "{cargo:?} failed");
        profile.join("examples/streams")
    })
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().expect("the clone")
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of text").to_owned()
}

fn given(name: &str) -> PathBuf {
    match std::env::var_os(name) {
        Some(path) => PathBuf::from(path),
        None => panic!("{name} is not set: this test runs by `cargo xtask test`, which fetches it"),
    }
}
