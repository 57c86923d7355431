//! The virtual environment of an installation. Made here and not by `python -m venv`, which some
//! systems ship apart; it is three links, a folder and a file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::InstallError;
use crate::folder::{make_folder, write_file};
use crate::programs::Python;

/// The name of the environment in an installation.
const NAME: &str = "venv";
/// Bytes of a script that is corrected.
const SCRIPT_BYTES_MAX: u64 = 64 * 1024;

/// A virtual environment in a folder.
#[derive(Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The environment of the installation in `tree`.
    pub fn of(tree: &Path) -> Self {
        Self {
            folder: tree.join(NAME),
        }
    }

    /// The path below an installation of a file in its environment.
    pub fn inside(path: &str) -> PathBuf {
        Path::new(NAME).join(path)
    }

    /// The interpreter.
    pub fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// The folder of programs.
    pub fn programs(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// The folder of packages.
    pub fn packages(&self, python: &Python) -> Result<PathBuf, InstallError> {
        let path = format!("lib/python{}/site-packages", python.short_version());
        Ok(self.folder.join(path))
    }

    /// Makes the environment, without packages.
    pub fn make(&self, python: &Python) -> Result<(), InstallError> {
        make_folder(&self.programs())?;
        make_folder(&self.packages(python)?)?;
        let link = |target: &Path, name: &str| {
            let path = self.folder.join(name);
            symlink(target, &path).map_err(InstallError::file("make", &path))
        };
        link(&python.base, "bin/python")?;
        link(Path::new("python"), "bin/python3")?;
        // Where the system parts packages by platform, both are here.
        link(Path::new("lib"), "lib64")?;
        let home = python.base.parent().unwrap_or(Path::new("/"));
        let settings = format!(
            "home = {}\ninclude-system-site-packages = false\nversion = {}\n",
            home.display(),
            python.version,
        );
        write_file(&self.folder.join("pyvenv.cfg"), &settings)
    }

    /// Corrects the first lines of scripts for the folder that the environment is moved to.
    pub fn correct_scripts(&self, tree: &Path, place: &Path) -> Result<(), InstallError> {
        let (now, then) = (
            format!("#!{}/{NAME}/", tree.display()),
            format!("#!{}/{NAME}/", place.display()),
        );
        let programs = self.programs();
        let entries = fs::read_dir(&programs).map_err(InstallError::file("read", &programs))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            // A program that is no script, or a large one, is not read as text.
            let Some(text) = is_file
                .then(|| callgate_call::bounded::read_path_text(&path, SCRIPT_BYTES_MAX).ok())
                .flatten()
            else {
                continue;
            };
            if let Some(rest) = text.strip_prefix(&now) {
                write_file(&path, &format!("{then}{rest}"))?;
            }
        }
        Ok(())
    }
}
