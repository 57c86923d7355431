//! `callgate import` and `callgate restore` with the settings of several MCP clients in one home:
//! what they write is tried as the clients would, by the entry alone.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::Folder;
use crate::support::drive::{Host, Ran, python, run};
use crate::support::home::{Entry, UserHome};
use crate::support::mcp::{initialize, legacy_call};
use crate::support::processes::started_with;
use crate::support::servers::{SERVER, tools};

const CLAUDE: &str = ".claude.json";
const CURSOR: &str = ".cursor/mcp.json";
const VS_CODE: &str = ".config/Code/User/mcp.json";
const CODEX: &str = ".codex/config.toml";

/// The value that must stay out of everything but its file.
const SECRET: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";

/// A package with few dependencies.
const PACKAGE: &str = "@modelcontextprotocol/server-sequential-thinking@0.6.2";

/// A home in which four clients have servers. The small one is the same in three of them; in the
/// fourth, tools of it are switched off.
fn home() -> UserHome {
    let home = UserHome::new();
    let folder = &home.folder;
    folder.write("small/server.py", SERVER);
    folder.write("small/tools.json", &Value::from(tools()).to_string());
    folder.write("small/effects.log", "");
    let (python, script) = (python(), folder.join("small/server.py"));
    let script = script.display();
    let small = format!(
        r#"{{ "command": "{python}", "args": ["{script}"], "env": {{ "API_TOKEN": "{SECRET}" }} }}"#
    );
    let work = folder.join("work").display().to_string();
    let claude = format!(
        "{{\r\n  \"numStartups\": 7,\r\n  \"mcpServers\": {{\r\n    \"small\": {small},\r\n    \
         \"thinking\": {{ \"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"-y\", \
         \"{PACKAGE}\"] }},\r\n    \"held\": {{ \"command\": \"{python}\", \"args\": [\"-c\", \
         \"pass\"] }}\r\n  }},\r\n  \"projects\": {{ \"{work}\": {{ \"disabledMcpServers\": \
         [\"held\"] }} }}\r\n}}"
    );
    folder.write(CLAUDE, &claude);
    let cursor = format!(
        "// settings of the editor\n{{\n\t\"mcpServers\": {{\n\t\t\"small\": {small}, // the same\n\t}}\n}}\n"
    );
    folder.write(CURSOR, &cursor);
    let editor = format!(
        r#"{{
  "inputs": [{{ "type": "promptString", "id": "key", "description": "Key", "password": true }}],
  "servers": {{
    // asks for its key
    "asking": {{ "type": "stdio", "command": "{python}", "args": ["{script}"], "env": {{ "KEY": "${{input:key}}" }} }},
    "small": {small}
  }}
}}
"#
    );
    folder.write(VS_CODE, &editor);
    let codex = format!(
        "model = \"m\" # the usual one\n\n[mcp_servers.small]\ncommand = \"{python}\"\nargs = [\"{script}\"]\n\
         enabled_tools = [\"say\", \"note\", \"die\"]\ndisabled_tools = [\"die\"]\n\n\
         [mcp_servers.none]\ncommand = \"{python}\"\nargs = [\"{script}\"]\nenabled_tools = []\n"
    );
    folder.write(CODEX, &codex);
    home
}

/// The same with the small server of one client only, which is quick to import.
fn small_home() -> UserHome {
    let home = home();
    for path in [VS_CODE, CODEX, CURSOR] {
        std::fs::remove_file(home.folder.join(path)).expect("a file of the test");
    }
    let entry = small_entry(&home.folder);
    let claude = json!({ "mcpServers": { "small": entry } });
    home.folder.write(CLAUDE, &format!("{claude:#}\n"));
    home
}

fn small_entry(folder: &Folder) -> Value {
    let script = folder.join("small/server.py").display().to_string();
    json!({ "command": python(), "args": [script] })
}

/// The bytes of the clients' settings.
fn settings(home: &UserHome) -> BTreeMap<&'static str, String> {
    let files = [CLAUDE, CURSOR, VS_CODE, CODEX];
    let read = |path| Some((path, home.folder.read(path)?));
    files.into_iter().filter_map(read).collect()
}

/// The entry that an import has left in a client's settings.
fn entry(home: &UserHome, path: &str) -> Entry {
    let text = home.folder.read(path).expect("the settings");
    let entry = match path {
        CODEX => {
            let all: toml::Table = text.parse().expect("TOML");
            serde_json::to_value(&all["mcp_servers"]["callgate"]).expect("JSON")
        }
        _ => {
            let all: Value = serde_json::from_str(&without_comments(&text)).expect("JSON");
            let servers = if path == VS_CODE {
                "servers"
            } else {
                "mcpServers"
            };
            all[servers]["callgate"].clone()
        }
    };
    Entry::of(&entry)
}

/// JSON out of settings with comments at the ends of lines and commas before a closing brace.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("// ") {
        Some((before, _)) => before.trim_end(),
        None => line.trim_end(),
    });
    let mut plain = String::new();
    for line in lines {
        if line.trim_start().starts_with('}') && plain.ends_with(',') {
            plain.pop();
        }
        plain.push_str(line);
    }
    plain
}

fn names(host: &mut Host) -> Vec<String> {
    host.ask(&initialize(0));
    let listed = host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let listed = listed["result"]["tools"].as_array().expect("tools");
    let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
    listed.iter().map(name).collect()
}

fn call(host: &mut Host, id: u64, name: &str, input: &Value) -> Value {
    host.ask(&legacy_call(id, name, input, &json!({})))
}

fn prefixed(prefix: &str, names: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = names
        .iter()
        .map(|name| format!("{prefix}_{name}"))
        .collect();
    all.sort();
    all
}

fn import(home: &UserHome, args: &[&str]) -> Ran {
    let all = [&["import"], args].concat();
    run(home.callgate().args(all))
}

/// A dry run shows what would be done, without values of secrets, and writes nothing.
#[test]
fn a_dry_run_changes_nothing() {
    let home = home();
    let before = settings(&home);
    let shown = import(&home, &["--dry-run"]).good();
    assert_eq!(settings(&home), before);
    for words in ["thinking", "small-API_TOKEN", "+", "--client"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    assert!(!format!("{}{}", shown.out, shown.err).contains(SECRET));
    let written = [home.config("callgate.toml"), home.config("callgate.lock")];
    assert!(written.iter().all(|path| !path.exists()), "{written:?}");
    assert!(home.secrets().is_empty());
}

/// After an import each client's entry works as it is written, with an empty environment, and
/// shows that client's servers. A restore gives every file back byte for byte, and another import
/// works again.
#[test]
fn entries_work_by_themselves() {
    let home = home();
    let before = settings(&home);
    let ran = import(&home, &["--replace", "--yes"]).good();
    assert!(!format!("{}{}", ran.out, ran.err).contains(SECRET));

    let claude = home.folder.read(CLAUDE).unwrap();
    let held: Value = serde_json::from_str(&claude).expect("JSON");
    let left = held["mcpServers"].as_object().expect("servers");
    let left: Vec<&str> = left.keys().map(String::as_str).collect();
    assert_eq!(
        left,
        ["callgate", "held"],
        "a filter that cannot be carried"
    );
    assert!(ran.err.contains("`held` stays where it is"), "{}", ran.err);

    let all = ["say", "note", "die", "pid", "fail", "env"];
    let mut of_claude = prefixed("small", &all);
    of_claude.push("thinking_sequentialthinking".to_owned());
    let place = home.folder.path().display().to_string();
    // As a desktop starts its programs.
    let desktop = [
        ("HOME", &*place),
        ("PATH", "/usr/bin:/bin"),
        ("XDG_RUNTIME_DIR", &*place),
    ];
    let mut hosts = Vec::new();
    for (path, variables, expected) in [
        (CLAUDE, &desktop[..0], of_claude),
        (CURSOR, &desktop[..], prefixed("small", &all)),
        // The secret that its editor asked for is not kept yet.
        (VS_CODE, &desktop[..], prefixed("small", &all)),
        (CODEX, &desktop[..0], prefixed("small-2", &["say", "note"])),
    ] {
        let mut host = entry(&home, path).start_with(variables);
        let mut listed = names(&mut host);
        listed.sort();
        assert_eq!(listed, expected, "{path}");
        hosts.push(host);
    }
    assert_eq!(home.gates().len(), 1, "one gate for all clients");
    let thought = json!({
        "thought": "a", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1,
    });
    let answer = call(&mut hosts[0], 2, "thinking_sequentialthinking", &thought);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    let answer = call(&mut hosts[0], 3, "small_env", &json!({}));
    let text = answer.to_string();
    assert!(
        text.contains("API_TOKEN") && !text.contains(SECRET),
        "{text}"
    );
    let refused = call(&mut hosts[3], 2, "small-2_die", &json!({}));
    assert!(refused.get("error").is_some(), "{refused}");

    let config = home.folder.read(".config/callgate/callgate.toml").unwrap();
    let lock = home.folder.read(".config/callgate/callgate.lock").unwrap();
    assert!(!config.contains(SECRET) && !lock.contains(SECRET));
    assert_eq!(config.matches("name = \"small\"").count(), 1, "{config}");
    assert_eq!(home.secrets(), [("small-API_TOKEN".to_owned(), 0o600)]);

    let replaced = settings(&home);
    let again = import(&home, &["--replace", "--yes"]).good();
    assert_eq!(
        settings(&home),
        replaced,
        "our own entry is known: {again:?}"
    );
    home.stop_gate();
    drop(hosts);

    restored(&home, &before);
    import(&home, &["--replace", "--yes"]).good();
    assert_eq!(settings(&home), replaced, "the second import does the same");
    let config_again = home.folder.read(".config/callgate/callgate.toml").unwrap();
    assert_eq!(config_again, config);
    restored(&home, &before);
}

fn restored(home: &UserHome, before: &BTreeMap<&'static str, String>) {
    run(home.callgate().arg("restore")).good();
    assert_eq!(&settings(home), before);
}

/// A file that was changed since is not given back without a word: the difference is shown, and
/// nothing is written.
#[test]
fn a_changed_file_is_not_restored() {
    let home = small_home();
    let before = settings(&home);
    import(&home, &["--replace", "--yes"]).good();
    let text = home.folder.read(CLAUDE).unwrap();
    let changed = text.replacen('{', "{\n  \"theme\": \"dark\",", 1);
    home.folder.write(CLAUDE, &changed);
    let refused = run(home.callgate().arg("restore"));
    assert_ne!(refused.code(), 0, "{refused:?}");
    assert!(
        refused.out.contains("+  \"theme\": \"dark\","),
        "{refused:?}"
    );
    assert_eq!(home.folder.read(CLAUDE).unwrap(), changed);
    run(home.callgate().args(["restore", "--force"])).good();
    assert_eq!(settings(&home), before);
}

/// Files of a project go to the project's own gate, and are given back by its own imports.
#[test]
fn a_project_has_imports_of_its_own() {
    let home = small_home();
    let before = settings(&home);
    let entry = small_entry(&home.folder);
    let project = format!("{:#}\n", json!({ "mcpServers": { "small": entry } }));
    home.folder.write("work/.mcp.json", &project);
    import(&home, &["--replace", "--yes"]).good();
    let replaced = settings(&home);
    let args = ["--project", "work", "--replace", "--yes"];
    let ran = import(&home, &args).good();
    let place = std::fs::canonicalize(home.folder.join("work")).expect("its path");
    let restore = format!("restore 1 --project {}", place.display());
    assert!(ran.err.contains(&restore), "{}", ran.err);
    assert_ne!(home.folder.read("work/.mcp.json").unwrap(), project);
    run(home.callgate().args(restore.split(' '))).good();
    assert_eq!(home.folder.read("work/.mcp.json").unwrap(), project);
    assert_eq!(settings(&home), replaced);
    restored(&home, &before);
}

/// A server that comes to a client later is added to those that the client has behind the gate.
#[test]
fn a_later_import_adds() {
    let home = small_home();
    import(&home, &["--replace", "--yes"]).good();
    let text = home.folder.read(CLAUDE).unwrap();
    let mut all: Value = serde_json::from_str(&text).expect("JSON");
    all["mcpServers"]["other"] = small_entry(&home.folder);
    all["mcpServers"]["broken"] = json!({ "command": "/nonexistent/server" });
    home.folder.write(CLAUDE, &format!("{all:#}\n"));
    let ran = import(&home, &["--replace", "--yes"]).good();
    let text = home.folder.read(CLAUDE).unwrap();
    let left: Value = serde_json::from_str(&text).expect("JSON");
    let servers = left["mcpServers"].as_object().expect("servers");
    let left: Vec<&str> = servers.keys().map(String::as_str).collect();
    assert_eq!(left, ["broken", "callgate"], "{}", ran.err);
    let mut host = entry(&home, CLAUDE).start();
    let listed = names(&mut host);
    for name in ["small_say", "other_say"] {
        assert!(listed.iter().any(|known| known == name), "{listed:?}");
    }
}

/// Five clients that start at the same moment share one gate, and no process of a server: one that
/// keeps state would mix what they do.
#[test]
fn five_clients_share_one_gate() {
    let home = small_home();
    import(&home, &["--replace", "--yes"]).good();
    let entry = entry(&home, CLAUDE);
    let mut hosts: Vec<Host> = (0..5).map(|_| entry.start()).collect();
    for host in &mut hosts {
        assert!(host.send(&initialize(0)));
    }
    for host in &hosts {
        assert!(host.reply().get("result").is_some());
    }
    let words = json!({ "text": "hello" });
    for round in 1..=2 {
        for host in &mut hosts {
            assert!(host.send(&legacy_call(round, "small_say", &words, &json!({}))));
        }
        for host in &hosts {
            let answer = host.reply();
            assert_eq!(
                answer["result"]["structuredContent"]["said"], "hello",
                "{answer}"
            );
        }
        // A conversation has a process of its own, and keeps it.
        let script = home.folder.join("small/server.py").display().to_string();
        assert_eq!(started_with(&script).len(), 5);
    }
    assert_eq!(home.gates().len(), 1);
}

/// SIGKILL at every step of an import's edits and of a restore: every settings file has its old
/// content or its new one, and the next command goes on from there.
#[cfg(feature = "failpoints")]
#[test]
fn killed_at_every_step() {
    /// More steps than there are.
    const STEPS_MAX: u32 = 60;
    let home = small_home();
    let entry = small_entry(&home.folder);
    let cursor = json!({ "mcpServers": { "small": entry } });
    home.folder.write(CURSOR, &format!("{cursor:#}\n"));
    let before = settings(&home);
    import(&home, &["--replace", "--yes"]).good();
    let after = settings(&home);
    restored(&home, &before);
    let is_whole = |at: &str| {
        for (path, text) in settings(&home) {
            assert!(
                text == before[path] || text == after[path],
                "{at}: {path}: {text}"
            );
        }
    };
    let killed_at = |args: &[&str], step: u32| {
        let point = format!("importer:*=kill:{step}");
        let ran = run(home.callgate().args(args).env("CALLGATE_FAILPOINT", point));
        assert!(ran.was_killed() || ran.code() == 0, "{step}: {ran:?}");
        is_whole(&format!("{args:?} {step}"));
        ran.was_killed()
    };
    let import_args = ["import", "--replace", "--yes"];
    let steps = (0..STEPS_MAX).take_while(|step| {
        let is_killed = killed_at(&import_args, *step);
        if settings(&home) == before {
            import(&home, &["--replace", "--yes"]).good();
        }
        run(home.callgate().arg("restore")).good();
        assert_eq!(settings(&home), before, "step {step}");
        is_killed
    });
    let steps = steps.count();
    assert!((6..STEPS_MAX as usize).contains(&steps), "{steps}");
    let steps = (0..STEPS_MAX).take_while(|step| {
        if settings(&home) == before {
            import(&home, &["--replace", "--yes"]).good();
        }
        let is_killed = killed_at(&["restore"], *step);
        if settings(&home) != before {
            restored(&home, &before);
        }
        is_killed
    });
    let steps = steps.count();
    assert!((4..STEPS_MAX as usize).contains(&steps), "{steps}");
}
