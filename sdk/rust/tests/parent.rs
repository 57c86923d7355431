//! A parent as a bridge sees it: real sockets, real processes, every way it can end.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests start real programs, and a test that can not go on has failed"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callgate_sdk::{Parent, Reply, Running, ToolError};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A folder that removes itself.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callgate-sdk-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn entries(&self) -> usize {
        std::fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One connection.
struct Bridge(UnixStream);

impl Bridge {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        let patience = std::time::Duration::from_secs(60);
        stream.set_read_timeout(Some(patience)).unwrap();
        Self(stream)
    }

    fn send(&mut self, payload: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap();
        self.0.write_all(&len.to_be_bytes()).unwrap();
        self.0.write_all(payload).unwrap();
    }

    /// `None` at the end.
    fn receive(&mut self) -> Option<Value> {
        let mut prefix = [0; 4];
        self.0.read_exact(&mut prefix).ok()?;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes(prefix)).unwrap()];
        self.0.read_exact(&mut payload).unwrap();
        Some(serde_json::from_slice(&payload).unwrap())
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(message.to_string().as_bytes());
        self.receive().unwrap()
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        self.ask(&json!({ "method": "call_tool", "params": params }))
    }
}

fn text(text: &str) -> Value {
    json!({ "result": { "content": [{ "type": "text", "text": text }] } })
}

fn error(kind: &str, message: &str) -> Value {
    json!({ "error": { "message": message, "type": kind } })
}

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

fn start(parent: Parent, folder: &Folder) -> Running {
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
    let running = start(counted, &folder);
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
    let running = start(parent(), &folder);
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
    let running = start(parent(), &folder);
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
    let running = start(parent, &folder);
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
        let running = start(parent, &folder);
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
        let running = start(parent(), &folder);
        let mut bridge = Bridge::connect(running.socket());
        assert_eq!(bridge.call("later", &json!({"x": "y"})), text("y"));
        running.stop();
    });
    assert_eq!(folder.entries(), 0);
}

/// What the next two tests start: a parent that serves until a signal.
#[test]
fn child() {
    let Some(folder) = std::env::var_os("CALLGATE_SDK_TEST_FOLDER") else {
        return;
    };
    let running = parent()
        .exit_on_signals()
        .start_in(Path::new(&folder))
        .unwrap();
    println!("serving {}", running.socket().display());
    loop {
        std::thread::park();
    }
}

fn process(folder: &Folder) -> (Child, PathBuf) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("CALLGATE_SDK_TEST_FOLDER", &folder.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let socket = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("serving ").map(|(_, path)| path.into()));
    (child, socket.unwrap())
}

/// BR-35: SIGTERM leaves nothing.
#[test]
fn sigterm_leaves_nothing() {
    let folder = Folder::new();
    let (mut child, socket) = process(&folder);
    assert_eq!(folder.entries(), 3);
    let mut bridge = Bridge::connect(&socket);
    assert_eq!(bridge.call("say", &json!({})), text("plain"));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(folder.entries(), 0);
}

/// BR-35, B-7: what a killed parent leaves is swept by the next one; a living one's stays.
#[test]
fn sigkill_is_swept_at_the_next_start() {
    let folder = Folder::new();
    let living = start(parent(), &folder);
    let (mut child, socket) = process(&folder);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(socket.exists(), "a killed parent leaves its files");
    assert_eq!(folder.entries(), 6);
    let next = start(parent(), &folder);
    assert!(!socket.exists());
    assert_eq!(folder.entries(), 6, "the living one's and the new one's");
    let mut bridge = Bridge::connect(living.socket());
    assert_eq!(bridge.call("say", &json!({})), text("plain"));
    next.stop();
    living.stop();
    assert_eq!(folder.entries(), 0);
}
