//! What the tests install by pip under confinement: wheels, fetched once by pip, which checks them
//! against their pins.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::{digest, fetch, lock, made_once};
use crate::report::Failure;

const PINS: &str = "requirements.txt";

/// The folder of the wheels.
pub fn set_up(root: &Path, cache: &Path, python: &Path) -> Result<PathBuf, Failure> {
    let from = root.join("tests/programs");
    let _lock = lock(cache)?;
    let folder = cache.join(format!("wheels-{}", digest(&from, &[PINS], "")?));
    let wheels = folder.join("wheels");
    made_once(&folder, "pytest's wheels (PyPI)", || {
        let mut command = Command::new(python);
        command
            .args(["-m", "pip", "download", "--quiet", "--no-input"])
            .args(["--disable-pip-version-check", "--no-deps"])
            .args(["--require-hashes", "--only-binary", ":all:"])
            // Those that run everywhere, also where this machine could have others.
            .args(["--platform", "any", "--dest"])
            .arg(&wheels)
            .arg("--requirement")
            .arg(from.join(PINS));
        fetch(&mut command)
    })?;
    Ok(wheels)
}
