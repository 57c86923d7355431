//! The register of clauses: list items `- **TH-12** text` of `docs/contracts`
//! and table rows `| T-5 | … |` of `docs/decisions`.
//!
//! Both may end in `(later: NAME)`: the part that NAME names is not built yet.

use std::collections::{BTreeSet, HashMap};

use crate::ids::Id;
use crate::markdown;
use crate::report::Problem;
use crate::tree::Tree;

#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    pub id: Id,
    pub document: String,
    pub line: usize,
    pub text: String,
    /// What it waits for.
    pub later: Option<String>,
}

#[derive(Debug, Default)]
pub struct Register {
    /// In the order of the documents.
    pub clauses: Vec<Clause>,
}

impl Register {
    /// All clauses, and ids that are given twice.
    pub fn read(tree: &Tree) -> (Self, Vec<Problem>) {
        let mut clauses = Vec::new();
        for document in tree.under("docs/contracts/", ".md") {
            clauses.extend(list_items(
                document,
                &tree.text(document).unwrap_or_default(),
            ));
        }
        for document in tree.under("docs/decisions/", ".md") {
            clauses.extend(table_rows(
                document,
                &tree.text(document).unwrap_or_default(),
            ));
        }
        let mut problems = given_twice(&clauses);
        if clauses.is_empty() {
            problems.push(Problem::new("docs/contracts", "there are no clauses"));
        }
        (Self { clauses }, problems)
    }

    pub fn contains(&self, id: &Id) -> bool {
        self.clauses.iter().any(|clause| clause.id == *id)
    }

    /// The prefixes in use. In a test `T-99` is a citation only if there is a
    /// `T-…` at all: `UTF-8` and `SHA-2` are not ours.
    pub fn prefixes(&self) -> BTreeSet<String> {
        self.clauses
            .iter()
            .map(|clause| clause.id.prefix().to_owned())
            .collect()
    }
}

fn list_items(document: &str, text: &str) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = Vec::new();
    let mut open = false;
    for (line, content) in markdown::prose(text) {
        if let Some((id, rest)) = list_item(content) {
            let document = document.to_owned();
            clauses.push(Clause {
                id,
                document,
                line,
                text: rest.to_owned(),
                later: None,
            });
            open = true;
        } else if open && goes_on(content) {
            if let Some(clause) = clauses.last_mut() {
                clause.text.push(' ');
                clause.text.push_str(content.trim());
            }
        } else {
            open = false;
        }
    }
    clauses.into_iter().map(with_mark).collect()
}

/// A clause goes on over indented lines that do not begin an item of their own.
fn goes_on(line: &str) -> bool {
    let content = line.trim_start();
    let begins_item = ["- ", "* ", "+ "]
        .iter()
        .any(|mark| content.starts_with(mark));
    line.starts_with([' ', '\t']) && !content.is_empty() && !begins_item
}

fn list_item(line: &str) -> Option<(Id, &str)> {
    let item = line.trim_start().strip_prefix(['-', '*', '+'])?;
    let (name, rest) = item.trim_start().strip_prefix("**")?.split_once("**")?;
    Some((Id::parse(name.trim_end_matches([':', '.']))?, rest.trim()))
}

fn table_rows(document: &str, text: &str) -> Vec<Clause> {
    markdown::prose(text)
        .into_iter()
        .filter_map(|(line, content)| {
            let cells = markdown::cells(content)?;
            let (first, rest) = cells.split_first()?;
            let id = Id::parse(markdown::bare(first))?;
            let (document, text) = (document.to_owned(), rest.join(" | "));
            Some(with_mark(Clause {
                id,
                document,
                line,
                text,
                later: None,
            }))
        })
        .collect()
}

/// Takes `(later: NAME)` off the end of the text.
fn with_mark(mut clause: Clause) -> Clause {
    let text = clause
        .text
        .trim_end_matches(|c: char| c.is_whitespace() || c == '.');
    let mark = text
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once("(later:"));
    if let Some((text, name)) = mark
        && !name.contains(['(', ')'])
    {
        clause.later = Some(name.trim().to_owned());
        clause.text = text.trim_end().to_owned();
    }
    clause
}

fn given_twice(clauses: &[Clause]) -> Vec<Problem> {
    let mut first: HashMap<&Id, &Clause> = HashMap::new();
    let mut problems = Vec::new();
    for clause in clauses {
        if let Some(earlier) = first.insert(&clause.id, clause) {
            let text = format!(
                "{} is given in {}:{} too",
                clause.id, earlier.document, earlier.line
            );
            problems.push(Problem::at_line(&clause.document, clause.line, text));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(clauses: &[Clause]) -> Vec<(&str, usize, &str, Option<&str>)> {
        clauses
            .iter()
            .map(|c| (c.id.as_str(), c.line, c.text.as_str(), c.later.as_deref()))
            .collect()
    }

    #[test]
    fn list_items_are_clauses() {
        let text = "\
# Title with **TH-0**

- **TH-1** one line
- **TH-2** goes on
  over two lines (later: mcp)
  - **TH-3** nested (later: bridge).
  - no clause
- **Bold** text
```
- **TH-9** in code
```
TH-8 in prose
- **TH-4** ends with (a remark)
";
        let clauses = list_items("d.md", text);
        assert_eq!(
            short(&clauses),
            [
                ("TH-1", 3, "one line", None),
                ("TH-2", 4, "goes on over two lines", Some("mcp")),
                ("TH-3", 6, "nested", Some("bridge")),
                ("TH-4", 13, "ends with (a remark)", None),
            ]
        );
    }

    #[test]
    fn rows_that_begin_with_an_id_are_clauses() {
        let text = "\
| # | point | decision |
|---|---|---|
| T-1 | both | `a|b` accepted |
| **G-6b** | who | never (later: mcp) |
| Fault | other | row |
";
        let clauses = table_rows("d.md", text);
        assert_eq!(
            short(&clauses),
            [
                ("T-1", 3, "both | `a|b` accepted", None),
                ("G-6b", 4, "who | never", Some("mcp"))
            ]
        );
    }

    #[test]
    fn an_id_given_twice_is_a_problem() {
        let clauses = list_items("d.md", "- **TH-1** a\n- **TH-1** b\n");
        let expected = [Problem::at_line("d.md", 2, "TH-1 is given in d.md:1 too")];
        assert_eq!(given_twice(&clauses), expected);
    }
}
