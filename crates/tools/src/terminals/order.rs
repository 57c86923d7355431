//! What a new session is to run, where and with what environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use callgate_call::{Fault, Needs};
use callgate_sandbox::{TerminalSize, held_env, real};
use serde_json::Value;

use super::TerminalSettings;

/// The size of a terminal whose creator does not say. R-11.
const USUAL: TerminalSize = TerminalSize { cols: 80, rows: 24 };

/// Most columns, and most rows.
const SIDE_MAX: i64 = 1000;

/// Most characters of a screen: each takes memory for as long as its session is kept.
const CELLS_MAX: i64 = 65_536;

/// Most characters of a name.
const NAME_CHARS_MAX: usize = 256;

/// What we can do: as most terminals do today.
const TERM: &str = "xterm-256color";

/// Variables that make the loader run other code than the program's.
const LOADER: [&str; 2] = ["GCONV_PATH", "GLIBC_TUNABLES"];
const LOADER_PREFIXES: [&str; 2] = ["LD_", "DYLD_"];

/// What a new session is to be.
#[derive(Debug)]
pub struct Order {
    pub name: Option<String>,
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    pub search: Option<OsString>,
    /// Nothing for one with pipes instead of a terminal.
    pub size: Option<TerminalSize>,
}

impl Order {
    /// Reads what fits the schema, and refuses what makes no sense all the same.
    pub fn read(
        input: &Value,
        settings: &TerminalSettings,
        needs: Option<&Needs>,
    ) -> Result<Self, Fault> {
        let name = input["name"].as_str().map(str::to_owned);
        if name
            .iter()
            .any(|name| name.chars().count() > NAME_CHARS_MAX)
        {
            return Err(bad(
                "name",
                format!("longer than {NAME_CHARS_MAX} characters"),
            ));
        }
        let asked = asked_env(&input["env"])?;
        let env = environment(settings, needs, &asked);
        let is_dumb = asked
            .iter()
            .any(|(name, value)| *name == "TERM" && *value == "dumb");
        let size = size(&input["cols"], &input["rows"])?;
        Ok(Self {
            name,
            argv: argv(input, settings)?,
            cwd: folder(input["cwd"].as_str(), settings)?,
            search: variable(&settings.env, "PATH"),
            env,
            size: (!is_dumb).then_some(size),
        })
    }
}

pub fn bad(field: &str, reason: impl Into<String>) -> Fault {
    let reason = reason.into();
    Fault::bad_value(format!("{field}: {reason}"))
        .with("field", field)
        .with("reason", reason)
}

fn argv(input: &Value, settings: &TerminalSettings) -> Result<Vec<OsString>, Fault> {
    let words = input["args"].as_array().into_iter().flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    let command = input["command"].as_str();
    if words.iter().chain(&command).any(|word| word.contains('\0')) {
        return Err(bad("command", "a zero byte ends a text early"));
    }
    let mut argv: Vec<OsString> = match command {
        None => vec![settings.shell.clone()],
        Some("") => return Err(bad("command", "must not be empty")),
        // As `exec/run` has it: the arguments are the positional parameters.
        Some(command) if input["shell"] == true => {
            ["sh", "-c", command, "sh"].map(Into::into).to_vec()
        }
        Some(command) => vec![command.into()],
    };
    argv.extend(words.into_iter().map(Into::into));
    Ok(argv)
}

/// The folder to begin in: the workspace, or one inside that is not the gate's.
fn folder(asked: Option<&str>, settings: &TerminalSettings) -> Result<PathBuf, Fault> {
    let Some(asked) = asked else {
        return Ok(settings.workspace.clone());
    };
    if asked.contains('\0') {
        return Err(bad("cwd", "a zero byte ends a path early"));
    }
    let path = real(&settings.workspace.join(asked));
    // What is not there may still climb out by its letters.
    let climbs = path.components().any(|part| part.as_os_str() == "..");
    if climbs || !path.starts_with(&settings.workspace) {
        return Err(bad("cwd", "Path outside workspace"));
    }
    if settings.own.iter().any(|own| path.starts_with(own)) {
        return Err(bad("cwd", "the gate's own"));
    }
    if !path.is_dir() {
        return Err(bad("cwd", "not a folder"));
    }
    Ok(path)
}

/// How a folder of the workspace is told: from its root.
pub fn told(path: &Path, workspace: &Path) -> String {
    match path.strip_prefix(workspace) {
        Ok(inside) if !inside.as_os_str().is_empty() => inside.to_string_lossy().into_owned(),
        _ => ".".to_owned(),
    }
}

fn asked_env(env: &Value) -> Result<Vec<(&str, &str)>, Fault> {
    let Some(members) = env.as_object() else {
        return Ok(Vec::new());
    };
    let pair = |(name, value): (&'_ String, &'_ Value)| {
        let wrong = name.is_empty() || name.contains(['=', '\0']);
        let value = value.as_str().filter(|value| !value.contains('\0'));
        if wrong || value.is_none() {
            return Err(bad("env", format!("`{name}` cannot be a variable")));
        }
        let loads = LOADER.contains(&name.as_str())
            || LOADER_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix));
        if loads {
            return Err(bad("env", format!("`{name}` is for the loader")));
        }
        Ok(())
    };
    for member in members {
        pair(member)?;
    }
    let pairs = members.iter();
    Ok(pairs
        .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
        .collect())
}

/// What of our environment a tool may see, and on top what was asked for.
fn environment(
    settings: &TerminalSettings,
    needs: Option<&Needs>,
    asked: &[(&str, &str)],
) -> Vec<(OsString, OsString)> {
    let ours = match needs {
        None => settings.env.clone(),
        Some(needs) => held_env(&settings.env, &BTreeMap::new(), needs),
    };
    let mut env: BTreeMap<OsString, OsString> = ours.into_iter().collect();
    env.insert("TERM".into(), TERM.into());
    env.extend(
        asked
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    env.into_iter().collect()
}

fn variable(env: &[(OsString, OsString)], name: &str) -> Option<OsString> {
    let found = env.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone())
}

/// A size that a terminal can have.
pub fn size(cols: &Value, rows: &Value) -> Result<TerminalSize, Fault> {
    let cols = side("cols", cols, USUAL.cols)?;
    let rows = side("rows", rows, USUAL.rows)?;
    if i64::from(cols) * i64::from(rows) > CELLS_MAX {
        let reason = format!("{cols} by {rows} is more than {CELLS_MAX} characters");
        return Err(bad("cols", reason));
    }
    Ok(TerminalSize { cols, rows })
}

fn side(field: &str, value: &Value, usual: u16) -> Result<u16, Fault> {
    if value.is_null() {
        return Ok(usual);
    }
    let asked = value
        .as_i64()
        .filter(|asked| (1..=SIDE_MAX).contains(asked));
    let asked = asked.and_then(|asked| u16::try_from(asked).ok());
    asked.ok_or_else(|| bad(field, format!("must be 1 to {SIDE_MAX}")))
}
