//! What it does as an MCP server over stdio: `misbehave mcp MODE [ARGUMENT]`. The mode says how it
//! starts, speaks and ends; its one tool, `act`, does what the input of each call says.

use std::io::{BufRead as _, StdinLock, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use crate::acts;

/// A server and what it remembers.
struct Server {
    mode: String,
    argument: String,
    input: StdinLock<'static>,
    /// Ids of calls that wait for `release`.
    held: Vec<Value>,
    /// Ids that were cancelled.
    cancelled: Vec<Value>,
    lists: u64,
}

/// Serves until its input ends, and in some modes beyond.
pub fn run() -> ! {
    let mut arguments = std::env::args().skip(2);
    let mode = arguments.next().unwrap_or_default();
    let argument = arguments.next().unwrap_or_default();
    begin(&mode, &argument);
    let mut server = Server {
        mode,
        argument,
        input: std::io::stdin().lock(),
        held: Vec::new(),
        cancelled: Vec::new(),
        lists: 0,
    };
    while let Some(message) = server.read() {
        server.take(&message);
    }
    if server.mode == "stays" {
        acts::hang()
    }
    std::process::exit(0)
}

/// What it does before it reads anything.
fn begin(mode: &str, argument: &str) {
    match mode {
        "dies" => {
            eprintln!("cannot start: no backend");
            std::process::exit(7)
        }
        // The first time only, which the file shows.
        "dies_once" if !std::path::Path::new(argument).exists() => {
            std::fs::write(argument, "").expect("the file");
            std::process::exit(7)
        }
        "slow_start" => std::thread::sleep(Duration::from_millis(argument.parse().unwrap_or(100))),
        "silent" => acts::hang(),
        "stays" => acts::ignore(i64::from(libc::SIGTERM)),
        "daemon" => acts::daemon(argument),
        "noisy_start" => {
            print!("\u{feff}Server running on stdio\r\n\r\n\0\0\n[1]\n{{half\n\"text\"\n");
            let _ = std::io::stdout().flush();
        }
        _ => {}
    }
}

impl Server {
    fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.input.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(serde_json::from_str(&line).expect("a message is one line of JSON")),
        }
    }

    fn take(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => self.answer(message, self.greeting()),
            "tools/list" => {
                self.lists += 1;
                self.answer(message, self.list());
            }
            "tools/call" => self.call(message),
            "notifications/cancelled" => {
                let id = params["requestId"].clone();
                self.held.retain(|held| *held != id);
                self.cancelled.push(id);
            }
            _ => {}
        }
    }

    fn greeting(&self) -> Value {
        let version = match self.mode.as_str() {
            "old" => "2024-11-05",
            "future" => "2099-01-01",
            _ => "2025-11-25",
        };
        if self.mode == "old" {
            return json!({ "protocolVersion": version });
        }
        let instructions = self.definitions()["instructions"].clone();
        let mut greeting = json!({
            "protocolVersion": version, "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "misbehave", "version": "0" },
        });
        if !instructions.is_null() {
            greeting["instructions"] = instructions;
        }
        greeting
    }

    /// What a file says that it defines.
    fn definitions(&self) -> Value {
        match self.mode.as_str() {
            "definitions" => {
                let text = std::fs::read_to_string(&self.argument).expect("the definitions");
                serde_json::from_str(&text).expect("JSON")
            }
            _ => json!({ "tools": [{ "name": "act", "inputSchema": { "type": "object" } }] }),
        }
    }

    fn list(&self) -> Value {
        let mut list = json!({ "tools": self.definitions()["tools"] });
        if self.mode == "endless_list" {
            list["nextCursor"] = json!("again");
        }
        list
    }

    fn answer(&self, request: &Value, result: Value) {
        send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    fn call(&mut self, request: &Value) {
        let id = &request["id"];
        let input = &request["params"]["arguments"];
        let number = |name: &str| input[name].as_u64().unwrap_or_default();
        let result = json!({ "content": [], "structuredContent": {
            "ok": true, "pid": std::process::id(), "lists": self.lists, "cancelled": self.cancelled,
        } });
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        if let Some(path) = input["effect"].as_str() {
            let mut file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path);
            file.as_mut()
                .expect("the effect")
                .write_all(b"effect\n")
                .expect("the effect");
        }
        if let Some(text) = input["stderr"].as_str() {
            eprintln!("{text}");
        }
        match input["do"].as_str().unwrap_or("ok") {
            "die" => std::process::exit(3),
            // Reads nothing until a file is there.
            "die_when" => {
                while !std::path::Path::new(input["path"].as_str().unwrap_or("/")).exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::process::exit(3)
            }
            "die_in_line" => {
                write(&answer.to_string().as_bytes()[..20]);
                std::process::exit(3)
            }
            "die_after_answer" => {
                send(&answer);
                std::process::exit(3)
            }
            "answer_at_the_end" => {
                write(answer.to_string().as_bytes());
                std::process::exit(0)
            }
            "hang" => acts::hang(),
            "hold" => return self.held.push(id.clone()),
            "release" => {
                for id in self.held.drain(..) {
                    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
                }
            }
            // Answers what was cancelled before.
            "answer_late" => {
                for id in &self.cancelled {
                    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
                }
            }
            "strays" => {
                for n in 0..number("count") {
                    let id = match n % 3 {
                        0 => json!(1_000_000 + n),
                        1 => json!(id.to_string()),
                        _ => json!(null),
                    };
                    send(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
                }
            }
            "twice" => send(&answer),
            "huge" => huge(
                &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"x\":\""),
                number("bytes"),
                "\"}}",
            ),
            "huge_hidden" => huge(
                "{\"result\":{\"x\":\"",
                number("bytes"),
                &format!("\"}},\"id\":{id}}}"),
            ),
            "huge_noise" => huge("noise ", number("bytes"), ""),
            "no_newline" => {
                write(answer.to_string().as_bytes());
                acts::hang()
            }
            "crlf" => {
                write(format!("\u{feff}{answer}\r\n").as_bytes());
                return;
            }
            "bad_utf8" => {
                write(format!("{{\"id\":{id},\"result\":\"").as_bytes());
                write(b"\xFF\"}\n");
                return;
            }
            "not_content" => {
                send(&json!({ "jsonrpc": "2.0", "id": id, "result": { "x": 1 } }));
                return;
            }
            "noise" => write(b"hello\n\n\0\n{\"a\":1}\n[{}]\n{\"id\":\n"),
            "logs" => {
                for n in 0..number("count") {
                    notify(
                        "notifications/message",
                        &json!({ "level": "info", "logger": "l", "data": n }),
                    );
                }
            }
            "progress" => {
                for n in 1..=number("count") {
                    notify(
                        "notifications/progress",
                        &json!({
                            "progressToken": request["params"]["_meta"]["progressToken"],
                            "progress": n, "total": number("count"), "message": "going",
                        }),
                    );
                }
            }
            // Shows signs of life until a file is there.
            "progress_until" => {
                let mut n = 0;
                while !std::path::Path::new(input["path"].as_str().unwrap_or("/")).exists() {
                    n += 1;
                    notify(
                        "notifications/progress",
                        &json!({
                            "progressToken": request["params"]["_meta"]["progressToken"], "progress": n,
                        }),
                    );
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            // For as long as it lives.
            "flood" => {
                let log = json!({ "level": "info", "data": "x".repeat(1000) });
                std::thread::spawn(move || {
                    loop {
                        notify("notifications/message", &log);
                    }
                });
            }
            "list_changed" => {
                for _ in 0..number("count") {
                    notify("notifications/tools/list_changed", &json!({}));
                }
            }
            "asks" => return self.ask(id, input),
            "close_input" => {
                // SAFETY: nothing here reads its input again.
                unsafe { libc::close(0) };
                send(&answer);
                acts::hang()
            }
            "close_output" => acts::close_all_and_hang(),
            "env" => {
                let name = input["name"].as_str().unwrap_or_default();
                let value = std::env::var(name).unwrap_or_default();
                let text = json!([{ "type": "text", "text": value }]);
                send(&json!({ "jsonrpc": "2.0", "id": id, "result": { "content": text } }));
                return;
            }
            _ => {}
        }
        send(&answer);
    }

    /// Asks its client, and answers with what it was answered.
    fn ask(&mut self, id: &Value, input: &Value) {
        let methods = input["methods"].as_array().cloned().unwrap_or_default();
        let mut answers = Vec::new();
        for method in methods {
            send(&json!({ "jsonrpc": "2.0", "id": format!("ask-{method}"), "method": method }));
            while let Some(message) = self.read() {
                if message.get("method").is_some() {
                    self.take(&message);
                    continue;
                }
                answers.push(message);
                break;
            }
        }
        let result = json!({ "content": [], "structuredContent": { "answers": answers } });
        send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
}

/// A line of about so many bytes.
fn huge(begin: &str, bytes: u64, end: &str) {
    write(begin.as_bytes());
    let block = [b'h'; 65536];
    for _ in 0..bytes / 65536 {
        write(&block);
    }
    write(end.as_bytes());
    write(b"\n");
}

fn notify(method: &str, params: &Value) {
    send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
}

fn send(message: &Value) {
    write(format!("{message}\n").as_bytes());
}

/// Ends with its client.
fn write(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    if output
        .write_all(bytes)
        .and_then(|()| output.flush())
        .is_err()
    {
        std::process::exit(5)
    }
}
