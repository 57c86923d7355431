//! Temporary folders for tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of one test, removed when it is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// A new folder.
    #[expect(
        clippy::new_without_default,
        reason = "a default would have no folder behind it"
    )]
    pub fn new() -> Self {
        Self(fresh_folder("test"))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of `name` in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in the folder, creating its parents.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("make folders");
        std::fs::write(&path, text).expect("write a file of the test");
        path
    }

    /// Writes an executable file in the folder.
    pub fn executable(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        // Moved into place when complete: the test may wait for it to appear.
        let (text, path) = (
            self.write(&format!(".{name}.text"), text),
            self.join(&format!(".{name}")),
        );
        copy_program(&text, &path);
        std::fs::remove_file(text).expect("it was written just now");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("make it a program");
        std::fs::rename(&path, self.join(name)).expect("put it in place");
    }

    /// The text of a file in the folder, or `None` if it is missing.
    pub fn read(&self, name: &str) -> Option<String> {
        // bound: a file that the test itself has written
        std::fs::read_to_string(self.join(name)).ok()
    }

    /// The inode, size and times of the folder and of its direct entries. Reading a file changes
    /// none of them.
    pub fn stamps(&self) -> Vec<(PathBuf, [i64; 7])> {
        use std::os::unix::fs::MetadataExt as _;
        let inside = std::fs::read_dir(self.path()).expect("list the folder");
        let inside = inside.map(|entry| entry.expect("an entry").path());
        let mut stamps: Vec<_> = std::iter::once(self.0.clone())
            .chain(inside)
            .map(|path| {
                let about = path.symlink_metadata().expect("it is there");
                let modified = [about.mtime(), about.mtime_nsec()];
                let changed = [about.ctime(), about.ctime_nsec()];
                let [ino, size] = [about.ino(), about.size()].map(u64::cast_signed);
                let links = about.nlink().cast_signed();
                let [[m, m_nsec], [c, c_nsec]] = [modified, changed];
                (path, [ino, size, links, m, m_nsec, c, c_nsec])
            })
            .collect();
        stamps.sort();
        stamps
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a folder that did not exist before. A killed run leaves its folders behind, and its pid
/// may be in use again, so existing folders are passed over.
pub fn fresh_folder(what: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callgate-{what}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => return path.canonicalize().expect("it was made just now"),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("make {}: {error}", path.display()),
        }
    }
}

/// Copies a program by another process. A child forked by another thread of this process would
/// hold the copy open for writing until its own exec, and starting the copy would fail.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(
        copied.expect("start cp").success(),
        "copy {}",
        from.display()
    );
    let mode = std::fs::metadata(from).expect("it is there").permissions();
    std::fs::set_permissions(to, mode).expect("give it the same mode");
}
