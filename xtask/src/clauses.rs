//! `cargo xtask clauses`: every clause of the contracts and every decision,
//! with the tests and vectors that name it.
//!
//! Fails on a clause that nothing names, unless it is marked `(later: NAME)`,
//! and on a citation of a clause that does not exist. Whether a test deserves
//! the clause it names is for the reader to judge.

mod citations;
mod register;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

pub use register::{Clause, Register};

use crate::ids::Id;
use crate::report::{self, Failure, Problem};
use crate::tree::Tree;
use citations::Citations;

/// How many places the table shows for a clause before it only counts.
const PLACES_SHOWN_MAX: usize = 3;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Options {
    pub json: bool,
    /// Only what there is to mend: clauses that nothing names, and marks that
    /// can go.
    pub missing_only: bool,
}

pub fn run(root: &Path, options: Options) -> Result<(), Failure> {
    let tree = Tree::read(root);
    let (register, mut problems) = Register::read(&tree);
    let citations = citations::read(&tree, &register);
    problems.extend(unknown_citations(&register, &citations));

    let tally = Tally::count(&register, &citations);
    let text = match options.json {
        true => as_json(&register, &citations, options, &tally, &problems),
        false => as_table(&register, &citations, options, &tally),
    };
    report::say(&text);
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() + tally.missing {
        0 => Ok(()),
        _ => Err(Failure::new(format!(
            "clauses: {} missing, {} other problems",
            tally.missing,
            problems.len()
        ))),
    }
}

/// How a clause stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Standing {
    Named,
    Missing,
    Later,
    /// Marked later and named all the same.
    MarkCanGo,
}

fn standing(clause: &Clause, citations: &Citations) -> Standing {
    match (citations.contains_key(&clause.id), &clause.later) {
        (true, None) => Standing::Named,
        (false, None) => Standing::Missing,
        (false, Some(_)) => Standing::Later,
        (true, Some(_)) => Standing::MarkCanGo,
    }
}

#[derive(Debug, Default, PartialEq)]
struct Tally {
    clauses: usize,
    named: usize,
    missing: usize,
    /// Clauses still waiting, by what they wait for.
    later: BTreeMap<String, usize>,
}

impl Tally {
    fn count(register: &Register, citations: &Citations) -> Self {
        let mut tally = Self {
            clauses: register.clauses.len(),
            ..Self::default()
        };
        for clause in &register.clauses {
            match standing(clause, citations) {
                Standing::Named | Standing::MarkCanGo => tally.named += 1,
                Standing::Missing => tally.missing += 1,
                Standing::Later => {
                    *tally
                        .later
                        .entry(clause.later.clone().unwrap_or_default())
                        .or_default() += 1;
                }
            }
        }
        tally
    }

    fn summary(&self) -> String {
        let waiting: usize = self.later.values().sum();
        let by_name: Vec<String> = self
            .later
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let by_name = match by_name.is_empty() {
            true => String::new(),
            false => format!(" ({})", by_name.join(", ")),
        };
        let Self {
            clauses,
            named,
            missing,
            ..
        } = self;
        format!(
            "{clauses} clauses, {named} named by tests, {waiting} later{by_name}, {missing} missing"
        )
    }
}

fn unknown_citations(register: &Register, citations: &Citations) -> Vec<Problem> {
    citations
        .iter()
        .filter(|(id, _)| !register.contains(id))
        .flat_map(|(id, places)| {
            places
                .iter()
                .map(move |place| Problem::new(place, format!("there is no {id}")))
        })
        .collect()
}

fn as_table(register: &Register, citations: &Citations, options: Options, tally: &Tally) -> String {
    let listed = listed(register, citations, options);
    let width = listed
        .iter()
        .map(|clause| clause.id.as_str().len())
        .max()
        .unwrap_or(2);
    let mut text = format!("{:width$} | where\n", "id");
    for clause in listed {
        let place = place_column(clause, citations);
        let _infallible = writeln!(text, "{:width$} | {place}", clause.id);
    }
    text + &tally.summary() + "\n"
}

fn listed<'a>(register: &'a Register, citations: &Citations, options: Options) -> Vec<&'a Clause> {
    let wanted = |clause: &&Clause| match standing(clause, citations) {
        Standing::Missing | Standing::MarkCanGo => true,
        Standing::Named | Standing::Later => !options.missing_only,
    };
    register.clauses.iter().filter(wanted).collect()
}

fn place_column(clause: &Clause, citations: &Citations) -> String {
    let later = clause.later.as_deref().unwrap_or_default();
    let places = shorten(citations.get(&clause.id).map_or(&[], Vec::as_slice));
    match standing(clause, citations) {
        Standing::Named => places,
        Standing::Later => format!("later: {later}"),
        Standing::Missing => format!("MISSING ({}:{})", clause.document, clause.line),
        Standing::MarkCanGo => format!("{places} (note: its mark `later: {later}` can go)"),
    }
}

fn shorten(places: &[String]) -> String {
    let more = places.len().saturating_sub(PLACES_SHOWN_MAX);
    let first = places[..places.len() - more].join(", ");
    if more == 0 {
        first
    } else {
        format!("{first}, +{more}")
    }
}

fn as_json(
    register: &Register,
    citations: &Citations,
    options: Options,
    tally: &Tally,
    problems: &[Problem],
) -> String {
    let places = |id: &Id| citations.get(id).cloned().unwrap_or_default();
    let clauses: Vec<_> = listed(register, citations, options)
        .into_iter()
        .map(|clause| {
            json!({
                "id": clause.id.as_str(),
                "document": clause.document,
                "line": clause.line,
                "text": clause.text,
                "later": clause.later,
                "named_by": places(&clause.id),
            })
        })
        .collect();
    let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let whole = json!({
        "clauses": clauses,
        "count": tally.clauses,
        "named": tally.named,
        "later": tally.later,
        "missing": tally.missing,
        "problems": problems,
    });
    format!("{whole:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Id {
        Id::parse(text).expect("an id")
    }

    fn clause(name: &str, later: Option<&str>) -> Clause {
        Clause {
            id: id(name),
            document: "docs/contracts/x.md".into(),
            line: 7,
            text: "text".into(),
            later: later.map(str::to_owned),
        }
    }

    fn example() -> (Register, Citations) {
        let register = Register {
            clauses: vec![
                clause("TH-1", None),
                clause("TH-2", None),
                clause("TH-3", Some("mcp")),
                clause("TH-4", Some("mcp")),
                clause("TH-5", Some("bridge")),
            ],
        };
        let places = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let citations = Citations::from([
            (id("TH-1"), places(&["a:1", "b:2", "c:3", "d:4", "e:5"])),
            (id("TH-4"), places(&["a:9"])),
            (id("TH-44"), places(&["a:8"])),
        ]);
        (register, citations)
    }

    #[test]
    fn the_table_shows_where_and_what_is_missing() {
        let (register, citations) = example();
        let tally = Tally::count(&register, &citations);
        let expected = "\
id   | where
TH-1 | a:1, b:2, c:3, +2
TH-2 | MISSING (docs/contracts/x.md:7)
TH-3 | later: mcp
TH-4 | a:9 (note: its mark `later: mcp` can go)
TH-5 | later: bridge
5 clauses, 2 named by tests, 2 later (bridge 1, mcp 1), 1 missing
";
        assert_eq!(
            as_table(&register, &citations, Options::default(), &tally),
            expected
        );
        let missing_only = Options {
            missing_only: true,
            ..Options::default()
        };
        let expected = "\
id   | where
TH-2 | MISSING (docs/contracts/x.md:7)
TH-4 | a:9 (note: its mark `later: mcp` can go)
5 clauses, 2 named by tests, 2 later (bridge 1, mcp 1), 1 missing
";
        assert_eq!(
            as_table(&register, &citations, missing_only, &tally),
            expected
        );
    }

    #[test]
    fn a_citation_of_nothing_is_a_problem() {
        let (register, citations) = example();
        let expected = [Problem::new("a:8", "there is no TH-44")];
        assert_eq!(unknown_citations(&register, &citations), expected);
    }
}
