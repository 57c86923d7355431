//! Where clauses are named: tests and vectors only.
//!
//! That is a crate's `tests/` folder, the test modules of its sources, the
//! tests of the SDKs and the `clauses` of the vectors. Doc comments of the code
//! itself and benches do not count: they check nothing.

use std::collections::BTreeMap;

use crate::clauses::Register;
use crate::ids::{self, Id};
use crate::tree::Tree;
use crate::vectors;

/// For each id named anywhere, the places: `path:line`, the first in each file,
/// or `path#case` for a vector.
pub type Citations = BTreeMap<Id, Vec<String>>;

pub fn read(tree: &Tree, register: &Register) -> Citations {
    let prefixes = register.prefixes();
    let mut citations = Citations::new();
    for path in tree.files() {
        let Some(kind) = SourceKind::of(path) else {
            continue;
        };
        let text = tree.text(path).unwrap_or_default();
        for (id, line) in first_mentions(kind, &text) {
            if prefixes.contains(id.prefix()) {
                citations
                    .entry(id)
                    .or_default()
                    .push(format!("{path}:{line}"));
            }
        }
    }
    // Clauses of a vector that have no id's shape are found by tidy.
    for case in vectors::read(tree).0 {
        for id in case.clauses.iter().filter_map(|clause| Id::parse(clause)) {
            citations
                .entry(id)
                .or_default()
                .push(format!("{}#{}", case.file, case.name));
        }
    }
    citations
}

/// How much of a file is test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SourceKind {
    AllTest,
    TestModuleAtEnd,
}

impl SourceKind {
    fn of(path: &str) -> Option<Self> {
        let (top, rest) = path.split_once('/')?;
        let (_owner, inner) = rest.split_once('/')?;
        let in_tests = inner
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs"));
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
        match (top, ending) {
            ("crates" | "sdk", "rs") if in_tests => Some(Self::AllTest),
            ("crates" | "sdk", "rs") if inner.starts_with("src/") => Some(Self::TestModuleAtEnd),
            ("sdk", "py" | "js" | "mjs" | "ts") if in_tests => Some(Self::AllTest),
            _ => None,
        }
    }
}

fn first_mentions(kind: SourceKind, text: &str) -> BTreeMap<Id, usize> {
    let lines: Vec<&str> = text.lines().collect();
    let start = match kind {
        SourceKind::AllTest => 0,
        SourceKind::TestModuleAtEnd => test_module_start(&lines).unwrap_or(lines.len()),
    };
    let mut mentions = BTreeMap::new();
    for (index, line) in lines.iter().enumerate().skip(start) {
        for id in ids::ids_in(line) {
            mentions.entry(id).or_insert(index + 1);
        }
    }
    mentions
}

/// The line of the `#[cfg(test)]` that opens a module with a body. One before
/// `mod tests;`, an import or a function does not make the rest of the file a
/// test.
fn test_module_start(lines: &[&str]) -> Option<usize> {
    let opens_module = |after: usize| {
        let item = lines[after..]
            .iter()
            .map(|line| line.trim_start())
            .find(|line| !line.is_empty() && !line.starts_with("#[") && !line.starts_with("//"));
        item.is_some_and(|item| {
            let item = item.strip_prefix("pub(crate) ").unwrap_or(item);
            item.strip_prefix("pub ")
                .unwrap_or(item)
                .starts_with("mod ")
                && item.contains('{')
        })
    };
    (0..lines.len()).find(|&index| {
        let line = lines[index].trim_start();
        let test_only = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test,");
        test_only && opens_module(index + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_count() {
        use SourceKind::{AllTest, TestModuleAtEnd};
        for (path, kind) in [
            ("crates/doors/tests/toolhost.rs", Some(AllTest)),
            ("crates/doors/tests/common/mod.rs", Some(AllTest)),
            ("crates/doors/src/toolhost.rs", Some(TestModuleAtEnd)),
            ("crates/doors/src/toolhost/tests.rs", Some(AllTest)),
            ("crates/doors/src/tests/lease.rs", Some(AllTest)),
            ("sdk/python/tests/test_dispatch.py", Some(AllTest)),
            ("sdk/python/callgate/worker.py", None),
            ("crates/doors/tests/data.json", None),
            ("crates/doors/build.rs", None),
            ("bench/src/main.rs", None),
            ("bench/tests/figures.rs", None),
            ("xtask/src/ids.rs", None),
            ("README.md", None),
        ] {
            assert_eq!(SourceKind::of(path), kind, "{path}");
        }
    }

    fn mentioned(kind: SourceKind, text: &str) -> Vec<(String, usize)> {
        first_mentions(kind, text)
            .into_iter()
            .map(|(id, line)| (id.to_string(), line))
            .collect()
    }

    #[test]
    fn a_source_counts_from_its_test_module_on() {
        let text = "\
//! Serves T-1.
#[cfg(test)]
mod fixtures;
#[cfg(test)]
fn helper() {} // T-2
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = \"T-3\")]
mod tests {
    // T-4, T-4
    // T-4
}
";
        let expected = [("T-3".to_owned(), 7), ("T-4".to_owned(), 9)];
        assert_eq!(mentioned(SourceKind::TestModuleAtEnd, text), expected);
        assert_eq!(mentioned(SourceKind::AllTest, text).len(), 4);
    }

    #[test]
    fn a_source_without_a_test_module_names_nothing() {
        assert_eq!(
            mentioned(SourceKind::TestModuleAtEnd, "// T-1\n#[cfg(test)]\n"),
            []
        );
    }
}
