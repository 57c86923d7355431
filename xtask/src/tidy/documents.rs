//! The documents: links lead somewhere, own-code.md names files that exist, and the test command
//! of the README is the one that CI runs.

use crate::markdown;
use crate::report::Problem;
use crate::tree::Tree;

const TEST_COMMAND: &str = "cargo xtask test";
const CI_SCRIPT: &str = ".ci/run";
const OWN_CODE: &str = "docs/decisions/own-code.md";

pub fn check_links(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for document in tree.under("", ".md") {
        let text = tree.text(document).unwrap_or_default();
        for (number, line) in markdown::prose(&text) {
            for target in markdown::link_targets(line) {
                if leads_nowhere(tree, document, &target) {
                    let text = format!("link to `{target}`, which does not exist");
                    problems.push(Problem::at_line(document, number, text));
                }
            }
        }
    }
    problems
}

fn leads_nowhere(tree: &Tree, document: &str, target: &str) -> bool {
    match relative_path(document, target) {
        Target::Elsewhere => false,
        Target::Outside => true,
        Target::Inside(path) => !tree.exists(&path),
    }
}

#[derive(Debug, PartialEq)]
enum Target {
    /// A web page or a heading of the same document.
    Elsewhere,
    /// A path that leaves the project.
    Outside,
    Inside(String),
}

fn relative_path(document: &str, target: &str) -> Target {
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let has_scheme = path.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b))
    });
    if path.is_empty() || has_scheme || path.starts_with("//") {
        return Target::Elsewhere;
    }
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let start = if path.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Target::Outside,
            ".." => {}
            name => parts.push(name),
        }
    }
    Target::Inside(parts.join("/").replace("%20", " "))
}

/// The rows of own-code.md outlive the files they are about: one that names a file which moved is
/// to be looked at again.
pub fn check_own_code(tree: &Tree) -> Vec<Problem> {
    let text = tree.text(OWN_CODE).unwrap_or_default();
    let mut problems = Vec::new();
    for (number, line) in markdown::prose(&text) {
        for path in line.split('`').skip(1).step_by(2).flat_map(source_paths) {
            if !tree.exists(&path) && !tree.exists(&format!("crates/{path}")) {
                let text = format!("names `{path}`, which does not exist");
                problems.push(Problem::at_line(OWN_CODE, number, text));
            }
        }
    }
    problems
}

/// The paths of a code span such as `store/src/{journal,frame}.rs`; none of any other span.
fn source_paths(span: &str) -> Vec<String> {
    if !span.contains("/src/") {
        return Vec::new();
    }
    match span
        .split_once('{')
        .map(|(start, rest)| (start, rest.split_once('}')))
    {
        Some((start, Some((names, end)))) => names
            .split(',')
            .map(|name| format!("{start}{name}{end}"))
            .collect(),
        _ => vec![span.to_owned()],
    }
}

pub fn check_test_command(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    match tree.text("README.md") {
        None => problems.push(Problem::new("README.md", "does not exist")),
        Some(text) if !text.contains(TEST_COMMAND) => {
            problems.push(Problem::new(
                "README.md",
                format!("does not say `{TEST_COMMAND}`"),
            ));
        }
        Some(_) => {}
    }
    match tree.text(CI_SCRIPT) {
        None => problems.push(Problem::new(CI_SCRIPT, "does not exist")),
        Some(text) if script_commands(&text) != [TEST_COMMAND] => {
            let text = format!("must run `{TEST_COMMAND}` and nothing else");
            problems.push(Problem::new(CI_SCRIPT, text));
        }
        Some(_) => {}
    }
    problems
}

/// What a script runs, less comments and the shell's own setting up.
fn script_commands(script: &str) -> Vec<&str> {
    script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter(|line| {
            !["set ", "cd ", "export "]
                .iter()
                .any(|word| line.starts_with(word))
        })
        .map(|line| line.strip_prefix("exec ").unwrap_or(line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_resolved_from_their_document() {
        let inside = |path: &str| Target::Inside(path.to_owned());
        for (target, expected) in [
            ("a.md", inside("docs/contracts/a.md")),
            ("../decisions/d.md#t-5", inside("docs/decisions/d.md")),
            ("../../README.md", inside("README.md")),
            ("/LICENSE", inside("LICENSE")),
            ("my%20file.md", inside("docs/contracts/my file.md")),
            ("../../../other/x.md", Target::Outside),
            ("#heading", Target::Elsewhere),
            ("https://example.com/a", Target::Elsewhere),
            ("mailto:a@example.com", Target::Elsewhere),
        ] {
            assert_eq!(
                relative_path("docs/contracts/toolhost.md", target),
                expected,
                "{target}"
            );
        }
    }

    #[test]
    fn spans_are_paths() {
        assert_eq!(source_paths("wires/src/sse.rs"), ["wires/src/sse.rs"]);
        let both = source_paths("store/src/{journal,frame}.rs");
        assert_eq!(both, ["store/src/journal.rs", "store/src/frame.rs"]);
        assert!(source_paths("tools.yaml").is_empty());
    }

    #[test]
    fn the_ci_script_runs_one_command() {
        let script = "#!/bin/sh\nset -eu\n# why\ncd \"$(dirname \"$0\")/..\"\nexport A=1\ncargo xtask test\n";
        assert_eq!(script_commands(script), [TEST_COMMAND]);
        assert_eq!(
            script_commands("cargo build\nexec cargo xtask test"),
            ["cargo build", TEST_COMMAND]
        );
    }
}
