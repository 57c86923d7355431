//! Files that must be files to be of use, and out of the tools' reach: the Python worker that
//! ships inside the binary, and packs as they were verified. Laid out once per version, whole
//! or not at all.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::{Store, StoreError};

impl Store {
    /// The folder `name` with these files in it, made if it is not there. `name` must name
    /// the content, so that what is there is right.
    pub fn unpack<B: AsRef<[u8]>>(
        &self,
        name: &str,
        files: &[(String, B)],
    ) -> Result<PathBuf, StoreError> {
        let folder = self.dir.join(name);
        if folder.is_dir() {
            return Ok(folder);
        }
        // Several processes may be at it: each fills a folder of its own, the first rename
        // wins and the others find theirs done.
        let beside = self.dir.join(format!(".{name}.{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&beside);
        if let Err(error) = fill(&beside, files) {
            // Every process that fails would else leave one behind.
            let _ = std::fs::remove_dir_all(&beside);
            return Err(error);
        }
        match std::fs::rename(&beside, &folder) {
            Ok(()) => Ok(folder),
            Err(_) if folder.is_dir() => {
                let _ = std::fs::remove_dir_all(&beside);
                Ok(folder)
            }
            Err(error) => Err(StoreError::write(&folder, error)),
        }
    }
}

fn fill<B: AsRef<[u8]>>(folder: &Path, files: &[(String, B)]) -> Result<(), StoreError> {
    for (file, bytes) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(parent)
            .map_err(|error| StoreError::write(parent, error))?;
        std::fs::write(&path, bytes).map_err(|error| StoreError::write(&path, error))?;
    }
    Ok(())
}
