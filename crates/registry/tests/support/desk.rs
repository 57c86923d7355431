//! Packs from both sides: an author who makes and signs one, and an owner who has it installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callgate_call::{Fault, OriginSource};
use callgate_registry::environment::Environment;
use callgate_registry::pack::{
    INSTALLED, Owner, Pack, Policy, PublicKey, SEAL_FILE, Seal, judge, standing,
};
use callgate_registry::project;
use callgate_wires::tool_protocol::{
    Binding, Capabilities, Kind, PackManifest, RunnerWord, write_bindings, write_capabilities,
    write_pack,
};
use serde_json::{Value, json};

use super::calls::outcome;
use super::in_process::{Folder, Opened, environment};

const ID: &str = "acme.greeter";
const TOOL: &str = "say hello";
const CODE: &str =
    "def run(payload):\n    return {\"message\": \"Hello \" + payload.get(\"name\", \"you\")}\n";

/// A workspace, an author's folder and an owner's home, apart from each other.
pub struct Desk {
    pub workspace: Folder,
    pub author: Folder,
    pub home: Folder,
}

impl Desk {
    /// A desk with a signed pack `acme.greeter`, whose key is trusted, in the author's folder and
    /// installed in the workspace, which is trusted.
    pub fn installed() -> Self {
        let desk = Self {
            workspace: Folder::new(),
            author: Folder::new(),
            home: Folder::new(),
        };
        desk.write_pack();
        let key = desk.make_key("alice");
        desk.sign(&desk.pack(), "alice");
        desk.trust_key("alice", key);
        copy(&desk.pack(), &desk.installed_file(""));
        desk.opened().trust().expect("a good pack");
        desk
    }

    /// The environment of the owner.
    pub fn environment(&self) -> Environment {
        self.environment_of(self.home.path())
    }

    /// The same with the owner's files elsewhere.
    pub fn environment_of(&self, config: &Path) -> Environment {
        let home = ("XDG_CONFIG_HOME", config.as_os_str());
        environment(&self.workspace, &[home])
    }

    /// The workspace, opened by its owner.
    pub fn opened(&self) -> Opened {
        Opened::in_environment(&self.workspace, &self.environment())
    }

    fn owner(&self) -> Owner {
        Owner::new(&self.environment())
    }

    /// The author's pack.
    pub fn pack(&self) -> PathBuf {
        self.author.join(ID)
    }

    /// A file of the installed pack.
    pub fn installed_file(&self, name: &str) -> PathBuf {
        self.workspace.join(INSTALLED).join(ID).join(name)
    }

    /// Writes the author's pack.
    fn write_pack(&self) {
        let manifest = PackManifest {
            id: ID.to_owned(),
            name: ID.to_owned(),
            version: "0.1.0".to_owned(),
            description: "What its tools do".to_owned(),
            author: "Who made it".to_owned(),
            license: "MIT".to_owned(),
            tools: vec![TOOL.to_owned()],
            ..PackManifest::default()
        };
        let binding = Binding {
            kind: Kind::Python,
            entry: "tools.say_hello:run".to_owned(),
            runner: Some(RunnerWord::Local),
            url: None,
            image: None,
            command: None,
            env: None,
            purity: None,
            timeout_ms: None,
            sandbox: None,
            enforcement: None,
        };
        let bindings = BTreeMap::from([(TOOL.to_owned(), binding)]);
        let needed = BTreeMap::from([(TOOL.to_owned(), Capabilities::default())]);
        for (name, text) in [
            ("pack.yaml", write_pack(&manifest)),
            ("tools.yaml", write_bindings(&bindings)),
            ("capabilities.yaml", write_capabilities(&needed)),
            ("tools/say_hello.py", CODE.to_owned()),
        ] {
            self.author.write(&format!("{ID}/{name}"), &text);
        }
    }

    /// Makes a key to sign with.
    pub fn make_key(&self, name: &str) -> PublicKey {
        let (_, signer) = self.owner().make_key(name).expect("a key");
        signer.public()
    }

    /// Lets packs count that a key signed.
    fn trust_key(&self, name: &str, key: PublicKey) {
        let mut keys = self.owner().read().expect("the owner's files").keys;
        keys.insert(name.to_owned(), key);
        self.owner()
            .write_keys(&keys)
            .expect("the keys are written");
    }

    /// No longer lets packs count that a key signed.
    pub fn untrust_key(&self, name: &str) {
        let mut keys = self.owner().read().expect("the owner's files").keys;
        assert!(keys.remove(name).is_some(), "{name} is trusted");
        self.owner()
            .write_keys(&keys)
            .expect("the keys are written");
    }

    /// Signs a pack as it is now.
    pub fn sign(&self, folder: &Path, key: &str) {
        let pack = Pack::read(folder).expect("a pack");
        let signer = self.owner().signer(key).expect("a key of the author");
        let seal = Seal::sign(&pack, &signer, "2026-01-02T03:04:05.006Z".to_owned());
        std::fs::write(folder.join(SEAL_FILE), seal.to_text()).expect("write the signature");
    }

    /// Calls the pack's tool.
    pub fn hello(&self) -> Result<Value, Fault> {
        let input = json!({ "name": "Ada" });
        let outcome = outcome(&self.opened(), TOOL, &input, None);
        outcome.result.map(|output| output.json.into_value())
    }

    /// The pack's tool is there and runs.
    pub fn runs(&self) {
        let said = self.hello().unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(said, json!({ "message": "Hello Ada" }));
    }

    /// The line for people that says what is in force.
    pub fn note(&self) -> String {
        let in_force = self.opened().parts.in_force();
        in_force.expect("the state is readable").note()
    }

    /// The pack's tool is not there, and everything that would use it says why.
    pub fn refused(&self, words: &[&str]) {
        let called = self.hello();
        let is_unknown = matches!(called, Err(Fault::UnknownTool { .. }));
        assert!(is_unknown, "{called:?}");
        let trusted = self.opened().trust().expect_err("it was trusted");
        let (note, verdict) = (self.note(), self.verdict());
        for word in words {
            for (what, told) in [("trust", &trusted), ("note", &note), ("verdict", &verdict)] {
                assert!(told.contains(word), "{what} does not say {word:?}: {told}");
            }
        }
    }

    /// The reason why the installed pack does not count.
    fn verdict(&self) -> String {
        let pack = match Pack::read(&self.installed_file("")) {
            Ok(pack) => pack,
            Err(error) => return error.to_string(),
        };
        let owner = self.owner().read().expect("the owner's files");
        let policy: Policy = project::policy(self.workspace.path()).expect("a policy");
        let standing = standing(&pack, &owner.keys);
        let allowed = owner.policy.allow_unverified_enable;
        let source = OriginSource::InstalledPack;
        let judged = judge(&pack, source, &standing, allowed, &owner.policy, &policy);
        judged.expect_err("it counts").to_string()
    }
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("make a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(std::fs::copy(&from, &to).expect("copy a file")),
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
