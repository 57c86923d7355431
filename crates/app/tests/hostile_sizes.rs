//! The program in an address space of 1 GiB, against sizes, lengths and counts that lie: sparse
//! files of 1 TiB, frames and bodies that announce exabytes, endless input. Nothing of that may
//! end the process: whatever is larger than its bound is refused before room is made for it.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::support::drive::{Host, PATIENCE, Ran, Serve, run, run_with};
use crate::support::rpc::{Client, Line};
use crate::support::workspace::trusted;
use crate::support::{Folder, callgate, callgate_as};
use callgate_testing::Random;
use callgate_testing::shapes::{fitting, method_schemas};
use serde_json::{Value, json};

const SPARSE_BYTES: u64 = 1 << 40;

/// Numbers that a caller may name.
const HOSTILE: [u64; 5] = [0, 1 << 31, 1 << 40, 1 << 53, u64::MAX >> 1];

/// The same command in an address space of 1 GiB, which its children inherit.
fn limited(command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear();
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
}

/// A file of 1 TiB that takes no room; what was there before is its beginning.
fn make_sparse(folder: &Folder, name: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("make folders");
    let file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("open the file");
    file.set_len(SPARSE_BYTES)
        .expect("a file system with holes");
}

/// Ended by itself, and not for want of memory.
fn assert_orderly(ran: &Ran, what: &str) {
    assert!(ran.status.code().is_some(), "{what}: {ran:?}");
    assert!(!ran.err.contains("memory allocation"), "{what}: {ran:?}");
    assert!(!ran.err.contains("panicked"), "{what}: {ran:?}");
}

/// Puts hostile values where a schema takes numbers, and the sparse file where it takes a path.
fn spoil(random: &mut Random, value: &mut Value) {
    match value {
        Value::Number(_) => *value = json!(random.pick(&HOSTILE)),
        Value::Array(items) => items.iter_mut().for_each(|item| spoil(random, item)),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let is_path = ["path", "from", "to", "source", "target"].contains(&name.as_str());
                match member {
                    Value::String(path) if is_path && random.one_in(2) => {
                        *path = random.pick(&["big", ".", "big.txt"]).to_string();
                    }
                    other if random.one_in(2) => spoil(random, other),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// G-13, R-6: the sizes of files are compared with the bounds before there is room for their content.
#[test]
fn a_sparse_file_is_read_by_ranges() {
    let folder = Folder::new();
    make_sparse(&folder, "big");
    let line = Host::spawn(&mut limited(
        callgate(&folder).args(["rpc", "--standalone"]),
    ));
    let mut client = Client::new(Line::Pipes(line));
    let one = json!({ "path": "big", "length": 1, "encoding": "base64" });
    assert_eq!(client.good("files/read", one)["content_base64"], "AA==");
    let far = json!({ "path": "big", "offset": SPARSE_BYTES - 2, "length": 1_u64 << 50 });
    assert_eq!(client.good("files/read", far)["content"], "\0\0");
    let (code, data) = client.bad("files/read", json!({ "path": "big" }));
    assert_eq!((code, &data["bytes"]), (1007, &json!(SPARSE_BYTES)));
    let edit = json!({ "path": "big", "edits": [{ "old": "a", "new": "b" }] });
    assert_eq!(client.bad("files/edit", edit).0, 1007);
    assert!(client.end());
}

/// G-13, R-6: every method, with params that fit or nearly fit and name hostile sizes.
#[test]
fn no_method_makes_room_for_what_it_is_told() {
    let folder = Folder::new();
    let line = Host::spawn(&mut limited(
        callgate(&folder).args(["rpc", "--standalone"]),
    ));
    let mut client = Client::new(Line::Pipes(line));
    let mut random = Random::new("hostile sizes");
    for (name, (input, _)) in method_schemas(|method, params| client.good(method, params)) {
        // The method before may have moved or removed them.
        for name in ["big", "big.txt", ".gitignore", ".ignore", ".git/HEAD"] {
            make_sparse(&folder, name);
        }
        for _ in 0..12 {
            let mut params = fitting(&mut random, &input);
            spoil(&mut random, &mut params);
            let reply = client.ask(&name, params);
            assert!(reply.get("result").is_some() != reply.get("error").is_some());
        }
    }
    let about = client.good("files/stat", json!({ "path": ".git/HEAD" }));
    assert_eq!(about["size"], SPARSE_BYTES);
    assert!(client.end());
}

/// Sends bytes and reads what comes until the other side closes or nothing more comes.
fn send(mut stream: impl Exchange, bytes: &[u8]) {
    // It may be closed before all is sent.
    let _ = stream.write_all(bytes);
    stream.finish();
    let _ = stream.read_to_end(&mut Vec::new());
}

trait Exchange: std::io::Read + std::io::Write {
    fn finish(&self);
}

impl Exchange for TcpStream {
    fn finish(&self) {
        let _ = self.set_read_timeout(Some(PATIENCE));
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

impl Exchange for UnixStream {
    fn finish(&self) {
        let _ = self.set_read_timeout(Some(PATIENCE));
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
}

/// G-13, JR-11: lengths that a peer announces are no reason to make room.
#[test]
fn no_wire_makes_room_for_what_a_peer_announces() {
    let folder = trusted("");
    let mut command = callgate(&folder);
    command.args(["serve", "--port", "0", "--no-auth"]);
    let serve = Serve::spawn(&mut limited(&command), folder.join("state/gate.sock"));
    serve.wait_said("MCP on http://127.0.0.1:");
    let said = serve.said();
    let (_, port) = said.split_once("MCP on http://127.0.0.1:").expect("a port");
    let port: u16 = port
        .split('/')
        .next()
        .expect("a port")
        .parse()
        .expect("a number");
    let huge = u64::MAX >> 1;
    let host = format!("host: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n");
    let mut heads: Vec<Vec<u8>> = Vec::new();
    for path in ["/mcp", "/rpc", "/tools", "/v1/call", "/handshake"] {
        for length in [
            format!("content-length: {huge}"),
            "transfer-encoding: chunked".to_owned(),
        ] {
            let head = format!("POST {path} HTTP/1.1\r\n{host}{length}\r\n\r\n");
            heads.push([head.as_bytes(), b"7fffffffffffffff\r\n{}"].concat());
        }
    }
    let upgrade = format!(
        "GET /rpc HTTP/1.1\r\n{host}connection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    // A masked text frame, and one that goes on.
    for first in [0x81, 0x01] {
        let frame = [&[first, 0xff][..], &huge.to_be_bytes(), &[0; 4], b"{}"].concat();
        heads.push([upgrade.as_bytes(), &frame].concat());
    }
    for bytes in &heads {
        send(
            TcpStream::connect(("127.0.0.1", port)).expect("connect"),
            bytes,
        );
        send(UnixStream::connect(&serve.socket).expect("connect"), bytes);
    }
    for prefix in [u32::MAX, i32::MAX as u32, 1 << 30] {
        let bridge = UnixStream::connect(folder.join("state/bridge.sock")).expect("connect");
        send(bridge, &[&prefix.to_be_bytes()[..], b"{}"].concat());
    }
    let echo = json!({ "tool": "builtin/echo", "input": { "text": "well" } });
    let answer = serve.call(&echo);
    assert!(answer.to_string().contains("well"), "{answer}");
    assert!(!serve.said().contains("memory allocation"));
    assert!(serve.stop().success());
}

/// G-13: what an executor writes: a frame of 4 GiB, and in a small frame an array, a text and bytes
/// that announce 4 GiB.
#[test]
fn no_stream_makes_room_for_what_a_frame_announces() {
    let folder = Folder::new();
    for head in [
        "377 377 377 377",
        "0 377 377 377",
        "0 0 0 5 335 377 377 377 377",
        "0 0 0 5 337 377 377 377 377",
        "0 0 0 5 333 377 377 377 377",
        "0 0 0 5 306 377 377 377 377",
    ] {
        let bytes: String = head
            .split(' ')
            .map(|byte| format!("\\{byte:0>3}"))
            .collect();
        folder.write("executor.sh", &format!("printf '{bytes}'\n"));
        let ran = run(&mut limited(callgate(&folder).args([
            "run",
            "--json",
            "-q",
            "--",
            "/bin/sh",
            "executor.sh",
        ])));
        assert_orderly(&ran, head);
        assert_eq!(ran.json()["outcome"], "executor_crash", "{head}: {ran:?}");
    }
}

/// G-13: every file that is read as a whole: configuration, packs, requests, logs, exports, state.
#[test]
fn no_command_makes_room_for_a_file() {
    let commands: [(&[&str], &[&str]); 12] = [
        (&["callgate.toml"], &["tools"]),
        (&["callgate.toml"], &["trust"]),
        (&["namel3ss.toml"], &["tools"]),
        (
            &["namel3ss.toml", ".namel3ss/trust/policy.toml"],
            &["pack", "list"],
        ),
        (&["pack/pack.yaml"], &["pack", "check", "pack"]),
        (&["pack/toolpack.json"], &["toolhost", "--list", "pack"]),
        (&["big.json"], &["machina_cli", "cts", "big.json"]),
        (&["big.json"], &["pilot", "big.json"]),
        (&["big.json"], &["replay", "big.json"]),
        (&["big.json"], &["audit", "verify", "big.json"]),
        (&["big.json"], &["model", "install", "--from", "big.json"]),
        (
            &["big.json"],
            &["run", "--job", "@big.json", "--", "/bin/true"],
        ),
    ];
    for (files, args) in commands {
        let folder = Folder::new();
        files.iter().for_each(|file| make_sparse(&folder, file));
        let mut command = match args {
            ["machina_cli", ..] => callgate_as("machina_cli", &folder),
            _ => callgate(&folder),
        };
        let words = args.iter().filter(|word| **word != "machina_cli");
        let ran = run(&mut limited(command.args(words)));
        assert_orderly(&ran, &args.join(" "));
        // Without a configuration that can be read, tools are listed all the same.
        assert!(
            args == ["tools"] || !ran.status.success(),
            "{args:?}: {ran:?}"
        );
    }
}

/// G-13: damaged files of the state.
#[test]
fn no_state_file_is_taken_for_more_than_it_can_be() {
    let folder = Folder::new();
    let echo = ["call", "builtin/echo", "{\"text\":\"x\"}", "--key", "k"];
    run(callgate(&folder).args(echo)).good();
    run(callgate(&folder).args(["audit", "verify"])).good();
    let mut files: Vec<String> = Vec::new();
    for inside in ["state", "state/journal"] {
        let entries = std::fs::read_dir(folder.join(inside)).expect("a state");
        files.extend(
            entries
                .flatten()
                .filter(|entry| entry.path().is_file())
                .map(|entry| format!("{inside}/{}", entry.file_name().to_string_lossy())),
        );
    }
    assert!(files.iter().any(|name| name.ends_with(".seg")), "{files:?}");
    for file in files {
        let len = std::fs::metadata(folder.join(&file))
            .expect("it is there")
            .len();
        make_sparse(&folder, &file);
        for args in [
            &["audit", "verify"][..],
            &["audit", "show"],
            &["doctor"],
            &echo,
        ] {
            let ran = run(&mut limited(callgate(&folder).args(args)));
            assert_orderly(&ran, &format!("{file}: {args:?}"));
            if file.ends_with(".seg") && args == ["audit", "verify"] {
                assert!(!ran.status.success(), "{ran:?}");
            }
        }
        let opened = std::fs::File::options()
            .write(true)
            .open(folder.join(&file));
        opened.expect("open it").set_len(len).expect("cut it");
    }
}

/// G-13: standard input that does not end.
#[test]
fn no_command_reads_without_an_end() {
    let folder = Folder::new();
    let endless = vec![b' '; 64 << 20];
    for args in [
        &["call", "builtin/echo", "-"][..],
        &["tool"],
        &["toolhost", "--run", "builtin", "AID.BUILTIN.ECHO.v1"],
    ] {
        let ran = run_with(&mut limited(callgate(&folder).args(args)), &endless);
        assert_orderly(&ran, &args.join(" "));
        let said = ran.out.clone() + &ran.err;
        let names_bound = ["larger", "exceeds"].iter().any(|word| said.contains(word));
        assert!(names_bound, "{args:?}: {ran:?}");
    }
}
