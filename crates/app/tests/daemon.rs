//! The daemon: whom it serves, that there is one for a socket, and how it ends.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::drive::{Serve, chain, cli, python, run, run_with, verified};
use crate::support::mcp::initialize;
use crate::support::processes::{peak_kib, resident_bytes};
use crate::support::workspace::{
    HANGS, ONE, SLOW, builtins, effects, started, trusted, trusted_with, workspace,
};
use crate::support::{callgate, wait_for};
use serde_json::{Value, json};

/// S-17: bytes that a killed process left and nobody tells of go at the start, once they are a
/// day old; bytes on their way to be an artifact whatever their age.
#[test]
fn orphans_go_at_the_start() {
    let folder = trusted(ONE);
    let put = |path: &str, hours: u64| {
        let path = folder.join("state").join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("make it");
        let file = std::fs::File::create(&path).expect("make it");
        let age = std::time::Duration::from_secs(hours * 3600);
        let then = std::time::SystemTime::now() - age;
        file.set_modified(then).expect("make it old");
        path
    };
    let old = put(&format!("artifacts/aa/{}", "aa".repeat(32)), 25);
    let young = put(&format!("artifacts/bb/{}", "bb".repeat(32)), 23);
    let incoming = put("incoming/0123456789abcdef/0", 0);
    let serve = Serve::start(&folder);
    wait_for("the collection", || {
        (!old.exists() && !incoming.exists()).then_some(())
    });
    assert!(serve.stop().success());
    assert!(young.exists());
}

/// What only the start needed does not stay resident, and what is needed comes back.
#[test]
fn a_start_is_let_go_of() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    wait_for("less to be resident", || {
        let resident = resident_bytes(serve.pid()) / 1024;
        (resident < peak_kib(serve.pid()) * 4 / 5).then_some(())
    });
    serve.call(&json!({ "tool": "one", "input": {} }));
    assert!(serve.stop().success());
}

/// G-11: the caller is `uid:N` on every wire of one user.
#[test]
fn the_caller_is_the_uid() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    serve.call(&json!({ "tool": "one", "input": {} }));
    cli(&folder, &["call", "one"]).good();
    cli(&folder, &["call", "one", "--standalone"]).good();
    run_with(
        callgate(&folder).args(["tool_exec", "AID.TEST.ONE.v1"]),
        b"{}",
    )
    .good();
    run_with(
        callgate(&folder).args(["toolhost", "--run", ".", "AID.TEST.ONE.v1"]),
        b"{}",
    )
    .good();
    assert!(serve.stop().success());
    let us = format!("uid:{}", rustix::process::geteuid().as_raw());
    let records = chain(&folder);
    let starts: Vec<&Value> = records
        .iter()
        .filter(|record| record["kind"] == "start")
        .collect();
    assert_eq!(starts.len(), 5);
    assert!(
        starts.iter().all(|start| start["caller"] == us),
        "{starts:?}"
    );
}

/// G-10b: the socket is the owner's alone, and a peer of another uid is closed unread.
#[test]
fn another_user_is_not_served() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let mode = std::fs::metadata(&serve.socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let state = std::fs::metadata(folder.join("state"))
        .expect("the state")
        .permissions()
        .mode();
    assert_eq!(state & 0o777, 0o700);
    // Only root can be a second user; anybody else's tests of `doors` hold the listener to a
    // number that is not theirs.
    if rustix::process::geteuid().is_root() {
        let uid = crate::support::unused_uid().to_string();
        // Even where the modes would let it in.
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        };
        open(&folder.join("state"), 0o755);
        open(&serve.socket, 0o777);
        let script = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
uid = int(sys.argv[1])
if uid: os.setgroups([]); os.setgid(uid); os.setuid(uid)
s.connect(sys.argv[2])
answer = b""
try:
    s.sendall(b"GET /v1/health HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n")
    while True:
        more = s.recv(4096)
        if not more: break
        answer += more
except (BrokenPipeError, ConnectionResetError):
    pass
print(len(answer))
"#;
        let answer = |uid: &str| {
            let mut command = Command::new(python());
            run(command.args(["-c", script, uid]).arg(&serve.socket))
                .good()
                .out
        };
        assert_eq!(answer(&uid).trim(), "0");
        assert_ne!(answer("0").trim(), "0");
    }
    assert_eq!(serve.get("/v1/health").1["ok"], true);
    assert!(serve.stop().success());
}

/// One gate for a socket: a second one refuses and says so; after a SIGKILL the next one takes
/// the place; SIGTERM ends it in order, with the socket gone and a head signed.
#[test]
fn one_gate_and_its_end() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let second = cli(&folder, &["serve"]);
    assert_eq!(second.code(), 1);
    assert!(
        second.err.contains("another `callgate serve`"),
        "{}",
        second.err
    );
    assert!(
        second.err.contains("--socket"),
        "it says what to do: {}",
        second.err
    );
    assert_eq!(
        serve.get("/v1/health").1["ok"],
        true,
        "the first is as before"
    );
    let beside = folder.join("beside.sock");
    let mut command = callgate(&folder);
    let third = Serve::spawn(
        command.args(["serve", "--socket"]).arg(&beside),
        beside.clone(),
    );
    assert_eq!(
        third.call(&json!({ "tool": "one", "input": {} }))["ok"],
        true
    );
    // A socket of its own, though but for their endings their names are the same.
    let other = folder.join("beside.other");
    let mut command = callgate(&folder);
    let fourth = Serve::spawn(
        command.args(["serve", "--socket"]).arg(&other),
        other.clone(),
    );
    assert_eq!(fourth.get("/v1/health").1["ok"], true);
    assert!(fourth.stop().success());
    assert!(third.stop().success());
    assert!(!beside.exists());

    let socket = serve.socket.clone();
    serve.kill();
    assert!(socket.exists(), "a killed gate leaves its socket");
    assert_eq!(
        cli(&folder, &["call", "one"]).good().json(),
        json!({ "got": {} }),
        "stands alone"
    );
    let serve = Serve::start(&folder);
    serve.call(&json!({ "tool": "one", "input": {} }));
    for words in [
        &*format!("serves {} tools", builtins() + 1),
        "listening on",
        "tools are confined",
        "callgate call",
    ] {
        serve.wait_said(words);
    }
    assert!(serve.stop().success());
    assert!(!socket.exists());
    let verdict = cli(&folder, &["audit", "verify", "--json"]).good().json();
    assert_eq!(
        verdict["head"]["seq"], verdict["records"],
        "signed to the end: {verdict}"
    );
}

/// One gate for a workspace, and every command finds it, whatever its environment says of sockets;
/// a second one is refused with the first one's process. What a killed gate recorded misleads
/// nobody.
#[test]
fn every_environment_finds_the_gate() {
    let folder = workspace(ONE);
    // Sockets have short paths.
    let runtime = folder.join("run");
    std::fs::create_dir(&runtime).expect("a folder for sockets");
    let command = |args: &[&str], runtime: Option<&Path>| {
        let mut command = callgate(&folder);
        command.env_remove("CALLGATE_STATE").args(args);
        if let Some(runtime) = runtime {
            command.env("XDG_RUNTIME_DIR", runtime);
        }
        command
    };
    let bare = |args: &[&str]| run(&mut command(args, None));
    bare(&["trust"]).good();
    let place = run(&mut command(&["serve", "--where"], Some(&runtime))).good();
    let socket = PathBuf::from(place.out.trim_end());
    assert!(socket.starts_with(&runtime));
    let serve = |args: &[&str]| Serve::spawn(&mut command(args, Some(&runtime)), socket.clone());
    let first = serve(&["serve", "--port", "0"]);

    let other = folder.join("other");
    std::fs::create_dir(&other).expect("another folder for sockets");
    for runtime in [None, Some(&*other)] {
        let told = run(&mut command(&["tools"], runtime)).good();
        assert!(told.err.contains("from the running gate at"), "{told:?}");
        let doctor = run(&mut command(&["doctor"], runtime)).good();
        let pid = format!("running as process {}, port ", first.pid());
        assert!(doctor.out.contains(&pid), "{doctor:?}");
        let second = run(&mut command(&["serve"], runtime));
        let words = format!("another `callgate serve` (process {})", first.pid());
        assert!(
            second.code() == 1 && second.err.contains(&words),
            "{second:?}"
        );
        let place = run(&mut command(&["serve", "--where"], runtime)).good();
        assert_eq!(Path::new(place.out.trim_end()), socket);
    }
    // The owner of the process that calls is the gate, not one that stands alone.
    bare(&["call", "one", "n=1"]).good();
    let hello = [initialize(1)].map(|one| format!("{one}\n")).concat();
    let told = run_with(&mut command(&["mcp"], None), hello.as_bytes()).good();
    assert!(
        !told.err.contains("alone") && told.out.contains("protocolVersion"),
        "{told:?}"
    );
    let printed = bare(&["mcp", "--print-config", "claude-code", "--http"]).good();
    let health = first.get("/v1/health").1;
    assert_eq!(health["ok"], true);
    let doctor = bare(&["doctor"]).good().out;
    let port = doctor
        .split(", port ")
        .nth(1)
        .and_then(|rest| rest.split([' ', '\n']).next());
    let url = format!("http://127.0.0.1:{}/mcp", port.expect("a port"));
    assert!(printed.out.contains(&url), "{printed:?}");

    first.kill();
    let told = bare(&["call", "one", "n=2"]).good();
    assert_eq!(told.json(), json!({ "got": { "n": 2 } }), "it stands alone");
    let again = serve(&["serve"]);
    let told = bare(&["tools"]).good();
    assert!(told.err.contains("from the running gate at"), "{told:?}");
    assert!(again.stop().success());
    assert!(
        !folder
            .join(".local/state/callgate")
            .read_dir()
            .expect("states")
            .any(|state| { state.expect("a state").path().join("gate.json").exists() })
    );
}

/// What a host starts has hardly anything of this environment, so what it could not find by itself
/// is printed.
#[test]
fn hosts_are_told_of_a_state_elsewhere() {
    let folder = workspace(ONE);
    let printed = |name: &str, value: &Path| {
        let mut command = callgate(&folder);
        command.env_remove("CALLGATE_STATE").env(name, value);
        let told = run(command.args(["mcp", "--print-config", "cursor"])).good();
        let args = told.json()["mcpServers"]["callgate"]["args"].clone();
        let args = args.as_array().expect("arguments").clone();
        let at = args.iter().position(|arg| arg == "--state")?;
        Some(args[at + 1].as_str().expect("a path").to_owned())
    };
    for name in ["XDG_STATE_HOME", "HOME", "CALLGATE_STATE"] {
        let state = printed(name, folder.path()).expect(name);
        assert!(
            Path::new(&state).starts_with(folder.path()),
            "{name}: {state}"
        );
    }
    let list = std::fs::read_to_string("/etc/passwd").expect("the users");
    let uid = rustix::process::geteuid().as_raw().to_string();
    let mut lines = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
    if let Some(user) = lines.find(|fields| fields[2] == uid) {
        assert_eq!(
            printed("HOME", Path::new(user[5])),
            None,
            "it would find that itself"
        );
    }
}

/// G-10b: a socket that was removed is made again, as it was, and who was there stays.
#[test]
fn a_removed_socket_is_made_again() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let mut there = crate::support::rpc::rpc(&folder);
    there.good("tools/list", json!({}));
    let bridge = serve.socket.with_file_name("bridge.sock");
    let both = [&serve.socket, &bridge];
    for socket in both {
        std::fs::remove_file(socket).unwrap();
    }
    for socket in both {
        wait_for("the socket", || UnixStream::connect(socket).ok());
        let mode = std::fs::metadata(socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", socket.display());
    }
    serve.wait_said("gate.sock was removed: made again");
    let reply = serve.call(&json!({ "tool": "one", "input": {} }));
    assert_eq!(reply["ok"], true, "{reply}");
    there.good("tools/list", json!({}));
    let second = cli(&folder, &["serve"]);
    assert!(
        second.err.contains("another `callgate serve`"),
        "{second:?}"
    );
    // What somebody put there meanwhile is theirs.
    std::fs::remove_file(&serve.socket).unwrap();
    folder.write("state/gate.sock", "");
    let (socket, other) = (serve.socket.clone(), folder.join("state/other.sock"));
    std::fs::rename(&bridge, &other).unwrap();
    wait_for("the next look", || UnixStream::connect(&bridge).ok());
    assert_eq!(folder.read("state/gate.sock").as_deref(), Some(""));
    std::fs::remove_file(&socket).unwrap();
    wait_for("the socket", || UnixStream::connect(&socket).ok());
    assert!(serve.stop().success());
    assert!(!socket.exists() && !bridge.exists());
}

/// A call whose gate dies is told as one that may have run, with what to do next.
#[test]
fn a_gate_that_dies_in_a_call() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", HANGS)]);
    let words = [(None, "before you call again"), (Some("k"), "runs it once")];
    for (key, next) in words {
        let before = effects(&folder);
        let serve = Serve::start(&folder);
        let mut command = callgate(&folder);
        command.args(["call", "one"]);
        command.args(key.into_iter().flat_map(|key| ["--key", key]));
        let caller = command.stderr(Stdio::piped()).stdout(Stdio::null());
        let caller = caller.spawn().expect("start the caller");
        started(&folder, before + 1);
        serve.kill();
        let ended = caller.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(
            said.contains("is not known") && said.contains(next),
            "{said}"
        );
    }
}

/// Connections on which nothing, or half a request, has come do not hold up the end.
#[test]
fn idle_connections_do_not_hold_up_the_end() {
    let folder = trusted(ONE);
    let connect = |serve: &Serve, bytes: &[u8]| {
        use std::io::Write as _;
        let mut stream = std::os::unix::net::UnixStream::connect(&serve.socket).expect("connect");
        stream.write_all(bytes).expect("write");
        stream
    };
    for bytes in [
        b"".as_slice(),
        b"POST /v1/call HT",
        b"POST /v1/call HTTP/1.1\r\ncontent-length: 100\r\n\r\n{\"tool\"",
        b"GET /v1/health HTTP/1.1\r\nhost: gate\r\n\r\n",
    ] {
        let serve = Serve::start(&folder);
        let held = connect(&serve, bytes);
        // Answered after it was accepted, so the gate knows the one before as well.
        assert_eq!(serve.get("/v1/health").1["ok"], true);
        assert!(serve.stop().success(), "{}", String::from_utf8_lossy(bytes));
        drop(held);
    }
}

/// SIGTERM while a call runs: it is answered first, and its outcome recorded.
#[test]
fn calls_under_way_are_answered_at_the_end() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", SLOW)]);
    let serve = Serve::start(&folder);
    let socket = serve.socket.clone();
    std::thread::scope(|scope| {
        let body = json!({ "tool": "one", "input": {}, "idempotency_key": "k" });
        let socket = &socket;
        let call = scope.spawn(move || crate::support::drive::post(socket, &body));
        wait_for("its start", || (effects(&folder) == 1).then_some(()));
        crate::support::drive::signal(serve.pid(), rustix::process::Signal::TERM);
        folder.write("go", "");
        assert!(serve.ended().success());
        assert_eq!(
            call.join().expect("no panic").expect("an answer")["ok"],
            true
        );
    });
    let again = cli(&folder, &["call", "one", "--key", "k", "--json"])
        .good()
        .json();
    assert_eq!(again["idempotent_hit"], true);
    verified(&folder);
}

/// The first signal says what is waited for; a second one ends the call, and its record says so.
#[test]
fn a_second_signal_ends_running_calls() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", SLOW)]);
    let serve = Serve::start(&folder);
    let (socket, pid) = (serve.socket.clone(), serve.pid());
    std::thread::scope(|scope| {
        let body = json!({ "tool": "one", "input": {}, "idempotency_key": "k" });
        let socket = &socket;
        let call = scope.spawn(move || crate::support::drive::post(socket, &body));
        wait_for("its start", || (effects(&folder) == 1).then_some(()));
        let stop = || crate::support::drive::signal(pid, rustix::process::Signal::TERM);
        stop();
        serve.wait_said("waiting for 1 running call; a second signal ends at once");
        stop();
        assert!(serve.ended().success());
        let answer = call.join().expect("no panic").expect("an answer");
        assert_eq!(answer["fault"]["kind"], "cancelled", "{answer}");
    });
    let outcomes = chain(&folder);
    let cancelled = |record: &&Value| record["fault"] == "cancelled";
    assert_eq!(outcomes.iter().filter(cancelled).count(), 1);
    verified(&folder);
}
