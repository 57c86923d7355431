//! What it does as a pool worker: answers calls, or lies about them.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::FromRawFd as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::acts;

/// Serves calls until the gate hangs up.
pub fn run() -> ! {
    let fd = std::env::var("CALLGATE_FD")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    // SAFETY: the gate gave us this descriptor, and nothing else here uses its number.
    let socket = unsafe { File::from_raw_fd(fd) };
    let mut replies = socket.try_clone().expect("a second handle on the socket");
    let mut served = 0;
    for line in BufReader::new(socket).lines() {
        let Ok(line) = line else { break };
        served += 1;
        let request: Value = serde_json::from_str(&line).expect("a request is one line of JSON");
        answer(&request, served, &mut replies);
    }
    std::process::exit(0)
}

fn answer(request: &Value, served: u64, replies: &mut File) {
    let call = &request["call"];
    let input = &request["input"];
    let number = |name: &str| input[name].as_i64().unwrap_or_default();
    let reply = |output: Value| format!("{}\n", json!({ "call": call, "output": output }));
    let text = match input["do"].as_str().unwrap_or("ok") {
        "ok" => reply(json!({ "ok": true })),
        "echo" => reply(request.clone()),
        "who" => reply(json!({ "pid": std::process::id(), "served": served })),
        "say" => {
            print!("said out");
            let _ = std::io::stdout().flush();
            eprint!("said err");
            reply(json!({ "ok": true }))
        }
        "fail" => {
            let error = json!({ "type": "ValueError", "message": "no good" });
            format!("{}\n", json!({ "call": call, "error": error }))
        }
        "ask" => format!("{}\n", json!({ "call": call, "ask": input["questions"] })),
        "slots" => slots(request),
        "null" => reply(Value::Null),
        "huge" => reply(
            "h".repeat(usize::try_from(number("bytes")).unwrap_or(0))
                .into(),
        ),
        "slow" => {
            std::thread::sleep(Duration::from_millis(number("ms").unsigned_abs()));
            reply(json!({ "slow": true }))
        }
        "wrong_call" => format!("{}\n", json!({ "call": "0", "output": 1 })),
        "two_replies" => reply(json!(1)) + &reply(json!(2)),
        "late_reply" => {
            // The second one comes when nobody has asked.
            send(replies, reply(json!(1)).as_bytes());
            reply(json!(2))
        }
        "report" => {
            // Lines as they are, with our call in them; then the answer once somebody lets us.
            for line in input["lines"].as_array().into_iter().flatten() {
                let call = call.as_str().unwrap_or_default();
                let line = line.as_str().unwrap_or_default().replace("CALL", call);
                send(replies, format!("{line}\n").as_bytes());
            }
            let go = input["go"].as_str().unwrap_or("/");
            while !std::path::Path::new(go).exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            reply(json!({ "ok": true }))
        }
        "raw" => input["text"].as_str().unwrap_or_default().to_owned(),
        "garbage" => "not json\n".to_owned(),
        "no_newline" => {
            send(replies, reply(json!(1)).trim_end().as_bytes());
            acts::hang()
        }
        "half_line" => {
            send(replies, &reply(json!(1)).as_bytes()[..10]);
            acts::hang()
        }
        "die_in_line" => {
            send(replies, &reply(json!(1)).as_bytes()[..10]);
            eprintln!("dying now");
            std::process::exit(3)
        }
        "overlong" => {
            let block = [b'l'; 65536];
            while replies.write_all(&block).is_ok() {}
            acts::hang()
        }
        "exit_after" => {
            send(replies, reply(json!({ "ok": true })).as_bytes());
            std::process::exit(0)
        }
        "close" => acts::close_all_and_hang(),
        "exit" => {
            eprintln!("{}", input["stderr"].as_str().unwrap_or("leaving"));
            std::process::exit(i32::try_from(number("code")).unwrap_or(1))
        }
        "daemon" => {
            acts::daemon(input["path"].as_str().unwrap_or_default());
            reply(json!({ "daemon": true }))
        }
        "chatty" => {
            let _ = std::io::stdout().write_all(&vec![b'c'; 1 << 20]);
            let _ = std::io::stderr().write_all(&vec![b'c'; 1 << 20]);
            reply(json!({ "ok": true }))
        }
        "hang" => acts::hang(),
        "flood" => {
            acts::flood(&mut std::io::stdout());
            return;
        }
        "signal" => {
            acts::signal(number("signal"));
            return;
        }
        other => reply(json!({ "no_such_act": other })),
    };
    send(replies, text.as_bytes());
}

fn slots(request: &Value) -> String {
    let content = request["input"].to_string();
    let artifact = json!({
        "type": "echo", "provenance": "misbehave",
        "size_bytes": content.len(), "content_json": content,
    });
    let reply = json!({
        "call": request["call"],
        "output": { "slots": request["slots"] },
        "slots": { "6": artifact },
        "removed_slots": [9],
    });
    format!("{reply}\n")
}

fn send(replies: &mut File, bytes: &[u8]) {
    let _ = replies.write_all(bytes);
}
