//! `callgate describe`: what the functions of a Python module declare with `@tool`, without
//! anything installed. The module is imported as a tool's is, by a process that may do nothing.

use std::process::ExitCode;
use std::time::Duration;

use callgate_call::{Call, Caller, Cancel, Document, Wire};
use callgate_doors::http::outcome_body;
use callgate_gate::{Catalog, Setup};
use callgate_registry::code::LoadedCode;
use callgate_registry::config::{Config, RunnerConfig, ToolConfig};
use callgate_registry::declared::{Declarations, entry_of, may_declare};
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_registry::workspace::Source;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::{Done, Place, runtime};
use crate::compose::{self, chain};
use crate::error::CommandError;
use crate::show;

/// What is asked, inside the package that ships.
const ENTRY: &str = "callgate.__main__:answer";

/// The name under which the chain has it.
const NAME: &str = "describe";

/// The longest that an import may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Print what the functions of a Python module declare with @tool, as a toolpack manifest.
///
/// The module is one of the workspace, and is imported by a process that may write nothing and
/// reach nobody. The manifest, saved to a file that `toolpacks` of callgate.toml names, makes
/// tools of the functions; a [[tool]] of your own for the same function needs no such file.
#[derive(Args)]
pub struct Describe {
    /// The module, or one tool of it
    #[arg(value_name = "MODULE[:NAME]")]
    target: String,
    /// Further code of the workspace that it imports, such as lib/**
    #[arg(long, value_name = "PATH")]
    code: Vec<String>,
    /// The interpreter; else that of .venv, else python3
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// Print [[tool]] tables for callgate.toml instead
    #[arg(long)]
    toml: bool,
}

pub fn run(environment: &Environment, place: &Place, describe: &Describe) -> Done {
    if let Some(module) = module_of_file(&describe.target) {
        return Err(format!(
            "{} is a file: name the module as Python imports it, `callgate describe {module}`",
            describe.target
        )
        .into());
    }
    let parts = super::open(environment, place)?;
    let tool = described(
        &parts,
        &describe.target,
        &describe.code,
        describe.python.clone(),
    );
    let input = json!({ "target": describe.target, "specs": describe.toml });
    let answer = ask(&parts, tool, input);
    super::close(&parts);
    let answer = answer.map_err(|error| {
        let reason = chain(&error);
        CommandError::Described(match reason.contains("code = [") {
            true => format!("{reason}; here: `--code` with the same words"),
            false => reason,
        })
    })?;
    if !describe.toml {
        show::json(&answer["manifest"]);
        return Ok(ExitCode::SUCCESS);
    }
    let tables = json!({ "tool": answer["specs"] });
    let text = toml::to_string_pretty(&tables).map_err(|error| format!("write TOML: {error}"))?;
    show::data(&text);
    Ok(ExitCode::SUCCESS)
}

/// Returns the module that a file's name stands for: `lib.tools` for `lib/tools.py`.
fn module_of_file(target: &str) -> Option<String> {
    let stem = target.strip_suffix(".py")?;
    Some(stem.trim_start_matches("./").replace('/', "."))
}

/// Reads what the functions of a configuration's Python tools declare. A module that cannot be
/// imported declares nothing, and the second part says why.
pub fn declarations(parts: &Parts, source: &Source) -> (Declarations, Vec<String>) {
    let root = &parts.paths.workspace;
    let (mut all, mut doubts) = (Declarations::default(), Vec::new());
    for tool in &source.config.tools {
        let Some(entry) = entry_of(tool).filter(|entry| may_declare(root, entry)) else {
            continue;
        };
        let Some(RunnerConfig::Python { python, .. }) = &tool.runner else {
            continue;
        };
        let asked = described(parts, entry, &tool.code, python.clone());
        let input = json!({ "target": entry, "specs": true });
        match ask(parts, asked, input) {
            Ok(answer) => {
                let spec = answer["specs"][0].as_object().cloned();
                if let Some(spec) = spec {
                    all.add(root, entry, spec);
                }
            }
            Err(error) => {
                let reason = chain(&error);
                // A plain function declares nothing.
                if !reason.contains("is not declared with @tool") {
                    doubts.push(format!(
                        "tool `{}`: what {entry} declares cannot be read: {reason}",
                        tool.name
                    ));
                }
            }
        }
    }
    (all, doubts)
}

/// The tool that imports a module and says what is in it: it has the code of the module, and
/// nothing else.
fn described(parts: &Parts, target: &str, code: &[String], python: Option<String>) -> ToolConfig {
    let of = |entry: &str, code: Vec<String>| ToolConfig {
        name: NAME.to_owned(),
        code,
        isolation: Some(callgate_registry::config::IsolationConfig::Call),
        runner: Some(RunnerConfig::Python {
            entry: entry.to_owned(),
            python: python.clone(),
            preload: Vec::new(),
            env: Default::default(),
            limits: Default::default(),
            pool: Default::default(),
        }),
        ..ToolConfig::default()
    };
    let target = match target.contains(':') {
        true => target.to_owned(),
        false => format!("{target}:"),
    };
    let loaded = LoadedCode::of(&parts.paths.workspace, &of(&target, code.to_vec()));
    of(ENTRY, loaded.imports)
}

/// One call of such a tool, through a gate that has nothing else.
fn ask(parts: &Parts, tool: ToolConfig, input: Value) -> Result<Map<String, Value>, CommandError> {
    let tool = parts.tool_alone(&Config::default(), tool)?;
    let mut catalog = Catalog::default();
    catalog.add(tool)?;
    let gate = compose::gate(
        parts,
        Setup {
            catalog,
            ..Setup::default()
        },
    );
    let caller = Caller::uid(parts.environment.uid);
    let input = Document::from_value(input);
    let mut call = Call::new(
        gate.next_id(),
        NAME,
        input,
        caller,
        Wire::Gate,
        Cancel::new(),
    );
    call.default_timeout = TIMEOUT;
    let outcome = runtime()?.block_on(gate.call(&call));
    let mut body = outcome_body(outcome);
    if body["ok"] != true {
        let message = body["fault"]["message"].as_str().unwrap_or("no answer");
        return Err(CommandError::Described(message.to_owned()));
    }
    match body["output"].take() {
        Value::Object(answer) => match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(CommandError::Described(error.to_owned())),
            None => Ok(answer),
        },
        _ => Err(CommandError::Described(format!("{NAME}: no answer"))),
    }
}
