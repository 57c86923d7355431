//! What the tests of the program have in common: a folder that goes away with its test, the
//! fixture pack, and the program itself in an environment of the test's own.

pub mod alike;
pub mod arena;
pub mod bridge;
pub mod desk;
pub mod drive;
pub mod faults;
pub mod home;
pub mod mcp;
pub mod outside;
pub mod owner;
pub mod person;
pub mod play;
pub mod processes;
pub mod readme;
pub mod rpc;
pub mod seen;
pub mod servers;
pub mod stage;
pub mod web;
pub mod wires;
pub mod workspace;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub use callgate_testing::{
    TempFolder as Folder, copy_program, fresh_folder, search_path, vectors, wait_for, wait_minutes,
};

/// Copies the fixture pack to `pack` in `folder`, so that a test may write there.
pub fn copy_pack(folder: &Folder) -> PathBuf {
    let pack = folder.join("pack");
    std::fs::create_dir_all(&pack).expect("make the pack's folder");
    for entry in std::fs::read_dir(vectors().join("toolhost/pack")).expect("the pack") {
        let entry = entry.expect("an entry of the pack");
        if entry.file_type().expect("its type").is_file() {
            std::fs::copy(entry.path(), pack.join(entry.file_name())).expect("copy the pack");
        }
    }
    pack
}

/// Says that a thread is to end, whatever comes.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A uid that nobody else has: what is done to all processes of a user, and what is counted by
/// user, must not reach another test, nor another run of the tests.
pub fn unused_uid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    1_000_000 + std::process::id() % 10_000 * 100 + number % 100
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

/// True while a process is there and not a zombie.
pub fn is_alive(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')),
        Err(_) => false,
    }
}
