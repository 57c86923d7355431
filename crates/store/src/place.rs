//! A folder for a test, which goes away with it.

use std::path::PathBuf;

/// The folder.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    /// An empty one, of this test alone.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("callgate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// What is in a folder of it, sorted.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
