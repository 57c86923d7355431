//! Which crate may use which: the table of ARCHITECTURE.md against the
//! manifests.
//!
//! The table is written once, between its two markers. Dev-dependencies are
//! free, but for cycles, which cargo would allow. A crate marked `tests only`
//! may be nothing but a dev-dependency, unless of another such crate.
//!
//! A re-export crosses an edge that no manifest shows: if `gate` re-exports an
//! item of `store`, then `doors`, which may use `gate` only, uses `store` all
//! the same.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use crate::markdown;
use crate::report::Problem;
use crate::tree::Tree;

const DOCUMENT: &str = "ARCHITECTURE.md";
const OPENING: &str = "<!-- dependency-table -->";
const CLOSING: &str = "<!-- /dependency-table -->";

type Names = BTreeSet<String>;

pub fn check(tree: &Tree) -> Vec<Problem> {
    let Some(document) = tree.text(DOCUMENT) else {
        return vec![Problem::new(
            DOCUMENT,
            "does not exist; the dependency table belongs there",
        )];
    };
    let rows = match parse_table(&document) {
        Ok(rows) => rows,
        Err(reason) => return vec![Problem::new(DOCUMENT, reason)],
    };
    let mut problems = Vec::new();
    let mut manifests = BTreeMap::new();
    for name in tree.crates() {
        let path = format!("crates/{name}/Cargo.toml");
        match tree.text(&path).unwrap_or_default().parse::<Table>() {
            Ok(manifest) => {
                manifests.insert(name.to_owned(), uses(&manifest));
            }
            Err(error) => problems.push(Problem::new(path, error.message())),
        }
    }
    problems.extend(compare(&rows, &manifests));
    problems.extend(cycle(&manifests).map(|around| {
        Problem::new(
            "crates",
            format!("a cycle of dependencies: {}", around.join(" -> ")),
        )
    }));
    problems
}

/// Re-exports of items of a crate that some user of the re-exporting crate may not use.
pub fn check_reexports(tree: &Tree) -> Vec<Problem> {
    let rows = tree.text(DOCUMENT).map(|document| parse_table(&document));
    // A table that can not be read is reported by `check`.
    let Some(Ok(rows)) = rows else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for name in tree.crates() {
        let folder = format!("crates/{name}/src/");
        for path in tree.under(&folder, ".rs") {
            let text = tree.text(path).unwrap_or_default();
            problems.extend(reexports(&text).into_iter().filter_map(|(line, item_of)| {
                let user = forbidden_user(&rows, name, &item_of)?;
                let text = format!(
                    "re-exports `{item_of}` to `{user}`, which may not use it (table of {DOCUMENT})"
                );
                Some(Problem::at_line(path, line, text))
            }));
        }
    }
    problems
}

/// The public `use` statements of a file that name a crate of the workspace: line and crate.
fn reexports(text: &str) -> Vec<(usize, String)> {
    const OURS: &str = "callgate_";
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("pub use ") {
        let line = text[..text.len() - rest.len() + at].lines().count() + 1;
        let statement = &rest[at..];
        let end = statement.find(';').unwrap_or(statement.len());
        for (start, _) in statement[..end].match_indices(OURS) {
            let name = &statement[start + OURS.len()..end];
            let name = name
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            found.push((line, short_name(&name.replace('_', "-"))));
        }
        rest = &rest[at + "pub use ".len()..];
    }
    found
}

/// A crate that may use `exporter` but not `item_of`.
fn forbidden_user<'a>(
    rows: &'a BTreeMap<String, Row>,
    exporter: &str,
    item_of: &str,
) -> Option<&'a str> {
    rows.iter().find_map(|(name, row)| match &row.may_use {
        MayUse::Only(allowed)
            if allowed.contains(exporter) && !allowed.contains(item_of) && name != item_of =>
        {
            Some(name.as_str())
        }
        _ => None,
    })
}

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row {
    may_use: MayUse,
    /// The crate does not exist yet; its first cell says `later`.
    later: bool,
    /// The crate serves tests and ships with nothing; its first cell says `tests only`.
    tests_only: bool,
}

#[derive(Debug, PartialEq)]
enum MayUse {
    All,
    Only(Names),
}

/// What a manifest uses of our own crates, by their folders' names.
#[derive(Debug, Default, PartialEq)]
struct Uses {
    built: Names,
    tested: Names,
}

fn parse_table(document: &str) -> Result<BTreeMap<String, Row>, String> {
    let inner = document
        .split_once(OPENING)
        .and_then(|(_, after)| after.split_once(CLOSING))
        .map(|(inner, _)| inner)
        .ok_or_else(|| format!("has no table between `{OPENING}` and `{CLOSING}`"))?;
    let mut rows = BTreeMap::new();
    for cells in inner.lines().filter_map(markdown::cells) {
        let [first, second, ..] = cells.as_slice() else {
            return Err("a row of the dependency table has fewer than two cells".into());
        };
        let name = markdown::bare(&without_remarks(first)).to_owned();
        if name == "crate" {
            continue;
        }
        let row = Row {
            may_use: parse_may_use(second),
            later: first.contains("later"),
            tests_only: first.contains("tests only"),
        };
        if rows.insert(short_name(&name), row).is_some() {
            return Err(format!("the dependency table has two rows for `{name}`"));
        }
    }
    if rows.is_empty() {
        Err("the dependency table is empty".into())
    } else {
        Ok(rows)
    }
}

fn parse_may_use(cell: &str) -> MayUse {
    let cell = without_remarks(cell);
    let names = cell
        .split(',')
        .map(markdown::bare)
        .filter(|name| !name.is_empty());
    match cell.trim() {
        "all" => MayUse::All,
        "–" | "-" | "—" | "none" => MayUse::Only(Names::new()),
        _ => MayUse::Only(names.map(short_name).collect()),
    }
}

fn without_remarks(cell: &str) -> String {
    let mut depth = 0usize;
    let mut kept = String::new();
    for c in cell.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}

/// The folder of a package: `callgate-call` is `call`, `callgate` is `app`.
fn short_name(package: &str) -> String {
    match package {
        "callgate" => "app".into(),
        other => other.strip_prefix("callgate-").unwrap_or(other).into(),
    }
}

fn uses(manifest: &Table) -> Uses {
    let mut uses = Uses::default();
    let for_targets = manifest
        .get("target")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(|targets| targets.values().filter_map(toml::Value::as_table));
    for section in std::iter::once(manifest).chain(for_targets) {
        uses.built.extend(ours(section, "dependencies"));
        uses.built.extend(ours(section, "build-dependencies"));
        uses.tested.extend(ours(section, "dev-dependencies"));
    }
    uses
}

fn ours<'a>(section: &'a Table, key: &str) -> impl Iterator<Item = String> + use<'a> {
    let entries = section.get(key).and_then(toml::Value::as_table);
    entries.into_iter().flatten().filter_map(|(name, entry)| {
        // A dependency under another name says which package it is.
        let package = entry
            .get("package")
            .and_then(toml::Value::as_str)
            .unwrap_or(name);
        let ours = package == "callgate" || package.starts_with("callgate-");
        ours.then(|| short_name(package))
    })
}

fn compare(rows: &BTreeMap<String, Row>, manifests: &BTreeMap<String, Uses>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, row) in rows {
        if !row.later && !manifests.contains_key(name) {
            problems.push(Problem::new(
                DOCUMENT,
                format!("a row for `{name}`, but no such crate"),
            ));
        }
        if let MayUse::Only(allowed) = &row.may_use {
            problems.extend(
                allowed
                    .iter()
                    .filter(|used| !rows.contains_key(*used))
                    .map(|used| {
                        Problem::new(
                            DOCUMENT,
                            format!("`{name}` may use `{used}`, which has no row"),
                        )
                    }),
            );
        }
    }
    let is_tests_only = |name: &String| rows.get(name).is_some_and(|row| row.tests_only);
    for (name, uses) in manifests {
        let place = format!("crates/{name}/Cargo.toml");
        problems.extend(
            uses.built
                .iter()
                .filter(|used| is_tests_only(used) && !is_tests_only(name))
                .map(|used| {
                    let text = format!("`{used}` is for tests only: make it a dev-dependency");
                    Problem::new(&place, text)
                }),
        );
        match rows.get(name).map(|row| &row.may_use) {
            None => problems.push(Problem::new(
                place,
                format!("no row in the table of {DOCUMENT}"),
            )),
            Some(MayUse::All) => {}
            Some(MayUse::Only(allowed)) => {
                problems.extend(uses.built.difference(allowed).map(|used| {
                    let text = format!("`{name}` may not use `{used}` (table of {DOCUMENT})");
                    Problem::new(&place, text)
                }));
            }
        }
    }
    problems
}

/// A way from a crate back to itself, tests included.
fn cycle(manifests: &BTreeMap<String, Uses>) -> Option<Vec<String>> {
    let mut done = Names::new();
    manifests
        .keys()
        .find_map(|name| walk(name, manifests, &mut Vec::new(), &mut done))
}

fn walk(
    name: &str,
    manifests: &BTreeMap<String, Uses>,
    path: &mut Vec<String>,
    done: &mut Names,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|earlier| earlier == name) {
        let mut around = path[start..].to_vec();
        around.push(name.to_owned());
        return Some(around);
    }
    if done.contains(name) {
        return None;
    }
    path.push(name.to_owned());
    let uses = manifests.get(name)?;
    let found = uses
        .built
        .union(&uses.tested)
        .find_map(|used| walk(used, manifests, path, done));
    path.pop();
    done.insert(name.to_owned());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
text
<!-- dependency-table -->
| crate | may use | must not know |
|---|---|---|
| call | – (serde_json's `Value`, no derives) | I/O |
| `sandbox` (is a `Planner`) | call | gate |
| gate | `call`, `callgate-store` | – |
| store | call | |
| console (later) | call, gate, store | |
| testing (tests only) | – | |
| testing-call (tests only) | testing | |
| app | all | – |
<!-- /dependency-table -->
";

    fn names(list: &[&str]) -> Names {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn manifest(text: &str) -> Uses {
        uses(&text.parse().expect("a manifest"))
    }

    fn workspace(list: &[(&str, &[&str], &[&str])]) -> BTreeMap<String, Uses> {
        list.iter()
            .map(|&(name, built, tested)| {
                (
                    name.to_owned(),
                    Uses {
                        built: names(built),
                        tested: names(tested),
                    },
                )
            })
            .collect()
    }

    #[test]
    fn the_table_is_read() {
        let rows = parse_table(TABLE).expect("a table");
        let only = |list: &[&str], later| Row {
            may_use: MayUse::Only(names(list)),
            later,
            tests_only: false,
        };
        let for_tests = |list: &[&str]| Row {
            tests_only: true,
            ..only(list, false)
        };
        let expected = BTreeMap::from([
            ("call".to_owned(), only(&[], false)),
            ("sandbox".to_owned(), only(&["call"], false)),
            ("gate".to_owned(), only(&["call", "store"], false)),
            ("store".to_owned(), only(&["call"], false)),
            ("console".to_owned(), only(&["call", "gate", "store"], true)),
            ("testing".to_owned(), for_tests(&[])),
            ("testing-call".to_owned(), for_tests(&["testing"])),
            (
                "app".to_owned(),
                Row {
                    may_use: MayUse::All,
                    later: false,
                    tests_only: false,
                },
            ),
        ]);
        assert_eq!(rows, expected);
        assert!(parse_table("no markers").is_err());
        assert!(parse_table(&format!("{OPENING}\n{CLOSING}")).is_err());
    }

    #[test]
    fn every_kind_of_dependency_is_seen() {
        let text = "\
[dependencies]
serde.workspace = true
callgate-call.workspace = true
nouns = { package = \"callgate-wires\", path = \"../wires\" }
[build-dependencies]
callgate-store.workspace = true
[target.'cfg(unix)'.dependencies]
callgate-sandbox.workspace = true
[dev-dependencies]
callgate.workspace = true
";
        let built = names(&["call", "wires", "store", "sandbox"]);
        assert_eq!(
            manifest(text),
            Uses {
                built,
                tested: names(&["app"])
            }
        );
    }

    #[test]
    fn manifests_are_held_to_the_table() {
        let rows = parse_table(TABLE).expect("a table");
        let manifests = workspace(&[
            ("app", &["call", "gate", "testing"], &[]),
            ("call", &[], &[]),
            ("gate", &["call", "sandbox"], &["sandbox", "testing"]),
            ("sandbox", &["call"], &[]),
            ("extra", &[], &[]),
            ("testing", &[], &[]),
            ("testing-call", &["testing"], &[]),
        ]);
        let texts: Vec<String> = compare(&rows, &manifests)
            .iter()
            .map(Problem::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "ARCHITECTURE.md: a row for `store`, but no such crate",
                "crates/app/Cargo.toml: `testing` is for tests only: make it a dev-dependency",
                "crates/extra/Cargo.toml: no row in the table of ARCHITECTURE.md",
                "crates/gate/Cargo.toml: `gate` may not use `sandbox` (table of ARCHITECTURE.md)",
            ]
        );
    }

    #[test]
    fn reexports_across_a_forbidden_edge_are_found() {
        let text = "use callgate_call::Call;\npub use callgate_store::failpoint;\n\npub use {\n    callgate_call::Tool,\n    callgate_store::{Lease, Token},\n};\npub use own::Thing;\n";
        let found = reexports(text);
        let wanted = [(2, "store"), (4, "call"), (4, "store")];
        assert_eq!(found, wanted.map(|(line, name)| (line, name.to_owned())));
        let table = TABLE.replace(
            "| store | call | |",
            "| store | call | |\n| doors | call, gate | |",
        );
        let rows = parse_table(&table).expect("a table");
        assert_eq!(forbidden_user(&rows, "gate", "store"), Some("doors"));
        assert_eq!(forbidden_user(&rows, "gate", "call"), None);
        assert_eq!(forbidden_user(&rows, "store", "call"), None);
    }

    #[test]
    fn cycles_through_tests_are_found() {
        let clean = workspace(&[("a", &["b"], &["c"]), ("b", &["c"], &[]), ("c", &[], &[])]);
        assert_eq!(cycle(&clean), None);
        let round = workspace(&[("a", &["b"], &[]), ("b", &["c"], &[]), ("c", &[], &["b"])]);
        assert_eq!(cycle(&round).expect("a cycle"), ["b", "c", "b"]);
    }
}
