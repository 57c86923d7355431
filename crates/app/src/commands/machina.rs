//! `machina_cli` beside `tool_exec`: runs, replays and the queue under that program's words, and the
//! static check of packs. TH-21, TH-109.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use callgate_call::bounded::read_path;
use callgate_wires::toolhost::{MAX_STDIN_BYTES, Manifest, ManifestTool};

use crate::cli;
use crate::environment::Environment;
use crate::show;

const USAGE: &str = "\
usage: machina_cli tool_exec AID
       machina_cli run REQUEST.json
       machina_cli replay LOG
       machina_cli replay_strict REQUEST.json LOG
       machina_cli autopilot [QUEUE] [--once]
       machina_cli cts TOOLPACK.json";
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
        ["cts", pack] => return check(Path::new(pack)),
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

/// The static check of a pack. TH-109.
fn check(path: &Path) -> ExitCode {
    let issues = issues(path);
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

fn issues(path: &Path) -> Vec<String> {
    let read = read_path(path, MAX_STDIN_BYTES as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => "the pack is larger than 10 MiB".to_owned(),
        _ => error.to_string(),
    });
    let pack = read.and_then(|bytes| Manifest::parse(&bytes).map_err(|error| error.to_string()));
    match pack {
        Err(reason) => vec![format!("not loadable: {reason}")],
        Ok(pack) => pack.tools.iter().flat_map(issues_of).collect(),
    }
}

fn issues_of(tool: &ManifestTool) -> Vec<String> {
    let ManifestTool { aid, .. } = tool;
    let mut issues = Vec::new();
    for (schema, name) in [
        (&tool.inputs_schema, "inputs_schema"),
        (&tool.outputs_schema, "outputs_schema"),
    ] {
        if schema.is_none() {
            issues.push(format!("{aid} has no {name}"));
        }
    }
    if tool.side_effects.is_empty() {
        issues.push(format!("{aid} does not say its side_effects"));
    }
    let touches = tool.side_effects.iter().any(|effect| effect != "none");
    if tool.deterministic && touches && tool.replay_inputs.is_empty() {
        issues.push(format!(
            "{aid} is deterministic, has side effects and no replay_inputs"
        ));
    }
    issues
}
