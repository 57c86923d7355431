//! Secrets of a run: the password of its proxy reaches the executor, and nothing that is kept.

use crate::support::drive::{chain, run};
use crate::support::play::Theatre;
use crate::support::{callgate, wait_for};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_testing::misbehave;
use serde_json::{Value, json};

/// S-18, R-15, ST-24: a proxy's password reaches the executor and nothing else.
#[test]
fn passwords_of_proxies() {
    const PASSWORD: &str = "p4ss-w0rd/of:it";
    let theatre = Theatre::new(misbehave(), "");
    let url = "http://me:p4ss-w0rd%2Fof%3Ait@proxy.example:3128";
    theatre.folder.write("proxy.txt", &format!("{url}\n"));
    let said = json!({ "say": format!("using {PASSWORD}\n") });
    let failed = json!({ "fail": format!("{PASSWORD} was wrong") });
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    // Bytes and an extension: {"a": bin, "b": ext}.
    let (length, word) = (PASSWORD.len() as u8, PASSWORD.as_bytes());
    let msgpack = [
        b"\x82\xa1a\xc4",
        &[length][..],
        word,
        b"\xa1b\xc7",
        &[length, 5],
        word,
    ]
    .concat();
    let binary = json!({ "emit": { "type": "binary", "msgpack": hex(&msgpack) } });
    // In an artifact across the borders of three chunks.
    let whole = format!("before {PASSWORD} after");
    let chunk =
        |part: &str, last: bool| json!({ "chunk": { "id": "a", "text": part, "last": last } });
    let commit = json!({ "emit": { "type": "artifact", "payload": { "artifact_id": "a",
        "name": "page.txt", "content_type": "text/plain", "size_bytes": whole.len() } } });
    let file = json!({ "file": { "name": "side.txt", "text": whole } });
    let acts = json!([{ "tell": true }, said, binary, chunk(&whole[..9], false),
        chunk(&whole[9..15], false), chunk(&whole[15..], true), commit, file,
        { "mark": "here" }, { "wait_for": "go" }, failed, { "exit": 1 }]);
    let job = json!({ "acts": acts }).to_string();
    theatre.folder.write("job.json", &job);
    for from in ["proxy.txt", "env:PROXY"] {
        let _ = std::fs::remove_file(theatre.folder.join("here"));
        let _ = std::fs::remove_file(theatre.folder.join("go"));
        let mut command = callgate(&theatre.folder);
        command.args([
            "run",
            "--job",
            "@job.json",
            "--proxy-from",
            from,
            "--report",
            "-",
        ]);
        for name in ["--job-id", "--trace-id"] {
            command.args([name, &format!("x-{PASSWORD}")]);
        }
        // A slash is no part of a name.
        for name in ["--source", "--category", "--dataset"] {
            command.args([name, "x-p4ss-w0rd%2Fof%3Ait"]);
        }
        command.args(["--", "./misbehave", "executor"]);
        command.env("PROXY", url).env("CALLGATE_LOG", "trace");
        let ran = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&mut command));
            wait_for("the executor", || theatre.folder.read("here"));
            // But for the command itself, whose labels are the test's.
            let processes = processes();
            let mut others = processes
                .iter()
                .filter(|words| !words.contains("--trace-id"));
            let seen = others.any(|words| words.contains("p4ss-w0rd"));
            theatre.folder.write("go", "");
            assert!(!seen, "in the list of processes");
            running.join().expect("it ran")
        });
        assert_eq!(ran.code(), 1, "{ran:?}");
        let told = theatre
            .cli(&["runs", "export", "last", "--type", "item"])
            .good();
        let told: Value = serde_json::from_str(&told.out).expect("one item");
        let proxy = &told["payload"]["data"]["request"]["proxy"];
        assert_eq!(proxy["host"], "proxy.example", "{told}");
        assert_eq!(proxy["password"], "[secret]", "the executor had it: {told}");
        for text in [&ran.out, &ran.err] {
            assert!(!text.contains("p4ss-w0rd"), "{text}");
        }
        let filled = whole.replace(PASSWORD, &"*".repeat(PASSWORD.len()));
        let got = theatre.cli(&["artifacts", "get", "page.txt", "--run", "last"]);
        assert_eq!(got.good().out, filled);
        theatre.cli(&["artifacts", "verify"]).good();
        let told = theatre
            .cli(&["runs", "export", "last", "--type", "binary"])
            .good();
        let told: Value = serde_json::from_str(&told.out).expect("one event");
        let stars = STANDARD.encode("*".repeat(PASSWORD.len()));
        assert_eq!(
            told["payload"],
            json!({ "a": stars, "b": { "ext": 5, "data": stars } })
        );
        let report = ran.json();
        assert_eq!(report["job_id"], "x-[secret]", "{report}");
    }
    let started = chain(&theatre.folder);
    assert!(started.iter().any(|record| record["trace"] == "x-[secret]"));
    let mut files = Vec::new();
    files_below(&theatre.folder.join("state"), &mut files);
    assert!(files.len() > 5);
    for file in files {
        let bytes = std::fs::read(&file).expect("read");
        let found = bytes.windows(9).any(|window| window == b"p4ss-w0rd");
        assert!(
            !found && !file.to_string_lossy().contains("p4ss"),
            "{}",
            file.display()
        );
    }
}

fn processes() -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let words = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    words
        .map(|words| String::from_utf8_lossy(&words).into_owned())
        .collect()
}

fn files_below(folder: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&path, files),
            Ok(kind) if kind.is_file() => files.push(path),
            _ => {}
        }
    }
}
