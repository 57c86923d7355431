//! Programs from outside that talk to the gate: what `cargo xtask test` has fetched.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Folder;

/// Node, with the packages of `tests/clients/package.json` to be found.
pub fn node(folder: &Folder) -> Command {
    from_outside(&given("CALLGATE_TEST_NODE"), folder)
}

/// Python, with the packages of `tests/clients/requirements.txt`.
pub fn client_python(folder: &Folder) -> Command {
    from_outside(&given("CALLGATE_TEST_CLIENT_PYTHON"), folder)
}

fn from_outside(program: &Path, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    // What a client keeps for itself goes with the folder, and it finds no settings of ours.
    command
        .env_clear()
        .env("PATH", super::search_path())
        .env("HOME", folder.path())
        .env("CALLGATE_STATE", folder.join("state"))
        .env("CALLGATE_TEST_MODULES", modules())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_COLOR", "1")
        .current_dir(folder.path());
    command
}

/// The folder of the npm packages.
pub fn modules() -> PathBuf {
    given("CALLGATE_TEST_MODULES")
}

fn given(name: &str) -> PathBuf {
    match std::env::var_os(name) {
        Some(path) => PathBuf::from(path),
        None => panic!("{name} is not set: this test runs by `cargo xtask test`, which fetches it"),
    }
}
