//! What a new session is to run, where and with what environment.

use std::ffi::OsString;
use std::path::Path;

use callgate_call::{Fault, Needs};
use callgate_sandbox::TerminalSize;

use super::TerminalSettings;
use super::schemas::TerminalCreateArguments;
use crate::arguments::WholeNumber;
use crate::files::place::Ground;
use crate::programs::{Start, Variables, bad, set};

/// The size of a terminal whose creator does not say. R-11.
const USUAL: TerminalSize = TerminalSize { cols: 80, rows: 24 };

/// Most columns, and most rows.
const SIDE_MAX: i64 = 1000;

/// Most characters of a screen: each takes memory for as long as its session is kept.
const CELLS_MAX: i64 = 65_536;

/// Most characters of a name.
const NAME_CHARS_MAX: usize = 256;

/// What we can do: as most terminals do today.
const TERM_USUAL: &str = "xterm-256color";

/// The variable that names the kind of a terminal.
const TERM: &str = "TERM";

/// What a new session is to be.
#[derive(Debug)]
pub struct Order {
    pub name: Option<String>,
    pub argv: Vec<OsString>,
    /// The program as its creator named it, where they did.
    pub named: Option<String>,
    pub start: Start,
    pub env: Vec<(OsString, OsString)>,
    pub search: OsString,
    /// Nothing for one with pipes instead of a terminal.
    pub size: Option<TerminalSize>,
}

impl Order {
    /// Reads what fits the schema, and refuses what makes no sense all the same.
    pub fn read(
        asked: &TerminalCreateArguments<'_>,
        settings: &TerminalSettings,
        ground: &Ground,
        needs: Option<&Needs>,
    ) -> Result<Self, Fault> {
        let is_long = |name: &str| name.chars().count() > NAME_CHARS_MAX;
        if asked.name.is_some_and(is_long) {
            return Err(bad(
                "name",
                format!("longer than {NAME_CHARS_MAX} characters"),
            ));
        }
        let env = environment(settings, needs, &asked.env)?;
        let is_dumb = asked.env.get(TERM) == Some(&"dumb");
        let size = size(asked.cols, asked.rows)?;
        let start = start(asked.cwd, settings, ground)?;
        let argv = argv(asked, settings, &start.path)?;
        Ok(Self {
            name: asked.name.map(str::to_owned),
            search: settings.programs.search_path(&argv[0]),
            argv,
            named: asked.command.filter(|_| !asked.shell).map(str::to_owned),
            start,
            env,
            size: (!is_dumb).then_some(size),
        })
    }
}

fn argv(
    asked: &TerminalCreateArguments<'_>,
    settings: &TerminalSettings,
    cwd: &Path,
) -> Result<Vec<OsString>, Fault> {
    let &TerminalCreateArguments {
        command,
        shell: in_shell,
        ..
    } = asked;
    for (field, words) in [("command", command.as_slice()), ("args", &asked.args)] {
        if words.iter().any(|word| word.contains('\0')) {
            return Err(bad(field, "a zero byte ends a text early"));
        }
    }
    let shell = settings.shell.to_string_lossy();
    let program = settings.programs.allowed(
        "command",
        match command {
            None => &shell,
            Some(_) if in_shell => "sh",
            Some(command) => command,
        },
        cwd,
    )?;
    let mut argv: Vec<OsString> = match command {
        None => vec![settings.shell.clone()],
        Some("") => return Err(bad("command", "must not be empty")),
        // As `exec/run` has it: the arguments are the positional parameters.
        Some(command) if in_shell => ["sh", "-c", command, "sh"].map(Into::into).to_vec(),
        Some(_) => vec![program],
    };
    argv.extend(asked.args.iter().map(Into::into));
    Ok(argv)
}

/// The folder to begin in: the workspace, or one inside that is not the gate's.
fn start(
    asked: Option<&str>,
    settings: &TerminalSettings,
    ground: &Ground,
) -> Result<Start, Fault> {
    let asked = asked.filter(|asked| !asked.is_empty());
    let found = Start::find(ground, &settings.programs.workspace, asked);
    // The contract has no other code for it here.
    found.map_err(|fault| match fault {
        Fault::Denied { reason, .. } => bad("cwd", reason),
        fault => fault,
    })
}

/// How a folder of the workspace is told: from its root.
pub fn told(path: &Path, workspace: &Path) -> String {
    match path.strip_prefix(workspace) {
        Ok(inside) if !inside.as_os_str().is_empty() => inside.to_string_lossy().into_owned(),
        _ => ".".to_owned(),
    }
}

/// The usual environment of programs, and what they are told of their terminal.
fn environment(
    settings: &TerminalSettings,
    needs: Option<&Needs>,
    asked: &Variables<'_>,
) -> Result<Vec<(OsString, OsString)>, Fault> {
    let mut env = settings.programs.env(asked, needs)?;
    if !asked.contains_key(TERM) {
        set(&mut env, TERM, TERM_USUAL);
    }
    Ok(env)
}

/// A size that a terminal can have.
pub fn size(cols: Option<WholeNumber>, rows: Option<WholeNumber>) -> Result<TerminalSize, Fault> {
    let field = if cols.is_none() { "rows" } else { "cols" };
    let cols = side("cols", cols, USUAL.cols)?;
    let rows = side("rows", rows, USUAL.rows)?;
    if i64::from(cols) * i64::from(rows) > CELLS_MAX {
        let reason = format!("{cols} by {rows} is more than {CELLS_MAX} characters");
        return Err(bad(field, reason));
    }
    Ok(TerminalSize { cols, rows })
}

fn side(field: &str, asked: Option<WholeNumber>, usual: u16) -> Result<u16, Fault> {
    let Some(WholeNumber(asked)) = asked else {
        return Ok(usual);
    };
    let side = u16::try_from(asked).ok();
    let side = side.filter(|_| (1..=SIDE_MAX).contains(&asked));
    side.ok_or_else(|| bad(field, format!("must be 1 to {SIDE_MAX}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::arguments;
    use crate::programs::mutated::{Scene, check_refusal, params};
    use callgate_call::Secrets;
    use callgate_sandbox::Limits;
    use callgate_testing::Random;
    use callgate_testing::mutant;
    use serde_json::Value;
    use std::sync::Arc;

    /// A side of a terminal: a number as JSON has them, or none.
    fn side(random: &mut Random) -> Value {
        const SEEDS: [&[u8]; 6] = [b"1", b"80", b"1000", b"65", b"66.0", b"1e3"];
        const WORDS: [&[u8]; 8] = [b"0", b"9", b".", b"e", b"-", b"1001", b"4294967376", b"e99"];
        let number = serde_json::from_slice(&mutant(random, &SEEDS, &WORDS)).ok();
        number.filter(Value::is_number).unwrap_or_default()
    }

    /// 100,000 changed params: a session that is made begins in the workspace, with a screen
    /// that can be kept; what is refused is told with its field.
    #[test]
    fn mutated_orders() {
        let scene = Scene::new("orders");
        let settings = TerminalSettings {
            programs: scene.programs.clone(),
            own: scene.own.clone(),
            shell: "/bin/sh".into(),
            secrets: Secrets::default(),
            limits: Limits::default(),
            needs: Arc::default(),
        };
        let ground = scene.ground();
        let mut random = Random::new("mutated orders");
        let mut taken = 0;
        for _ in 0..100_000 {
            let mut asked = params(&mut random);
            if random.one_in(2) {
                (asked["cols"], asked["rows"]) = (side(&mut random), side(&mut random));
            }
            if random.one_in(4) {
                asked["name"] = "é".repeat(250 + random.below(13)).into();
            }
            if random.one_in(4) {
                asked["command"] = Value::Null;
            }
            // A side that is no whole number does not fit the schema.
            let Ok(read) = arguments(&asked) else {
                continue;
            };
            let order = match Order::read(&read, &settings, &ground, None) {
                Ok(order) => order,
                Err(fault) => {
                    check_refusal(&asked, &fault);
                    continue;
                }
            };
            scene.check(&asked, &order.start.path, &order.env);
            scene.check_search(&asked, &order.search);
            let is_named = asked["cwd"].as_str().is_some_and(|cwd| !cwd.is_empty());
            assert_eq!(order.start.folder.is_some(), is_named, "{asked}");
            let args = asked["args"].as_array().into_iter().flatten();
            let args: Vec<&str> = args.filter_map(Value::as_str).collect();
            let argv = match asked["command"].as_str() {
                None => vec!["/bin/sh"],
                Some(command) if asked["shell"] == true => vec!["sh", "-c", command, "sh"],
                Some(command) => vec![command],
            };
            assert_eq!(order.argv, [argv, args].concat(), "{asked}");
            assert!(order.name.is_none_or(|name| name.chars().count() <= 256));
            assert_eq!(
                order.size.is_none(),
                asked["env"]["TERM"] == "dumb",
                "{asked}"
            );
            if let Some(TerminalSize { cols, rows }) = order.size {
                let sides = [cols, rows].map(i64::from);
                assert!(
                    sides.iter().all(|side| (1..=1000).contains(side)),
                    "{asked}"
                );
                assert!(sides[0] * sides[1] <= CELLS_MAX, "{asked}");
            }
            taken += 1;
        }
        assert!(taken > 0 && taken < 100_000);
    }
}
