//! What a script emits, as the other side reads it.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod support;

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use callgate_emit::{EmitError, Level, Run, StartError};
use callgate_wires::stream::{Ack, CHUNK_BYTES_MAX, StreamFault};
use serde_json::{Value, json};
use support::{Stream, serve};

const REQUEST: &str = r#"{"run_id":"r-2","attempt":2,"parent_run_id":"r-1","job_id":"j","job":{"a":1},"proxy":{"protocol":"http","host":"h","port":8080,"username":"u","password":"hunter2"}}"#;

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe().unwrap()
}

/// A run, and the other side of it on a thread of its own.
fn begin(answer: impl Fn(&str) -> Option<String> + Send + 'static) -> (Run, JoinHandle<Stream>) {
    let (requests, request) = pipe();
    let (stream, output) = pipe();
    let mut request = File::from(request);
    writeln!(request, "{REQUEST}").unwrap();
    let run = Run::from_pipes(requests, output).unwrap();
    let other = std::thread::spawn(move || serve(File::from(stream), Some(request), answer));
    (run, other)
}

/// ST-44, ST-26, ST-29, ST-31, ST-34, ST-35, ST-50: every event in its envelope, counted from 1; the one run result after
/// the terminal event, uncounted.
#[test]
fn every_event() {
    let (mut run, other) = begin(|_| None);
    assert_eq!(run.request().job, json!({"a": 1}));
    run.item("product", &json!({"name": "Lamp", "price": 1.5}))
        .unwrap();
    run.checkpoint("c-1", None).unwrap();
    run.checkpoint("c-2", Some("half")).unwrap();
    run.enqueue("next", &json!({"page": 2}), None, None)
        .unwrap();
    run.enqueue("next", &json!(null), Some("shop"), Some("books"))
        .unwrap();
    run.rotate_proxy(None).unwrap();
    run.rotate_proxy(Some("blocked")).unwrap();
    run.log(Level::Warn, "slow").unwrap();
    run.log_with(Level::Error, "worse", &json!({"ms": 5}))
        .unwrap();
    run.run_complete_with(&json!({"items": 1})).unwrap();
    run.used_proxy();
    assert_exit(run.finish(), 0);
    let stream = other.join().unwrap();
    assert_eq!(stream.end, None);
    let wanted = [
        (
            "item",
            json!({"item_type": "product", "data": {"name": "Lamp", "price": 1.5}}),
        ),
        ("checkpoint", json!({"checkpoint_id": "c-1"})),
        (
            "checkpoint",
            json!({"checkpoint_id": "c-2", "note": "half"}),
        ),
        ("enqueue", json!({"target": "next", "params": {"page": 2}})),
        (
            "enqueue",
            json!({"target": "next", "params": null, "source": "shop", "category": "books"}),
        ),
        ("rotate_proxy", json!({})),
        ("rotate_proxy", json!({"reason": "blocked"})),
        ("log", json!({"level": "warn", "message": "slow"})),
        (
            "log",
            json!({"level": "error", "message": "worse", "fields": {"ms": 5}}),
        ),
        ("run_complete", json!({"summary": {"items": 1}})),
    ];
    let events = stream.events();
    assert_eq!(events.len(), wanted.len());
    for (at, (event, (kind, payload))) in events.iter().zip(wanted).enumerate() {
        assert_eq!(event["seq"], at + 1);
        assert_eq!(
            (&event["type"], &event["payload"]),
            (&json!(kind), &payload)
        );
        assert_eq!(
            (&event["run_id"], &event["attempt"]),
            (&json!("r-2"), &json!(2))
        );
        assert_eq!(
            (&event["job_id"], &event["parent_run_id"]),
            (&json!("j"), &json!("r-1"))
        );
        assert_eq!(event["contract_version"], "0.13.4");
        let ts = event["ts"].as_str().unwrap();
        assert!(ts.len() == 24 && ts.ends_with('Z'), "{ts}");
    }
    let results = stream
        .frames
        .iter()
        .filter(|frame| frame["run_result"].is_object());
    assert_eq!(results.count(), 1);
    let wanted = json!({"run_result": {
        "status": "completed", "message": null, "error_type": null, "stack": null,
        "proxy_used": {"protocol": "http", "host": "h", "port": 8080, "username": "u"},
    }});
    assert_eq!(stream.frames.last().unwrap(), &wanted);
    let all = format!("{:?}", stream.frames);
    assert!(!all.contains("hunter2"), "ST-24");
}

fn assert_exit(code: std::process::ExitCode, wanted: u8) {
    let wanted = std::process::ExitCode::from(wanted);
    assert_eq!(format!("{code:?}"), format!("{wanted:?}"));
}

/// ST-58, ST-64: bytes, files and readers of any size become chunks of 8 MiB and a commit record;
/// at the edges of a chunk too.
#[test]
fn artifacts_of_any_size() {
    let sizes = [
        0,
        1,
        CHUNK_BYTES_MAX - 1,
        CHUNK_BYTES_MAX,
        CHUNK_BYTES_MAX + 1,
        2 * CHUNK_BYTES_MAX,
    ];
    let (mut run, other) = begin(|_| None);
    let path = std::env::temp_dir().join(format!("callgate-emit-{}", std::process::id()));
    let mut ids = Vec::new();
    for size in sizes {
        let bytes: Vec<u8> = (0..size).map(|at| at.to_le_bytes()[at % 3]).collect();
        let id = run.artifact("bytes", "a/b", &bytes).unwrap();
        ids.push((id, bytes.clone()));
        let id = run.artifact_from("reader", "a/b", Slowly(&bytes)).unwrap();
        ids.push((id, bytes.clone()));
        std::fs::write(&path, &bytes).unwrap();
        let id = run.artifact_file("file", "a/b", &path).unwrap();
        ids.push((id, bytes));
    }
    std::fs::remove_file(&path).unwrap();
    assert_exit(run.finish(), 0);
    let stream = other.join().unwrap();
    let frames: Vec<&Value> = stream.frames.iter().collect();
    for (id, bytes) in ids {
        assert!(stream.artifacts[&id] == bytes, "{} bytes", bytes.len());
        let chunks: Vec<&Value> = frames
            .iter()
            .filter(|frame| frame["chunk"]["artifact_id"] == id.as_str())
            .map(|frame| &frame["chunk"])
            .collect();
        let wanted = bytes.len().div_ceil(CHUNK_BYTES_MAX).max(1);
        assert_eq!(chunks.len(), wanted);
        for (at, chunk) in chunks.iter().enumerate() {
            assert_eq!(chunk["seq"], at + 1);
            assert_eq!(chunk["is_last"], at + 1 == wanted);
            let full = at + 1 < wanted;
            assert!(!full || chunk["bytes"] == CHUNK_BYTES_MAX);
        }
        let commit = frames
            .iter()
            .find(|frame| frame["payload"]["artifact_id"] == id.as_str())
            .unwrap();
        assert_eq!(commit["type"], "artifact");
        assert_eq!(commit["payload"]["size_bytes"], bytes.len());
        assert_eq!(commit["payload"]["content_type"], "a/b");
    }
}

/// Gives a few bytes at a time.
struct Slowly<'a>(&'a [u8]);

impl Read for Slowly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.0.len()).min(100_003);
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

/// Fails after a chunk and a half.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0 > CHUNK_BYTES_MAX + CHUNK_BYTES_MAX / 2 {
            return Err(io::Error::other("the disk is gone"));
        }
        self.0 += buffer.len();
        Ok(buffer.len())
    }
}

/// What can not be sent, or not be read, is an error of its own call: the stream stays whole and
/// later emits work.
#[test]
fn errors_that_leave_the_stream_whole() {
    let (mut run, other) = begin(|_| None);
    let huge = "x".repeat(17 << 20);
    let error = run.item("huge", &huge).unwrap_err();
    assert!(matches!(
        error,
        EmitError::Unsendable(StreamFault::TooLarge { .. })
    ));
    let mut deep = json!(1);
    for _ in 0..119 {
        deep = json!([deep]);
    }
    let error = run.item("deep", &deep).unwrap_err();
    assert!(matches!(error, EmitError::Unsendable(StreamFault::TooDeep)));
    run.item("less deep", &deep[0]).unwrap();
    let pairs = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = run.item("no JSON", &pairs).unwrap_err();
    assert!(matches!(error, EmitError::Value(_)));
    let error = run
        .artifact_file("gone", "a/b", "/no/such/file")
        .unwrap_err();
    assert!(matches!(error, EmitError::Read { .. }));
    let error = run.artifact_from("torn", "a/b", Failing(0)).unwrap_err();
    assert!(matches!(error, EmitError::Read { .. }));
    let (most, more) = ("é".repeat(512), "é".repeat(512) + "x");
    for (name, content_type, field) in [(&*more, "a/b", "name"), ("a", &more, "content_type")] {
        let read = run.artifact_from(name, content_type, Failing(0));
        for error in [
            run.artifact(name, content_type, b"").unwrap_err(),
            read.unwrap_err(),
        ] {
            let is_it =
                matches!(error, EmitError::TooLong { field: it, bytes: 1025 } if it == field);
            assert!(is_it, "{error}");
        }
    }
    run.artifact(&most, &most, b"").unwrap();
    let error = run.put("../x", "a/b", b"").unwrap_err();
    assert!(matches!(
        error,
        EmitError::Unsendable(StreamFault::FileName { .. })
    ));
    let error = run
        .put("large", "a/b", &vec![0; (8 << 20) + 1])
        .unwrap_err();
    assert!(matches!(
        error,
        EmitError::Unsendable(StreamFault::FileTooLarge { .. })
    ));
    run.item("after", &json!(1)).unwrap();
    assert_exit(run.finish(), 0);
    let stream = other.join().unwrap();
    assert_eq!(stream.end, None);
    let wanted = [
        "item",
        "chunk",
        "chunk",
        "artifact",
        "item",
        "run_complete",
        "run_result",
    ];
    assert_eq!(stream.kinds(), wanted, "no commit record for what was torn");
    let seqs: Vec<&Value> = stream.events().iter().map(|event| &event["seq"]).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
}

/// ST-75, ST-71: a file is there when `put` returns; a refusal can be gone on from.
#[test]
fn files_and_their_answers() {
    let refuse = |name: &str| (name == "twice.txt").then(|| "exists already".to_owned());
    let (mut run, other) = begin(refuse);
    run.put("notes.txt", "text/plain", b"some notes").unwrap();
    let error = run.put("twice.txt", "text/plain", b"").unwrap_err();
    let text = error.to_string();
    assert_eq!(text, "`twice.txt` was not stored: exists already");
    assert!(matches!(error, EmitError::Refused { .. }));
    run.item("after", &json!(1)).unwrap();
    run.put("more.txt", "text/plain", b"more").unwrap();
    run.run_complete().unwrap();
    let error = run.put("late.txt", "text/plain", b"").unwrap_err();
    assert!(matches!(error, EmitError::AfterTerminal));
    assert_exit(run.finish(), 0);
    let stream = other.join().unwrap();
    let files = stream
        .frames
        .iter()
        .filter_map(|frame| frame.get("file_write"));
    let ids: Vec<(&Value, &Value)> = files
        .map(|file| (&file["write_id"], &file["filename"]))
        .collect();
    let wanted = [(1, "notes.txt"), (2, "twice.txt"), (3, "more.txt")];
    assert_eq!(ids.len(), wanted.len());
    for ((id, name), (wanted_id, wanted_name)) in ids.into_iter().zip(wanted) {
        assert_eq!((id, name), (&json!(wanted_id), &json!(wanted_name)));
    }
}

/// S-11b: a runtime that never answers is one from before there were answers, and files are kept
/// all the same; one that has answered and goes away is an error of `put`, and no wait for ever.
#[test]
fn no_answer() {
    for (answers, puts) in [(0, [true, true]), (1, [true, false])] {
        let (requests, request) = pipe();
        let (stream, output) = pipe();
        let mut request = File::from(request);
        writeln!(request, "{REQUEST}").unwrap();
        for write_id in 1..=answers {
            let mut frame = Vec::new();
            let ack = Ack {
                write_id,
                ok: true,
                error: None,
            };
            ack.write(&mut frame);
            request.write_all(&frame).unwrap();
        }
        drop(request);
        let mut run = Run::from_pipes(requests, output).unwrap();
        for is_kept in puts {
            match run.put("a", "b", b"c") {
                Ok(()) => assert!(is_kept, "{answers} answers"),
                Err(EmitError::NoAnswer { .. }) => assert!(!is_kept, "{answers} answers"),
                Err(error) => panic!("{error}"),
            }
        }
        run.item("after", &json!(1)).unwrap();
        assert_exit(run.finish(), 0);
        assert_eq!(serve(File::from(stream), None, |_| None).end, None);
    }
}

/// ST-42, ST-43: after the terminal event every emit is an error, whichever it was, and none is
/// sent; a script that fails then changes nothing.
#[test]
fn nothing_after_the_end() {
    let (mut run, other) = begin(|_| None);
    run.run_error("TypeError", "no", Some("at x")).unwrap();
    let refused = [
        run.item("a", &1).unwrap_err(),
        run.artifact("a", "b", b"").unwrap_err(),
        run.artifact_from("a", "b", io::empty()).unwrap_err(),
        run.artifact_file("a", "b", "/dev/null").unwrap_err(),
        run.checkpoint("a", None).unwrap_err(),
        run.enqueue("a", &1, None, None).unwrap_err(),
        run.rotate_proxy(None).unwrap_err(),
        run.log(Level::Info, "a").unwrap_err(),
        run.log_with(Level::Debug, "a", &1).unwrap_err(),
        run.run_error("a", "b", None).unwrap_err(),
        run.run_complete().unwrap_err(),
        run.run_complete_with(&1).unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, EmitError::AfterTerminal), "{error}");
    }
    assert_exit(run.fail("Other", "later"), 1);
    let stream = other.join().unwrap();
    assert_eq!(stream.kinds(), ["run_error", "run_result"]);
    let result = &stream.frames[1]["run_result"];
    assert_eq!(
        (&result["status"], &result["error_type"]),
        (&json!("error"), &json!("TypeError"))
    );
}

/// A stream that breaks is the end: every later emit says so, and the exit code too.
#[test]
fn a_broken_stream() {
    let (requests, request) = pipe();
    let (stream, output) = pipe();
    writeln!(File::from(request), "{REQUEST}").unwrap();
    let mut run = Run::from_pipes(requests, output).unwrap();
    drop(stream);
    for _ in 0..2 {
        let error = run.item("a", &1).unwrap_err();
        assert!(matches!(error, EmitError::Stream(_)), "{error}");
    }
    assert_exit(run.finish(), 2);
}

/// ST-77, ST-78, ST-79: while nobody reads, an emit does not return and nothing is gathered up;
/// then all of it comes, in order. Also on a pipe that does not block by itself.
#[test]
fn emit_waits_for_its_reader() {
    const EVENTS: u64 = 5000;
    for non_blocking in [false, true] {
        let (requests, request) = pipe();
        let (stream, output) = pipe();
        if non_blocking {
            rustix::io::ioctl_fionbio(&output, true).unwrap();
        }
        writeln!(File::from(request), "{REQUEST}").unwrap();
        let mut run = Run::from_pipes(requests, output).unwrap();
        let emitted = Arc::new(AtomicU64::new(0));
        let (count, began) = (Arc::clone(&emitted), Arc::new(Barrier::new(2)));
        let ready = Arc::clone(&began);
        let script = std::thread::spawn(move || {
            ready.wait();
            for number in 0..EVENTS {
                run.item("number", &number).unwrap();
                count.store(number + 1, Ordering::Relaxed);
            }
            run.finish()
        });
        began.wait();
        // A full pipe need not be full of bytes: half of them will do.
        let size = rustix::pipe::fcntl_getpipe_size(&stream).unwrap() as u64;
        while rustix::io::ioctl_fionread(&stream).unwrap() * 2 < size {
            std::thread::yield_now();
        }
        let ahead = emitted.load(Ordering::Relaxed);
        assert!(
            ahead > 0 && ahead * 150 <= size,
            "{ahead} are ahead of the reader"
        );
        assert!(!script.is_finished());
        let stream = serve(File::from(stream), None, |_| None);
        assert_exit(script.join().unwrap(), 0);
        assert_eq!(stream.end, None);
        let events = stream.events();
        assert_eq!(events.len() as u64, EVENTS + 1);
        for (at, event) in events.iter().enumerate() {
            assert_eq!(event["seq"], at + 1);
        }
    }
}

/// ST-19: what is no request gives no run, and says why.
#[test]
fn bad_requests() {
    for (line, words) in [
        ("", "not a JSON object"),
        ("[]\n", "not a JSON object"),
        (
            "{\"run_id\":\"r\",\"attempt\":0,\"job\":1}\n",
            "`attempt` is not an integer of 1 or more",
        ),
    ] {
        let (requests, request) = pipe();
        let (_stream, output) = pipe();
        File::from(request).write_all(line.as_bytes()).unwrap();
        match Run::from_pipes(requests, output) {
            Err(StartError::Request(why)) => assert_eq!(why.to_string(), words),
            _ => panic!("{line:?} was taken"),
        }
    }
}
