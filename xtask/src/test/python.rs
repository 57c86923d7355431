//! The Python that the tests use.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::report::Failure;

/// What the package supports.
pub const VERSION_MIN: (u32, u32) = (3, 9);
const TESTS: &str = "sdk/python/tests";

/// An interpreter of at least this version, by its own word: what is first on
/// the path may be a shim that costs more than the call it starts.
pub fn find(version_min: (u32, u32)) -> Result<PathBuf, Failure> {
    let chosen = env::var("CALLGATE_TEST_PYTHON").ok();
    let usual = [
        "python3",
        "python3.13",
        "python3.12",
        "python3.11",
        "python3.10",
        "python3.9",
    ];
    chosen
        .iter()
        .map(String::as_str)
        .chain(usual)
        .find_map(|program| interpreter(program, version_min))
        .ok_or_else(|| {
            let (major, minor) = version_min;
            Failure::new(format!(
                "the tests need a python3, {major}.{minor} or later, on the path"
            ))
        })
}

fn interpreter(program: &str, version_min: (u32, u32)) -> Option<PathBuf> {
    let question = "import sys; print(*sys.version_info[:2], sys.executable)";
    let answer = command::output(Command::new(program).args(["-c", question])).ok()?;
    parse_answer(&answer, version_min)
}

fn parse_answer(answer: &str, version_min: (u32, u32)) -> Option<PathBuf> {
    let mut parts = answer.trim_end().splitn(3, ' ');
    let version = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let path = PathBuf::from(parts.next()?);
    (version >= version_min && path.is_absolute()).then_some(path)
}

/// The tests of the Python package, run from its sources.
pub fn unittest(root: &Path, python: &Path) -> Command {
    let package = root.join("sdk/python");
    let sources = package.join("src");
    let mut command = Command::new(python);
    command
        .args(["-m", "unittest", "discover", "-v", "-s", TESTS])
        .current_dir(root)
        .env(
            "PYTHONPATH",
            if sources.is_dir() { sources } else { package },
        )
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_taken_at_its_word() {
        let parse_answer = |answer| parse_answer(answer, (3, 9));
        assert_eq!(
            parse_answer("3 9 /usr/bin/python3\n"),
            Some("/usr/bin/python3".into())
        );
        assert_eq!(
            parse_answer("3 12 /a b/python3\n"),
            Some("/a b/python3".into())
        );
        assert_eq!(parse_answer("3 8 /usr/bin/python3\n"), None);
        assert_eq!(parse_answer("3 12 \n"), None);
        assert_eq!(parse_answer("2"), None);
    }
}
