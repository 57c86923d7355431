//! An owner with a home: toolchains as their installers lay them out, made of those that the tests
//! run with, and the secrets that lie beside them. And a workspace of some user's in which a gate
//! of that owner runs programs.
//!
//! Toolchains are linked and not copied. Nothing is ever changed in a home, and no file of one is
//! given away: it is the machine's own file.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::Folder;
use super::arena::{Users, give, place};
use super::drive::{Ran, python, run, run_within};

/// No program of these tests takes so long.
const PATIENCE: Duration = Duration::from_secs(600);

/// Secrets of a home, by their usual names. Everybody may read them as far as their modes go:
/// what keeps them is confinement.
pub const SECRETS: [&str; 8] = [
    ".cargo/credentials.toml",
    ".cargo/config.toml",
    ".gitconfig",
    ".git-credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".ssh/id_ed25519",
];

/// What stands in each of them.
pub const SECRET: &str = "sesame-of-the-owner";

/// The owner's home.
pub struct OwnerHome {
    folder: Folder,
    path: Vec<PathBuf>,
}

impl OwnerHome {
    /// One with secrets and no toolchains.
    pub fn new() -> Self {
        let folder = Folder::new();
        open(folder.path());
        for name in SECRETS {
            // A setting that every git and cargo would stumble over.
            folder.write(name, &format!("[user\nname = {SECRET}\n"));
        }
        let path = Vec::new();
        Self { folder, path }
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        self.folder.write(name, text);
    }

    /// The Rust that builds these tests, as rustup installs it, where it came by rustup.
    pub fn with_rust(mut self) -> Self {
        let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]));
        let sysroot = PathBuf::from(sysroot);
        let name = sysroot.file_name().expect("a toolchain has a name");
        let name = name.to_str().expect("a text name").to_owned();
        let toolchain = format!(".rustup/toolchains/{name}");
        for part in ["bin", "lib"] {
            self.link(&sysroot.join(part), &format!("{toolchain}/{part}"));
        }
        let rustup = cargo_home().join("bin/rustup");
        if !rustup.is_file() {
            self.path.push(self.join(&toolchain).join("bin"));
            return self;
        }
        self.link(&rustup, ".cargo/bin/rustup");
        for proxy in ["cargo", "rustc", "rustdoc"] {
            symlink("rustup", self.join(".cargo/bin").join(proxy)).expect("a proxy");
        }
        let settings = format!("version = \"12\"\ndefault_toolchain = \"{name}\"\n");
        self.write(".rustup/settings.toml", &settings);
        self.path.push(self.join(".cargo/bin"));
        self
    }

    /// A crate that was fetched to build these tests, in the owner's registry cache: its version.
    pub fn with_crate(self, name: &str) -> (Self, String) {
        let registry = cargo_home().join("registry");
        let only = |folder: &Path| {
            let entries = std::fs::read_dir(folder).expect("a registry").flatten();
            let mut names = entries.map(|entry| entry.file_name());
            names.find(|name| name.to_string_lossy().contains("crates.io"))
        };
        let source = only(&registry.join("src")).expect("the sources of crates.io");
        let source = source.to_str().expect("a text name");
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        let lock = std::fs::read_to_string(lock).expect("a lock file");
        let entry = format!("name = \"{name}\"\nversion = \"");
        let (_, version) = lock.split_once(&entry).expect("a crate of ours");
        let version = version.split('"').next().expect("a version").to_owned();
        for part in [
            format!(
                "index/{source}/.cache/{}/{}/{name}",
                &name[..2],
                &name[2..4]
            ),
            format!("index/{source}/config.json"),
            format!("cache/{source}/{name}-{version}.crate"),
            format!("src/{source}/{name}-{version}"),
        ] {
            self.link(&registry.join(&part), &format!(".cargo/registry/{part}"));
        }
        (self, version)
    }

    /// The Python of the tests, as pyenv installs it; one of the system stays where it is.
    pub fn with_python(mut self) -> Self {
        let prefix = PathBuf::from(said(
            Command::new(python()).args(["-c", "import sys; print(sys.base_prefix)"]),
        ));
        if prefix.starts_with("/usr") {
            return self;
        }
        let versions = ".pyenv/versions/3.0.0";
        for part in ["bin", "lib", "include"] {
            self.link(&prefix.join(part), &format!("{versions}/{part}"));
        }
        self.path.push(self.join(versions).join("bin"));
        self
    }

    /// A toolchain's part, or a file of one.
    fn link(&self, from: &Path, to: &str) {
        let to = self.join(to);
        std::fs::create_dir_all(to.parent().expect("inside the home")).expect("make folders");
        let copied = |how: &str| {
            let ran = run(Command::new("cp").arg(how).arg(from).arg(&to));
            ran.status.success()
        };
        let linked = copied("-al") || {
            let _ = std::fs::remove_dir_all(&to);
            copied("-a")
        };
        assert!(linked, "link {}", from.display());
    }
}

fn said(command: &mut Command) -> String {
    let ran = run(command).good();
    ran.out.trim().to_owned()
}

fn cargo_home() -> PathBuf {
    let home = std::env::var_os("HOME").expect("a home");
    let usual = || Path::new(&home).join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(usual, PathBuf::from)
}

fn open(folder: &Path) {
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, mode).expect("open a folder");
}

/// A workspace and a gate that runs programs in it.
pub struct Stand<'a> {
    pub users: Users,
    folder: Folder,
    home: &'a OwnerHome,
}

impl<'a> Stand<'a> {
    /// One with these files in the workspace.
    pub fn new(users: Users, home: &'a OwnerHome, files: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        open(folder.path());
        place(super::program(), &folder.join("callgate"));
        for name in ["ws", "state"] {
            std::fs::create_dir(folder.join(name)).expect("make a folder");
        }
        give(&folder.join("state"), users.gate);
        let stand = Self {
            users,
            folder,
            home,
        };
        for (name, text) in files {
            stand.write(name, text);
        }
        give(&stand.ws(), users.owner);
        if files.iter().any(|(name, _)| *name == "callgate.toml") {
            stand.cli(&["trust"]).good();
        }
        stand
    }

    /// The workspace.
    pub fn ws(&self) -> PathBuf {
        self.folder.join("ws")
    }

    /// A file of the workspace, made by its owner.
    pub fn write(&self, name: &str, text: &str) {
        self.folder.write(&format!("ws/{name}"), text);
        give(&self.ws(), self.users.owner);
    }

    /// A folder from elsewhere, copied into the workspace.
    pub fn copy_in(&self, from: &Path, to: &str) {
        let to = self.ws().join(to);
        run(Command::new("cp").arg("-r").arg(from).arg(&to)).good();
        give(&to, self.users.owner);
    }

    /// A file of the workspace.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.ws().join(name)).ok()
    }

    /// Where programs of the workspace live.
    pub fn homes(&self) -> PathBuf {
        let elsewhere = self.folder.join("code/homes");
        match std::fs::read_dir(elsewhere)
            .ok()
            .and_then(|mut ids| ids.next())
        {
            Some(id) => id.expect("a folder of homes").path(),
            None => self.folder.join("state/homes"),
        }
    }

    /// `callgate` in the workspace, as the gate's user.
    pub fn callgate(&self) -> Command {
        let mut command = Command::new(self.folder.join("callgate"));
        let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let path = self.home.path.iter().chain(&usual);
        command
            .env_clear()
            .env("PATH", std::env::join_paths(path).expect("plain folders"))
            .env("HOME", self.home.folder.path())
            .env("CALLGATE_STATE", self.folder.join("state"))
            .env("CALLGATE_CODE", self.folder.join("code"))
            .current_dir(self.ws());
        let uid = self.users.gate;
        if rustix::process::geteuid().is_root() && uid != 0 {
            // Its groups go too.
            command.uid(uid).gid(uid);
        }
        command
    }

    pub fn cli(&self, args: &[&str]) -> Ran {
        run(self.callgate().args(args))
    }

    /// What `exec/run` answers.
    pub fn exec(&self, params: &Value) -> Value {
        let mut params = params.clone();
        params["timeout_ms"] = json!(500_000);
        self.call("exec/run", &params)
    }

    /// What a tool gives.
    pub fn call(&self, tool: &str, input: &Value) -> Value {
        let mut command = self.callgate();
        command.args(["call", tool, &input.to_string()]);
        run_within(&mut command, b"", PATIENCE).good().json()
    }

    /// What a program prints, which must end well.
    pub fn run(&self, words: &[&str]) -> String {
        self.run_with(words, &json!({}))
    }

    /// The same in this environment.
    pub fn run_with(&self, words: &[&str], env: &Value) -> String {
        let ended = self.exec(&json!({ "command": words[0], "args": words[1..], "env": env }));
        let who = self.users.name();
        assert_eq!(ended["exit_code"], 0, "{words:?} as {who}: {ended}");
        ended["stdout"].as_str().expect("text").to_owned()
    }
}
