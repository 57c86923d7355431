//! `cargo xtask tidy`: the rules of the project that the compiler does not
//! check.
//!
//! Each check takes the tree and returns problems; all are run, so that one
//! look shows everything there is to mend.

mod dependencies;
mod documents;
mod licences;
mod sizes;
mod sources;
mod vector_files;

use std::path::Path;

use crate::report::{Failure, Problem};
use crate::tree::Tree;

type Check = fn(&Tree) -> Vec<Problem>;

const CHECKS: [(&str, Check); 14] = [
    ("dependency table", dependencies::check),
    ("re-exports", dependencies::check_reexports),
    ("module docs", sources::check_module_docs),
    ("file lengths", sources::check_lengths),
    ("test files", sources::check_test_files),
    ("included files", sources::check_foreign_paths),
    ("selects", sources::check_selects),
    ("hygiene", sources::check_hygiene),
    ("sizes", sizes::check),
    ("vectors", vector_files::check),
    ("links", documents::check_links),
    ("own code", documents::check_own_code),
    ("test command", documents::check_test_command),
    ("licences", licences::check),
];

pub fn run(root: &Path) -> Result<(), Failure> {
    let tree = Tree::read(root);
    let mut count = 0;
    for (name, check) in CHECKS {
        let problems = check(&tree);
        println!(
            "tidy: {name}: {}",
            if problems.is_empty() { "ok" } else { "not ok" }
        );
        for problem in &problems {
            println!("  {problem}");
        }
        count += problems.len();
    }
    licences::run_cargo_deny(root)?;
    match count {
        0 => Ok(()),
        1 => Err(Failure::new("tidy: 1 problem")),
        _ => Err(Failure::new(format!("tidy: {count} problems"))),
    }
}
