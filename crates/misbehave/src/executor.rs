//! What it does as an executor: the acts of its job, one after the other. Each is an object with
//! one member that says which; what an act does not say is as the contract wants it.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use callgate_wires::stream::encode::{self, Event};
use callgate_wires::stream::{
    Ack, CONTRACT_VERSION, ChunkHead, PREFIX_BYTES, ProxyProtocol, ProxyUsed, RunResult, Status,
    payload_len,
};
use serde_json::{Value, json};

use crate::acts;

/// Reads the run request, performs its job and leaves with 0, unless told otherwise.
pub fn run() -> ! {
    let request = match serde_json::from_slice::<Value>(&line()) {
        Ok(request) if request.is_object() => request,
        _ => {
            eprintln!("no run request");
            std::process::exit(3)
        }
    };
    let acts = request["job"]["acts"].clone();
    let mut stage = Stage {
        request,
        seq: 0,
        chunks: HashMap::new(),
    };
    stage.perform(&acts);
    std::process::exit(0)
}

/// The first line of stdin and nothing after it.
fn line() -> Vec<u8> {
    let mut line = Vec::new();
    let mut byte = [0];
    while std::io::stdin().read_exact(&mut byte).is_ok() && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    line
}

struct Stage {
    request: Value,
    /// Of the last event.
    seq: u64,
    /// Of the last chunk of each artifact.
    chunks: HashMap<String, u64>,
}

impl Stage {
    fn perform(&mut self, acts: &Value) {
        for act in acts.as_array().into_iter().flatten() {
            for (name, with) in act.as_object().into_iter().flatten() {
                self.act(name, with);
            }
        }
    }

    fn act(&mut self, name: &str, with: &Value) {
        let number = with.as_i64().unwrap_or_default();
        match name {
            "emit" => self.emit(with),
            "complete" => self.emit(&json!({ "type": "run_complete", "payload": with })),
            "fail" => self.emit(&json!({
                "type": "run_error", "payload": { "error_type": "TypeError", "message": with },
            })),
            "chunk" => self.chunk(with),
            "file" => file(with),
            "ack" => ack(),
            "result" => result(with),
            "frame" => frame(with),
            "raw" => print(&hex(with)),
            "text" => print(with.as_str().unwrap_or_default().as_bytes()),
            "say" => eprint!("{}", with.as_str().unwrap_or_default()),
            "say_much" => say_much(number.unsigned_abs()),
            "flood_stderr" => acts::flood(&mut std::io::stderr()),
            "tell" => self.tell(),
            "repeat" => {
                for _ in 0..with["times"].as_u64().unwrap_or(1) {
                    self.perform(&with["acts"]);
                }
            }
            "daemon" => acts::daemon(with.as_str().unwrap_or_default()),
            "ignore" => acts::ignore(number),
            "close" => acts::close_descriptor(i32::try_from(number).unwrap_or(1)),
            "mark" => {
                let _ = std::fs::write(with.as_str().unwrap_or_default(), b"here");
            }
            "wait_for" => {
                while !std::path::Path::new(with.as_str().unwrap_or_default()).exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            "hang" => acts::hang(),
            "signal" => acts::signal(number),
            "exit" => std::process::exit(i32::try_from(number).unwrap_or(1)),
            other => {
                eprintln!("no such act: {other}");
                std::process::exit(64)
            }
        }
    }

    /// An event. What it says itself of `seq`, `run_id` and so on goes before what is right.
    fn emit(&mut self, with: &Value) {
        self.seq = with["seq"].as_u64().unwrap_or(self.seq + 1);
        let own = |name: &str| {
            let own = with[name].as_str().or_else(|| self.request[name].as_str());
            own.map(str::to_owned)
        };
        let (run_id, job_id, parent) = (own("run_id"), own("job_id"), own("parent_run_id"));
        let attempt = with["attempt"]
            .as_u64()
            .or_else(|| self.request["attempt"].as_u64());
        let mut payload = Vec::new();
        match &with["payload"] {
            // Values that JSON does not have.
            Value::Null if with["msgpack"].is_string() => payload = hex(&with["msgpack"]),
            Value::Null => encode::map_head(0, &mut payload),
            given => encode::value(given, &mut payload),
        }
        let mut out = Vec::new();
        let event = Event {
            contract_version: with["contract_version"]
                .as_str()
                .unwrap_or(CONTRACT_VERSION),
            event_id: &format!("event-{}", self.seq),
            run_id: &run_id.unwrap_or_default(),
            seq: self.seq,
            kind: with["type"].as_str().unwrap_or("item"),
            ts: "2026-11-15T12:00:00.000Z",
            payload: &payload,
            attempt: u32::try_from(attempt.unwrap_or(1)).unwrap_or(u32::MAX),
            job_id: job_id.as_deref(),
            parent_run_id: parent.as_deref(),
        };
        encode::event(&event, &mut out).expect("a small event");
        print(&out);
    }

    fn chunk(&mut self, with: &Value) {
        let id = with["id"].as_str().unwrap_or("a");
        let last = self.chunks.entry(id.to_owned()).or_default();
        *last = with["seq"].as_u64().unwrap_or(*last + 1);
        let text = with["text"].as_str().unwrap_or_default();
        let bytes = with["bytes"]
            .as_u64()
            .and_then(|bytes| usize::try_from(bytes).ok());
        let data = match bytes {
            // Another letter in each, so that their order shows.
            Some(bytes) => vec![b'a' + (*last % 26) as u8; bytes],
            None => text.as_bytes().to_vec(),
        };
        let mut out = Vec::new();
        let head = ChunkHead {
            artifact_id: id,
            seq: *last,
            is_last: with["last"].as_bool().unwrap_or(false),
            bytes: data.len(),
        };
        encode::chunk_head(&head, &mut out).expect("a chunk");
        print(&out);
        print(&data);
    }

    /// All it was given.
    fn tell(&mut self) {
        let mut request = self.request.clone();
        request["job"] = Value::Null;
        let data = json!({
            "request": request,
            "args": std::env::args().skip(1).collect::<Vec<_>>(),
            "env": std::env::vars().map(|(name, _)| name).collect::<Vec<_>>(),
        });
        let payload = json!({ "item_type": "told", "data": data });
        self.emit(&json!({ "type": "item", "payload": payload }));
    }
}

fn file(with: &Value) {
    let data = with["text"].as_str().unwrap_or_default();
    let id = with["id"].as_u64().unwrap_or(1);
    let mut out = Vec::new();
    encode::file_head(
        u32::try_from(id).unwrap_or(u32::MAX),
        with["name"].as_str().unwrap_or_default(),
        "text/plain",
        data.len(),
        &mut out,
    )
    .expect("a file");
    print(&out);
    print(data.as_bytes());
}

/// Waits for an acknowledgement and repeats it on stderr.
fn ack() {
    let mut stdin = std::io::stdin();
    let mut prefix = [0; PREFIX_BYTES];
    if stdin.read_exact(&mut prefix).is_err() {
        eprintln!("ack: none");
        return;
    }
    let mut payload = vec![0; payload_len(prefix).expect("a length")];
    stdin.read_exact(&mut payload).expect("a whole frame");
    let ack = Ack::parse(&payload).expect("an acknowledgement");
    let error = ack.error.unwrap_or_default();
    eprintln!("ack: {} {} {error}", ack.write_id, ack.ok);
}

fn result(with: &Value) {
    let status = match with["status"].as_str() {
        Some("error") => Status::Error,
        Some("crash") => Status::Crash,
        _ => Status::Completed,
    };
    let mut out = Vec::new();
    let result = RunResult {
        status,
        message: with["message"].as_str(),
        error_type: with["error_type"].as_str(),
        stack: None,
        proxy_used: with["proxy"].as_str().map(|host| ProxyUsed {
            protocol: ProxyProtocol::Http,
            host,
            port: 8080,
            username: Some("me"),
        }),
    };
    encode::run_result(&result, &mut out).expect("a small frame");
    print(&out);
}

/// Any map as a frame.
fn frame(with: &Value) {
    let mut payload = Vec::new();
    encode::value(with, &mut payload);
    let length = u32::try_from(payload.len()).expect("a small frame");
    print(&length.to_be_bytes());
    print(&payload);
}

fn say_much(bytes: u64) {
    let line = format!("{}\n", "e".repeat(99));
    for _ in 0..bytes / 100 {
        eprint!("{line}");
    }
}

fn hex(with: &Value) -> Vec<u8> {
    let digits: Vec<u32> = with
        .as_str()
        .unwrap_or_default()
        .chars()
        .filter_map(|c| c.to_digit(16))
        .collect();
    digits
        .chunks(2)
        .map(|pair| {
            pair.iter().fold(0, |byte, digit| {
                byte * 16 + u8::try_from(*digit).unwrap_or(0)
            })
        })
        .collect()
}

/// Nobody who does not listen is an error.
fn print(bytes: &[u8]) {
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}
