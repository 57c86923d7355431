//! Two releases at one socket: the bytes that the clients of release 0.1.0 sent, to the present
//! gate, and the bytes that its gate sent, to the present clients. The recordings in
//! `tests/gate-socket-0.1.0` were made by the programs of that release.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use serde::Deserialize;
use serde_json::Value;

use crate::support::drive::{PATIENCE, Serve, cli};
use crate::support::{Folder, callgate};

/// One run of a client and what passed between it and the gate.
#[derive(Deserialize)]
struct Recording {
    arguments: Vec<String>,
    input: Option<Vec<Value>>,
    printed: String,
    exit: i32,
    steps: Vec<Step>,
}

/// What one side sent until the other side sent something; `opens` is a new connection.
#[derive(Deserialize)]
struct Step(String, String);

const NAMES: [&str; 6] = [
    "tools",
    "call",
    "call_refused",
    "mcp_legacy",
    "mcp_modern",
    "rpc",
];

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/gate-socket-0.1.0")
}

fn recording(name: &str) -> Recording {
    let path = recordings().join(format!("{name}.json"));
    let text = std::fs::read_to_string(path).expect("a recording");
    serde_json::from_str(&text).expect("JSON")
}

/// The workspace that the recordings were made in, trusted.
fn workspace() -> Folder {
    let folder = Folder::new();
    for name in ["callgate.toml", "one.sh"] {
        let text = std::fs::read_to_string(recordings().join(name)).expect("a file");
        folder.write(name, &text);
    }
    cli(&folder, &["trust"]).good();
    folder
}

/// The connections of a recording, each as its steps.
fn connections(recording: &Recording) -> Vec<&[Step]> {
    let opened = recording.steps.split(|step| step.0 == "opens");
    opened.filter(|steps| !steps.is_empty()).collect()
}

/// Masks what differs between two runs: ids of calls, dates, and with them lengths; and the
/// enforcement, which is the machine's.
fn masked(text: &str) -> String {
    let mut text = without_enforcement(text);
    for (start, end) in [
        ("date: ", "\r\n"),
        ("content-length: ", "\r\n"),
        ("\"call_id\":\"", "\""),
        ("\"id\":\"", "\""),
    ] {
        let mut masked = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(start) {
            masked.push_str(before);
            masked.push_str(start);
            // What has not come whole stays, and is not equal yet.
            rest = after.find(end).map_or(after, |at| &after[at..]);
        }
        masked.push_str(rest);
        text = masked;
    }
    text
}

/// Removes the objects that say how a call was confined.
fn without_enforcement(text: &str) -> String {
    const START: &str = "\"enforcement\":{";
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(START) {
        left.push_str(before);
        left.push_str(START);
        let mut depth = 1_usize;
        let end = after.find(|c| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        rest = end.map_or("", |at| &after[at..]);
    }
    left.push_str(rest);
    left
}

/// Reads from `stream` until it has sent what was recorded.
fn read_as_recorded(stream: &mut UnixStream, recorded: &str, what: &str) {
    stream.set_read_timeout(Some(PATIENCE)).expect("set a time");
    let (wanted, mut came) = (masked(recorded), Vec::new());
    loop {
        let text = String::from_utf8_lossy(&came).into_owned();
        if masked(&text) == wanted {
            return;
        }
        let mut buffer = [0; 16 * 1024];
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => came.extend_from_slice(&buffer[..count]),
            ended => {
                assert_eq!(masked(&text), wanted, "{what}: {ended:?}");
            }
        }
    }
}

/// The present gate answers the clients of release 0.1.0 as that release did.
#[test]
fn earlier_clients_are_served() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    for name in NAMES {
        for steps in connections(&recording(name)) {
            let mut stream = UnixStream::connect(&serve.socket).expect("connect");
            for Step(sender, text) in steps {
                match sender.as_str() {
                    "client" => stream.write_all(text.as_bytes()).expect("send"),
                    _ => read_as_recorded(&mut stream, text, name),
                }
            }
        }
    }
    assert!(serve.stop().success());
}

/// The present clients send what those of release 0.1.0 sent, understand what its gate answers, and
/// print the same.
#[test]
fn earlier_gates_are_understood() {
    for name in NAMES {
        let folder = workspace();
        let socket = folder.join("front.sock");
        let listener = UnixListener::bind(&socket).expect("bind");
        let recorded = recording(name);
        let gate = thread::spawn({
            let recorded = recording(name);
            move || {
                for steps in connections(&recorded) {
                    let (mut stream, _) = listener.accept().expect("a connection");
                    for Step(sender, text) in steps {
                        match sender.as_str() {
                            "client" => read_as_recorded(&mut stream, text, name),
                            _ => stream.write_all(text.as_bytes()).expect("send"),
                        }
                    }
                    // Until the client has gone.
                    let _ = stream.read(&mut [0]);
                }
            }
        });
        let (printed, code) = converse(&folder, &socket, &recorded);
        assert_eq!(masked(&printed), masked(&recorded.printed), "{name}");
        assert_eq!(code, recorded.exit, "{name}");
        gate.join().expect("the earlier gate");
    }
}

/// Runs a client as it was run for the recording: each message after the answer to the one before.
fn converse(folder: &Folder, socket: &Path, recorded: &Recording) -> (String, i32) {
    let mut child = callgate(folder)
        .arg("--socket")
        .arg(socket)
        .args(&recorded.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the client");
    let mut stdin = child.stdin.take().expect("piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut printed = String::new();
    for message in recorded.input.iter().flatten() {
        writeln!(stdin, "{}", spaced(message)).expect("send");
        if message.get("id").is_some() {
            stdout.read_line(&mut printed).expect("an answer");
        }
    }
    drop(stdin);
    stdout.read_to_string(&mut printed).expect("the rest");
    let code = child.wait().expect("its end").code();
    (printed, code.expect("an exit code"))
}

/// JSON with the spaces that the recorder put into it: relays pass messages on as they came.
fn spaced(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), spaced(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items = items.iter().map(spaced);
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}
