//! Packs from both sides: an author who makes and signs one, and an owner who installs it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::drive::{Ran, run};
use super::{Folder, callgate};

/// A workspace, an author's folder and an owner's home, apart from each other.
pub struct Desk {
    pub workspace: Folder,
    pub author: Folder,
    pub home: Folder,
}

impl Desk {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            workspace: Folder::new(),
            author: Folder::new(),
            home: Folder::new(),
        }
    }

    /// A desk with a signed pack `acme.greeter` in the author's folder, whose key is trusted.
    pub fn with_pack() -> Self {
        let desk = Self::new();
        desk.go(&["pack", "init", &desk.pack_text()]).good();
        let made = desk.go(&["pack", "keygen", "alice"]).good();
        desk.sign("alice");
        desk.go(&["pack", "trust", "alice", made.out.trim_end()])
            .good();
        desk
    }

    /// The same, installed and trusted.
    pub fn installed() -> Self {
        let desk = Self::with_pack();
        desk.go(&["pack", "install", &desk.pack_text()]).good();
        desk.go(&["trust"]).good();
        desk
    }

    /// The program, for this owner in this workspace.
    pub fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = callgate(&self.workspace);
        command.env("XDG_CONFIG_HOME", self.home.path()).args(args);
        command
    }

    /// One run to its end.
    pub fn go(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    /// What a run says as data.
    pub fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        self.go(&args).good().json()
    }

    /// The author's pack.
    pub fn pack(&self) -> PathBuf {
        self.author.join("acme.greeter")
    }

    /// The same as text.
    pub fn pack_text(&self) -> String {
        self.pack().to_str().expect("a text path").to_owned()
    }

    /// Signs the author's pack.
    pub fn sign(&self, key: &str) {
        self.go(&["pack", "sign", &self.pack_text(), "--key", key])
            .good();
    }

    /// A file of the installed pack.
    pub fn installed_file(&self, name: &str) -> PathBuf {
        self.workspace
            .join(".namel3ss/packs/acme.greeter")
            .join(name)
    }

    /// Calls the pack's tool.
    pub fn hello(&self) -> Ran {
        self.go(&["call", "say hello", r#"{"name":"Ada"}"#])
    }

    /// The pack's tool is there and runs.
    pub fn runs(&self) {
        assert_eq!(
            self.hello().good().json(),
            json!({ "message": "Hello Ada" })
        );
    }

    /// The pack's tool is not there, and every command that would use it says why.
    pub fn refused(&self, words: &[&str]) {
        let called = self.hello();
        assert_eq!(called.code(), 1, "{called:?}");
        assert!(called.err.contains("tool not found"), "{called:?}");
        let trusted = self.go(&["trust"]);
        assert_eq!(trusted.code(), 1, "{trusted:?}");
        let doctor = self.go(&["doctor"]);
        let list = self.go(&["pack", "list"]).good();
        assert!(list.out.contains("refused"), "{list:?}");
        for word in words {
            for (what, told) in [
                ("call", &called.err),
                ("trust", &trusted.err),
                ("doctor", &doctor.out),
                ("list", &list.out),
            ] {
                assert!(told.contains(word), "{what} does not say {word:?}: {told}");
            }
        }
    }
}

/// Changes a file of a pack.
pub fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(path).expect("a file of the pack");
    let changed = change(text.clone());
    assert_ne!(text, changed, "{}", path.display());
    std::fs::write(path, changed).expect("change it");
}

/// Changes one byte.
pub fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("a file of the pack");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("change it");
}
