//! The types of the Python package, as mypy reads them: strictly, as its `pyproject.toml` says.

use std::path::Path;
use std::process::Command;

use super::clients::{lock, venv};
use crate::command;
use crate::report::Failure;

/// Checks them all, by a mypy that is pinned and fetched like the clients.
pub fn check(root: &Path, cache: &Path) -> Result<(), Failure> {
    let python = {
        let _lock = lock(cache)?;
        venv(&root.join("tests/types"), cache, "mypy (PyPI)")?
    };
    let mut command = Command::new(python);
    // Nothing is written into the clone.
    command
        .args(["-m", "mypy", "--cache-dir", "/dev/null"])
        .current_dir(root.join("sdk/python"));
    println!("$ {}", command::shown(&command));
    command::run(&mut command)
}
