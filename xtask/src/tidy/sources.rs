//! What every source file owes its reader: module docs, a length that fits one
//! subject, nothing left undone, nothing of the machine it was written on.

use crate::report::Problem;
use crate::tree::Tree;

const LINES_MAX: usize = 700;
/// A longer file says why in one of these first lines.
const REASON_LINES: usize = 20;
const REASON: &str = "// tidy: long because ";

const UNDONE: [&str; 4] = ["todo!(", "unimplemented!(", "FIXME", "#[ignore"];

pub fn check_module_docs(tree: &Tree) -> Vec<Problem> {
    let of_crates = tree
        .under("crates/", ".rs")
        .filter(|path| path.split('/').nth(2) == Some("src"));
    of_crates
        .chain(tree.under("xtask/src/", ".rs"))
        .filter(|path| !begins_with_docs(&tree.text(path).unwrap_or_default()))
        .map(|path| Problem::new(path, "does not begin with module docs (`//!`)"))
        .collect()
}

fn begins_with_docs(text: &str) -> bool {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .is_some_and(|line| line.starts_with("//!"))
}

/// A crate whose tests are one binary names every file of them there, and those that need a
/// process alone in its `Cargo.toml`: one that is not named is not compiled, and nobody would
/// miss its tests.
pub fn check_test_files(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for main in tree.under("crates/", "/tests/main.rs") {
        let folder = main.trim_end_matches("main.rs");
        let modules = tree.text(main).unwrap_or_default();
        let package = folder.replace("tests/", "Cargo.toml");
        let targets = tree.text(&package).unwrap_or_default();
        for path in tree.under(folder, ".rs").filter(|path| *path != main) {
            let rest = &path[folder.len()..];
            let (place, line) = match rest.strip_prefix("alone/") {
                Some(_) => (package.as_str(), format!("path = \"tests/{rest}\"")),
                None if rest.contains('/') => continue,
                None => (main, format!("mod {};", rest.trim_end_matches(".rs"))),
            };
            let text = if place == main { &modules } else { &targets };
            if !text.lines().any(|known| known == line) {
                let text = format!("is not compiled: `{place}` has no `{line}`");
                problems.push(Problem::new(path, text));
            }
        }
    }
    problems
}

/// A module belongs to the crate whose folder holds its file. A crate that includes the file of
/// another crate by `#[path]` depends on it without a manifest that says so.
pub fn check_foreign_paths(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for path in tree.files().filter(|path| path.ends_with(".rs")) {
        let text = tree.text(path).unwrap_or_default();
        for (index, line) in text.lines().enumerate() {
            if let Some(included) = path_attribute(line)
                && leaves_crate(path, included)
            {
                let text = format!("includes `{included}`, a file of another crate");
                problems.push(Problem::at_line(path, index + 1, text));
            }
        }
    }
    problems
}

/// The file that a line's `#[path = "…"]`, alone or inside `cfg_attr`, names.
fn path_attribute(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if !line.starts_with("#[path") && !line.starts_with("#[cfg_attr") {
        return None;
    }
    let (_, after) = line.split_once("path")?;
    let after = after.trim_start().strip_prefix('=')?.trim_start();
    Some(after.strip_prefix('"')?.split_once('"')?.0)
}

/// Whether `included`, named by the file `path` of this tree, is outside of the package that
/// `path` is part of.
fn leaves_crate(path: &str, included: &str) -> bool {
    let package_depth = match path.split('/').next() {
        Some("crates" | "sdk") => 2,
        _ => 1,
    };
    let mut depth = path.split('/').count() - 1;
    for part in included.split('/') {
        match part {
            ".." if depth == package_depth => return true,
            ".." => depth -= 1,
            "." => {}
            _ => depth += 1,
        }
    }
    included.starts_with('/')
}

/// A `select!` drops all arms but one, so each has a comment that says why nothing is lost: on the
/// line above, or on the first line inside. Tests at the end of a file need none.
pub fn check_selects(tree: &Tree) -> Vec<Problem> {
    let of_product = tree
        .under("crates/", ".rs")
        .filter(|path| path.split('/').nth(2) == Some("src"))
        .chain(tree.under("sdk/rust/src/", ".rs"));
    of_product
        .flat_map(|path| {
            let text = tree.text(path).unwrap_or_default();
            let lines = bare_selects(&text);
            lines.into_iter().map(|line| {
                let text = "a `select!` without a comment: say what becomes of the arms that lose";
                Problem::at_line(path, line, text)
            })
        })
        .collect()
}

/// The numbers of the lines that begin a `select!` without a comment.
fn bare_selects(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    let is_comment = |line: Option<&&str>| line.is_some_and(|line| line.trim().starts_with("//"));
    let product = &lines[..tests.unwrap_or(lines.len())];
    product
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains("select! {") && !is_comment(Some(line)))
        .filter(|(index, _)| {
            let above = index.checked_sub(1).and_then(|above| lines.get(above));
            !is_comment(above) && !is_comment(lines.get(index + 1))
        })
        .map(|(index, _)| index + 1)
        .collect()
}

pub fn check_lengths(tree: &Tree) -> Vec<Problem> {
    tree.under("crates/", ".rs")
        .filter_map(|path| {
            let lines = too_long(&tree.text(path)?)?;
            let text = format!(
                "{lines} lines, more than {LINES_MAX}: part it by subject, or say \
                 `{REASON}…` in its first {REASON_LINES} lines"
            );
            Some(Problem::new(path, text))
        })
        .collect()
}

fn too_long(text: &str) -> Option<usize> {
    let lines = text.lines().count();
    let has_reason = text.lines().take(REASON_LINES).any(|line| {
        line.trim_start()
            .strip_prefix(REASON)
            .is_some_and(|reason| !reason.trim().is_empty())
    });
    (lines > LINES_MAX && !has_reason).then_some(lines)
}

pub fn check_hygiene(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for path in tree.files() {
        // What is not UTF-8 is not read by people either.
        let Some(text) = tree.text(path) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            let undone = UNDONE.into_iter().find(|needle| line.contains(needle));
            if let Some(needle) = undone.filter(|_| path.starts_with("crates/")) {
                problems.push(Problem::at_line(
                    path,
                    index + 1,
                    format!("contains `{needle}`"),
                ));
            }
            if let Some(needle) = machine_path(line) {
                let text = format!("names a path of one machine: `{needle}`");
                problems.push(Problem::at_line(path, index + 1, text));
            }
        }
    }
    problems
}

fn machine_path(line: &str) -> Option<&'static str> {
    // In two parts, so that this file does not contain what it looks for.
    let needles = [
        concat!("/wor", "k/"),
        concat!("../sha", "red"),
        concat!("/roo", "t/."),
    ];
    needles.into_iter().find(|needle| {
        line.match_indices(needle).any(|(at, _)| {
            // `a/b` inside a relative path is another folder of that name.
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_come_first() {
        assert!(begins_with_docs("\n//! For this.\nuse x;\n"));
        assert!(!begins_with_docs("use x;\n//! Late.\n"));
        assert!(!begins_with_docs("/// Of an item.\n"));
        assert!(!begins_with_docs(""));
    }

    #[test]
    fn paths_out_of_a_crate_are_seen() {
        let file = "crates/doors/src/lib.rs";
        assert!(leaves_crate(file, "../../app/tests/support/mutate.rs"));
        assert!(leaves_crate(file, "../../doors.rs"));
        assert!(leaves_crate(file, "/elsewhere.rs"));
        assert!(!leaves_crate(file, "../tests/support/mod.rs"));
        assert!(!leaves_crate(
            "crates/doors/tests/main.rs",
            "support/docker.rs"
        ));
        assert!(leaves_crate("xtask/src/main.rs", "../../bench/src/main.rs"));
        assert_eq!(path_attribute("    #[path = \"a.rs\"]"), Some("a.rs"));
        assert_eq!(
            path_attribute("#[cfg_attr(test, path = \"a.rs\")]"),
            Some("a.rs")
        );
        assert_eq!(path_attribute("let path = \"a.rs\";"), None);
    }

    #[test]
    fn a_select_says_what_is_lost() {
        let arms = "    a = b => {}\n}\n";
        let bare = format!("fn f() {{\nlet x = tokio::select! {{\n{arms}}}\n");
        assert_eq!(bare_selects(&bare), [2]);
        let above = format!("// Both wait.\nselect! {{\n{arms}");
        let inside = format!("select! {{\n    // Both wait.\n{arms}");
        let late = format!("select! {{\n    biased;\n    // Both wait.\n{arms}");
        assert!(bare_selects(&above).is_empty() && bare_selects(&inside).is_empty());
        assert_eq!(bare_selects(&late), [1]);
        assert!(bare_selects("/// As `select! {` does.\n").is_empty());
        let test = format!("#[cfg(test)]\nmod tests {{\n{bare}}}\n");
        assert!(bare_selects(&test).is_empty());
        let before = format!("#[cfg(test)]\nmod far;\n{bare}");
        assert_eq!(bare_selects(&before), [4]);
    }

    #[test]
    fn a_long_file_says_why() {
        let long = "x\n".repeat(LINES_MAX);
        assert_eq!(too_long(&long), None);
        assert_eq!(too_long(&format!("y\n{long}")), Some(LINES_MAX + 1));
        assert_eq!(
            too_long(&format!("//! Doc.\n{REASON}one table\n{long}")),
            None
        );
        assert_eq!(too_long(&format!("{REASON}\n{long}")), Some(LINES_MAX + 1));
        assert_eq!(
            too_long(&format!("{long}{REASON}late\n")),
            Some(LINES_MAX + 1)
        );
    }

    #[test]
    fn machine_paths_are_seen_and_relative_ones_are_not() {
        let folder = concat!("/wor", "k/");
        assert!(machine_path(&format!("see {folder}main")).is_some());
        assert!(machine_path(&format!("\"{folder}\"")).is_some());
        assert!(machine_path(&format!("a{folder}b")).is_none());
        assert!(machine_path(&format!("{{root}}{folder}b")).is_none());
        assert!(machine_path(concat!("(../sha", "red/x.md)")).is_some());
    }
}
