//! T-12: the toolhost as its real client starts it, as a user of its own under tight limits,
//! on a state that is larger than any file the host may write; and where the state can not be
//! written at all.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::drive::{Host, Ran, line, python, run_with};
use crate::support::workspace::{APPEND, effects};
use crate::support::{Folder, unused_uid};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tier = 1
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "greet"
aid = "AID.TEST.GREET.v1"
runner = { kind = "python", entry = "greet:greet", python = "PYTHON" }
"#;

const GREET: &str = r#"
def greet(payload):
    return {"message": "Hello " + payload["name"]}
"#;

/// Sets the limits, becomes the user and turns into the program. It can not be Rust: nothing of
/// the standard library sets a limit.
const LAUNCHER: &str = r#"
import os, resource, sys
uid, limited, fsize, tasks = int(sys.argv[1]), sys.argv[2] == "limited", int(sys.argv[3]), int(sys.argv[4])
os.umask(0o077)
if limited:
    both = lambda n: (n, n)
    resource.setrlimit(resource.RLIMIT_AS, both(1 << 30))
    resource.setrlimit(resource.RLIMIT_NOFILE, both(64))
    resource.setrlimit(resource.RLIMIT_FSIZE, both(fsize))
    resource.setrlimit(resource.RLIMIT_NPROC, both(tasks))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
os.closerange(3, 1024)
os.execv(sys.argv[5], sys.argv[5:])
"#;

/// How the program is started.
#[derive(Clone, Copy, PartialEq)]
enum Limits {
    None,
    /// All of T-12.
    Tight,
    /// And no file above 4 KiB.
    Tiny,
}

/// A folder of that user's with the program in it.
struct Place {
    folder: Folder,
    uid: u32,
    /// Where the state is, inside.
    state: &'static str,
}

impl Place {
    fn new() -> Self {
        let folder = Folder::new();
        let own = rustix::process::geteuid().as_raw();
        // Tasks are counted by user, and tests run side by side, also those of another run: each
        // has a user of its own, of whom nobody else has left a process.
        let uid = if own == 0 { unused_uid() } else { own };
        folder.write("launcher.py", LAUNCHER);
        folder.write("append.sh", APPEND);
        folder.write("greet.py", GREET);
        crate::support::copy_program(crate::support::program(), &folder.join("callgate"));
        let place = Self {
            folder,
            uid,
            state: "state",
        };
        let config = CONFIG.replace("PYTHON", &place.python());
        place.folder.write("callgate.toml", &config);
        let path = place.folder.path();
        std::os::unix::fs::chown(path, Some(uid), None).expect("give the folder away");
        place
    }

    /// A Python that the user can start: the one the tests were given may be out of reach.
    fn python(&self) -> String {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let named = std::env::split_paths(&path).map(|folder| folder.join("python3"));
        let usual = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from);
        let given = std::iter::once(PathBuf::from(python()));
        let question = "import sys; assert sys.version_info >= (3, 9)";
        given
            .chain(usual)
            .chain(named)
            .find(|python| {
                let mut command = self.command(Limits::None, python);
                run_with(command.args(["-c", question]), b"")
                    .status
                    .success()
            })
            .unwrap_or_else(|| panic!("uid {} can start no python3 of 3.9 or later", self.uid))
            .display()
            .to_string()
    }

    fn command(&self, limits: Limits, program: &Path) -> Command {
        let mut command = Command::new(python());
        let (word, fsize) = match limits {
            Limits::None => ("unlimited", 0),
            Limits::Tight => ("limited", 8 * 1024 * 1024),
            Limits::Tiny => ("limited", 4 * 1024),
        };
        command
            .arg(self.folder.join("launcher.py"))
            .args([self.uid.to_string(), word.to_owned(), fsize.to_string()])
            .arg(self.tasks_max().to_string())
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("CALLGATE_STATE", self.folder.join(self.state))
            .current_dir(self.folder.path());
        command
    }

    /// 16 tasks for a user that has no others; the limit counts all tasks of a user.
    fn tasks_max(&self) -> usize {
        if rustix::process::geteuid().as_raw() != self.uid {
            return 16;
        }
        let mut tasks = 0;
        for entry in std::fs::read_dir("/proc").expect("a /proc").flatten() {
            use std::os::unix::fs::MetadataExt as _;
            let is_ours = entry.metadata().is_ok_and(|meta| meta.uid() == self.uid);
            let threads = std::fs::read_dir(entry.path().join("task"));
            tasks += threads.ok().filter(|_| is_ours).map_or(0, Iterator::count);
        }
        // Other tests come and go meanwhile.
        tasks + 16 + 200
    }

    fn callgate(&self, limits: Limits, args: &[&str]) -> Command {
        let mut command = self.command(limits, &self.folder.join("callgate"));
        command.args(args);
        command
    }

    fn run(&self, limits: Limits, args: &[&str], input: &Value) -> Ran {
        run_with(
            &mut self.callgate(limits, args),
            input.to_string().as_bytes(),
        )
    }

    /// `--run` with stderr empty. TH-20.
    fn run_tool(&self, limits: Limits, plugin: &str, aid: &str, request: &Value) -> Value {
        let ran = self.run(limits, &["toolhost", "--run", plugin, aid], request);
        assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "{}", ran.out);
        ran.json()
    }

    fn host(&self, limits: Limits, plugin: &str) -> Host {
        Host::spawn(&mut self.callgate(limits, &["toolhost", "--serve", plugin]))
    }

    fn effects(&self) -> usize {
        effects(&self.folder)
    }

    fn verified(&self) -> u64 {
        let verdict = self.run(Limits::None, &["audit", "verify", "--json"], &Value::Null);
        let verdict = verdict.good().json();
        assert_eq!(verdict["ok"], true, "{verdict}");
        verdict["records"].as_u64().expect("a count")
    }

    fn size_of(&self, name: &str) -> u64 {
        std::fs::metadata(self.folder.join("state").join(name)).map_or(0, |meta| meta.len())
    }

    fn journal_bytes(&self) -> u64 {
        let entries = std::fs::read_dir(self.folder.join("state/journal")).expect("a journal");
        entries
            .flatten()
            .map(|entry| entry.metadata().map_or(0, |meta| meta.len()))
            .sum()
    }

    /// Makes a state in which one call is recorded and the Python worker is laid out.
    fn prepare(&self, request: &Value) {
        let mut host = self.host(Limits::None, "builtin");
        assert_eq!(status(&host.ask(request)), ("OK", false));
        assert!(host.end().success());
        let plugin = self.folder.path().to_str().expect("a text path");
        self.run(Limits::None, &["toolhost", "--list", plugin], &Value::Null)
            .good();
    }

    /// Makes a state whose database and journal are larger than 8 MiB.
    fn grow(&self) {
        let mut host = self.host(Limits::None, "builtin");
        for number in 0..12 {
            // Few words, so that indexing them is quick.
            let text = format!("note {number} {}", "x".repeat(900 * 1024));
            let key = format!("note-{number}");
            let reply = host.ask(&line(
                "AID.MEMORY.APPEND.v1",
                &json!({ "text": text }),
                &key,
            ));
            assert_eq!(reply["status"], "OK", "{reply}");
        }
        for number in 0..500 {
            let key = format!("echo-{number}");
            let reply = host.ask(&line("AID.BUILTIN.ECHO.v1", &json!({ "n": number }), &key));
            assert_eq!(reply["status"], "OK", "{reply}");
        }
        assert!(host.end().success());
        for bytes in [self.size_of("state.db"), self.journal_bytes()] {
            assert!(bytes > 9 * 1024 * 1024, "{bytes} bytes");
        }
    }
}

fn status(reply: &Value) -> (&str, bool) {
    (
        reply["status"].as_str().unwrap_or_default(),
        reply["idempotent_hit"] == true,
    )
}

/// T-12, D-3, D-4, TH-20: everything works and replays under the limits, whatever the size of
/// the state; afterwards a process without limits folds.
#[test]
fn under_tight_limits_with_a_large_state() {
    let place = Place::new();
    place.grow();
    let (tight, none) = (Limits::Tight, Limits::None);
    let plugin = place
        .folder
        .path()
        .to_str()
        .expect("a text path")
        .to_owned();

    let listed = place.run(tight, &["toolhost", "--list", &plugin], &Value::Null);
    assert_eq!(
        (listed.code(), listed.err.as_str()),
        (0, ""),
        "{}",
        listed.out
    );
    assert_eq!(listed.json()["tools"].as_array().map(Vec::len), Some(2));

    // Keys from before the limits replay under them.
    let old = json!({ "inputs": { "n": 499 }, "idempotency_key": "echo-499" });
    let reply = place.run_tool(tight, "builtin", "AID.BUILTIN.ECHO.v1", &old);
    assert_eq!(status(&reply), ("OK", true), "{reply}");

    // Each tool by `--run`, with a key and again.
    let folded = place.size_of("state.db");
    for (aid, input) in [
        ("AID.TEST.APPEND.v1", json!({ "text": "run" })),
        ("AID.TEST.GREET.v1", json!({ "name": "Ada" })),
    ] {
        let keyed = json!({ "inputs": input, "idempotency_key": format!("run-{aid}") });
        let first = place.run_tool(tight, &plugin, aid, &keyed);
        assert_eq!(status(&first), ("OK", false), "{first}");
        let second = place.run_tool(tight, &plugin, aid, &keyed);
        assert_eq!(status(&second), ("OK", true), "{second}");
        assert_eq!(first["output_json"], second["output_json"]);
        let unkeyed = place.run_tool(tight, &plugin, aid, &json!({ "inputs": input }));
        assert_eq!(status(&unkeyed), ("OK", false), "{unkeyed}");
    }
    assert_eq!(place.effects(), 2);

    // Many by `--serve`, enough to go past more than one segment.
    let mut host = place.host(tight, "builtin");
    let text = "y".repeat(100 * 1024);
    for number in 0..100 {
        let key = format!("served-{number}");
        let request = line(
            "AID.BUILTIN.ECHO.v1",
            &json!({ "n": number, "text": text }),
            &key,
        );
        assert_eq!(status(&host.ask(&request)), ("OK", false), "{key}");
        assert_eq!(status(&host.ask(&request)), ("OK", true), "{key}");
    }
    assert!(host.end().success());
    let mut host = place.host(tight, &plugin);
    for number in 0..10 {
        for (aid, input) in [
            ("AID.TEST.APPEND.v1", json!({ "text": number })),
            ("AID.TEST.GREET.v1", json!({ "name": number.to_string() })),
        ] {
            let key = format!("{aid}-{number}");
            assert_eq!(
                status(&host.ask(&line(aid, &input, &key))),
                ("OK", false),
                "{aid} {key}"
            );
            assert_eq!(
                status(&host.ask(&line(aid, &input, &key))),
                ("OK", true),
                "{aid} {key}"
            );
        }
    }
    assert!(host.end().success());
    assert_eq!(place.effects(), 12);
    assert_eq!(
        place.size_of("state.db"),
        folded,
        "the limited ones left the index alone"
    );

    // A process without limits takes the index on, and all of it is still there. The key is
    // new, because it is good for a minute of real time (T-7).
    let key = json!({ "inputs": { "n": 0, "text": text }, "idempotency_key": "last" });
    let reply = place.run_tool(tight, "builtin", "AID.BUILTIN.ECHO.v1", &key);
    assert_eq!(status(&reply), ("OK", false), "{reply}");
    let marked = std::fs::read(place.folder.join("state/state.mark")).expect("a mark");
    let mut host = place.host(none, "builtin");
    let mut request = key.clone();
    request["aid"] = json!("AID.BUILTIN.ECHO.v1");
    assert_eq!(status(&host.ask(&request)), ("OK", true));
    assert_eq!(
        status(&host.ask(&line("AID.BUILTIN.ECHO.v1", &json!({}), "new"))),
        ("OK", false)
    );
    assert!(host.end().success());
    let folded = std::fs::read(place.folder.join("state/state.mark")).expect("a mark");
    assert_ne!(marked, folded, "it folded");
    let reply = place.run_tool(tight, "builtin", "AID.BUILTIN.ECHO.v1", &key);
    assert_eq!(status(&reply), ("OK", true), "{reply}");
    place.verified();
}

/// Calls with a key or a lease are refused and say why; all others are served.
fn unwritable(place: &Place, limits: Limits) {
    let plugin = place
        .folder
        .path()
        .to_str()
        .expect("a text path")
        .to_owned();
    let before = place.effects();
    let mut host = place.host(limits, "builtin");
    let mut tools = place.host(limits, &plugin);
    for number in 0..3 {
        let input = json!({ "n": number });
        let pure = host.ask(&json!({ "aid": "AID.BUILTIN.ECHO.v1", "inputs": input }));
        assert_eq!(status(&pure), ("OK", false), "{pure}");
        let keyed = host.ask(&line("AID.BUILTIN.ECHO.v1", &input, &format!("k{number}")));
        assert_eq!(status(&keyed), ("BREAKER_TRIP", false), "{keyed}");
        let error = keyed["error"].as_str().unwrap_or_default();
        assert!(
            error.contains("state") && error.contains("unavailable"),
            "{error}"
        );
        let keyed = tools.ask(&line("AID.TEST.APPEND.v1", &input, &format!("k{number}")));
        assert_eq!(status(&keyed), ("BREAKER_TRIP", false), "{keyed}");
    }
    assert_eq!(place.effects(), before, "nothing keyed ran");
    let free = tools.ask(&json!({ "aid": "AID.TEST.APPEND.v1", "inputs": {} }));
    assert_eq!(status(&free), ("OK", false), "{free}");
    assert_eq!(place.effects(), before + 1);
    // A lease can not be spent, so it opens nothing.
    let mut command = place.callgate(
        limits,
        &["toolhost", "--run", &plugin, "AID.TEST.APPEND.v1"],
    );
    let leased = json!({ "_lease_token": format!("lease_{}", "0".repeat(32)) }).to_string();
    let reply = run_with(command.env("MACHINA_LEASE_ENFORCE", "1"), leased.as_bytes()).json();
    assert_ne!(reply["status"], "OK", "{reply}");
    assert_eq!(place.effects(), before + 1);
    let listed = place
        .run(limits, &["toolhost", "--list", "builtin"], &Value::Null)
        .good();
    assert_eq!(listed.err, "");
    assert!(host.end().success() && tools.end().success());
}

/// How many folders of the Python worker, whole or begun, the state has.
fn workers(place: &Place) -> usize {
    let entries = std::fs::read_dir(place.folder.join("state")).expect("a state");
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains("python-"))
        .count()
}

/// The Python tools of a pack are served like its others, with what ships for them to import.
fn python_is_served(place: &Place, limits: Limits) {
    let plugin = place.folder.path().to_str().expect("a text path");
    let listed = place.run(limits, &["toolhost", "--list", plugin], &Value::Null);
    assert_eq!((listed.code(), listed.err.as_str()), (0, ""), "{listed:?}");
    let mut tools = place.host(limits, plugin);
    for name in ["Ada", "Bob"] {
        let reply = tools.ask(&json!({ "aid": "AID.TEST.GREET.v1", "inputs": { "name": name } }));
        assert_eq!(status(&reply), ("OK", false), "{reply}");
        let output = format!("{{\"message\":\"Hello {name}\"}}");
        assert_eq!(reply["output_json"], output);
    }
    assert!(tools.end().success());
}

/// T-12: no file may grow any more; what was recorded before is still told.
#[test]
fn when_no_file_may_grow() {
    let place = Place::new();
    let request = line(
        "AID.BUILTIN.ECHO.v1",
        &json!({ "text": "z".repeat(64 * 1024) }),
        "before",
    );
    place.prepare(&request);
    unwritable(&place, Limits::Tiny);
    let mut host = place.host(Limits::Tiny, "builtin");
    assert_eq!(status(&host.ask(&request)), ("OK", true));
    assert!(host.end().success());
    place.verified();
}

/// T-12: a state folder that is read-only for the user.
#[test]
fn when_the_state_is_read_only() {
    let place = Place::new();
    let request = line("AID.BUILTIN.ECHO.v1", &json!({}), "before");
    place.prepare(&request);
    let state = place.folder.join("state");
    chmod_all(&state, 0o500, 0o400);
    unwritable(&place, Limits::None);
    let mut host = place.host(Limits::None, "builtin");
    assert_eq!(status(&host.ask(&request)), ("OK", true));
    assert!(host.end().success());
    chmod_all(&state, 0o700, 0o600);
    place.verified();
}

/// T-12: there is no state and can be none, in a folder that takes nothing and in one that is
/// out of reach. Nothing was ever recorded, so nothing is replayed, and a lease opens nothing.
#[test]
fn when_the_state_can_never_be_made() {
    for mode in [0o500, 0o000] {
        let place = Place {
            state: "closed/state",
            ..Place::new()
        };
        let closed = place.folder.join("closed");
        std::fs::create_dir(&closed).expect("a folder");
        std::os::unix::fs::chown(&closed, Some(place.uid), None).expect("give it away");
        chmod_all(&closed, mode, mode);
        unwritable(&place, Limits::None);
        python_is_served(&place, Limits::None);
        let plugin = place.folder.path().to_str().expect("a text path");
        let before = place.effects();
        let served = place.run_tool(Limits::None, plugin, "AID.TEST.APPEND.v1", &json!({}));
        assert_eq!(status(&served), ("OK", false), "{served}");
        let keyed = json!({ "idempotency_key": "k" });
        let refused = place.run_tool(Limits::None, plugin, "AID.TEST.APPEND.v1", &keyed);
        assert_eq!(status(&refused), ("BREAKER_TRIP", false), "{refused}");
        let note = json!({ "inputs": { "text": "x" } });
        let refused = place.run_tool(Limits::None, "builtin", "AID.MEMORY.APPEND.v1", &note);
        assert_eq!(status(&refused), ("BREAKER_TRIP", false), "{refused}");
        assert_eq!(place.effects(), before + 1);
        // Those who keep a record of all they do need one to start.
        let ran = place.run(Limits::None, &["mcp", "--standalone"], &Value::Null);
        assert_ne!(ran.code(), 0);
        assert!(ran.err.contains("open state folder"), "{ran:?}");
        chmod_all(&closed, 0o700, 0o600);
        assert_eq!(std::fs::read_dir(&closed).expect("it").count(), 0);
    }
}

/// T-12: the state could never be written since a pack with Python tools came: its worker has no
/// file, and its calls without a key are served all the same.
#[test]
fn when_the_python_worker_can_not_be_laid_out() {
    let place = Place::new();
    // Imports what ships, which has no folder either.
    let tool = "from callgate import tool\n\n@tool(tier=0)\ndef greet(name: str) -> dict:\n    \
                return {\"message\": \"Hello \" + name}\n";
    place.folder.write("greet.py", tool);
    let request = line(
        "AID.BUILTIN.ECHO.v1",
        &json!({ "text": "z".repeat(8 * 1024) }),
        "before",
    );
    let mut host = place.host(Limits::None, "builtin");
    assert_eq!(status(&host.ask(&request)), ("OK", false));
    assert!(host.end().success());
    unwritable(&place, Limits::Tiny);
    python_is_served(&place, Limits::Tiny);
    assert_eq!(workers(&place), 0, "nothing half done is left");
    let state = place.folder.join("state");
    chmod_all(&state, 0o500, 0o400);
    unwritable(&place, Limits::None);
    python_is_served(&place, Limits::None);
    chmod_all(&state, 0o700, 0o600);
    // Once the state can be written the worker is laid out.
    python_is_served(&place, Limits::None);
    assert_eq!(workers(&place), 1);
    place.verified();
}

/// Gives a folder and all below it these modes.
fn chmod_all(path: &Path, mode_of_folders: u32, mode_of_files: u32) {
    let mut mode = mode_of_files;
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder").flatten() {
            chmod_all(&entry.path(), mode_of_folders, mode_of_files);
        }
        mode = mode_of_folders;
    }
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("set a mode");
}
