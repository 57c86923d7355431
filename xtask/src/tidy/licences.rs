//! The licences of what we build with, against the list in `deny.toml`.
//!
//! Done here as far as a licence expression goes, so that the check needs no
//! tool; where `cargo deny` is installed it is asked too.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use toml::Table;

use crate::command::{cargo, output, run};
use crate::report::{Failure, Problem};
use crate::tree::Tree;

const LIST: &str = "deny.toml";
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn check(tree: &Tree) -> Vec<Problem> {
    let rules = match read_rules(tree) {
        Ok(rules) => rules,
        Err(reason) => return vec![Problem::new(LIST, reason)],
    };
    match packages(tree.root(), &rules.targets) {
        Ok(packages) => packages
            .iter()
            .filter_map(|package| judge(package, &rules))
            .collect(),
        Err(failure) => vec![Problem::new("Cargo.lock", failure.to_string())],
    }
}

/// Asks `cargo deny` too, where it is installed.
pub fn run_cargo_deny(root: &Path) -> Result<(), Failure> {
    let mut probe = cargo(root, ["deny", "--version"]);
    let probe = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    run(&mut cargo(
        root,
        ["deny", "check", "licenses", "bans", "sources"],
    ))
}

#[derive(Debug, Default, PartialEq)]
struct Rules {
    allowed: Vec<String>,
    /// Crates that may have a licence of their own.
    exceptions: Vec<(String, Vec<String>)>,
    /// What we build for; other platforms' crates are not ours to judge.
    targets: Vec<String>,
}

fn read_rules(tree: &Tree) -> Result<Rules, String> {
    let text = tree.text(LIST).ok_or("does not exist")?;
    let table = text
        .parse::<Table>()
        .map_err(|error| error.message().to_owned())?;
    let rules = parse_rules(&table);
    if rules.allowed.is_empty() {
        Err("allows no licence".into())
    } else {
        Ok(rules)
    }
}

fn parse_rules(table: &Table) -> Rules {
    let texts = |value: Option<&toml::Value>| -> Vec<String> {
        let list = value.and_then(toml::Value::as_array).into_iter().flatten();
        list.filter_map(toml::Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let licences = table.get("licenses");
    let exceptions = licences.and_then(|section| section.get("exceptions")?.as_array());
    Rules {
        allowed: texts(licences.and_then(|section| section.get("allow"))),
        exceptions: exceptions
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let name = entry.get("crate").or_else(|| entry.get("name"))?.as_str()?;
                Some((name.to_owned(), texts(entry.get("allow"))))
            })
            .collect(),
        targets: texts(
            table
                .get("graph")
                .and_then(|section| section.get("targets")),
        ),
    }
}

#[derive(Debug, Default)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    source: Option<String>,
}

/// Everything that is built with, less our own crates.
fn packages(root: &Path, targets: &[String]) -> Result<Vec<Package>, Failure> {
    let mut command = cargo(root, ["metadata", "--format-version", "1", "--locked"]);
    for target in targets {
        command.args(["--filter-platform", target]);
    }
    let listing: Value = serde_json::from_str(&output(&mut command)?)
        .map_err(|error| Failure::new(format!("`cargo metadata` is not JSON: {error}")))?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let package = |entry: &Value| Package {
        name: text(&entry["name"]).unwrap_or_default(),
        version: text(&entry["version"]).unwrap_or_default(),
        licence: text(&entry["license"]),
        source: text(&entry["source"]),
    };
    let listed = listing["packages"].as_array().into_iter().flatten();
    Ok(listed
        .map(package)
        .filter(|package| package.source.is_some())
        .collect())
}

fn judge(package: &Package, rules: &Rules) -> Option<Problem> {
    let Package { name, version, .. } = package;
    let problem = |text: String| Some(Problem::new(format!("{name} {version}"), text));
    if package.source.as_deref() != Some(REGISTRY) {
        return problem("does not come from crates.io".into());
    }
    let Some(expression) = &package.licence else {
        return problem("states no licence".into());
    };
    let own = rules
        .exceptions
        .iter()
        .filter(|(crate_name, _)| crate_name == name);
    let own: Vec<&String> = own.flat_map(|(_, allowed)| allowed).collect();
    let allowed = |term: &str| {
        rules.allowed.iter().any(|licence| licence == term)
            || own.iter().any(|&licence| licence == term)
    };
    match permitted(expression, &allowed) {
        Some(true) => None,
        Some(false) => problem(format!("`{expression}` is not allowed by {LIST}")),
        None => problem(format!("`{expression}` can not be read")),
    }
}

/// Whether a licence expression can be met with allowed terms alone; `None` if
/// it is not an expression. `A/B` is the old way to write `A OR B`; a term with
/// an exception is one term, `A WITH E`.
fn permitted(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let verdict = any_of(&mut words, allowed)?;
    words.next().is_none().then_some(verdict)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut verdict = all_of(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        // Read on whatever the verdict is: the rest must be well formed too.
        verdict |= all_of(words, allowed)?;
    }
    Some(verdict)
}

fn all_of(words: &mut Words<'_>, allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut verdict = term(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        verdict &= term(words, allowed)?;
    }
    Some(verdict)
}

fn term(words: &mut Words<'_>, allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let word = words.next()?;
    match word {
        "(" => {
            let verdict = any_of(words, allowed)?;
            words.next_if_eq(&")").map(|_| verdict)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        licence if words.next_if_eq(&"WITH").is_some() => {
            Some(allowed(&format!("{licence} WITH {}", words.next()?)))
        }
        licence => Some(allowed(licence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(expression: &str) -> Option<bool> {
        let list = [
            "MIT",
            "Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Unicode-3.0",
        ];
        permitted(expression, &|term| list.contains(&term))
    }

    #[test]
    fn expressions_are_judged() {
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("MIT/Apache-2.0", Some(true)),
            ("GPL-3.0 / LGPL-2.1", Some(false)),
            ("MIT AND GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT AND Apache-2.0", Some(true)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("(MIT OR GPL-3.0) AND GPL-3.0", Some(false)),
            ("((MIT))", Some(true)),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
        ] {
            assert_eq!(verdict(expression), expected, "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_not_allowed() {
        for expression in [
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "AND MIT",
            "MIT WITH",
            "()",
        ] {
            assert_eq!(verdict(expression), None, "{expression}");
        }
    }

    #[test]
    fn a_package_is_judged_by_source_licence_and_exceptions() {
        let rules = parse_rules(
            &"[graph]\ntargets = ['t']\n[licenses]\nallow = ['MIT']\n\
              exceptions = [{ crate = 'odd', allow = ['Zlib'] }]\n"
                .parse()
                .expect("rules"),
        );
        assert_eq!(rules.targets, ["t"]);
        let judged = |name: &str, licence: Option<&str>, source: &str| {
            let package = Package {
                name: name.into(),
                version: "1.0.0".into(),
                licence: licence.map(str::to_owned),
                source: Some(source.to_owned()),
            };
            judge(&package, &rules).map(|problem| problem.text)
        };
        assert_eq!(judged("plain", Some("MIT OR X"), REGISTRY), None);
        assert_eq!(judged("odd", Some("Zlib"), REGISTRY), None);
        assert_eq!(
            judged("even", Some("Zlib"), REGISTRY).as_deref(),
            Some("`Zlib` is not allowed by deny.toml")
        );
        assert_eq!(
            judged("none", None, REGISTRY).as_deref(),
            Some("states no licence")
        );
        assert_eq!(
            judged("git", Some("MIT"), "git+https://example.com/x").as_deref(),
            Some("does not come from crates.io")
        );
    }
}
