//! Allocations whose size comes from outside: a request, a tool's answer, a file, a peer.
//!
//! A size that somebody else names is compared with a bound before anything is allocated for it.
//! `callgate_call::bounded` does both. This check reports the bare forms:
//!
//! - `fs::read`, `fs::read_to_string`, `read_to_end`, `read_to_string`: as large as the file is.
//! - `vec![x; n]`, `with_capacity(n)`, `reserve(n)`, `resize(n, …)`: as large as `n` says.
//!
//! Constants pass, and so do lengths of values that are in memory already (`text.len() + 64`) and
//! files named `"/proc/…"`. Any other use names its bound in a comment, `// bound: …`, in its line or in the line above. Test
//! code is not checked.

use crate::report::Problem;
use crate::tree::Tree;

/// The comment that names the bound.
const REASON: &str = "// bound: ";

/// The test programs: what they allocate harms nobody.
const NOT_CHECKED: [&str; 1] = ["crates/misbehave/"];

/// Calls that read all there is.
const WHOLE: [&str; 7] = [
    "fs::read(",
    "fs::read_to_string(",
    ".read_to_end(",
    ".read_to_string(",
    ".read_line(",
    ".read_until(",
    ".collect().await",
];

/// The kernel's own files, by a name that nobody else gives.
const OF_KERNEL: &str = "(\"/proc/";

/// Calls that allocate as much as their argument says.
const SIZED: [&str; 5] = [
    "with_capacity(",
    ".reserve(",
    ".reserve_exact(",
    ".resize(",
    "vec![",
];

pub fn check(tree: &Tree) -> Vec<Problem> {
    let paths: Vec<&str> = tree
        .under("crates/", ".rs")
        .chain(tree.under("sdk/", ".rs"))
        .filter(|path| path.split('/').nth(2) == Some("src"))
        .filter(|path| !NOT_CHECKED.iter().any(|folder| path.starts_with(folder)))
        .collect();
    let texts: Vec<(&str, String)> = paths
        .into_iter()
        .filter_map(|path| Some((path, tree.text(path)?)))
        .collect();
    let for_tests: Vec<String> = texts
        .iter()
        .flat_map(|(path, text)| test_modules(path, text))
        .collect();
    let is_test = |path: &str| {
        for_tests.iter().any(|stem| {
            path.strip_prefix(stem.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    texts
        .iter()
        .filter(|(path, _)| !is_test(path))
        .flat_map(|(path, text)| {
            bare(text).map(|(line, found)| {
                let text = format!(
                    "`{found}` without a bound: use `callgate_call::bounded`, or name the bound \
                     in a comment `{REASON}…`"
                );
                Problem::at_line(path, line, text)
            })
        })
        .collect()
}

/// The modules in files of their own that only tests compile: paths without `.rs`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let is_root = ["/lib", "/main", "/mod"]
        .iter()
        .any(|end| stem.ends_with(end));
    let folder = match stem.rsplit_once('/') {
        Some((folder, _)) if is_root => folder,
        _ => stem,
    };
    let mut lines = text.lines().map(str::trim).peekable();
    let mut modules = Vec::new();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            continue;
        }
        let name = lines
            .peek()
            .and_then(|next| next.strip_suffix(';'))
            .and_then(|next| next.split("mod ").nth(1));
        modules.extend(name.map(|name| format!("{folder}/{name}")));
    }
    modules
}

/// The bare forms of one file, by line, up to its tests.
fn bare(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let lines: Vec<&str> = text.lines().collect();
    let code = lines
        .windows(2)
        .position(|pair| {
            pair[0].trim() == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{')
        })
        .unwrap_or(lines.len());
    let mut found = Vec::new();
    for (index, line) in lines[..code].iter().enumerate() {
        let has_reason =
            line.contains(REASON) || index > 0 && lines[index - 1].trim_start().starts_with(REASON);
        if has_reason || line.trim_start().starts_with("//") {
            continue;
        }
        found.extend(form(line).map(|form| (index + 1, form)));
    }
    found.into_iter()
}

/// The bare form in a line, if there is one.
fn form(line: &str) -> Option<&'static str> {
    let names_kernel = line.contains(OF_KERNEL) || line.contains("(format!(\"/proc/");
    let whole = WHOLE
        .into_iter()
        .find(|form| line.contains(form) && !names_kernel);
    whole.or_else(|| {
        SIZED.into_iter().find(|form| {
            let mut uses = line.match_indices(form);
            uses.any(|(at, _)| {
                let rest = &line[at + form.len()..];
                !is_quota(form, rest) && !is_known(argument(form, rest))
            })
        })
    })
}

/// The size among the arguments of a form.
fn argument<'a>(form: &str, rest: &'a str) -> &'a str {
    let mut depth = 0;
    let end = rest.find(|c| {
        depth += match c {
            '(' | '[' => 1,
            ')' | ']' => -1,
            _ => 0,
        };
        depth < 0
    });
    let all = &rest[..end.unwrap_or(rest.len())];
    match form {
        "vec![" => all.rsplit_once("; ").map_or("0", |(_, size)| size),
        // With one argument it is a terminal that is resized.
        ".resize(" => all.split_once(", ").map_or("0", |(size, _)| size),
        _ => all,
    }
}

/// True for what is made of constants and of the lengths of values that are in memory.
fn is_known(size: &str) -> bool {
    size.split(|c: char| c.is_whitespace() || matches!(c, '+' | '*' | '/' | '-'))
        .filter(|term| !term.is_empty())
        .all(|term| {
            let last = term.rsplit("::").next().unwrap_or(term);
            let is_constant = last
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            is_constant || term.strip_suffix(".len()").is_some_and(is_path)
        })
}

/// True for a `reserve` that can fail: it counts against a quota and allocates nothing.
fn is_quota(form: &str, rest: &str) -> bool {
    form == ".reserve(" && (rest.contains(", ") || rest.ends_with(")?;"))
}

/// True for a variable or a field, and false for what a call returns.
fn is_path(term: &str) -> bool {
    term.chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_from_outside_are_seen() {
        for line in [
            "let all = fs::read(path)?;",
            "file.take(limit).read_to_end(&mut bytes)?;",
            "let mut all = vec![0; usize::try_from(size(&about)).ok()?];",
            "let rows = Vec::with_capacity(count);",
            "out.resize(from + wanted, b'=');",
            "buffer.reserve_exact(roomy - buffer.len());",
            "let mut bytes = vec![0; range_of(range).len()];",
            "match lines.read_line(&mut line) {",
            "let body = body.collect().await?;",
        ] {
            assert!(form(line).is_some(), "{line}");
        }
    }

    #[test]
    fn constants_and_what_is_held_pass() {
        for line in [
            "let chunk = vec![0; 64 * 1024];",
            "let buffer = vec![0; super::READ_BYTES];",
            "let names = vec![a, b];",
            "self.reserve(bytes)?;",
            "session.resize(size);",
            "let mut mixed = vec![0.0; self.query.len()];",
            "for line in fs::read_to_string(\"/proc/self/maps\")?.lines() {",
            "let stat = fs::read_to_string(format!(\"/proc/{pid}/stat\")).ok()?;",
            "out.reserve(text.len() + text.len() / 8 + 2);",
            "self.unsent.resize(self.unsent.len() + LINE_BYTES_MAX + 1, b'x');",
        ] {
            assert_eq!(form(line), None, "{line}");
        }
    }

    #[test]
    fn a_reason_and_tests_pass() {
        let text = "// bound: a page\nfs::read(a);\nfs::read(b); // bound: b\nfs::read(c);\n\
                    #[cfg(test)]\nmod tests {\nfs::read(d);\n}\n";
        assert_eq!(bare(text).collect::<Vec<_>>(), [(4, "fs::read(")]);
    }

    #[test]
    fn modules_for_tests_are_found() {
        let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\npub(crate) mod c;\n";
        assert_eq!(
            test_modules("crates/x/src/lib.rs", text),
            ["crates/x/src/b", "crates/x/src/c"]
        );
        assert_eq!(
            test_modules("crates/x/src/y.rs", text),
            ["crates/x/src/y/b", "crates/x/src/y/c"]
        );
    }
}
