//! Runs other programs: shown before they start, stopped at by their exit code,
//! and where their output is judged, read line by line while it passes through.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::report::Failure;

/// The stream of a program that is read; the other goes where ours goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Watched {
    Stdout,
    Stderr,
}

/// Cargo, in the root of the workspace.
pub fn cargo<S: AsRef<OsStr>>(root: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root);
    // `cargo run` describes xtask in these; a build script must not take it for itself.
    for (name, _) in env::vars_os() {
        let about_xtask = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if about_xtask {
            command.env_remove(&name);
        }
    }
    command
}

/// The command as one would type it.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        let arg = arg.to_string_lossy();
        let plain =
            !arg.is_empty() && !arg.contains(|c: char| c.is_whitespace() || "'\"$*;".contains(c));
        let _infallible = if plain {
            write!(line, " {arg}")
        } else {
            write!(line, " '{arg}'")
        };
    }
    line
}

/// Runs it with our streams.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|source| not_started(command, &source))?;
    judge(command, status)
}

/// Runs it with our streams, and ends it when it takes longer than `max`.
pub fn run_within(command: &mut Command, max: Duration) -> Result<(), Failure> {
    let mut child = command
        .spawn()
        .map_err(|source| not_started(command, &source))?;
    let deadline = Instant::now() + max;
    loop {
        let ended = child
            .try_wait()
            .map_err(|source| not_started(command, &source))?;
        if let Some(status) = ended {
            return judge(command, status);
        }
        if Instant::now() >= deadline {
            // It may end by itself meanwhile, which is as good.
            let _ended = child.kill();
            let _reaped = child.wait();
            return Err(Failure::new(format!(
                "`{}` took longer than {} s",
                shown(command),
                max.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs it, hands each line of one stream to `each` and passes it on.
pub fn run_watched(
    command: &mut Command,
    watched: Watched,
    mut each: impl FnMut(&str),
) -> Result<(), Failure> {
    match watched {
        Watched::Stdout => command.stdout(Stdio::piped()),
        Watched::Stderr => command.stderr(Stdio::piped()),
    };
    let mut child = command
        .spawn()
        .map_err(|source| not_started(command, &source))?;
    let stream: Box<dyn Read> = match watched {
        Watched::Stdout => Box::new(child.stdout.take().expect("piped above")),
        Watched::Stderr => Box::new(child.stderr.take().expect("piped above")),
    };
    let passed = match watched {
        Watched::Stdout => pass_lines(stream, &mut io::stdout(), &mut each),
        Watched::Stderr => pass_lines(stream, &mut io::stderr(), &mut each),
    };
    let status = child
        .wait()
        .map_err(|source| not_started(command, &source))?;
    passed.map_err(|source| Failure::new(format!("read `{}`: {source}", shown(command))))?;
    judge(command, status)
}

fn pass_lines(
    stream: impl Read,
    sink: &mut impl Write,
    each: &mut impl FnMut(&str),
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        // Someone who stopped listening must not fail the tests.
        let _closed_pipe = sink.write_all(&line);
        each(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}

/// Runs it and returns what it wrote to stdout; what it wrote to stderr is part
/// of the failure.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command
        .output()
        .map_err(|source| not_started(command, &source))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!(
            "`{}` failed: {}",
            shown(command),
            words.trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Builds with these arguments of `cargo build` and returns where the binary
/// is, as cargo says it: neither profile nor target folder is guessed.
pub fn build_binary(root: &Path, args: &[&str], binary: &str) -> Result<PathBuf, Failure> {
    let mut command = cargo(root, ["build", "--message-format=json-render-diagnostics"]);
    command.args(args);
    built_binary(&mut command, binary)
}

/// Builds by a command of cargo that reports in JSON, and returns where the binary is.
pub fn built_binary(command: &mut Command, binary: &str) -> Result<PathBuf, Failure> {
    let messages = output(command.stderr(Stdio::inherit()))?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == binary)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| Failure::new(format!("`{}` made no `{binary}`", shown(command))))
}

fn judge(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "`{}` failed: {status}",
        shown(command)
    )))
}

fn not_started(command: &Command, source: &io::Error) -> Failure {
    Failure::new(format!("start `{}`: {source}", shown(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--", "two words", ""]);
        assert_eq!(shown(&command), "cargo test -- 'two words' ''");
    }

    #[test]
    fn lines_are_seen_and_passed_on() {
        let mut lines = Vec::new();
        let mut sink = Vec::new();
        let bytes = b"one\n\xff\n\ntwo";
        pass_lines(&bytes[..], &mut sink, &mut |line: &str| {
            lines.push(line.to_owned())
        })
        .expect("memory does not fail");
        assert_eq!(lines, ["one", "\u{fffd}", "", "two"]);
        assert_eq!(sink, bytes);
    }

    #[test]
    fn the_exit_code_of_a_watched_program_counts() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let ended = run_watched(&mut command, Watched::Stdout, |_| {});
        assert!(
            ended
                .expect_err("exit 3")
                .to_string()
                .contains("exit status: 3")
        );
    }

    #[test]
    fn what_takes_too_long_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("600");
        let ended = run_within(&mut command, Duration::ZERO).expect_err("it sleeps");
        assert!(ended.to_string().contains("took longer than 0 s"));
        run_within(&mut Command::new("true"), Duration::from_secs(600)).expect("it ends");
    }
}
