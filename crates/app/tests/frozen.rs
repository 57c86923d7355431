//! What others see and build on, frozen as snapshots: `--help`, error texts with their exit codes,
//! tables, configuration fields, metric names and log targets. A change here is a change for
//! users: accept one with `INSTA_UPDATE=always`, and say so in the changelog.

use std::collections::BTreeSet;
use std::path::Path;

use insta::{assert_snapshot, with_settings};

use crate::support::Folder;
use crate::support::drive::{Ran, cli, raw_exchange};
use crate::support::web::Web;
use crate::support::workspace::{ONE, trusted, workspace};

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let Some((_, commands)) = help.split_once("Commands:\n") else {
        return Vec::new();
    };
    let names = commands
        .lines()
        .take_while(|line| !line.is_empty())
        // Further lines of a description are indented deeper.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The help of a command and of all commands below it, in the order they are listed.
fn help_of(folder: &Folder, command: &[&str], text: &mut String) {
    let words: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
    let ran = cli(folder, &words);
    let help = ran.out.clone();
    text.push_str(&shown(&words, &ran));
    for name in subcommands(&help) {
        let below: Vec<&str> = command.iter().copied().chain([name.as_str()]).collect();
        help_of(folder, &below, text);
    }
}

/// The words of the command line: every command, argument and default.
#[test]
fn help_texts() {
    let folder = Folder::new();
    let mut text = String::new();
    help_of(&folder, &[], &mut text);
    assert_snapshot!(text);
}

/// A run of the program as a person sees it.
fn shown(words: &[&str], ran: &Ran) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| match word.contains([' ', '{', '"']) {
            true => format!("'{word}'"),
            false => (*word).to_owned(),
        })
        .collect();
    let (out, err, code) = (&ran.out, &ran.err, ran.code());
    format!(
        "$ callgate {}\n{out}{err}[exit {code}]\n\n",
        words.join(" ")
    )
}

/// Runs the commands one after the other; paths, ids and times are masked.
fn transcript(folder: &Folder, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for words in commands {
        text.push_str(&shown(words, &cli(folder, words)));
    }
    let path = folder.path().to_str().expect("UTF-8");
    text.replace(path, "[FOLDER]")
}

/// Masks what differs from run to run: ids, times, digests and process ids.
const MASKS: [(&str, &str); 8] = [
    (r"\blease_[0-9a-f]{32}\b", "lease_[ID]"),
    (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+Z?", "[TIME]"),
    (r"\b[0-9a-f]{64}\b", "[DIGEST]"),
    (r"\b[0-9a-f]{32}\b", "[ID]"),
    (r"\b([al])-[0-9a-f]{12}\b", "$1-[ID]"),
    (r"\b[0-9a-f]{16}\b", "[ID]"),
    (r"cg_[A-Za-z0-9_-]+", "[TOKEN]"),
    (r"\buid:[0-9]+\b", "uid:[UID]"),
];

/// Mistakes on the command line and in a workspace: the text, where it goes, and the exit code.
#[test]
fn errors() {
    let nothing = Folder::new();
    let mut text = transcript(
        &nothing,
        &[
            &["nonsense"],
            &["call"],
            &["call", "none/such"],
            &["call", "files/raed"],
            &["call", "files/read", "path"],
            &["call", "files/read", "path=missing.txt"],
            &["call", "files/read", "{\"path\": 1}"],
            &["call", "files/read", "--json", "{}"],
            &["lease", "grant", "none/such"],
            &["lease", "revoke", "none"],
            &["approvals", "grant", "a-000000000000"],
            &["trace", "zz"],
            &["runs", "none"],
            &["replay", "none"],
            &["audit", "show", "--last", "x"],
            &["token", "create"],
            &["token", "revoke", "none"],
            &["pack", "verify", "missing"],
            &["pilot", "missing.json"],
            &["term", "attach", "none"],
            &["serve", "--port", "70000"],
            &["search", ""],
        ],
    );
    let broken = workspace("[[tool]]\nnmae = \"one\"\n");
    text.push_str(&transcript(&broken, &[&["trust"], &["tools"]]));
    let untrusted = workspace(ONE);
    text.push_str(&transcript(
        &untrusted,
        &[&["tools"], &["call", "one", "n=1"]],
    ));
    let good = trusted(ONE);
    text.push_str(&transcript(
        &good,
        &[
            &["call", "one", "n=x"],
            &["call", "one", "m=1"],
            &["call", "one", "--key", "", "n=1"],
            &["lease", "grant", "one", "--ttl", "2h"],
            &["lease", "grant", "one", "--input", "1"],
        ],
    ));
    with_settings!({ filters => MASKS.to_vec() }, { assert_snapshot!(text) });
}

/// The tables and lists that commands print.
#[test]
fn tables() {
    let folder = trusted(ONE);
    let text = transcript(
        &folder,
        &[
            &["tools"],
            &["call", "one", "n=1"],
            &["call", "one", "--key", "k", "n=1"],
            &["call", "one", "--key", "k", "n=1"],
            &["lease", "list"],
            &["lease", "grant", "one"],
            &["lease", "list"],
            &["approvals"],
            &["runs"],
            &["artifacts"],
            &["plan", "ls"],
            &["token", "list"],
            &["audit", "verify"],
        ],
    );
    with_settings!({ filters => MASKS.to_vec() }, { assert_snapshot!(text) });
}

/// Findings of `doctor` that are the same on every machine.
const STEADY: [&str; 5] = ["workspace", "state", "configuration", "chain", "gate"];

/// Checks that only some machines have.
const OPTIONAL: [&str; 2] = ["programs", "toolchains"];

/// The checks of `doctor`, in words and in JSON. Of what depends on the machine only the names are
/// frozen.
#[test]
fn doctor() {
    let folder = trusted(ONE);
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    let mut text = String::new();
    for line in cli(&folder, &["doctor"]).out.lines() {
        let name = line.split_whitespace().nth(1).unwrap_or_default();
        if OPTIONAL.contains(&name) {
            continue;
        }
        match STEADY.contains(&name) || line.starts_with(' ') {
            true => text.push_str(line),
            false => text.push_str(&format!("{name} [MACHINE]")),
        }
        text.push('\n');
    }
    let found = cli(&folder, &["doctor", "--json"]).json();
    for check in found["checks"].as_array().expect("checks") {
        if check["name"]
            .as_str()
            .is_some_and(|name| OPTIONAL.contains(&name))
        {
            continue;
        }
        let members: Vec<&String> = check.as_object().expect("an object").keys().collect();
        text.push_str(&format!("{} {members:?}\n", check["name"]));
    }
    let text = text.replace(&path, "[FOLDER]");
    with_settings!({ filters => MASKS.to_vec() }, { assert_snapshot!(text) });
}

/// The sections of `callgate.toml`; the empty one is the file itself.
const SECTIONS: [&str; 33] = [
    "",
    "[[tool]]",
    "[[tool]]\nname = \"x\"\n[tool.guarantees]",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"process\"",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"python\"",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"node\"",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"pool\"",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"service\"",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"container\"",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"executor\"",
    "[[tool]]\nname = \"x\"\n[tool.runner]\nkind = \"none\"",
    "[[policy]]",
    "[[limit]]",
    "[[resource]]",
    "[[prompt]]",
    "[breaker]",
    "[builtins]",
    "[exec]",
    "[files]",
    "[http]",
    "[http.jwt]",
    "[leases]",
    "[pilot]",
    "[planner]",
    "[runs]",
    "[search]",
    "[secrets]",
    "[service]",
    "[store]",
    "[telemetry]",
    "[terminals]",
    "[toolhost]",
    "[traces]",
];

/// The fields of the configuration: each section names those it has when it meets another.
#[test]
fn configuration_fields() {
    let mut text = String::new();
    for section in SECTIONS {
        let folder = workspace(&format!("{section}\nno_such_field_ = 1\n"));
        let ran = cli(&folder, &["trust"]);
        assert!(!ran.status.success(), "{section}: {ran:?}");
        let path = folder.path().to_str().expect("UTF-8");
        let err = ran.err.replace(path, "[FOLDER]");
        text.push_str(&format!("{section}\n{err}\n"));
    }
    assert_snapshot!(text);
}

/// The names, types and labels of all metrics of a gate that has served one call.
#[test]
fn metric_names() {
    let folder = trusted(ONE);
    let web = Web::start(&folder, &[]);
    cli(&folder, &["call", "one", "n=1"]).good();
    let request = b"GET /metrics HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\r\n";
    let answer = raw_exchange(&web.serve.socket, request).expect("an answer");
    let text = String::from_utf8(answer).expect("text");
    let (_, page) = text.split_once("\r\n\r\n").expect("a head");
    let names: BTreeSet<String> = page
        .lines()
        .filter(|line| !line.starts_with("# HELP"))
        .map(|line| match line.starts_with('#') {
            true => line.to_owned(),
            false => {
                let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
                let labels = series.split(['{', ',', '}']).map(|label| {
                    let name = label.split('=').next().unwrap_or_default();
                    name.to_owned()
                });
                labels
                    .filter(|name| !name.is_empty())
                    .collect::<Vec<_>>()
                    .join(" ")
            }
        })
        .collect();
    assert_snapshot!(names.into_iter().collect::<Vec<_>>().join("\n"));
}

/// The targets of log lines with their levels: the module that logs, unless the line names another
/// one because its code has moved since.
#[test]
fn log_targets() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut targets = BTreeSet::new();
    let mut folders = vec![crates.canonicalize().expect("the crates")];
    let crates = folders[0].clone();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("tests") && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                let place = path.strip_prefix(&crates).expect("below the crates");
                targets.extend(targets_in(&text, &module_of(place)));
            }
        }
    }
    assert_snapshot!(targets.into_iter().collect::<Vec<_>>().join("\n"));
}

/// The module path of a source file, as `tracing` has it.
fn module_of(path: &Path) -> String {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let (name, rest) = parts.split_first().expect("a crate's folder");
    let mut module = match *name {
        "app" => "callgate".to_owned(),
        name => format!("callgate_{name}"),
    };
    for part in rest.iter().skip(1) {
        let part = part.trim_end_matches(".rs");
        if !["lib", "main", "mod"].contains(&part) {
            module.push_str("::");
            module.push_str(part);
        }
    }
    module
}

/// The level and target of each event that a file logs.
fn targets_in(text: &str, module: &str) -> Vec<String> {
    let mut found = Vec::new();
    for level in ["error", "warn", "info", "debug", "trace"] {
        for (at, start) in text.match_indices(&format!("tracing::{level}!(")) {
            let body = text[at + start.len()..].trim_start();
            let named = body
                .strip_prefix("target: \"")
                .and_then(|b| b.split('"').next());
            found.push(format!("{level} {}", named.unwrap_or(module)));
        }
    }
    found
}
