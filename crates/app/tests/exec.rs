//! `exec/run` over JSON-RPC and other wires: what it gives, what it refuses, and that nothing is
//! left of what it ran., G-9. Floods and fork bombs are `exec_hard.rs`.

use crate::support::drive::Host;
use crate::support::processes::{forever, gone, started_with};
use crate::support::workspace::{ONE, trusted};
use crate::support::{Folder, callgate, wait_for};
use serde_json::{Value, json};

pub fn rpc(folder: &Folder) -> Host {
    Host::spawn(callgate(folder).arg("rpc"))
}

pub fn ask(host: &mut Host, params: Value) -> Value {
    host.ask(&json!({ "jsonrpc": "2.0", "id": 4, "method": "exec/run", "params": params }))
}

pub fn good(host: &mut Host, params: Value) -> Value {
    let answer = ask(host, params);
    assert_eq!(answer.get("error"), None);
    answer["result"].clone()
}

/// A command of the shell.
pub fn sh(host: &mut Host, command: &str) -> Value {
    good(host, json!({ "command": command, "shell": true }))
}

/// The code, and which field is at fault.
fn bad(host: &mut Host, params: Value) -> (i64, String) {
    let answer = ask(host, params);
    assert_eq!(answer.get("result"), None, "{answer}");
    let error = &answer["error"];
    let field = error["data"]["field"].as_str().unwrap_or_default();
    (error["code"].as_i64().expect("a code"), field.to_owned())
}

/// K-8: a user has 128 instances of inotify, and no program may keep them.
#[test]
fn instances_of_inotify_are_not_to_be_had() {
    let folder = Folder::new();
    let script = "import ctypes, errno\n\
                  libc = ctypes.CDLL(None, use_errno=True)\n\
                  made = [libc.inotify_init(), libc.inotify_init1(0)]\n\
                  print(made, errno.errorcode[ctypes.get_errno()])";
    let params = json!({ "command": "python3", "args": ["-c", script] });
    let result = good(&mut rpc(&folder), params);
    assert_eq!(result["stdout"], "[-1, -1] EPERM\n", "{result}");
}

/// JR-79, JR-166, R-9: the environment is the owner's few variables and the call's, and none
/// decides which code runs.
#[test]
fn the_environment_is_clean() {
    let folder = trusted("[exec]\nenv = [\"PASSED\"]\n");
    let mut host = Host::spawn(
        callgate(&folder)
            .arg("rpc")
            .env("PASSED", "p")
            .env("HIDDEN", "h")
            .env("LD_BIND_NOW", "1"),
    );
    let params = json!({ "command": "env", "env": { "MINE": "m", "LANG": "xx", "PATH": "/none" } });
    let result = good(&mut host, params);
    let text = result["stdout"].as_str().unwrap();
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "MINE", "PASSED", "PATH", "TMPDIR"]);
    for line in ["MINE=m", "LANG=xx", "PASSED=p", "PATH=/none"] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "BASH_ENV",
        "ENV",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "GLIBC_TUNABLES",
        "PERL5OPT",
        "CALLGATE_STATE",
    ] {
        let refused = bad(
            &mut host,
            json!({ "command": "true", "env": { name: "x" } }),
        );
        assert_eq!(refused, (1003, format!("env.{name}")));
    }
    assert_eq!(
        bad(
            &mut host,
            json!({ "command": "true", "env": { "A=B": "x" } })
        )
        .0,
        1003
    );
    assert_eq!(
        bad(
            &mut host,
            json!({ "command": "true", "env": { "A": "\0" } })
        )
        .0,
        1003
    );
}

/// Runs into its timeout, which is long enough for `command` to get to where it has `said`, however
/// busy the machine.
fn late(host: &mut Host, command: &str, said: impl Fn(&Value) -> bool) -> Value {
    let mut ran = [5_000, 20_000, 80_000].into_iter().map(|timeout_ms| {
        let params = json!({ "command": command, "shell": true, "timeout_ms": timeout_ms });
        let result = good(host, params);
        assert_eq!(result["timed_out"], true, "{result}");
        assert!(result["duration_ms"].as_u64() >= Some(timeout_ms));
        result
    });
    ran.find(said)
        .unwrap_or_else(|| panic!("it never came so far: {command}"))
}

/// JR-80, JR-88, R-9: a timeout is a result, with what was printed until then.
#[test]
fn timeouts_are_results() {
    let folder = Folder::new();
    let mut host = rpc(&folder);
    let sleep = forever(987_654);
    let has_begun = |result: &Value| result["stdout"] != "";
    let result = late(&mut host, &format!("echo before; sleep {sleep}"), has_begun);
    assert_eq!(result["stdout"], "before\n");
    assert_eq!(result["exit_code"], 128 + 15);
    // It may clean up.
    let clean = "trap 'echo bye; exit 3' TERM; echo in; while :; do :; done";
    let result = late(&mut host, clean, has_begun);
    assert_eq!(result["stdout"], "in\nbye\n");
    assert_eq!(result["exit_code"], 128 + 15);
    // It may not stay.
    let stay = format!("trap '' TERM; echo in; while :; do sleep {sleep}; done");
    let result = late(&mut host, &stay, has_begun);
    assert_eq!(result["stdout"], "in\n");
    assert_eq!(result["exit_code"], 128 + 9);
    gone(&sleep);
}

/// cancelled, or left by its caller, it ends with its tree.
#[test]
fn who_leaves_takes_it_along() {
    let folder = Folder::new();
    let mut host = rpc(&folder);
    let sleep = format!("sleep {}", forever(876_543));
    let command = format!("({sleep} & echo x; wait)");
    let params = json!({ "command": command, "shell": true });
    host.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "exec/run", "params": params }));
    wait_for("its processes", || {
        (!started_with(&sleep).is_empty()).then_some(())
    });
    host.kill();
    gone(&sleep);
}

/// daemons: ended with the call, which tells what was.
#[test]
fn nothing_is_left_of_daemons() {
    let folder = Folder::new();
    let mut host = rpc(&folder);
    let sleep = format!("sleep {}", forever(765_432));
    let script = format!(
        "echo one; setsid sh -c 'trap \"\" TERM HUP; {sleep}' >/dev/null 2>&1 & \
         setsid {sleep} & exec 1>&-; sleep 0.2; exit 5"
    );
    let result = sh(&mut host, &script);
    assert_eq!(
        (&result["stdout"], &result["exit_code"]),
        (&json!("one\n"), &json!(5))
    );
    assert!(started_with(&sleep).is_empty(), "gone when it is answered");
    // A daemon that holds the streams open does not hold up the answer until the timeout.
    let result = sh(&mut host, &format!("{sleep} & echo x"));
    assert_eq!(
        (&result["stdout"], &result["timed_out"]),
        (&json!("x\n"), &json!(false))
    );
    assert!(started_with(&sleep).is_empty());
    // Closed streams.
    let result = sh(&mut host, "exec 1>&- 2>&-; exit 9");
    assert_eq!(
        (&result["stdout"], &result["exit_code"]),
        (&json!(""), &json!(9))
    );
}

/// G-9b, G-9f: the state is out of its reach; the configuration and the code of tools can be read
/// and not changed.
#[test]
fn the_gate_s_own_is_kept() {
    let folder = trusted(ONE);
    let mut host = rpc(&folder);
    let (config, code) = (folder.read("callgate.toml"), folder.read("tool.sh"));
    let result = sh(
        &mut host,
        "echo x > callgate.toml; rm -f callgate.toml; mv callgate.toml other; echo x > new; \
         mv -f new callgate.toml; chmod 777 callgate.toml; ln callgate.toml linked; \
         echo x > tool.sh; rm -f tool.sh; mv tool.sh other; echo x > state/token; \
         ls state; cat callgate.toml; rm -rf state; echo fine > other; cat tool.sh",
    );
    // Of the state it sees its own home.
    let (shown, script) = (config.as_deref().unwrap(), code.as_deref().unwrap());
    let told = format!("homes\n{shown}{script}");
    assert_eq!(result["stdout"], told, "{result}");
    assert_eq!(
        (folder.read("callgate.toml"), folder.read("tool.sh")),
        (config, code)
    );
    assert_eq!(folder.read("other").as_deref(), Some("fine\n"));
    assert!(folder.read("linked").is_none());
    // The hint is about the file and not the shell that names it.
    let error = sh(&mut host, "echo x > callgate.toml")["stderr"].to_string();
    assert!(error.contains("no program may change it"), "{error}");
    assert!(folder.join("state/head.json").exists() || folder.join("state/journal").exists());
}

/// G-9b, P-10: a script of the workspace brings along nothing that it names.
#[test]
fn a_program_of_the_workspace_opens_nothing() {
    let outside = Folder::new();
    let secret = outside.write("secret", "s3cret").display().to_string();
    let folder = Folder::new();
    folder.executable("x", &format!("#!{secret}\n"));
    let mut host = rpc(&folder);
    ask(&mut host, json!({ "command": "./x" }));
    folder.executable("x", &format!("#!/bin/sh\ncat {secret}\n"));
    let result = good(&mut host, json!({ "command": "./x" }));
    assert_eq!(result["stdout"], "", "{result}");
    assert_ne!(result["exit_code"], 0);
    // Nor does the network answer.
    let result = sh(&mut host, "cat < /dev/tcp/127.0.0.1/1 || echo none");
    assert_eq!(result["stdout"], "none\n");
}

/// P-10: no network unless the owner says so, and then those hosts alone.
#[test]
fn whom_programs_reach() {
    let site = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = site.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for mut stream in site.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
            let _ = stream.write_all(answer);
        }
    });
    let get = |host: &str| {
        let code = format!(
            "import urllib.request as u; print(u.urlopen('http://{host}:{port}/', timeout=30).read())"
        );
        let python = crate::support::drive::python();
        let python = python.rsplit('/').next().unwrap().to_owned();
        json!({ "command": python, "args": ["-c", code] })
    };
    for (network, hosts) in [
        ("", [false, false]),
        ("network = true", [true, true]),
        ("network = { allow = [\"localhost:PORT\"] }", [true, false]),
    ] {
        let network = network.replace("PORT", &port.to_string());
        let folder = trusted(&format!("[exec]\n{network}\n"));
        let mut host = rpc(&folder);
        for (name, reached) in ["localhost", "127.0.0.2"].into_iter().zip(hosts) {
            let result = good(&mut host, get(name));
            let said = result["stdout"] == "b'hello'\n";
            assert_eq!(said, reached, "{network} {name}: {result}");
        }
    }
}

/// JR-83, R-10: chunks come before the answer, in their order, to whoever asked; the answer has
/// all of it again.
#[test]
fn streams_while_it_runs() {
    let folder = trusted("[secrets]\nenv = [\"TOKEN\"]\n");
    let mut host = Host::spawn(callgate(&folder).arg("rpc").env("TOKEN", "s3cret-value"));
    let script = "printf 'caf\\303'; sleep 0.3; printf '\\251 s3cret'; sleep 0.3; \
        echo -n -value; echo err >&2; while [ ! -e go ]; do sleep 0.02; done; echo end";
    let params = json!({ "command": script, "shell": true, "stream": true });
    host.send(&json!({ "jsonrpc": "2.0", "id": "r-7", "method": "exec/run", "params": params }));
    let (mut told, mut seq) = ([String::new(), String::new()], 0);
    let answer = loop {
        let line = host.reply();
        if line.get("id").is_some() {
            break line;
        }
        assert_eq!(line["method"], "exec/stream", "{line}");
        let params = &line["params"];
        assert_eq!(
            (&params["request_id"], &params["seq"]),
            (&json!("r-7"), &json!(seq))
        );
        assert!(
            params["timestamp"]
                .as_str()
                .is_some_and(|at| at.ends_with('Z'))
        );
        assert_eq!(params.as_object().map(serde_json::Map::len), Some(5));
        seq += 1;
        let stream = usize::from(params["stream"] == "stderr");
        told[stream].push_str(params["data"].as_str().unwrap());
        if told[0].ends_with("[secret]") && told[1] == "err\n" {
            // It was told while it ran: it waits for this.
            folder.write("go", "");
        }
    };
    assert_eq!(answer["id"], "r-7");
    assert_eq!(told, ["café [secret]end\n", "err\n"]);
    assert_eq!(answer["result"]["stdout"], told[0]);
    assert_eq!(answer["result"]["stderr"], told[1]);
    // Nobody who did not ask is told.
    let result = sh(&mut host, "echo quiet");
    assert_eq!(result["stdout"], "quiet\n");
}
