//! What the documents list is what the program has: every kind of fault with its data, every
//! command with its exit codes, every method of JSON-RPC, every field of a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::support::Folder;
use crate::support::drive::{Ran, Serve, cli, exchange, post_bytes, run};
use crate::support::faults::every_fault;
use crate::support::workspace::{ONE, trusted, trusted_with};
use serde_json::json;

fn document(name: &str) -> String {
    std::fs::read_to_string(docs().join(name)).expect("a document")
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The rows of a table by what stands in backticks in their first cell.
fn rows(text: &str) -> BTreeMap<String, Vec<String>> {
    text.lines()
        .filter_map(|line| {
            let cells = line.strip_prefix("| `")?.trim_end().strip_suffix('|')?;
            let (name, cells) = cells.split_once("` |")?;
            let cells = cells.split('|').map(|cell| cell.trim().to_owned());
            Some((name.to_owned(), cells.collect()))
        })
        .collect()
}

/// Table F on our own wire: each kind of fault stands in the document, with the names of its
/// data, and no other does.
#[test]
fn every_kind_of_fault_is_documented() {
    let text = document("http.md");
    let (_, table) = text.split_once("<!-- fault-table -->").expect("a table");
    let (table, _) = table.split_once("<!-- /fault-table -->").expect("its end");
    let listed: BTreeMap<String, BTreeSet<String>> = rows(table)
        .into_iter()
        .map(|(kind, cells)| {
            let data = cells[1].split('`').skip(1).step_by(2);
            (kind, data.map(str::to_owned).collect())
        })
        .collect();
    let known: BTreeMap<String, BTreeSet<String>> = every_fault()
        .map(|fault| {
            let data = fault.data();
            let names = data.as_object().expect("an object").keys().cloned();
            (fault.kind().to_owned(), names.collect())
        })
        .collect();
    assert_eq!(listed, known);
}

/// The statuses of the document: 200 for a call that was taken, however it went.
#[test]
fn the_statuses_are_as_documented() {
    let listed = rows(&document("http.md"));
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let answer = |request: &[u8]| exchange(&serve.socket, request).expect("an answer");
    let post = |body: &[u8]| answer(&post_bytes(body));
    let too_large = vec![b' '; 16 * 1024 * 1024 + 1];
    let put = b"PUT /v1/call HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\r\n";
    for (kind, (status, body)) in [
        ("unknown_tool", post(b"{\"tool\":\"none\"}")),
        ("bad_input", post(b"{\"tool\":\"one\",\"input\":null}")),
        ("bad_request", post(b"{\"tool\":\"one\",\"inputs\":{}}")),
        ("bad_request", serve.get("/v2/call")),
        ("bad_request", answer(put)),
        ("too_large", post(&too_large)),
    ] {
        assert_eq!(
            (&body["ok"], &body["fault"]["kind"]),
            (&json!(false), &json!(kind))
        );
        let mut statuses = listed[kind][0].split(", ");
        assert!(
            statuses.any(|known| known == status.to_string()),
            "{kind}: {status}"
        );
    }
    assert!(serve.stop().success());
}

/// Each command of `callgate --help` has its exit codes in the document, and no other has.
#[test]
fn every_command_s_exit_codes_are_documented() {
    let help = cli(&Folder::new(), &["--help"]).good().out;
    let (_, commands) = help.split_once("Commands:\n").expect("commands");
    let named: BTreeSet<String> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty() && *word != "help")
        .map(str::to_owned)
        .collect();
    let listed: BTreeSet<String> = rows(&document("cli.md")).into_keys().collect();
    assert_eq!(listed, named);
}

/// `docs/rpc-methods.json` is what `rpc/discover` gives in an empty workspace.
#[test]
fn every_method_is_documented() {
    let found = crate::support::rpc::rpc(&Folder::new()).good("rpc/discover", json!({}));
    let text = serde_json::to_string_pretty(&found).expect("JSON") + "\n";
    let path = docs().join("rpc-methods.json");
    if std::env::var_os("CALLGATE_WRITE_DOCS").is_some() {
        std::fs::write(path, text).expect("write the document");
    } else {
        assert!(
            document("rpc-methods.json") == text,
            "docs/rpc-methods.json is old: CALLGATE_WRITE_DOCS=1 cargo test -p callgate \
             --features failpoints every_method"
        );
    }
}

const TRACED: &str = r#"
[[tool]]
name = "one"
runner = { kind = "process", command = ["/bin/echo", "{}"] }

[[tool]]
name = "py"
runner = { kind = "python", entry = "py:find" }

[[tool]]
name = "lenient"
allow_unsafe_execution = true
guarantees = { no_env_write = true }
isolation = "worker"
runner = { kind = "python", entry = "py:find" }
"#;

const FIND: &str = "def find(payload):\n    print('looking')\n    if 'city' in payload:\n        raise LookupError('no such city')\n";

/// What stands between two backticks, outside of blocks.
fn quoted(text: &str) -> BTreeSet<String> {
    let words = text.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// `docs/traces.md`: its commands run as they stand, but for the id, which is that of a call
/// that failed; what it shows is what is shown; and a trace has no field that it, or the
/// contract, does not name.
#[test]
fn traces_are_as_documented() {
    let folder = trusted_with(&[("callgate.toml", TRACED), ("py.py", FIND)]);
    let serve = Serve::start(&folder);
    let failed = cli(&folder, &["call", "py", r#"{"city":"x"}"#, "--json"]).json();
    let id = failed["call_id"].as_str().expect("an id");
    let text = document("traces.md");
    let text = text.replace("01a1e30ca27d0000ea2d4689b8000000", id);
    let text = text.replace("01a1e30c", id);
    let blocks: Vec<&str> = text.split("```").skip(1).step_by(2).collect();
    let commands = blocks.iter().filter_map(|block| block.strip_prefix("sh\n"));
    for line in commands.flat_map(str::lines) {
        match line.strip_prefix("curl ") {
            Some(words) => {
                let (_, path) = words.split_once("http://gate").expect("an address");
                assert_eq!(serve.get(path).0, 200, "{line}");
            }
            None => drop(shell(&folder, line).good()),
        }
    }
    let shown = cli(&folder, &["trace", id]).good().out;
    let sample = blocks.iter().find(|block| block.contains("├─ at"));
    let lines: Vec<Vec<&str>> = shown.lines().map(words).collect();
    for line in sample.expect("a sample").trim().lines() {
        let wanted = words(line);
        let is_left_out = wanted.last() == Some(&"…");
        assert!(is_left_out || lines.contains(&wanted), "{line}: {shown}");
    }

    cli(&folder, &["call", "lenient", "{}", "--key", "k"]).good();
    cli(&folder, &["call", "lenient", "{}", "--key", "k"]).good();
    let (_, contract) = document("contracts/tool-protocol.md")
        .split_once("## Traces")
        .map(|(before, after)| (before.to_owned(), after.to_owned()))
        .expect("the fields of traces");
    let named = &quoted(&text.replace("```", "")) | &quoted(&contract);
    let all = cli(&folder, &["trace", "list", "--json"]).good().out;
    for line in all.lines() {
        let trace: serde_json::Value = serde_json::from_str(line).expect("a trace");
        for name in trace.as_object().expect("fields").keys() {
            assert!(named.contains(name), "{name} is in no document: {trace}");
        }
    }
    assert!(serve.stop().success());
}

/// Without times, places and ids, which are the machine's.
fn words(line: &str) -> Vec<&str> {
    let is_own = |word: &&str| word.contains(|c: char| c.is_ascii_digit() || c == '/');
    let is_unit = |word: &&str| ["µs", "ms", "s"].contains(word);
    let words = line.split_whitespace();
    words
        .filter(|word| !is_own(word) && !is_unit(word))
        .collect()
}

/// A line of a document, as a person would give it to a shell.
fn shell(folder: &Folder, line: &str) -> Ran {
    crate::support::callgate_as("callgate", folder);
    let mut shell = std::process::Command::new("/bin/sh");
    let search = std::env::var("PATH").unwrap_or_default();
    let search = format!("{}:{search}", folder.join("bin").display());
    run(shell
        .args(["-ec", line])
        .env("PATH", search)
        .env("CALLGATE_STATE", folder.join("state"))
        .current_dir(folder.path()))
}
