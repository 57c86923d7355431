//! What the tests of the program have in common: a folder that goes away with its test, the
//! fixture pack, and the program itself in an environment of the test's own.

pub mod alike;
pub mod arena;
pub mod bridge;
pub mod desk;
pub mod drive;
pub mod faults;
pub mod fits;
pub mod mcp;
pub mod outside;
pub mod owner;
pub mod person;
pub mod play;
pub mod processes;
pub mod readme;
pub mod rpc;
pub mod seen;
pub mod shapes;
pub mod stage;
pub mod web;
pub mod wires;
pub mod workspace;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// A folder that removes itself.
pub struct Folder(PathBuf);

impl Folder {
    /// A fresh one.
    pub fn new() -> Self {
        Self(fresh_folder("test"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path inside.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file inside, with the folders it needs.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().expect("inside the folder")).expect("make folders");
        std::fs::write(&path, text).expect("write a file of the test");
        path
    }

    /// Writes a program inside.
    pub fn executable(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        // Whole when it appears: somebody may be waiting for it.
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

    /// A file inside; `None` if it is not there.
    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.join(name)).ok()
    }

    /// The folder itself and what is directly in it: names, which files those are, how large, and
    /// when they were changed. Reading changes none of it.
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

    /// A copy of the fixture pack in the folder `pack`, so that a test may write there.
    pub fn copy_pack(&self) -> PathBuf {
        let pack = self.join("pack");
        std::fs::create_dir_all(&pack).expect("make the pack's folder");
        for entry in std::fs::read_dir(vectors().join("toolhost/pack")).expect("the pack") {
            let entry = entry.expect("an entry of the pack");
            if entry.file_type().expect("its type").is_file() {
                std::fs::copy(entry.path(), pack.join(entry.file_name())).expect("copy the pack");
            }
        }
        pack
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Says that a thread is to end, whatever comes.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A folder that nobody had before. A run that was killed leaves its folders behind, and its pid
/// may be ours now: what is there already is passed over.
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

/// Copies what is to be started, by another process: one that a thread of ours forks meanwhile
/// would hold the copy open for writing until its own exec, and nobody could start it.
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

/// A uid that nobody else has: what is done to all processes of a user, and what is counted by
/// user, must not reach another test, nor another run of the tests.
pub fn unused_uid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    1_000_000 + std::process::id() % 10_000 * 100 + number % 100
}

/// The folder of the vectors.
pub fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// The program under its own name.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_callgate"))
}

/// The program, with its state in `folder/state` and no environment but what it needs.
pub fn callgate(folder: &Folder) -> Command {
    command(program(), folder)
}

/// The program under the name `name`, by a link in `folder/bin`.
pub fn callgate_as(name: &str, folder: &Folder) -> Command {
    let link = folder.join("bin").join(name);
    std::fs::create_dir_all(folder.join("bin")).expect("make a folder for the link");
    if !link.exists() {
        std::os::unix::fs::symlink(program(), &link).expect("link the program");
    }
    command(&link, folder)
}

fn command(program: &Path, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", search_path())
        .env("HOME", folder.path())
        .env("CALLGATE_STATE", folder.join("state"))
        .current_dir(folder.path());
    command
}

/// Where tools find `python3`: the interpreter the tests were given comes first, because a
/// shim before it costs more than many a test.
fn search_path() -> std::ffi::OsString {
    let given = std::env::var_os("CALLGATE_TEST_PYTHON").map(PathBuf::from);
    let first = given.as_deref().and_then(Path::parent).map(Path::to_owned);
    let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let rest = std::env::split_paths(&inherited).collect::<Vec<_>>();
    std::env::join_paths(first.into_iter().chain(usual).chain(rest))
        .expect("folders without a colon")
}

/// Waits until `found` finds something. Gives up after a minute, which no state takes.
pub fn wait_for<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    wait_minutes(1, what, found)
}

/// The same for what is a lot of work.
pub fn wait_minutes<T>(minutes: usize, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..minutes * 6000 {
        if let Some(value) = found() {
            return value;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("waited {minutes} min for {what}");
}

/// True while a process is there and not a zombie.
pub fn is_alive(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')),
        Err(_) => false,
    }
}
