//! `machina_cli` beside `tool_exec`: runs, replays and the queue under that program's words, and the
//! static check of packs. TH-21, TH-109.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use callgate_call::bounded::read_path;
use callgate_registry::environment::Environment;
use callgate_wires::json;
use callgate_wires::toolhost::{MAX_STDIN_BYTES, Manifest, ManifestTool};
use serde_json::Value;

use crate::cli;
use crate::show;

const USAGE: &str = "\
usage: machina_cli tool_exec AID
       machina_cli run REQUEST.json
       machina_cli replay LOG
       machina_cli replay_strict REQUEST.json LOG
       machina_cli autopilot [QUEUE] [--once]
       machina_cli cts TOOLPACK.json [GOALPACK.json]";
const EXIT_USAGE: u8 = 2;
/// Where `autopilot` looks that is told nowhere.
const QUEUE: &str = "work/queue";

/// Carries one of its commands out.
pub fn main(environment: &Environment, words: &[OsString]) -> ExitCode {
    let texts: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let ours: Vec<&str> = match texts.unwrap_or_default().as_slice() {
        ["run", request] => vec!["pilot", request],
        ["replay", log] => vec!["replay", "--structure", log],
        ["replay_strict", request, log] => vec!["replay", "--request", request, log],
        ["autopilot"] => vec!["pilot", "--queue", QUEUE],
        ["autopilot", "--once"] => vec!["pilot", "--queue", QUEUE, "--once"],
        ["autopilot", queue] => vec!["pilot", "--queue", queue],
        ["autopilot", queue, "--once"] => vec!["pilot", "--queue", queue, "--once"],
        ["cts", pack] => return check(Path::new(pack), None),
        ["cts", pack, goals] => return check(Path::new(pack), Some(Path::new(goals))),
        _ => {
            show::say(USAGE);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let mut args: Vec<OsString> = vec!["callgate".into()];
    if let Some(root) = environment.os("MACHINA_ROOT") {
        args.extend(["--workspace".into(), root.to_owned()]);
    }
    args.extend(ours.into_iter().map(OsString::from));
    cli::main(environment, &args)
}

/// The static check of a toolpack, and of the goalpack that goes with it. TH-109.
fn check(pack: &Path, goals: Option<&Path>) -> ExitCode {
    let (mut issues, tags) = toolpack_issues(pack);
    if let Some(goals) = goals {
        issues.extend(goalpack_issues(goals, &tags));
    }
    if issues.is_empty() {
        show::data("CTS: OK\n");
        return ExitCode::SUCCESS;
    }
    show::data(
        &issues
            .iter()
            .map(|issue| format!("{issue}\n"))
            .collect::<String>(),
    );
    ExitCode::FAILURE
}

/// One issue. The codes are part of the contract; the words are for people.
struct Issue {
    code: &'static str,
    words: String,
}

impl Issue {
    fn new(code: &'static str, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { code, words }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.words)
    }
}

/// Why a pack is not read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// It is too large.
    #[error("the {0} is larger than 10 MiB")]
    TooLarge(&'static str),
    /// The error of the system.
    #[error(transparent)]
    Io(std::io::Error),
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, ReadError> {
    read_path(path, MAX_STDIN_BYTES as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => ReadError::TooLarge(what),
        _ => ReadError::Io(error),
    })
}

/// The issues of a toolpack, and the tags of its tools.
fn toolpack_issues(path: &Path) -> (Vec<Issue>, HashSet<String>) {
    let not_loadable = |code, reason: String| {
        let issue = Issue::new(code, format!("not loadable: {reason}"));
        (vec![issue], HashSet::new())
    };
    let bytes = match read(path, "pack") {
        Ok(bytes) => bytes,
        Err(error) => return not_loadable("TP-01", error.to_string()),
    };
    let pack = match Manifest::parse(&bytes) {
        Ok(pack) => pack,
        Err(error) => return not_loadable("TP-02", error.to_string()),
    };
    let tags = pack.tools.iter().flat_map(|tool| tool.tags.iter().cloned());
    let tags = tags.collect();
    (pack.tools.iter().flat_map(issues_of).collect(), tags)
}

fn issues_of(tool: &ManifestTool) -> Vec<Issue> {
    let ManifestTool { aid, .. } = tool;
    let mut issues = Vec::new();
    for (code, schema, name) in [
        ("TP-03", &tool.inputs_schema, "inputs_schema"),
        ("TP-04", &tool.outputs_schema, "outputs_schema"),
    ] {
        if schema.is_none() {
            issues.push(Issue::new(code, format!("{aid} has no {name}")));
        }
    }
    if tool.side_effects.is_empty() {
        let words = format!("{aid} does not say its side_effects");
        issues.push(Issue::new("TP-10", words));
    }
    let touches = tool.side_effects.iter().any(|effect| effect != "none");
    if tool.deterministic && touches && tool.replay_inputs.is_empty() {
        let words = format!("{aid} is deterministic, has side effects and no replay_inputs");
        issues.push(Issue::new("TP-11", words));
    }
    issues
}

/// The tag that every menu has, whatever a goal asks for. TH-136.
const TAG_META: &str = "tag.meta";

/// The issues of a goalpack: an object with `goals`, each with a `goal_id` and perhaps
/// `candidate_tags`. `tags` are those of the tools that there are.
fn goalpack_issues(path: &Path, tags: &HashSet<String>) -> Vec<Issue> {
    let bytes = match read(path, "goalpack") {
        Ok(bytes) => bytes,
        Err(reason) => return vec![Issue::new("GP-01", format!("not loadable: {reason}"))],
    };
    let pack = match json::parse(&bytes, json::DEPTH_MAX) {
        Ok(pack) => pack,
        Err(error) => return vec![Issue::new("GP-01", format!("not loadable: {error}"))],
    };
    let text = |value: &Value, name: &str| {
        let found = value.get(name).and_then(Value::as_str);
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let mut issues = Vec::new();
    if text(&pack, "goalpack_id").is_none() {
        issues.push(Issue::new("GP-02", "the goalpack has no goalpack_id"));
    }
    let goals = pack.get("goals").and_then(Value::as_array);
    let goals = goals.map_or(&[][..], Vec::as_slice);
    if goals.is_empty() {
        issues.push(Issue::new("GP-03", "the goalpack has no goals"));
    }
    let mut seen = HashSet::new();
    for (index, goal) in goals.iter().enumerate() {
        let number = index + 1;
        let name = match text(goal, "goal_id") {
            None => {
                issues.push(Issue::new("GP-04", format!("goal {number} has no goal_id")));
                format!("goal {number}")
            }
            Some(id) => {
                if !seen.insert(id.clone()) {
                    issues.push(Issue::new("GP-04", format!("{id} is there twice")));
                }
                id
            }
        };
        let wanted = match goal.get("candidate_tags") {
            None => &[][..],
            Some(Value::Array(wanted)) => wanted,
            Some(_) => {
                let words = format!("{name}: candidate_tags is no list");
                issues.push(Issue::new("GP-05", words));
                continue;
            }
        };
        for tag in wanted {
            let known = tag
                .as_str()
                .is_some_and(|tag| tag == TAG_META || tags.contains(tag));
            if !known {
                issues.push(Issue::new(
                    "GP-05",
                    format!("{name}: no tool has the tag {tag}"),
                ));
            }
        }
    }
    issues
}
