//! The vectors cite clauses that exist, and are known by one name each.

use std::collections::HashMap;

use crate::clauses::Register;
use crate::ids::Id;
use crate::report::Problem;
use crate::tree::Tree;
use crate::vectors::{self, Case};

pub fn check(tree: &Tree) -> Vec<Problem> {
    let (register, _given_twice) = Register::read(tree);
    let (cases, mut problems) = vectors::read(tree);
    problems.extend(unknown_clauses(&register, &cases));
    problems.extend(shared_names(&cases));
    problems
}

fn unknown_clauses(register: &Register, cases: &[Case]) -> Vec<Problem> {
    let known = |clause: &str| Id::parse(clause).is_some_and(|id| register.contains(&id));
    cases
        .iter()
        .flat_map(|case| case.clauses.iter().map(move |clause| (case, clause)))
        .filter(|(_, clause)| !known(clause))
        .map(|(case, clause)| {
            Problem::new(
                &case.file,
                format!("`{}` cites `{clause}`, which does not exist", case.name),
            )
        })
        .collect()
}

fn shared_names(cases: &[Case]) -> Vec<Problem> {
    let mut first: HashMap<(&str, &str), &Case> = HashMap::new();
    let mut problems = Vec::new();
    for case in cases {
        if let Some(earlier) = first.insert((case.wire(), &case.name), case) {
            let text = format!("`{}` is a name of {} too", case.name, earlier.file);
            problems.push(Problem::new(&case.file, text));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clauses::Clause;

    fn case(file: &str, name: &str, clause: &str) -> Case {
        Case {
            file: file.into(),
            name: name.into(),
            clauses: vec![clause.into()],
        }
    }

    #[test]
    fn clauses_exist() {
        let clause = Clause {
            id: Id::parse("T-1").expect("an id"),
            document: "d".into(),
            line: 1,
            text: String::new(),
            later: None,
        };
        let register = Register {
            clauses: vec![clause],
        };
        let cases = [
            case("f", "a", "T-1"),
            case("f", "b", "T-2"),
            case("f", "c", "words"),
        ];
        let expected = [
            Problem::new("f", "`b` cites `T-2`, which does not exist"),
            Problem::new("f", "`c` cites `words`, which does not exist"),
        ];
        assert_eq!(unknown_clauses(&register, &cases), expected);
    }

    #[test]
    fn names_are_unique_within_a_wire() {
        let cases = [
            case("vectors/x/one.json", "a", "T-1"),
            case("vectors/y/one.json", "a", "T-1"),
            case("vectors/x/two.json", "a", "T-1"),
        ];
        let expected = [Problem::new(
            "vectors/x/two.json",
            "`a` is a name of vectors/x/one.json too",
        )];
        assert_eq!(shared_names(&cases), expected);
    }
}
