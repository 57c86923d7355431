//! `callgate term`, driven on a real terminal, and sessions of a running gate: they outlive who
//! started them and end with the gate. R-11.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use crate::support::arena::side_by_side;
use crate::support::drive::{PATIENCE, Serve, cli, signal};
use crate::support::mcp::serve_http;
use crate::support::person::Person;
use crate::support::processes::{forever, gone};
use crate::support::rpc::{Client, Line, rpc};
use crate::support::workspace::trusted;
use crate::support::{Folder, wait_for};
use callgate_sandbox::{Terminal, TerminalSize};
use rustix::process::Signal;
use serde_json::{Value, json};

fn text_of(logs: &Value) -> String {
    let lines = logs["logs"].as_array().expect("lines").iter();
    lines
        .map(|line| line["data"].as_str().expect("text"))
        .collect()
}

fn call(serve: &Serve, method: &str, input: Value) -> Value {
    let tool = format!("terminals/{method}");
    let answer = serve.call(&json!({ "tool": tool, "input": input }));
    assert_eq!(answer["ok"], true, "{answer}");
    answer["output"].clone()
}

/// R-11: a person attaches, types, changes the size of the window and detaches; the session goes
/// on, and its end is told by the exit code. The terminal is as it was on every way out.
#[test]
fn attaching_at_a_terminal() {
    let folder = Folder::new();
    let serve = Serve::start(&folder);
    let new = cli(
        &folder,
        &["term", "new", "--name", "work", "--", "bash", "--norc"],
    )
    .good();
    let session = new.out.trim().to_owned();
    let mut person = Person::start(&folder, &["term", "attach", "work"]);
    person.sees("bash-");
    let settings = {
        let (_master, fresh) = Terminal::open(TerminalSize { cols: 1, rows: 1 }).expect("another");
        format!(
            "{:?}",
            rustix::termios::tcgetattr(&fresh).expect("settings")
        )
    };
    assert_ne!(person.settings(), settings, "every key is the session's");
    person.types("stty size; echo $((6*7))é\r");
    let shown = person.sees("42é");
    assert!(shown.contains("15 70"), "{shown}");
    person.resize(90, 20);
    let mut round = 0;
    wait_for("the new size", || {
        // Asked again now and then, for the keys may be quicker than the size; not more often than
        // the session can answer.
        if round % 100 == 0 {
            person.types("\x15stty size\r");
        }
        round += 1;
        person.look();
        person
            .seen
            .screen()
            .contents()
            .contains("20 90")
            .then_some(())
    });
    // A full-screen program is left behind as it is.
    person.types("\x15less /etc/passwd\r");
    person.sees("root:");
    person.types("\x1d");
    let (code, all) = person.ended(&settings);
    assert_eq!(code, Some(0), "{all:?}");
    assert!(all.contains("detached from"), "{all:?}");
    // Who comes back sees it at once. Another key, and a signal instead of a key.
    let args = [
        "term",
        "attach",
        &session[..session.len() - 1],
        "--detach-key",
        "ctrl-a",
    ];
    let mut person = Person::start(&folder, &args);
    person.sees("root:");
    signal(person.child.id(), Signal::TERM);
    let (code, _) = person.ended(&settings);
    assert_eq!(code, Some(1));
    let mut person = Person::start(&folder, &args);
    person.sees("root:");
    person.types("q");
    person.sees("bash-");
    person.types("exit 9\r");
    let (code, all) = person.ended(&settings);
    assert_eq!(code, Some(9), "{all:?}");
    // Who comes too late is told how it ended.
    for word in ["work", &session] {
        let person = Person::start(&folder, &["term", "attach", word]);
        let (code, all) = person.ended(&settings);
        assert_eq!(code, Some(1), "{all:?}");
        let words = format!("{session} has ended with exit code 9");
        // A terminal of 70 columns.
        let all = all.replace("\r\n", "");
        assert!(all.contains(&words) && all.contains("read_logs"), "{all:?}");
    }
    let listed = cli(&folder, &["term", "ls"]).good().out;
    assert!(
        listed.contains(&session) && listed.contains("exited"),
        "{listed}"
    );
    assert!(serve.stop().success());
}

/// `callgate term` for those who have no terminal, or no gate.
#[test]
fn people_list_and_end_sessions() {
    let folder = Folder::new();
    let none = cli(&folder, &["term", "ls"]);
    assert_eq!(none.code(), 1);
    assert!(none.err.contains("start `callgate serve`"), "{}", none.err);
    let _serve = Serve::start(&folder);
    let empty = cli(&folder, &["term", "ls"]).good();
    assert!(empty.out.is_empty() && empty.err.contains("no terminal sessions"));
    let new = ["term", "new", "--json", "--", "sleep", "600"];
    let made = cli(&folder, &new).good().json();
    let session = made["session_id"].as_str().expect("an id");
    let listed = cli(&folder, &["term", "ls", "--json"]).good().json();
    assert_eq!(listed["sessions"][0]["session_id"], session);
    let blind = cli(&folder, &["term", "attach", session]);
    assert_eq!(blind.code(), 1);
    assert!(blind.err.contains("needs a terminal"), "{}", blind.err);
    cli(&folder, &["term", "kill", session, "--signal", "SIGKILL"]).good();
    wait_for("its end", || {
        let listed = cli(&folder, &["term", "ls", "--json"]).good().json();
        (listed["sessions"][0]["status"] == "killed").then_some(())
    });
    assert_eq!(cli(&folder, &["term", "kill", session]).code(), 1);
    let unknown = cli(&folder, &["term", "kill", "nobody"]);
    assert!(unknown.err.contains("no session nobody"), "{}", unknown.err);
}

/// The events of a session, a line each.
struct Viewer(BufReader<UnixStream>);

impl Viewer {
    fn attach(serve: &Serve, session: &str) -> Self {
        let mut stream = UnixStream::connect(&serve.socket).expect("the gate");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET /v1/terminals/{session} HTTP/1.0\r\nhost: gate\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("ask");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert_ne!(reader.read_line(&mut line).expect("a head"), 0);
        }
        Self(reader)
    }

    fn next(&mut self) -> (String, Value) {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an event");
        let mut event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        let method = event["method"].as_str().expect("a method").to_owned();
        (method, event["params"].take())
    }
}

/// R-11: the client that made a session is killed; another finds the whole screen and every line,
/// and those who attach after see the same. Another configuration changes nothing for it.
#[test]
fn a_session_survives_its_client() {
    let folder = Folder::new();
    let serve = Serve::start(&folder);
    let script = "for i in $(seq 1 3000); do echo line $i; [ $((i % 100)) = 0 ] && sleep 0.05; done; read x; echo over";
    let args = [
        "term", "new", "--name", "s", "--attach", "--", "sh", "-c", script,
    ];
    let mut person = Person::start(&folder, &args);
    // Any of them: under load the screen has scrolled past one by the time it is looked at.
    person.sees("line ");
    drop(person);
    let listed = call(&serve, "list", json!({}));
    let session = listed["sessions"][0]["session_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    folder.write("callgate.toml", "[terminals]\nnetwork = true\n");
    cli(&folder, &["trust"]).good();
    let mut early = Viewer::attach(&serve, &session);
    let on = json!({ "session_id": session });
    wait_for("its last line", || {
        let log = text_of(&call(&serve, "read_logs", on.clone()));
        log.contains("line 3000\r\n").then_some(())
    });
    let log = text_of(&call(&serve, "read_logs", on));
    let wanted: String = (1..=3000)
        .map(|number| format!("line {number}\r\n"))
        .collect();
    assert_eq!(log, wanted);
    let mut late = Viewer::attach(&serve, &session);
    call(
        &serve,
        "write",
        json!({ "session_id": session, "data": "\n" }),
    );
    let screens = [&mut early, &mut late].map(|viewer| {
        let mut parser = vt100::Parser::new(15, 70, 0);
        loop {
            match viewer.next() {
                (method, params) if method == "terminals/stream" => {
                    parser.process(params["data"].as_str().expect("text").as_bytes());
                }
                (method, params) => {
                    assert_eq!(
                        (method.as_str(), &params["code"]),
                        ("terminals/exit", &json!(0))
                    );
                    return parser.screen().contents();
                }
            }
        }
    });
    assert_eq!(screens[0], screens[1]);
    assert!(screens[0].contains("line 3000\n\nover"), "{}", screens[0]);
    assert!(serve.stop().success());
}

/// R-11: a client is killed in the middle of what its session prints, and another attaches by the
/// contract in the middle of it again. The log has all that was printed; what is shown first is what
/// all until then makes of a screen, and what follows is all that comes after.
#[test]
fn another_client_attaches_in_the_middle() {
    let folder = Folder::new();
    let serve = Serve::start(&folder);
    let mut first = rpc(&folder);
    // It stops where it must not be over yet, until it is let go on.
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); \
        printf '\\033[3%dmline %d\\033[m\\n' $((i % 8)) $i; \
        case $i in 1000|2000) while [ ! -e go-$i ]; do sleep 0.02; done ;; *50) sleep 0.01 ;; esac; \
        done; read x; echo over";
    let printed: String = (1..=3000)
        .map(|i| format!("\x1b[3{}mline {i}\x1b[m\r\n", i % 8))
        .collect();
    let params = json!({ "command": script, "shell": true });
    let session = first.good("terminals/create", params)["session_id"].clone();
    let mut heard = String::new();
    while !heard.contains("line 100\x1b") {
        heard.push_str(data_of(&first.event()));
    }
    let Line::Pipes(host) = &first.line else {
        panic!("it has pipes")
    };
    signal(host.pid(), Signal::KILL);
    drop(first);
    assert!(printed.starts_with(&heard));
    let on = json!({ "session_id": session });
    let mut second = rpc(&folder);
    let log = text_of(&second.good("terminals/read_logs", on.clone()));
    assert!(log.starts_with(&heard) && printed.starts_with(&log));
    assert!(!log.contains("line 1001\x1b"), "it is in the middle");
    folder.write("go-1000", "");
    wait_for("more of it", || {
        let log = text_of(&second.good("terminals/read_logs", on.clone()));
        log.contains("line 1200\x1b").then_some(())
    });
    let attached = second.good("terminals/attach", on.clone());
    assert_eq!(attached, json!({ "ok": true }));
    folder.write("go-2000", "");
    let shown = second.event()["params"].take();
    let mut after = String::new();
    let mut typed = false;
    let exit = loop {
        let mut event = second.event();
        if event["method"] == "terminals/exit" {
            break event["params"].take();
        }
        assert_eq!(event["method"], "terminals/stream", "{event}");
        after.push_str(data_of(&event));
        if !typed && after.contains("line 3000\x1b") {
            let enter = json!({ "session_id": session, "data": "\n" });
            second.good("terminals/write", enter);
            typed = true;
        }
    };
    assert_eq!((&exit["session_id"], &exit["code"]), (&session, &json!(0)));
    let mut logs = second.good("terminals/read_logs", on);
    assert_eq!(text_of(&logs), printed + "\r\nover\r\n");
    let until = shown["timestamp"].as_str().expect("a moment").to_owned();
    let lines = logs["logs"].as_array_mut().expect("lines");
    let is_later = |line: &mut Value| line["ts"].as_str().expect("a moment") > until.as_str();
    let later: Vec<Value> = lines.extract_if(.., is_later).collect();
    assert_eq!(after, text_of(&json!({ "logs": later })));
    let before = text_of(&logs);
    assert!(before.contains("line 1200\x1b") && !before.contains("line 2001\x1b"));
    let [by_log, by_screen] = [&before, shown["data"].as_str().expect("text")].map(|text| {
        let mut parser = vt100::Parser::new(24, 80, 0);
        parser.process(text.as_bytes());
        let screen = parser.screen();
        (screen.contents(), screen.state_formatted())
    });
    assert_eq!(by_screen, by_log);
    assert!(second.end());
    assert!(serve.stop().success());
}

fn data_of(event: &Value) -> &str {
    event["params"]["data"].as_str().unwrap_or_default()
}

/// R-11: two hundred sessions at once, asked for side by side: each is itself, whoever else types or
/// prints, and once they are killed nothing is left of them.
#[test]
fn two_hundred_at_once() {
    const CLIENTS: usize = 4;
    const EACH: usize = 50;
    let folder = trusted("[leases]\nenforce_from_tier = 3\n");
    let (serve, port) = serve_http(&folder);
    let word = forever(543_210);
    let script = format!("echo \"I am $1.\"; read x; echo \"got $x.\"; exec sleep {word}");
    let greeting = |client: usize, n: usize| format!("I am {client}-{n}.\r\n");
    let made = side_by_side((0..CLIENTS).collect(), |number| {
        let mut client = Client::ws(port);
        let create = |n: usize| {
            let params =
                json!({ "command": script, "shell": true, "args": [format!("{number}-{n}")] });
            client.send("terminals/create", params)
        };
        let asked: Vec<u64> = (0..EACH).map(create).collect();
        let created = |id: u64| {
            let answer = client.answer(id);
            let session = answer["result"]["session_id"].as_str();
            session.unwrap_or_else(|| panic!("{answer}")).to_owned()
        };
        let sessions: Vec<String> = asked.into_iter().map(created).collect();
        let mut heard = HashMap::new();
        hear_until(&mut client, &mut heard, EACH, ".\r\n");
        for (n, session) in sessions.iter().enumerate() {
            assert_eq!(heard[session], greeting(number, n));
        }
        (number, client, sessions, heard)
    });
    let listed = call(&serve, "list", json!({}));
    let listed = listed["sessions"].as_array().expect("a list");
    let running = listed.iter().filter(|one| one["status"] == "running");
    assert_eq!(running.count(), CLIENTS * EACH);
    side_by_side(made, |(number, mut client, sessions, mut heard)| {
        for (n, session) in sessions.iter().enumerate() {
            let data = format!("{n} to you\n");
            let write = json!({ "session_id": session, "data": data });
            let written = client.good("terminals/write", write);
            assert_eq!(written, json!({ "bytes": data.len() }));
        }
        hear_until(&mut client, &mut heard, EACH, " to you.\r\n");
        for (n, session) in sessions.iter().enumerate() {
            let said = greeting(number, n) + &format!("{n} to you\r\ngot {n} to you.\r\n");
            let log = client.good("terminals/read_logs", json!({ "session_id": session }));
            assert_eq!((text_of(&log), &heard[session]), (said.clone(), &said));
            let kill = json!({ "session_id": session, "signal": "SIGKILL" });
            assert_eq!(client.good("terminals/kill", kill), json!({ "ok": true }));
        }
        let mut left: HashSet<&str> = sessions.iter().map(String::as_str).collect();
        while !left.is_empty() {
            let event = client.event();
            let exit = &event["params"];
            assert_eq!(
                (&event["method"], &exit["signal"]),
                (&json!("terminals/exit"), &json!("SIGKILL"))
            );
            assert!(
                left.remove(exit["session_id"].as_str().expect("an id")),
                "{event}"
            );
        }
    });
    gone(&word);
    let listed = call(&serve, "list", json!({}));
    let listed = listed["sessions"].as_array().expect("a list");
    assert!(listed.iter().all(|one| one["status"] == "killed"));
    assert!(serve.stop().success());
}

/// Hears what sessions print until what `count` of them have printed ends so.
fn hear_until(client: &mut Client, heard: &mut HashMap<String, String>, count: usize, end: &str) {
    while heard.values().filter(|text| text.ends_with(end)).count() < count {
        let event = client.event();
        assert_eq!(event["method"], "terminals/stream", "{event}");
        let session = event["params"]["session_id"].as_str().expect("an id");
        let text = heard.entry(session.to_owned()).or_default();
        text.push_str(data_of(&event));
    }
}

/// P-7: nothing of a session outlives its gate, whether that is stopped or killed.
#[test]
fn sessions_end_with_their_gate() {
    let folder = Folder::new();
    for stopped in [true, false] {
        let serve = Serve::start(&folder);
        let script = "setsid sleep 601 & sleep 602";
        let input = json!({ "command": script, "shell": true });
        let made = call(&serve, "create", input);
        let pid = u32::try_from(made["pid"].as_u64().expect("a pid")).expect("a pid");
        let all = wait_for("its processes", || {
            let all = crate::support::processes::descendants(pid);
            (all.len() == 2).then_some(all)
        });
        if stopped {
            assert!(serve.stop().success());
        } else {
            serve.kill();
        }
        wait_for("their end", || {
            let gone = |pid: &u32| !crate::support::is_alive(*pid);
            (gone(&pid) && all.iter().all(gone)).then_some(())
        });
    }
}
