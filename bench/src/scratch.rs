//! A folder for one bench, gone when the bench is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

pub struct Scratch {
    root: PathBuf,
}

impl Scratch {
    /// A fresh, empty folder.
    pub fn new(name: &str) -> Result<Self, Failure> {
        let root =
            std::env::temp_dir().join(format!("callgate-bench-{}-{name}", std::process::id()));
        fs::create_dir(&root).map_err(|error| format!("make {}: {error}", root.display()))?;
        fs::create_dir(root.join("workspace"))?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// An empty workspace.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// Where state goes; made by whoever opens it.
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can not be removed is only untidy.
        let _ = fs::remove_dir_all(&self.root);
    }
}
