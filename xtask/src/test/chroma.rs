//! The Chroma server that tests of search talk to: its package has all of it in one library, so
//! that none of what the package depends on is needed.

use std::path::{Path, PathBuf};

use super::clients::{lock, venv};
use crate::report::Failure;

/// An interpreter that has the server.
pub fn set_up(root: &Path, cache: &Path) -> Result<PathBuf, Failure> {
    let _lock = lock(cache)?;
    venv(&root.join("tests/chroma"), cache, "Chroma server (PyPI)")
}
