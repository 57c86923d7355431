//! MCP servers as people use them, installed from a committed lock and run without a network: what
//! the kernel holds them to must not be what they fail by.
//!
//! What is installed is kept in the cache of the tests, so that only the first run downloads it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::drive::{Host, Ran, chain_of, python, run, run_within};
use crate::support::home::pass_registries;
use crate::support::mcp::{initialize, legacy_call};
use crate::support::{Folder, program, search_path};

const CONFIG: &str = include_str!("fixtures/servers/callgate.toml");
const LOCK: &str = include_str!("fixtures/servers/callgate.lock");

/// The first run downloads some 600 packages.
const INSTALL_MAX: Duration = Duration::from_secs(20 * 60);

/// Where the machine that wrote the lock has Node.
const NODE_OF_LOCK: &str = "/usr/bin/node";

/// A call of each server, and whether the server can answer it without a network.
fn calls() -> [(&'static str, Value, bool); 11] {
    [
        ("everything_echo", json!({ "message": "hello" }), true),
        (
            "filesystem_read_text_file",
            json!({ "path": "note.txt" }),
            true,
        ),
        (
            "memory_create_entities",
            json!({ "entities": [{ "name": "a", "entityType": "b", "observations": ["c"] }] }),
            true,
        ),
        // There is no browser.
        (
            "playwright_browser_navigate",
            json!({ "url": "about:blank" }),
            false,
        ),
        ("github_search_repositories", json!({ "query": "x" }), false),
        ("postgres_query", json!({ "sql": "select 1" }), false),
        (
            "time_get_current_time",
            json!({ "timezone": "Europe/Berlin" }),
            true,
        ),
        ("git_git_status", json!({ "repo_path": "." }), true),
        (
            "fetch_fetch",
            json!({ "url": "https://example.com/" }),
            false,
        ),
        // Answers that it found nothing.
        ("duckduckgo_search", json!({ "query": "x" }), true),
        (
            "motherduck_execute_query",
            json!({ "sql": "select 42" }),
            true,
        ),
    ]
}

/// A workspace with the servers, and the state in which they are installed.
struct Installed {
    folder: Folder,
    state: PathBuf,
    cache: PathBuf,
    /// Held as long as the state is used.
    _lock: File,
}

impl Installed {
    fn new() -> Self {
        let folder = Folder::new();
        let node = find("node");
        let lock = LOCK.replace(NODE_OF_LOCK, &node.display().to_string());
        folder.write("callgate.toml", CONFIG);
        folder.write("callgate.lock", &lock);
        folder.write("docs/note.txt", "hello\n");
        run(Command::new("git")
            .args(["init", "-q"])
            .arg(folder.join("docs")))
        .good();
        let cache = std::env::var_os("CALLGATE_CACHE").map(PathBuf::from);
        let cache = cache
            .unwrap_or_else(|| folder.join("cache"))
            .join("servers");
        let digest = blake3::hash(format!("{lock}{}", python_version()).as_bytes()).to_hex();
        let state = cache.join(format!("state-{}", &digest[..16]));
        std::fs::create_dir_all(&state).expect("make the state");
        let held = File::create(state.join("test.lock")).expect("a lock");
        held.lock().expect("the only user of the state");
        forget_all_but_packages(&state);
        let installed = Self {
            folder,
            state,
            cache,
            _lock: held,
        };
        run(installed.callgate().arg("trust")).good();
        let install = || {
            let mut install = installed.callgate();
            run_within(install.args(["servers", "install"]), b"", INSTALL_MAX)
        };
        if !install().status.success() {
            installed.choose_wheels();
            install().good();
        }
        installed
    }

    /// Locks the same versions of the Python servers anew: the wheels of the lock are for one
    /// Python.
    fn choose_wheels(&self) {
        let config: toml::Table = CONFIG.parse().expect("TOML");
        for server in config["server"].as_array().expect("servers") {
            let package = server["package"].as_str().expect("a package");
            let Some((_, version)) = package.split_once("==") else {
                continue;
            };
            let name = server["name"].as_str().expect("a name");
            let mut update = self.callgate();
            update.args(["servers", "update", name, version, "--yes"]);
            run_within(&mut update, b"", INSTALL_MAX).good();
        }
    }

    fn callgate(&self) -> Command {
        self.prepare(Command::new(program()))
    }

    /// The program without any network.
    fn offline(&self) -> Command {
        let mut command = Command::new("unshare");
        command.arg("--net");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-current-user"]);
        }
        command.arg(program());
        self.prepare(command)
    }

    fn prepare(&self, mut command: Command) -> Command {
        command
            .env_clear()
            .env("PATH", search_path())
            .env("HOME", self.folder.path())
            .env("CALLGATE_STATE", &self.state)
            .env("XDG_CACHE_HOME", &self.cache)
            .current_dir(self.folder.path());
        pass_registries(&mut command);
        command
    }
}

/// Removes everything of a state but the packages of its servers.
fn forget_all_but_packages(state: &Path) {
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let is_named = |path: &Path, name: &str| path.file_name().is_some_and(|own| own == name);
    let kept = |path: &PathBuf| is_named(path, "servers") || is_named(path, "test.lock");
    let servers = entries(&state.join("servers"));
    let homes = servers.iter().map(|server| server.join("homes"));
    let gone = entries(state).into_iter().filter(|path| !kept(path));
    for path in gone.chain(homes) {
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(&path),
            false if path.exists() => std::fs::remove_file(&path),
            false => Ok(()),
        };
        removed.expect("remove what an earlier run has left");
    }
}

/// A program of this machine.
fn find(name: &str) -> PathBuf {
    let search = search_path();
    let folders = std::env::split_paths(&search);
    let mut found = folders
        .map(|folder| folder.join(name))
        .filter(|path| path.is_file());
    found.next().unwrap_or_else(|| panic!("no {name}"))
}

/// The version of this machine's Python.
fn python_version() -> String {
    let ran = run(Command::new(python()).arg("--version")).good();
    ran.out.trim().to_owned()
}

/// Real servers work without a network, confined, with nothing but what their tables say. An error
/// of their own counts, for what they would reach is not there; a refusal of ours does not.
#[test]
fn servers_work_without_a_network() {
    let installed = Installed::new();
    let mut command = installed.offline();
    let mut host = Host::spawn(command.args(["mcp", "--standalone"]));
    host.ask(&initialize(0));
    let mut names: Vec<String> = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let list = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "cursor": cursor },
        });
        let page = host.ask(&list)["result"].take();
        let tools = page["tools"].as_array().expect("tools").iter();
        names.extend(tools.map(|tool| tool["name"].as_str().expect("a name").to_owned()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let calls = calls();
    for (id, (name, input, _)) in (2..).zip(&calls) {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        // All at once: the servers start beside each other.
        assert!(host.send(&legacy_call(id, name, input, &json!({}))));
    }
    let mut answers: Vec<Option<Value>> = vec![None; calls.len()];
    while answers.iter().any(Option::is_none) {
        let message = host.reply();
        let id = message["id"]
            .as_u64()
            .and_then(|id| usize::try_from(id).ok());
        if let Some(id) = id {
            answers[id - 2] = Some(message);
        }
    }
    for ((name, _, works), answer) in calls.iter().zip(answers.iter().flatten()) {
        let fault = &answer["result"]["_meta"]["callgate/call"]["fault"];
        match works {
            true => assert!(
                fault.is_null() && answer["error"].is_null(),
                "{name}: {answer}"
            ),
            false => {
                let is_own = fault.is_null() || fault == "tool_failed";
                assert!(is_own, "{name}: {answer}");
            }
        }
        let text = answer.to_string();
        for refusal in ["EPERM", "EACCES", "not permitted", "Permission denied"] {
            assert!(!text.contains(refusal), "{name}: {answer}");
        }
    }
    drop(host);
    let mut show = installed.callgate();
    let shown: Ran = run(show.args(["audit", "show", "--last", "1000", "--json"])).good();
    let records = chain_of(&shown);
    let outcomes: Vec<&Value> = records
        .iter()
        .filter(|record| record["kind"] == "outcome")
        .collect();
    assert_eq!(outcomes.len(), calls.len(), "{outcomes:?}");
    for outcome in outcomes {
        assert_eq!(outcome["enforcement"], "enforced", "{outcome}");
    }
}
