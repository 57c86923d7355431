//! A user's home of its own, with settings of MCP clients, and the user's gate that they start.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::drive::{Host, signal};
use super::processes::{started_with, words_of};
use super::{Folder, program, search_path, wait_for};

/// Variables that say how registries of packages are reached.
const OF_REGISTRIES: [&str; 5] = [
    "npm_config_registry",
    "PIP_INDEX_URL",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "UV_INDEX_URL",
];

/// Hands on what says how registries of packages are reached.
pub fn pass_registries(command: &mut Command) {
    for name in OF_REGISTRIES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// A home. Its gate ends with it.
pub struct UserHome {
    pub folder: Folder,
}

impl UserHome {
    pub fn new() -> Self {
        Self {
            folder: Folder::new(),
        }
    }

    /// The program with this home; packages come from the cache of the tests.
    pub fn callgate(&self) -> Command {
        let mut command = Command::new(program());
        command
            .env_clear()
            .env("PATH", search_path())
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path());
        if let Some(cache) = std::env::var_os("CALLGATE_CACHE") {
            command.env("XDG_CACHE_HOME", Path::new(&cache).join("servers"));
        }
        pass_registries(&mut command);
        command
    }

    /// A file of the user's configuration.
    pub fn config(&self, name: &str) -> PathBuf {
        self.folder.join(".config/callgate").join(name)
    }

    /// The state of the user's gate, once there is one.
    pub fn state(&self) -> Option<PathBuf> {
        let states = std::fs::read_dir(self.folder.join(".local/state/callgate")).ok()?;
        let mut folders = states.flatten().map(|entry| entry.path());
        folders.find(|path| path.is_dir())
    }

    /// The names and modes of the secrets that are kept.
    pub fn secrets(&self) -> Vec<(String, u32)> {
        let folder = self.state().map(|state| state.join("secrets"));
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        let entries = entries.into_iter().flatten().flatten();
        let mut all: Vec<(String, u32)> = entries
            .map(|entry| {
                let mode = entry.metadata().expect("its mode").permissions().mode();
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, mode & 0o777)
            })
            .collect();
        all.sort();
        all
    }

    /// The gates of this home.
    pub fn gates(&self) -> Vec<u32> {
        let place = self.folder.path().display().to_string();
        let all = started_with(&place).into_iter();
        all.filter(|pid| words_of(*pid).contains(" serve --background "))
            .collect()
    }

    /// Ends the gate and waits until it is gone.
    pub fn stop_gate(&self) {
        for pid in self.gates() {
            signal(pid, Signal::TERM);
        }
        wait_for("the end of the gate", || {
            self.gates().is_empty().then_some(())
        });
    }
}

impl Drop for UserHome {
    fn drop(&mut self) {
        for pid in self.gates() {
            signal(pid, Signal::KILL);
        }
    }
}

/// The entry of a server in a client's settings.
pub struct Entry {
    command: String,
    args: Vec<String>,
}

impl Entry {
    /// Reads `command` and `args`.
    pub fn of(entry: &Value) -> Self {
        let args = entry["args"].as_array().expect("arguments").iter();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        Self {
            command: text(&entry["command"]),
            args: args.map(text).collect(),
        }
    }

    /// Starts it as a client does that hands on nothing of its environment.
    pub fn start(&self) -> Host {
        self.start_with(&[])
    }

    /// The same with variables.
    pub fn start_with(&self, variables: &[(&str, &str)]) -> Host {
        let mut command = Command::new(&self.command);
        command.args(&self.args).env_clear().current_dir("/");
        Host::spawn(command.envs(variables.iter().copied()))
    }
}
