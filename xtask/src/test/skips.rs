//! A test that was not run is a failure, unless `docs/skips.md` names it.
//!
//! What the test programs print is read for it: `test NAME ... ignored` and the
//! counts of `test result:` from Rust, the same from Python's unittest.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::markdown;
use crate::report::Failure;

const DOCUMENT: &str = "docs/skips.md";

/// What the output of `cargo test` says.
#[derive(Debug, Default, PartialEq)]
pub struct RustWatch {
    pub passed: usize,
    pub skipped: Vec<String>,
    pub skipped_count: usize,
    /// Tests that passed without having looked, because they need root.
    pub without_root: Vec<String>,
}

/// The line by which such a test says so, before its name.
const NEEDS_ROOT: &str = "skipped: needs root: ";

impl RustWatch {
    pub fn see(&mut self, line: &str) {
        // With one thread it follows `test NAME ... ` on the same line.
        if let Some((_, rest)) = line.split_once(NEEDS_ROOT) {
            let name = rest.split(' ').next().unwrap_or_default();
            self.without_root.push(name.to_owned());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count_before(result, "passed");
            self.skipped_count += count_before(result, "ignored");
        } else if let Some((name, state)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
            && (state == "ignored" || state.starts_with("ignored,"))
        {
            self.skipped.push(name.to_owned());
        }
    }
}

/// What the output of `python -m unittest -v` says.
#[derive(Debug, Default)]
pub struct PythonWatch {
    pub run: usize,
    pub skipped: Vec<String>,
    pub skipped_count: usize,
    /// The test whose line was last: a docstring puts the state on the next one.
    current: String,
}

impl PythonWatch {
    pub fn see(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("Ran ") {
            self.run += leading_count(rest);
        } else if line.starts_with("OK (") || line.starts_with("FAILED (") {
            self.skipped_count += line
                .split_once("skipped=")
                .map_or(0, |(_, rest)| leading_count(rest));
        } else {
            if let Some((name, _class)) = line.split_once(" (").filter(|_| line.contains(')')) {
                self.current = name.to_owned();
            }
            if line.contains(" ... skipped") {
                self.skipped.push(self.current.clone());
            }
        }
    }
}

fn leading_count(text: &str) -> usize {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// `3` of `2 passed; 3 ignored;` for `ignored`.
fn count_before(result: &str, word: &str) -> usize {
    result
        .split([';', '.'])
        .filter_map(|part| part.trim().strip_suffix(word)?.trim().parse::<usize>().ok())
        .next()
        .unwrap_or(0)
}

/// The names in the first column of the table.
pub fn listed(root: &Path) -> BTreeSet<String> {
    parse(&fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default())
}

fn parse(document: &str) -> BTreeSet<String> {
    markdown::prose(document)
        .into_iter()
        .filter_map(|(_, line)| markdown::cells(line))
        .filter_map(|cells| cells.first().map(|cell| cell.trim_matches('`').to_owned()))
        .collect()
}

/// The names in the lists below the table: tests that end at once without root.
pub fn needing_root(root: &Path) -> BTreeSet<String> {
    parse_lists(&fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default())
}

fn parse_lists(document: &str) -> BTreeSet<String> {
    markdown::prose(document)
        .into_iter()
        .filter_map(|(_, line)| line.strip_prefix("- "))
        .flat_map(|item| item.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// Every test that ended because it needs root must be listed.
pub fn judge_without_root(
    without_root: &[String],
    listed: &BTreeSet<String>,
) -> Result<(), Failure> {
    let unlisted = without_root.iter().filter(|name| !listed.contains(*name));
    let unlisted: Vec<&str> = unlisted.map(String::as_str).collect();
    if unlisted.is_empty() {
        return Ok(());
    }
    let names = unlisted.join(", ");
    Err(Failure::new(format!(
        "needs root, and not listed in {DOCUMENT}: {names}"
    )))
}

/// Every skip must be listed, and every one that was counted must have been
/// seen by name.
pub fn judge(skipped: &[String], count: usize, listed: &BTreeSet<String>) -> Result<(), Failure> {
    let unlisted: Vec<&str> = skipped
        .iter()
        .filter(|name| !listed.contains(*name))
        .map(String::as_str)
        .collect();
    if !unlisted.is_empty() {
        let names = unlisted.join(", ");
        return Err(Failure::new(format!(
            "not run, and not listed in {DOCUMENT}: {names}"
        )));
    }
    if count > skipped.len() {
        let unnamed = count - skipped.len();
        return Err(Failure::new(format!(
            "{unnamed} tests were not run, and are not known by name"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_counts_and_names_are_read() {
        let mut watch = RustWatch::default();
        for line in [
            "running 4 tests",
            "skipped: needs root: a::mounts (mounts)",
            "test b ... skipped: needs root: b (a user of its own)",
            "test a::b ... ok",
            "test slow ... ignored",
            "test slower ... ignored, needs a kernel",
            "test src/lib.rs - x (line 3) ... ignored",
            "test result: ok. 1 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 1.50s",
        ] {
            watch.see(line);
        }
        let skipped = ["slow", "slower", "src/lib.rs - x (line 3)"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(
            watch,
            RustWatch {
                passed: 41,
                skipped,
                skipped_count: 3,
                without_root: ["a::mounts", "b"].map(str::to_owned).to_vec(),
            }
        );
    }

    #[test]
    fn python_counts_and_names_are_read() {
        let mut watch = PythonWatch::default();
        for line in [
            "test_a (test_x.T.test_a) ... ok",
            "test_b (test_x.T.test_b) ... skipped 'no kernel'",
            "test_c (test_x.T.test_c)",
            "What it is about. ... skipped 'why'",
            "Ran 12 tests in 0.010s",
            "OK (skipped=2, expected failures=2)",
        ] {
            watch.see(line);
        }
        assert_eq!(watch.skipped, ["test_b", "test_c"]);
        assert_eq!((watch.run, watch.skipped_count), (12, 2));
    }

    #[test]
    fn only_listed_skips_pass() {
        let listed = parse("# Skips\n\n| test | needs |\n|---|---|\n| `slow` | a kernel |\n");
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(judge(&[], 0, &listed).is_ok());
        assert!(judge(&names(&["slow"]), 1, &listed).is_ok());
        assert!(judge(&names(&["slow", "other"]), 2, &listed).is_err());
        assert!(judge(&names(&["slow"]), 2, &listed).is_err());
    }

    #[test]
    fn only_listed_tests_may_need_root() {
        let listed = parse_lists("Only root.\n\n- `a::mounts`\n- in `crates/x`: `b`, `c`\n");
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(judge_without_root(&[], &listed).is_ok());
        assert!(judge_without_root(&names(&["a::mounts", "b", "c"]), &listed).is_ok());
        assert!(judge_without_root(&names(&["b", "d"]), &listed).is_err());
    }
}
