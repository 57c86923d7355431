//! `callgate term`, driven on a real terminal, and sessions of a running gate: they outlive who
//! started them and end with the gate. R-11.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use crate::support::drive::{PATIENCE, Serve, cli, signal};
use crate::support::person::Person;
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
    let listed = cli(&folder, &["term", "ls"]).good().out;
    assert!(
        listed.contains(&session) && listed.contains("exited"),
        "{listed}"
    );
    assert!(serve.stop().success());
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
    person.sees("line 50");
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
