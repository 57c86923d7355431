//! Reads the golden vectors for what every wire's have in common: a name and
//! the clauses the case stands for.
//!
//! A file holds one case or a list of them. The rest of a case belongs to its
//! wire's harness, and so do the folders beside the files: packs and other
//! fixtures are no vectors.

use serde_json::Value;

use crate::report::Problem;
use crate::tree::Tree;

#[derive(Debug, PartialEq)]
pub struct Case {
    pub file: String,
    pub name: String,
    pub clauses: Vec<String>,
}

impl Case {
    /// The folder below `vectors/`; names are unique within it.
    pub fn wire(&self) -> &str {
        let inner = self.file.strip_prefix("vectors/").unwrap_or(&self.file);
        inner.split_once('/').map_or("", |(wire, _)| wire)
    }
}

/// All cases, and what keeps others from being read.
pub fn read(tree: &Tree) -> (Vec<Case>, Vec<Problem>) {
    let mut cases = Vec::new();
    let mut problems = Vec::new();
    for file in tree
        .under("vectors/", ".json")
        .filter(|file| is_vector(file))
    {
        let text = tree.text(file).unwrap_or_default();
        let (of_file, bad) = parse(file, &text);
        cases.extend(of_file);
        problems.extend(bad);
    }
    (cases, problems)
}

/// True directly in a wire's folder.
fn is_vector(file: &str) -> bool {
    file.matches('/').count() == 2
}

fn parse(file: &str, text: &str) -> (Vec<Case>, Vec<Problem>) {
    let entries = match serde_json::from_str(text) {
        Ok(Value::Array(entries)) => entries,
        Ok(entry @ Value::Object(_)) => vec![entry],
        Ok(_) => {
            return (
                vec![],
                vec![Problem::new(file, "neither a case nor a list of cases")],
            );
        }
        Err(error) => {
            return (
                vec![],
                vec![Problem::new(file, format!("not JSON: {error}"))],
            );
        }
    };
    let mut cases = Vec::new();
    let mut problems = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        match parse_case(file, entry) {
            Ok(case) => cases.push(case),
            Err(reason) => {
                problems.push(Problem::new(file, format!("case {}: {reason}", index + 1)));
            }
        }
    }
    (cases, problems)
}

fn parse_case(file: &str, entry: &Value) -> Result<Case, String> {
    let name = entry["name"]
        .as_str()
        .filter(|name| !name.trim().is_empty());
    let name = name.ok_or("no `name`")?.to_owned();
    let listed = entry["clauses"].as_array().filter(|list| !list.is_empty());
    let clauses = listed
        .ok_or_else(|| format!("`{name}` has no `clauses`"))?
        .iter()
        .map(|clause| clause.as_str().map(str::to_owned))
        .collect::<Option<Vec<String>>>()
        .ok_or_else(|| format!("`{name}` has a clause that is not text"))?;
    Ok(Case {
        file: file.to_owned(),
        name,
        clauses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(text: &str) -> Vec<String> {
        parse("vectors/w/a.json", text)
            .1
            .into_iter()
            .map(|problem| problem.text)
            .collect()
    }

    #[test]
    fn fixtures_are_no_vectors() {
        assert!(is_vector("vectors/toolhost/serve.json"));
        assert!(!is_vector("vectors/toolhost/pack/toolpack.json"));
    }

    #[test]
    fn one_case_or_a_list_of_them() {
        let one = Case {
            file: "vectors/w/a.json".into(),
            name: "n".into(),
            clauses: vec!["T-1".into(), "TH-2".into()],
        };
        assert_eq!(one.wire(), "w");
        let text = r#"{"name":"n","clauses":["T-1","TH-2"],"line":"x"}"#;
        assert_eq!(parse(&one.file, text), (vec![one], vec![]));
        let (cases, problems) = parse(
            "vectors/w/a.json",
            r#"[{"name":"a","clauses":["T-1"]},{"name":"b","clauses":["T-2"]}]"#,
        );
        assert_eq!((cases.len(), problems.len()), (2, 0));
    }

    #[test]
    fn a_bad_case_is_named() {
        assert_eq!(reasons(r#"[{"clauses":["T-1"]}]"#), ["case 1: no `name`"]);
        assert_eq!(
            reasons(r#"{"name":"n","clauses":[]}"#),
            ["case 1: `n` has no `clauses`"]
        );
        assert_eq!(
            reasons(r#"{"name":"n","clauses":[1]}"#),
            ["case 1: `n` has a clause that is not text"]
        );
        assert_eq!(reasons("3"), ["neither a case nor a list of cases"]);
        assert!(reasons("[").join("").starts_with("not JSON"));
    }
}
