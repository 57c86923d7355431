//! Error texts that say what to do about a common mistake.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::support::drive::{Ran, cli, run};
use crate::support::workspace::trusted;
use crate::support::{Folder, callgate, copy_program, program, unused_uid};

fn refused(ran: &Ran, words: &[&str]) {
    assert_ne!(ran.code(), 0, "{ran:?}");
    for word in words {
        assert!(ran.err.contains(word), "`{word}` is not in {ran:?}");
    }
}

/// A port that another program has: `--port 0` is named.
#[test]
fn a_port_in_use() {
    let folder = trusted("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let ran = cli(&folder, &["serve", "--port", &port]);
    refused(&ran, &["in use", "--port 0"]);
}

/// A tier that is none, on the command line and in a configuration.
#[test]
fn a_tier_that_is_none() {
    let folder = trusted("");
    for tier in ["4", "-1", "high", "1.5"] {
        let tier = format!("--tier={tier}");
        let ran = cli(&folder, &["lease", "grant", "files/read", &tier]);
        refused(&ran, &["0 to 3"]);
    }
    for tier in ["4", "-1", "\"high\"", "1.5"] {
        let tool = format!(
            "[[tool]]\nname = \"a\"\ntier = {tier}\n\
             runner = {{ kind = \"process\", command = [\"cat\"] }}\n"
        );
        for config in [tool, format!("[leases]\nenforce_from_tier = {tier}\n")] {
            folder.write("callgate.toml", &config);
            let ran = cli(&folder, &["trust"]);
            refused(&ran, &["0 to 3", tier.trim_matches('"')]);
        }
    }
}

/// A whole command line in place of a program's name, with and without an allow list, for
/// `exec/run`, terminals and tools of processes.
#[test]
fn a_command_line_in_place_of_a_program() {
    let apart = "name the program alone";
    let input = r#"{"command":"echo hi"}"#;
    for config in ["", "[exec]\nallow = [\"echo\"]\n"] {
        let folder = trusted(config);
        refused(&cli(&folder, &["call", "exec/run", input]), &[apart]);
        let ran = cli(&folder, &["call", "terminals/create", input]);
        refused(&ran, &[apart]);
    }
    let folder = trusted(
        "[[tool]]\nname = \"a\"\nrunner = { kind = \"process\", command = [\"echo hi\"] }\n",
    );
    refused(&cli(&folder, &["call", "a"]), &[apart]);
    // What is merely not installed is not taken for one.
    let ran = cli(&folder, &["call", "exec/run", r#"{"command":"echo-hi"}"#]);
    refused(&ran, &["is it installed"]);
}

/// A home that is no absolute path would be another folder wherever a command is started; so
/// nothing is made there.
#[test]
fn a_home_that_is_relative() {
    let folder = Folder::new();
    for (name, value) in [
        ("HOME", "home"),
        ("XDG_STATE_HOME", "state"),
        ("HOME", "../x"),
    ] {
        let mut command = callgate(&folder);
        command.env_remove("CALLGATE_STATE").env_remove("HOME");
        let ran = run(command.env(name, value).args(["call", "builtin/echo"]));
        refused(&ran, &["HOME", "absolute path", "--state"]);
    }
    let made = std::fs::read_dir(folder.path()).expect("it is there");
    assert_eq!(made.count(), 0);
    // An absolute home counts beside a variable that is not.
    let mut command = callgate(&folder);
    command
        .env_remove("CALLGATE_STATE")
        .env("XDG_STATE_HOME", "state");
    run(command.args(["call", "builtin/echo"])).good();
    assert!(folder.join(".local/state/callgate").is_dir());
    assert!(!folder.join("state").exists());
}

/// Runs the program as an ordinary user, who may not read where the tests were built.
struct OrdinaryUser {
    folder: Folder,
    uid: u32,
}

impl OrdinaryUser {
    fn new(folder: Folder) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let uid = match is_root {
            true => unused_uid(),
            false => rustix::process::geteuid().as_raw(),
        };
        copy_program(program(), &folder.join("callgate"));
        open(&folder, ".", 0o755);
        Self { folder, uid }
    }

    fn own(&self, name: &str) {
        let path = self.folder.join(name);
        std::fs::create_dir_all(&path).expect("make a folder");
        std::os::unix::fs::chown(&path, Some(self.uid), Some(self.uid)).expect("give it away");
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(self.folder.join("callgate"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.join("home"))
            .current_dir(self.folder.join("workspace"))
            .args(args);
        if rustix::process::geteuid().is_root() {
            command.uid(self.uid).gid(self.uid);
        }
        run(&mut command)
    }
}

fn open(folder: &Folder, name: &str, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder.join(name), mode).expect("set a mode");
}

/// A workspace that its user may not write to: the error names what could not be created.
#[test]
fn a_workspace_that_is_read_only() {
    let folder = Folder::new();
    folder.write(
        "workspace/callgate.toml",
        "[[tool]]\nname = \"a\"\ntier = 1\nwrites = [\"out\"]\n\
         runner = { kind = \"process\", command = [\"cat\"] }\n",
    );
    let user = OrdinaryUser::new(folder);
    user.own("home");
    open(&user.folder, "workspace", 0o555);
    user.run(&["trust"]).good();
    let ran = user.run(&["call", "a"]);
    refused(&ran, &["cannot create", "/workspace/out", "`writes`"]);
    for path in ["out/x", "x"] {
        let input = format!(r#"{{"path":"{path}","content":"1"}}"#);
        let ran = user.run(&["call", "files/write", &input]);
        let made = path.split('/').next().unwrap_or_default();
        let words = format!("cannot create `{made}`: the gate's user may not write to");
        refused(&ran, &[&words]);
    }
    // What only reads goes on.
    user.run(&["call", "files/list"]).good();
}

/// State that belongs to another user: `--state` is named.
#[test]
fn a_state_of_another_user() {
    let user = OrdinaryUser::new(Folder::new());
    user.own("home");
    user.own("workspace");
    std::fs::create_dir(user.folder.join("state")).expect("make a folder");
    open(&user.folder, "state", 0o755);
    // Without root there is but one user, whom every folder belongs to.
    if rustix::process::geteuid().is_root() {
        for mode in [0o755, 0o700] {
            open(&user.folder, "state", mode);
            let ran = user.run(&["call", "builtin/echo", "--state", "../state"]);
            refused(&ran, &["another user", "--state"]);
        }
    }
    user.run(&["call", "builtin/echo", "--state", "../home/state"])
        .good();
}

/// `artifacts verify` counts in plain words.
#[test]
fn artifacts_that_are_all_good() {
    let ran = cli(&trusted(""), &["artifacts", "verify"]).good();
    assert!(ran.out.contains("every artifact is"), "{ran:?}");
}
