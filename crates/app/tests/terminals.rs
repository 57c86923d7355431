//! Terminal sessions over JSON-RPC: what the methods take and give, programs that fill a screen,
//! what holds them. Contract section 4.6, R-11.

use crate::support::drive::Host;
use crate::support::workspace::trusted;
use crate::support::{Folder, callgate, wait_for};
use serde_json::{Value, json};

/// A conversation with `callgate rpc`.
struct Rpc {
    host: Host,
    next: u64,
}

impl Rpc {
    fn new(folder: &Folder) -> Self {
        Self {
            host: Host::spawn(callgate(folder).arg("rpc").env("SHELL", "/bin/bash")),
            next: 0,
        }
    }

    /// The answer, past what is told in between.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let method = format!("terminals/{method}");
        let request =
            json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        assert!(self.host.send(&request));
        loop {
            let answer = self.host.reply();
            if answer["id"] == self.next {
                return answer;
            }
        }
    }

    fn good(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert_eq!(answer.get("error"), None, "{method}");
        answer["result"].clone()
    }

    fn bad(&mut self, method: &str, params: Value) -> i64 {
        let answer = self.ask(method, params);
        answer["error"]["code"].as_i64().expect("an error's code")
    }

    fn create(&mut self, params: Value) -> String {
        let created = self.good("create", params);
        created["session_id"].as_str().expect("an id").to_owned()
    }

    fn write(&mut self, session: &str, data: &str) {
        let written = self.good("write", json!({ "session_id": session, "data": data }));
        assert_eq!(written, json!({ "bytes": data.len() }));
    }

    fn log(&mut self, session: &str) -> String {
        text_of(&self.good("read_logs", json!({ "session_id": session })))
    }

    /// What a terminal of this size shows, once it shows `words`.
    fn screen(&mut self, session: &str, size: (u16, u16), words: &str) -> String {
        wait_for(words, || {
            let mut parser = vt100::Parser::new(size.1, size.0, 0);
            parser.process(self.log(session).as_bytes());
            let shown = parser.screen().contents();
            shown.contains(words).then_some(shown)
        })
    }

    /// Attaches, for the first time: what that shows is what all that was printed until then makes
    /// of a screen of this size, to the colours and the cursor.
    fn attaches(&mut self, session: &str, size: (u16, u16)) {
        self.next += 1;
        let on = json!({ "session_id": session });
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": "terminals/attach",
                              "params": on });
        assert!(self.host.send(&request));
        let (mut shown, mut is_answered) = (None, false);
        while shown.is_none() || !is_answered {
            let mut told = self.host.reply();
            if told["id"] == self.next {
                assert_eq!(told["result"], json!({ "ok": true }));
                is_answered = true;
            } else if told["params"]["session_id"] == session {
                assert_eq!(told["method"], "terminals/stream");
                shown = shown.or(Some(told["params"].take()));
            }
        }
        let shown = shown.expect("the screen");
        let until = shown["timestamp"].as_str().expect("a moment");
        let mut logs = self.good("read_logs", on);
        let lines = logs["logs"].as_array_mut().expect("lines");
        lines.retain(|line| line["ts"].as_str().expect("a moment") <= until);
        let screen = |text: &str| {
            let mut parser = vt100::Parser::new(size.1, size.0, 0);
            parser.process(text.as_bytes());
            parser.screen().clone()
        };
        let (by_log, by_screen) = (
            screen(&text_of(&logs)),
            screen(shown["data"].as_str().expect("text")),
        );
        assert_eq!(by_screen.contents(), by_log.contents());
        assert_eq!(by_screen.state_formatted(), by_log.state_formatted());
        assert!(
            by_screen.contents().lines().count() > 1,
            "something is shown"
        );
    }

    fn listed(&mut self, session: &str) -> Value {
        let all = self.good("list", json!({}));
        let mut all = all["sessions"].as_array().expect("a list").iter();
        let found = all.find(|one| one["session_id"] == session);
        found.expect("it is listed").clone()
    }

    fn until(&mut self, session: &str, status: &str) -> Value {
        wait_for(status, || {
            let listed = self.listed(session);
            (listed["status"] == status).then_some(listed)
        })
    }
}

fn text_of(logs: &Value) -> String {
    let lines = logs["logs"].as_array().expect("lines").iter();
    lines
        .map(|line| line["data"].as_str().expect("text"))
        .collect()
}

/// R-11: an editor, driven by keys and judged by what it shows and what it leaves.
#[test]
fn vim_is_driven() {
    let folder = Folder::new();
    let lines: Vec<String> = (1..=200).map(|number| format!("line {number}")).collect();
    folder.write("notes.txt", &(lines.join("\n") + "\n"));
    let mut rpc = Rpc::new(&folder);
    let args = ["-u", "NONE", "-i", "NONE", "-N", "-n", "notes.txt"];
    let vim = rpc.create(json!({
        "command": "vim", "args": args, "cols": 60, "rows": 12, "attach": false,
    }));
    let size = (60, 12);
    let shown = rpc.screen(&vim, size, "line 11");
    assert!(shown.starts_with("line 1\nline 2\n"), "{shown}");
    rpc.write(&vim, "100Gohello from afar\x1b");
    // All of it: a screen is drawn line by line.
    rpc.screen(&vim, size, "line 100\nhello from afar\nline 101");
    rpc.attaches(&vim, size);
    rpc.write(&vim, ":%s/line/row/\r");
    rpc.screen(&vim, size, "row 200");
    rpc.good(
        "resize",
        json!({ "session_id": vim, "cols": 40, "rows": 6 }),
    );
    rpc.write(&vim, "gg");
    let shown = rpc.screen(&vim, (40, 6), "row 1\nrow 2\nrow 3\nrow 4\nrow 5");
    assert!(!shown.contains("row 7"), "{shown}");
    rpc.write(&vim, ":wq\r");
    rpc.until(&vim, "exited");
    let saved = folder.read("notes.txt").expect("it was saved");
    assert!(saved.starts_with("row 1\n") && saved.contains("row 100\nhello from afar\nrow 101\n"));
}

/// R-11: a pager goes forth and back, finds, and quits.
#[test]
fn less_is_driven() {
    let folder = Folder::new();
    let lines: Vec<String> = (1..=500).map(|number| format!("line {number}")).collect();
    folder.write("long.txt", &(lines.join("\n") + "\n"));
    let mut rpc = Rpc::new(&folder);
    let less = rpc.create(json!({
        "command": "less", "args": ["long.txt"], "rows": 10, "attach": false,
    }));
    let size = (80, 10);
    let shown = rpc.screen(&less, size, "line 9");
    assert!(
        shown.starts_with("line 1\n") && !shown.contains("line 10"),
        "{shown}"
    );
    rpc.write(&less, " ");
    let shown = rpc.screen(&less, size, "line 18");
    assert!(shown.starts_with("line 10\n"), "{shown}");
    rpc.write(&less, "/line 321\r");
    let shown = rpc.screen(&less, size, "line 329");
    assert!(shown.starts_with("line 321\n"), "{shown}");
    rpc.attaches(&less, size);
    rpc.write(&less, "G");
    rpc.screen(&less, size, "line 500");
    rpc.write(&less, "g");
    rpc.screen(&less, size, "line 1\nline 2\n");
    rpc.write(&less, "q");
    rpc.until(&less, "exited");
}

/// R-11: what draws itself anew again and again. It sees its own processes, and no others.
#[test]
fn top_is_driven() {
    let folder = Folder::new();
    let mut rpc = Rpc::new(&folder);
    let top = rpc.create(json!({
        "command": "top", "args": ["-d", "0.2"], "cols": 100, "attach": false,
    }));
    let shown = rpc.screen(&top, (100, 24), "PID USER");
    assert!(
        shown.starts_with("top - ") && shown.contains("Tasks:"),
        "{shown}"
    );
    rpc.attaches(&top, (100, 24));
    // Its help is another screen, and goes again.
    rpc.write(&top, "h");
    rpc.screen(&top, (100, 24), "Help for Interactive Commands");
    rpc.write(&top, "q");
    rpc.screen(&top, (100, 24), "PID USER");
    let before = rpc.log(&top).len();
    wait_for("another round", || {
        (rpc.log(&top).len() > before).then_some(())
    });
    rpc.write(&top, "q");
    rpc.until(&top, "exited");
}

/// G-9, G-9f, P-10: a session has the workspace, cannot change the configuration, cannot read the
/// state, and has no network unless its owner says so, who may have none at all. R-11: those of
/// `callgate rpc` end with it.
#[test]
fn sessions_are_held() {
    // Nobody listens there, which only those are told who may ask.
    let socket = "bash -c ': >/dev/tcp/127.0.0.1/1'";
    let script = format!(
        "cat callgate.toml state/token; echo x >callgate.toml; echo x >made; touch /tmp/made-$$; \
         {socket}; echo done; sleep 600"
    );
    for (config, reaches) in [("", false), ("[terminals]\nnetwork = true\n", true)] {
        let folder = trusted(config);
        let mut rpc = Rpc::new(&folder);
        let made = rpc.good("create", json!({ "command": script, "shell": true }));
        let session = made["session_id"].as_str().expect("an id");
        let log = rpc.screen(session, (80, 24), "done");
        assert_eq!(log.contains("refused"), reaches, "{log}");
        assert_eq!(folder.read("callgate.toml").as_deref(), Some(config));
        assert_eq!(folder.read("made").as_deref(), Some("x\n"));
        // The configuration can be read.
        assert_eq!(log.contains("[terminals]"), !config.is_empty(), "{log}");
        let pid = made["pid"].as_u64().expect("a pid");
        assert!(crate::support::is_alive(u32::try_from(pid).expect("a pid")));
        rpc.host.end();
        wait_for("its end", || {
            (!crate::support::is_alive(u32::try_from(pid).expect("a pid"))).then_some(())
        });
    }
    let without = trusted("[terminals]\noff = true\n");
    let mut rpc = Rpc::new(&without);
    assert_eq!(rpc.bad("list", json!({})), -32601);
}
