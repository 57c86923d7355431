//! A parent as a bridge sees it: its answers, its files and its place, on real sockets. The
//! ends of whole programs are in `ends.rs`.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod support;

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callgate_sdk::{Parent, Reply, Running, StartError, ToolError};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use support::{Bridge, Folder, error, text};
use tokio::sync::Notify;

fn parent() -> Parent {
    let any = || json!({ "type": "object" });
    Parent::new()
        .tool("echo", "Gives back.", any(), |arguments| {
            Ok(Value::Object(arguments).into())
        })
        .tool("say", "Says.", any(), |_| Ok("plain".into()))
        .tool("blocks", "Gives content.", any(), |_| {
            let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
            Ok(Reply::content(vec![image]).as_error())
        })
        .tool("nothing", "Gives nothing.", any(), |_| {
            Ok(Reply::content(Vec::new()))
        })
        .tool("fail", "Fails.", any(), |_| {
            Err(ToolError::new("KeyError", "'k'"))
        })
        .tool("panic", "Panics.", any(), |_| panic!("on purpose"))
        .tool("large", "Gives too much.", any(), |_| {
            Ok("x".repeat(10_485_760).into())
        })
        .tool_async("later", "Async.", any(), |arguments| async move {
            tokio::task::yield_now().await;
            Ok(arguments["x"].clone().into())
        })
}

fn start(parent: &Parent, folder: &Folder) -> Running {
    parent.start_in(&folder.0).unwrap()
}

/// B-9, BR-10: what does not fit the schema is refused in the gate's words, and the function is
/// not called.
#[test]
fn arguments_are_checked() {
    let folder = Folder::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "array", "items": { "type": "integer", "minimum": 3 } } },
        "required": ["n"],
        "additionalProperties": false,
    });
    let counted = Parent::new().tool("count", "Counts.", schema, move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        Ok("done".into())
    });
    let running = start(&counted, &folder);
    let mut bridge = Bridge::connect(running.socket());
    for (arguments, words) in [
        (json!({}), "bad input: n: is required"),
        (json!({ "n": [], "m": 1 }), "bad input: m: unexpected: m"),
        (
            json!({ "n": [3, 2] }),
            "bad input: n/1: the value is less than the minimum of 3",
        ),
    ] {
        let told = bridge.call("count", &arguments);
        assert_eq!(told, error("ValueError", words), "{arguments}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(bridge.call("count", &json!({ "n": [3] })), text("done"));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    for schema in [
        json!({ "type": "strin" }),
        json!({ "$ref": "https://example.com/schema.json" }),
    ] {
        let broken = Parent::new().tool("broken", "", schema, |_| Ok("".into()));
        let refused = broken.start_in(&folder.0).expect_err("no schema");
        let words = refused.to_string();
        assert!(words.starts_with("input schema of `broken`: "), "{words}");
    }
}

/// BR-5, BR-7 to BR-18, B-5, B-6: what a parent answers.
#[test]
fn answers() {
    let folder = Folder::new();
    let running = start(&parent(), &folder);
    let mut bridge = Bridge::connect(running.socket());
    assert_eq!(bridge.call("echo", &json!({"a": 1})), text(r#"{"a":1}"#));
    assert_eq!(bridge.call("say", &json!({})), text("plain"));
    assert_eq!(bridge.call("later", &json!({"x": "y"})), text("y"));
    assert_eq!(bridge.call("nothing", &json!({})), text(""));
    let blocks = bridge.call("blocks", &json!({}));
    assert_eq!(blocks["result"]["isError"], true);
    assert_eq!(blocks["result"]["content"][0]["type"], "image");
    assert_eq!(bridge.call("fail", &json!({})), error("KeyError", "'k'"));
    assert_eq!(
        bridge.call("panic", &json!({})),
        error("RuntimeError", "the tool panicked")
    );
    assert_eq!(
        bridge.call("absent", &json!({})),
        error("ToolNotFoundError", "Unknown tool: absent")
    );
    assert_eq!(
        bridge.call("large", &json!({})),
        error("IPCMessageSizeError", "output exceeds 10 MiB")
    );
    bridge.send(b"{");
    assert_eq!(bridge.receive().unwrap()["error"]["type"], "IPCError");
    assert_eq!(
        bridge.ask(&json!({ "method": "x" })),
        error("ValueError", "Unknown method: x")
    );
    // Two frames at once are answered in order.
    for x in ["1", "2"] {
        let params = json!({ "name": "later", "arguments": { "x": x } });
        bridge.send(
            json!({ "method": "call_tool", "params": params })
                .to_string()
                .as_bytes(),
        );
    }
    assert_eq!(bridge.receive(), Some(text("1")));
    assert_eq!(bridge.receive(), Some(text("2")));
    bridge.0.write_all(&[0xFF; 4]).unwrap();
    let refused = bridge.receive().unwrap();
    assert_eq!(refused["error"]["type"], "IPCMessageSizeError");
    assert_eq!(bridge.receive(), None, "a bad frame closes the connection");
    let mut other = Bridge::connect(running.socket());
    assert_eq!(other.call("say", &json!({})), text("plain"));
    let entry = running.client_entry("callgate");
    assert_eq!(entry["args"][1], running.socket().to_str().unwrap());
}

/// BR-33, BR-34, B-7: both files are the owner's alone, and list what is served.
#[test]
fn files() {
    let folder = Folder::new();
    let running = start(&parent(), &folder);
    for path in [running.socket(), running.schema()] {
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    let listed: Value = serde_json::from_slice(&std::fs::read(running.schema()).unwrap()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 8);
    assert_eq!(
        listed[0],
        json!({"name": "echo", "description": "Gives back.", "input_schema": {"type": "object"}})
    );
    // A folder that others can write to is not used.
    let open = Folder::new();
    std::fs::create_dir(&open.0).unwrap();
    std::fs::set_permissions(&open.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(parent().start_in(&open.0).is_err());
}

/// A bridge that goes away ends the async call it waited for.
#[test]
fn a_closed_connection_ends_the_call() {
    struct Told(std::sync::mpsc::SyncSender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let folder = Folder::new();
    let (sender, ended) = std::sync::mpsc::sync_channel(1);
    let (begun, started) = std::sync::mpsc::sync_channel(1);
    let waiting = move |_| {
        let told = Told(sender.clone());
        let begun = begun.clone();
        async move {
            let _told = told;
            let _ = begun.send(());
            std::future::pending::<Result<Reply, ToolError>>().await
        }
    };
    let parent = parent().tool_async("wait", "Waits for ever.", json!({}), waiting);
    let running = start(&parent, &folder);
    let mut bridge = Bridge::connect(running.socket());
    bridge.send(br#"{"method":"call_tool","params":{"name":"wait"}}"#);
    started.recv().unwrap();
    drop(bridge);
    ended.recv().unwrap();
}

/// BR-35: stop, drop and panic leave nothing, with a bridge connected and a call under way.
#[test]
fn every_end_inside_the_program() {
    let folder = Folder::new();
    let begun = Arc::new(Notify::new());
    let with_call = || {
        let told = Arc::clone(&begun);
        let parent = parent().tool_async("wait", "Waits.", json!({}), move |_| {
            told.notify_one();
            std::future::pending::<Result<Reply, ToolError>>()
        });
        let running = start(&parent, &folder);
        let mut bridge = Bridge::connect(running.socket());
        bridge.send(br#"{"method":"call_tool","params":{"name":"wait"}}"#);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(begun.notified());
        (running, bridge)
    };
    let (running, mut bridge) = with_call();
    running.stop();
    assert_eq!(folder.entries(), 0);
    assert_eq!(bridge.receive(), None);
    drop(with_call());
    assert_eq!(folder.entries(), 0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _running = with_call();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(folder.entries(), 0);
}

/// A program with a runtime of its own starts and stops a parent like any other.
#[test]
fn inside_a_runtime() {
    let folder = Folder::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let running = start(&parent(), &folder);
        let mut bridge = Bridge::connect(running.socket());
        assert_eq!(bridge.call("later", &json!({"x": "y"})), text("y"));
        running.stop();
    });
    assert_eq!(folder.entries(), 0);
}

/// B-11: a parent has the same place at each start, and nobody else has it meanwhile.
#[test]
fn a_place_stays() {
    let folder = Folder::new();
    let tool = |words: &'static str| {
        Parent::new().tool("say", "Says.", json!({}), move |_| Ok(words.into()))
    };
    let said = |running: &Running| Bridge::connect(running.socket()).call("say", &json!({}));
    for parent in [tool("first"), tool("first").named("notes")] {
        let running = start(&parent, &folder);
        let (socket, schema) = (running.socket().to_owned(), running.schema().to_owned());
        let name = socket.file_stem().unwrap().to_str().unwrap();
        let refused = tool("second").named(name).start_in(&folder.0).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "`{name}` is taken: process {} serves there",
                std::process::id()
            )
        );
        assert!(parent.start_in(&folder.0).is_err(), "not twice either");
        assert_eq!(said(&running), text("first"), "the refused harmed nothing");
        running.stop();
        assert_eq!(folder.entries(), 0);
        let again = start(&parent, &folder);
        assert_eq!((again.socket(), again.schema()), (&*socket, &*schema));
        assert_eq!(said(&again), text("first"));
        again.stop();
        // What lost its lock belongs to nobody.
        std::fs::write(&schema, "[").unwrap();
        std::fs::write(&socket, "").unwrap();
        let next = start(&tool("second").named(name), &folder);
        assert_eq!((next.socket(), said(&next)), (&*socket, text("second")));
        next.stop();
        assert_eq!(folder.entries(), 0);
    }
    let other = [start(&tool(""), &folder), start(&tool(""), &folder)];
    assert_ne!(other[0].socket(), other[1].socket());
    let longest = "x".repeat(64);
    for name in ["a-B_9", &longest] {
        start(&tool("").named(name), &folder).stop();
    }
    for name in ["", "a/b", "..", "a.b", "\u{e9}", &"x".repeat(65)] {
        let refused = tool("").named(name).start_in(&folder.0);
        assert!(
            matches!(refused, Err(StartError::Name { .. })),
            "{refused:?}"
        );
    }
}

/// B-11: of many that start at once under one name, one gets the place, again and again.
#[test]
fn a_place_has_one_owner() {
    const ROUNDS: usize = 50;
    let folder = Folder::new();
    let owners = AtomicUsize::new(0);
    let starts = || {
        for _ in 0..ROUNDS {
            match parent().named("one").start_in(&folder.0) {
                Ok(running) => {
                    assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                    // Its own socket is at the path, not one that another removes.
                    let mut bridge = Bridge::connect(running.socket());
                    assert_eq!(bridge.call("say", &json!({})), text("plain"));
                    owners.fetch_sub(1, Ordering::SeqCst);
                }
                Err(StartError::Taken { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(starts);
        }
    });
    assert_eq!(folder.entries(), 0);
}

/// B-11: whoever starts waits for one that sweeps, whose look at a lock is no owner's.
#[test]
fn a_sweepers_look_is_no_owner() {
    let folder = Folder::new();
    let parent = parent().named("one");
    start(&parent, &folder).stop();
    let lock = folder.0.join("one.lock");
    std::fs::write(&lock, "").unwrap();
    let held = |path: &Path| {
        let file = File::open(path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        file
    };
    let (alone, look) = (held(&folder.0), held(&lock));
    let inode = format!(":{} ", alone.metadata().unwrap().ino());
    let waits = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let mut waiting = locks.lines().filter(|line| line.contains("-> "));
        waiting.any(|line| line.contains(&inode))
    };
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| parent.start_in(&folder.0).map(Running::stop));
        while !starting.is_finished() && !waits() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop((look, alone));
        let started = starting.join().unwrap();
        assert!(started.is_ok(), "{started:?}");
    });
    assert_eq!(folder.entries(), 0);
}
