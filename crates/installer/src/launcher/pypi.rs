//! Launchers of Python packages.

use super::words::{FlagKind, Word, Words, program_name};
use super::{Launcher, LauncherError, PackageProgram, PypiLaunch};
use crate::spec::{PackageSpec, SpecError};

/// A flag that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag {
    From,
    With,
    Python,
    Module,
    Script,
}

type Kind = Option<FlagKind<Flag>>;

pub(super) fn parse(name: &str, rest: &[String]) -> Result<Launcher, LauncherError> {
    match (name, rest) {
        ("uvx", rest) => run_tool("uvx", uv_tool, rest),
        ("pipx", [word, rest @ ..]) if word == "run" => run_tool("pipx run", pipx, rest),
        ("uv", rest) => {
            let mut words = Words::new("uv", rest);
            let ignored = |flag: &str| uv_common(flag).map(|()| FlagKind::<Flag>::Ignored);
            // A flag before the command that is not ignored belongs to a project of the user.
            let Ok(Some(Word::Plain(command))) = words.next(ignored) else {
                return Ok(Launcher::Plain);
            };
            let rest = words.rest();
            match (command, &rest[..]) {
                ("tool", [word, rest @ ..]) if word == "run" => {
                    run_tool("uv tool run", uv_tool, rest)
                }
                ("run", rest) => run_with(rest),
                _ => Ok(Launcher::Plain),
            }
        }
        _ => Ok(Launcher::Plain),
    }
}

#[derive(Debug, Default)]
struct Flags {
    from: Option<String>,
    with: Vec<String>,
    python: Option<String>,
    module: bool,
    script: bool,
}

impl Flags {
    fn take(&mut self, flag: Flag, value: &str) {
        match flag {
            Flag::From => self.from = Some(value.to_owned()),
            Flag::With => self.with.extend(split_requirements(value)),
            Flag::Python => self.python = Some(value.to_owned()),
            Flag::Module => self.module = true,
            Flag::Script => self.script = true,
        }
    }
}

/// Splits `a,b>=1` and not `a>=1,<2`.
fn split_requirements(value: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for part in value.split(',') {
        let continues = part.trim_start().starts_with(['<', '>', '=', '!', '~'])
            || all
                .last()
                .is_some_and(|last| last.matches('[').count() > last.matches(']').count());
        match all.last_mut() {
            Some(last) if continues => {
                last.push(',');
                last.push_str(part);
            }
            _ => all.push(part.to_owned()),
        }
    }
    all
}

/// `uvx [--from P] X args`: a program of one package.
fn run_tool(
    launcher: &'static str,
    kind: fn(&str) -> Kind,
    rest: &[String],
) -> Result<Launcher, LauncherError> {
    let read = |text: &str| read(launcher, text);
    let mut words = Words::new(launcher, rest);
    let mut flags = Flags::default();
    let first = loop {
        match words.next(kind)? {
            Some(Word::Flag(flag, value)) => flags.take(flag, value),
            Some(Word::Plain(word)) => break Some(word),
            Some(Word::End) => break words.next_plain(),
            None => break None,
        }
    };
    let Some(first) = first else {
        return Err(LauncherError::Nothing { launcher });
    };
    let (spec, program) = match flags.from {
        Some(from) => (read(&from)?, PackageProgram::Script(first.to_owned())),
        None => (read(first)?, PackageProgram::Default),
    };
    let with = flags.with.iter().map(|text| read(text));
    Ok(Launcher::Pypi(PypiLaunch {
        spec,
        with: with.collect::<Result<_, _>>()?,
        python: flags.python,
        program,
        args: words.rest(),
    }))
}

/// `uv run --with P COMMAND args`. Without `--with` it runs in a project of the user.
fn run_with(rest: &[String]) -> Result<Launcher, LauncherError> {
    let launcher = "uv run";
    let before_program = rest.iter().take_while(|word| *word != "--");
    if !before_program
        .clone()
        .any(|word| word == "--with" || word == "-w" || word.starts_with("--with="))
    {
        return Ok(Launcher::Plain);
    }
    let mut words = Words::new(launcher, rest);
    let mut flags = Flags::default();
    let first = loop {
        match words.next(uv_run)? {
            Some(Word::Flag(flag, value)) => flags.take(flag, value),
            Some(Word::Plain(word)) => break Some(word),
            Some(Word::End) => break words.next_plain(),
            None => break None,
        }
    };
    let Some(first) = first else {
        return Err(LauncherError::Nothing { launcher });
    };
    let mut packages = Vec::new();
    for text in &flags.with {
        packages.push(read(launcher, text)?);
    }
    let mut packages = packages.into_iter();
    let Some(spec) = packages.next() else {
        // `--with` was an argument of the program.
        return Ok(Launcher::Plain);
    };
    let (program, args) = program_of(first, words.rest(), &flags);
    Ok(Launcher::Pypi(PypiLaunch {
        spec,
        with: packages.collect(),
        python: flags.python,
        program,
        args,
    }))
}

/// The program that a command of `uv run` starts, and its arguments.
fn program_of(first: &str, mut rest: Vec<String>, flags: &Flags) -> (PackageProgram, Vec<String>) {
    if flags.module {
        return (PackageProgram::Module(first.to_owned()), rest);
    }
    let name = program_name(first);
    let is_python = name
        .strip_prefix("python")
        .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'));
    if is_python {
        if rest.first().is_some_and(|word| word == "-m") && rest.len() > 1 {
            let args = rest.split_off(2);
            return (PackageProgram::Module(rest.swap_remove(1)), args);
        }
        return (PackageProgram::Interpreter, rest);
    }
    if flags.script || first.ends_with(".py") {
        rest.insert(0, first.to_owned());
        return (PackageProgram::Interpreter, rest);
    }
    (PackageProgram::Script(first.to_owned()), rest)
}

fn read(launcher: &'static str, text: &str) -> Result<PackageSpec, LauncherError> {
    PackageSpec::parse_pypi(text)
        .map_err(|source: SpecError| LauncherError::Spec { launcher, source })
}

/// Flags of every command of uv that change nothing about what is installed.
fn uv_common(flag: &str) -> Option<()> {
    let known = [
        "-q",
        "--quiet",
        "-v",
        "--verbose",
        "--no-progress",
        "--offline",
        "--no-cache",
        "-n",
        "--refresh",
        "--no-config",
        "--native-tls",
        "--system-certs",
    ];
    known.contains(&flag).then_some(())
}

fn uv_tool(flag: &str) -> Kind {
    Some(match flag {
        "--from" => FlagKind::Value(Flag::From),
        "-w" | "--with" => FlagKind::Value(Flag::With),
        "-p" | "--python" => FlagKind::Value(Flag::Python),
        "--isolated" | "-U" | "--upgrade" => FlagKind::Ignored,
        "--color" => FlagKind::IgnoredValue,
        flag => return uv_common(flag).map(|()| FlagKind::Ignored),
    })
}

fn uv_run(flag: &str) -> Kind {
    Some(match flag {
        "-w" | "--with" => FlagKind::Value(Flag::With),
        "-p" | "--python" => FlagKind::Value(Flag::Python),
        "-m" | "--module" => FlagKind::Switch(Flag::Module),
        "-s" | "--script" => FlagKind::Switch(Flag::Script),
        "--isolated" | "--no-project" | "--no-sync" => FlagKind::Ignored,
        "--color" => FlagKind::IgnoredValue,
        flag => return uv_common(flag).map(|()| FlagKind::Ignored),
    })
}

fn pipx(flag: &str) -> Kind {
    Some(match flag {
        "--spec" => FlagKind::Value(Flag::From),
        "--with" => FlagKind::Value(Flag::With),
        "--python" => FlagKind::Value(Flag::Python),
        "--no-cache" | "-q" | "--quiet" | "-v" | "--verbose" => FlagKind::Ignored,
        _ => return None,
    })
}
