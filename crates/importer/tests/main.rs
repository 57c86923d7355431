//! Tests of the importer, on homes in temporary folders. `fixtures/home` has settings files of all
//! clients where those look for them, `fixtures/project` those of a project.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crashes;
mod editing;
mod hostile;
mod reading;
mod running;

use std::fs;
use std::path::{Path, PathBuf};

use callgate_importer::{ClientFile, Home, OwnEntry, find};
use callgate_testing::TempFolder;

/// A user's home, and a folder for backups outside of it.
struct Desk {
    folder: TempFolder,
}

impl Desk {
    /// A home without files.
    fn empty() -> Self {
        let folder = TempFolder::new();
        fs::create_dir(folder.join("home")).unwrap();
        Self { folder }
    }

    /// A home with all fixtures, and a project.
    fn full() -> Self {
        let desk = Self::empty();
        copy(&fixtures().join("home"), &desk.home().home);
        copy(&fixtures().join("project"), &desk.project());
        desk
    }

    /// A home with one file.
    fn with(path: &str, content: impl AsRef<[u8]>) -> Self {
        let desk = Self::empty();
        desk.write(path, content);
        desk
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home().home.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn home(&self) -> Home {
        let home = self.folder.join("home");
        Home {
            config: home.join(".config"),
            home,
            claude_config_dir: None,
        }
    }

    fn project(&self) -> PathBuf {
        self.folder.join("project")
    }

    fn backups(&self) -> PathBuf {
        self.folder.join("state/imports")
    }

    /// The only settings file of the home.
    fn file(&self) -> ClientFile {
        let mut files = find(&self.home());
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }

    /// Replaces the folder of the test in a text.
    fn masked(&self, text: &str) -> String {
        text.replace(self.folder.path().to_str().unwrap(), "[test]")
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }
}

fn own_entry(client: &str) -> OwnEntry {
    OwnEntry {
        name: "callgate".to_owned(),
        command: "/opt/callgate".to_owned(),
        args: ["mcp", "--client", client].map(str::to_owned).to_vec(),
    }
}
