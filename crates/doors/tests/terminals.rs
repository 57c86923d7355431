//! Terminal sessions over JSON-RPC: what the methods take and give. Programs that fill a screen, and
//! what holds them, are tested with the program. Contract section 4.6, R-11.

use std::ffi::OsStr;

use callgate_testing::wait_for;
use serde_json::{Value, json};

use crate::support::host::Host;
use callgate_testing_workspace::{Folder, Opened, environment};

/// A conversation with `callgate rpc`.
struct Rpc {
    host: Host,
    next: u64,
}

impl Rpc {
    fn new(folder: &Folder) -> Self {
        Self {
            host: {
                let shell = ("SHELL", OsStr::new("/bin/bash"));
                let environment = environment(folder, &[shell]);
                Host::rpc_of(Opened::in_environment(folder, &environment))
            },
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

fn is_moment(value: &Value) -> bool {
    let text = value.as_str().expect("a moment");
    text.len() >= 24 && text.as_bytes()[10] == b'T' && text.ends_with('Z')
}

/// JR-113, JR-114, JR-115, JR-116, JR-117, JR-118, JR-119, JR-120, JR-121, JR-123, JR-124,
/// JR-125, JR-126, JR-127: a session is made as it is asked for.
#[test]
fn making_sessions() {
    let folder = Folder::new();
    folder.write("sub/here", "");
    let mut rpc = Rpc::new(&folder);
    let made = rpc.good(
        "create",
        json!({
            "name": "build", "cwd": "sub", "env": { "GREETING": "hello there" },
            "command": "bash", "args": ["-c", "ls; echo $GREETING; stty size; echo $1; read x", "_", "a b"],
            "shell": false, "cols": 100, "rows": 30, "attach": true,
        }),
    );
    assert_eq!(
        (&made["name"], &made["cwd"]),
        (&json!("build"), &json!("sub"))
    );
    assert!(made["pid"].as_u64().expect("a pid") > 1 && is_moment(&made["started_at"]));
    let session = made["session_id"].as_str().expect("an id").to_owned();
    let shown = rpc.screen(&session, (100, 30), "a b");
    assert_eq!(shown, "here\nhello there\n30 100\na b");
    rpc.write(&session, "\n");
    rpc.until(&session, "exited");
    // What is not said, or null, is as usual: the user's shell, 80 by 24, the workspace.
    let nothing = json!({
        "name": null, "cwd": null, "env": {}, "command": null, "args": [], "cols": null,
        "rows": null,
    });
    let made = rpc.good("create", nothing);
    assert_eq!((&made["name"], &made["cwd"]), (&Value::Null, &json!(".")));
    let shell = made["session_id"].as_str().expect("an id").to_owned();
    rpc.write(&shell, "echo $0 $TERM; stty size; pwd; exit 3\n");
    rpc.until(&shell, "exited");
    let log = rpc.log(&shell);
    let workspace = folder.path().display();
    for words in [
        "/bin/bash xterm-256color\r\n",
        "24 80\r\n",
        &format!("{workspace}\r\n"),
    ] {
        assert!(log.contains(words), "{words:?} in {log:?}");
    }
    let through = json!({ "command": "echo $((6 * 7)) $1", "args": ["x"], "shell": true });
    let through = rpc.create(through);
    rpc.until(&through, "exited");
    assert_eq!(rpc.log(&through), "42 x\r\n");
}

/// JR-128, JR-129, JR-130, JR-132, JR-133, JR-134, JR-135, JR-136, JR-137, JR-138, R-11: typing,
/// sizes, signals, and how sessions are listed.
#[test]
fn living_and_ending() {
    let folder = Folder::new();
    let mut rpc = Rpc::new(&folder);
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done";
    let first = rpc.create(json!({ "name": "one", "command": script, "shell": true }));
    rpc.screen(&first, (80, 24), "ready");
    let resize = json!({ "session_id": first, "cols": 132, "rows": 43 });
    assert_eq!(rpc.good("resize", resize), json!({ "ok": true }));
    rpc.screen(&first, (132, 43), "43 132");
    let listed = rpc.listed(&first);
    assert_eq!(
        (
            &listed["name"],
            &listed["cwd"],
            &listed["status"],
            &listed["ended_at"]
        ),
        (&json!("one"), &json!("."), &json!("running"), &Value::Null)
    );
    // Bytes, not characters.
    let cat = rpc.create(json!({ "command": "cat" }));
    let write = json!({ "session_id": cat, "data": "é€𝄞\n" });
    assert_eq!(rpc.good("write", write), json!({ "bytes": 10 }));
    rpc.screen(&cat, (80, 24), "é€𝄞\né€𝄞");
    // A shell at its prompt ends by what is usual.
    let shell = rpc.create(json!({}));
    rpc.write(&shell, "echo rea''dy\n");
    rpc.screen(&shell, (80, 24), "ready");
    for (session, signal, status) in [
        (&first, json!("SIGKILL"), "killed"),
        (&cat, json!("SIGHUP"), "exited"),
        (&shell, Value::Null, "exited"),
    ] {
        let kill = json!({ "session_id": session, "signal": signal });
        assert_eq!(rpc.good("kill", kill.clone()), json!({ "ok": true }));
        let listed = rpc.until(session, status);
        assert!(is_moment(&listed["started_at"]) && is_moment(&listed["ended_at"]));
        assert!(listed["ended_at"].as_str() >= listed["started_at"].as_str());
        assert_eq!(rpc.good("kill", kill), json!({ "ok": false }));
        let resize = json!({ "session_id": session, "cols": 9, "rows": 9 });
        assert_eq!(rpc.good("resize", resize), json!({ "ok": false }));
        let attach = json!({ "session_id": session });
        assert_eq!(rpc.good("attach", attach), json!({ "ok": false }));
    }
    let plain = json!({ "command": "sh", "args": ["-c", "kill -9 $$"] });
    let plain = rpc.create(plain);
    // Not by us.
    rpc.until(&plain, "exited");
    let all = rpc.good("list", json!({}));
    let all = all["sessions"].as_array().expect("a list").iter();
    let order: Vec<&Value> = all.map(|one| &one["session_id"]).collect();
    assert_eq!(
        order,
        [&json!(first), &json!(cat), &json!(shell), &json!(plain)]
    );
}

/// JR-139, JR-140, JR-141, JR-142, R-11: lines with times that only rise, from any of them on,
/// and the last ones.
#[test]
fn reading_logs() {
    let folder = Folder::new();
    let mut rpc = Rpc::new(&folder);
    let session = rpc.create(json!({ "command": "seq 1 2000; printf end", "shell": true }));
    rpc.until(&session, "exited");
    let all = rpc.good("read_logs", json!({ "session_id": session }));
    let lines = all["logs"].as_array().expect("lines").clone();
    // A line that was not read at once is as many entries.
    assert!(lines.len() >= 2001);
    let printed: String = (1..=2000).map(|number| format!("{number}\r\n")).collect();
    assert_eq!(text_of(&all), printed + "end");
    let whole = |line: &Value| {
        line["data"]
            .as_str()
            .is_some_and(|text| text.ends_with('\n'))
    };
    let whole = lines.iter().find(|line| whole(line)).expect("a line");
    assert_eq!(
        *whole,
        json!({ "ts": whole["ts"], "stream": "stdout", "data": whole["data"] })
    );
    let times: Vec<&str> = lines
        .iter()
        .map(|line| line["ts"].as_str().expect("ts"))
        .collect();
    assert!(times.windows(2).all(|two| two[0] < two[1]));
    assert!(times.iter().all(|time| time.len() == times[0].len()));
    let last = lines.len() - 1;
    for at in [0, 999, last - 1, last] {
        let rest = json!({ "session_id": session, "since_ts": times[at] });
        let rest = rpc.good("read_logs", rest);
        assert_eq!(
            rest["logs"].as_array().expect("lines").as_slice(),
            &lines[at + 1..]
        );
    }
    for (limit, wanted) in [
        (json!(1), 1),
        (json!(3), 3),
        (json!(-1), lines.len()),
        (json!(0), lines.len()),
        (Value::Null, lines.len()),
    ] {
        let ask = json!({ "session_id": session, "since_ts": null, "limit_lines": limit });
        let got = rpc.good("read_logs", ask);
        let got = got["logs"].as_array().expect("lines");
        assert_eq!(got[..], lines[lines.len() - wanted..], "{limit}");
    }
    let both = json!({ "session_id": session, "since_ts": times[last - 2], "limit_lines": 1 });
    assert_eq!(text_of(&rpc.good("read_logs", both)), "end");
    let wrong = json!({ "session_id": session, "since_ts": "yesterday" });
    assert_eq!(rpc.bad("read_logs", wrong), 1003);
}

/// JR-145, R-11: 1001 for a session that is not, 1002 and 1003 for what may not or can not be,
/// 1006 for one that has ended; -32602 for what the closed schemas do not have.
#[test]
fn faults_have_their_codes() {
    let folder = Folder::new();
    folder.write("plain", "no program");
    let mut rpc = Rpc::new(&folder);
    let on = |more: Value| {
        let mut params = more;
        params["session_id"] = json!("none");
        params
    };
    for (method, params) in [
        ("write", on(json!({ "data": "" }))),
        ("resize", on(json!({ "cols": 1, "rows": 1 }))),
        ("kill", on(json!({}))),
        ("attach", on(json!({}))),
        ("read_logs", on(json!({}))),
    ] {
        assert_eq!(rpc.bad(method, params.clone()), 1001, "{method}");
        let mut more = params.clone();
        more["more"] = json!(1);
        assert_eq!(rpc.bad(method, more), -32602, "{method}");
        let mut less = params;
        less.as_object_mut()
            .expect("an object")
            .remove("session_id");
        assert_eq!(rpc.bad(method, less), -32602, "{method}");
    }
    for (params, code) in [
        (json!({ "cwd": "/" }), 1003),
        (json!({ "command": "no-such-program" }), 1003),
        (json!({ "command": "./plain" }), 1002),
        (json!({ "env": { "LD_PRELOAD": "x" } }), 1003),
        (json!({ "cols": "80" }), -32602),
        (json!({ "env": { "A": 1 } }), -32602),
        (json!({ "more": 1 }), -32602),
    ] {
        assert_eq!(rpc.bad("create", params.clone()), code, "{params}");
    }
    assert_eq!(rpc.bad("list", json!({ "more": 1 })), -32602);
    let session = rpc.create(json!({ "command": "true" }));
    rpc.until(&session, "exited");
    assert_eq!(
        rpc.bad("write", json!({ "session_id": session, "data": "x" })),
        1006
    );
    let wrong = json!({ "session_id": session, "signal": "SIGINT" });
    assert_eq!(rpc.bad("kill", wrong), -32602);
}
