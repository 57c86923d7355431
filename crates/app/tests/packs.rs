//! Packs with the real program: an untouched one runs, and one that was touched anywhere does
//! not load, with the reason; installs are whole or nothing; the owner decides whose packs
//! count.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

mod support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::drive::{Ran, Serve, run};
use support::{Folder, callgate, wait_for};

/// A workspace, an author's folder and an owner's home, apart from each other.
struct Desk {
    workspace: Folder,
    author: Folder,
    home: Folder,
}

impl Desk {
    fn new() -> Self {
        Self {
            workspace: Folder::new(),
            author: Folder::new(),
            home: Folder::new(),
        }
    }

    /// A desk with a signed pack `acme.greeter` in the author's folder, whose key is trusted.
    fn with_pack() -> Self {
        let desk = Self::new();
        desk.go(&["pack", "init", &desk.pack_text()]).good();
        let made = desk.go(&["pack", "keygen", "alice"]).good();
        desk.sign("alice");
        desk.go(&["pack", "trust", "alice", made.out.trim_end()])
            .good();
        desk
    }

    /// The same, installed and trusted.
    fn installed() -> Self {
        let desk = Self::with_pack();
        desk.go(&["pack", "install", &desk.pack_text()]).good();
        desk.go(&["trust"]).good();
        desk
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = callgate(&self.workspace);
        command.env("XDG_CONFIG_HOME", self.home.path()).args(args);
        command
    }

    fn go(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        self.go(&args).good().json()
    }

    fn pack(&self) -> PathBuf {
        self.author.join("acme.greeter")
    }

    fn pack_text(&self) -> String {
        self.pack().to_str().expect("a text path").to_owned()
    }

    fn sign(&self, key: &str) {
        self.go(&["pack", "sign", &self.pack_text(), "--key", key])
            .good();
    }

    fn installed_file(&self, name: &str) -> PathBuf {
        self.workspace
            .join(".namel3ss/packs/acme.greeter")
            .join(name)
    }

    fn hello(&self) -> Ran {
        self.go(&["call", "say hello", r#"{"name":"Ada"}"#])
    }

    /// The pack's tool is there and runs.
    fn runs(&self) {
        assert_eq!(
            self.hello().good().json(),
            json!({ "message": "Hello Ada" })
        );
    }

    /// The pack's tool is not there, and every command that would use it says why.
    fn refused(&self, words: &[&str]) {
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

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(path).expect("a file of the pack");
    let changed = change(text.clone());
    assert_ne!(text, changed, "{}", path.display());
    std::fs::write(path, changed).expect("change it");
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("a file of the pack");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("change it");
}

/// P-11: the untouched pack loads and runs, by all its names, with its origin.
#[test]
fn an_untouched_pack_runs() {
    let desk = Desk::with_pack();
    let verified = desk.json(&["pack", "verify", &desk.pack_text()]);
    assert_eq!(
        (&verified["standing"], &verified["signer"]),
        (&json!("verified"), &json!("alice"))
    );
    let installed = desk.json(&["pack", "install", &desk.pack_text()]);
    assert_eq!(installed["digest"], verified["digest"]);
    let told = desk.hello();
    assert!(
        told.code() == 1 && told.err.contains("not trusted yet"),
        "{told:?}"
    );
    let trusted = desk.go(&["trust"]).good();
    assert!(
        trusted.out.contains("pack acme.greeter 0.1.0"),
        "{trusted:?}"
    );
    desk.runs();
    for name in [
        "acme.greeter/say_hello",
        "acme_greeter_say_hello",
        "AID.ACME_GREETER.SAY_HELLO.v1",
    ] {
        let called = desk.go(&["call", name, "{}"]).good();
        assert_eq!(called.json(), json!({ "message": "Hello you" }));
    }
    let shown = desk.go(&["tools", "show", "say hello"]).good().json();
    assert_eq!(shown["resolved_source"], "installed_pack");
    assert_eq!(
        shown["pack"],
        json!({ "id": "acme.greeter", "name": "acme.greeter", "version": "0.1.0" })
    );
    let listed = desk.json(&["pack", "list"]);
    assert_eq!(
        (&listed["packs"][0]["use"], &listed["packs"][0]["risk"]),
        (&json!("enabled"), &json!("low"))
    );
    desk.go(&["pack", "remove", "acme.greeter"]).good();
    assert_eq!(desk.hello().code(), 1);
    assert!(!desk.workspace.join(".namel3ss/packs/acme.greeter").exists());
    assert_eq!(desk.go(&["pack", "remove", "acme.greeter"]).code(), 1);
}

/// P-11: one flipped byte anywhere, a file more or a file less: refused, and the file is named.
#[test]
fn a_touched_pack_does_not_load() {
    let desk = Desk::installed();
    desk.runs();
    for name in [
        "tools/say_hello.py",
        "capabilities.yaml",
        "pack.yaml",
        "tools.yaml",
    ] {
        let path = desk.installed_file(name);
        let size = std::fs::metadata(&path).expect("a file of the pack").len() as usize;
        for at in [0, size / 2, size - 1] {
            flip(&path, at);
            desk.refused(&["changed after it was signed", &format!("{name} changed")]);
            flip(&path, at);
        }
        desk.runs();
    }
    let extra = desk.installed_file("tools/extra.py");
    std::fs::write(&extra, "").expect("add a file");
    desk.refused(&["changed after it was signed: tools/extra.py was added"]);
    std::fs::remove_file(&extra).expect("take it away");
    let code = desk.installed_file("tools/say_hello.py");
    let text = std::fs::read(&code).expect("its code");
    std::fs::remove_file(&code).expect("take it away");
    desk.refused(&["tools/say_hello.py is missing"]);
    std::fs::write(&code, text).expect("put it back");
    // What working with it leaves behind is not part of it, and never runs.
    let cache = desk.installed_file("tools/__pycache__");
    std::fs::create_dir(&cache).expect("a cache");
    std::fs::write(cache.join("say_hello.cpython-312.pyc"), "x").expect("in it");
    desk.runs();
}

/// P-11: a capability raised after signing, with all else as it was.
#[test]
fn a_raised_capability_is_refused() {
    let desk = Desk::installed();
    edit(&desk.installed_file("capabilities.yaml"), |text| {
        text.replace("network: \"none\"", "network: \"outbound\"")
    });
    desk.refused(&[
        "pack_unavailable_or_unverified",
        "capabilities.yaml changed",
    ]);
    // Signed anew by somebody else, it is somebody else's.
    desk.go(&["pack", "keygen", "mallory"]).good();
    let folder = desk.installed_file("");
    desk.go(&[
        "pack",
        "sign",
        folder.to_str().expect("a text path"),
        "--key",
        "mallory",
    ])
    .good();
    desk.refused(&[
        "signed by a key you do not trust",
        "calls itself \"mallory\"",
    ]);
}

/// P-11: a foreign key, no signature, the older form, and a signature that is another's.
#[test]
fn only_trusted_keys_count() {
    let desk = Desk::with_pack();
    desk.go(&["pack", "keygen", "mallory"]).good();
    let sig = desk.pack().join("callgate.sig");
    let good = std::fs::read_to_string(&sig).expect("the signature");
    let refused = |words: &str| {
        let told = desk.go(&["pack", "install", &desk.pack_text()]);
        assert!(
            told.code() == 1 && told.err.contains(words),
            "{words}: {told:?}"
        );
        let told = desk.go(&["pack", "verify", &desk.pack_text()]);
        assert_eq!(told.code(), 1, "{told:?}");
        assert!(!desk.workspace.join(".namel3ss/packs/acme.greeter").exists());
    };
    desk.sign("mallory");
    refused("signed by a key you do not trust");
    // The name inside is worth nothing: the key decides.
    edit(&sig, |text| text.replace("\"mallory\"", "\"alice\""));
    refused("the signature is not that of the key it names");
    for (from, to) in [
        ("\"0.1.0\"", "\"0.2.0\""),
        ("\"acme.greeter\"", "\"acme.other\""),
    ] {
        std::fs::write(&sig, good.replace(from, to)).expect("change the signature");
        refused("the signature is not that of the key it names");
    }
    std::fs::write(&sig, "{}").expect("change the signature");
    refused("is not a signature");
    std::fs::remove_file(&sig).expect("take the signature away");
    refused("not signed");
    std::fs::write(desk.pack().join("signature.txt"), "hmac-sha256:00\n").expect("the older form");
    refused("older form");
    let shown = desk.go(&["pack", "verify", &desk.pack_text()]);
    assert!(shown.out.contains("unverified"), "{shown:?}");
    std::fs::write(&sig, good).expect("the good signature");
    desk.go(&["pack", "install", &desk.pack_text()]).good();
}

/// The owner's files decide, and only the owner's: keys that are taken back, allow lists, a
/// file that others may write, a file inside the workspace.
#[test]
fn the_owner_decides() {
    let desk = Desk::installed();
    let policy = |text: &str| {
        desk.home.write("callgate/pack-policy.toml", text);
    };
    policy("allowed_packs = [\"acme.other\"]");
    desk.refused(&[
        "pack_permission_denied",
        "allowed_packs does not name acme.greeter",
    ]);
    policy("allowed_signers = [\"bob\"]");
    desk.refused(&["pack_permission_denied", "allowed_signers"]);
    policy("allowed_packs = [\"acme.greeter\"]\nallowed_signers = [\"alice\"]\nmax_risk = \"low\"");
    desk.runs();
    policy("alowed_packs = []");
    let told = desk.hello();
    assert!(
        told.err.contains("did you mean `allowed_packs`?"),
        "{told:?}"
    );
    policy("");
    desk.runs();

    let keys = desk.home.join("callgate/pack-keys.toml");
    let mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    mode(0o622);
    let told = desk.hello();
    assert!(
        told.code() == 1 && told.err.contains("others may write it"),
        "{told:?}"
    );
    mode(0o600);
    desk.runs();

    // What is inside the workspace is in the tools' reach.
    let inside = desk.workspace.join("config");
    std::fs::create_dir(&inside).expect("a folder");
    let told = run(desk
        .command(&["call", "say hello", "{}"])
        .env("XDG_CONFIG_HOME", &inside));
    assert!(
        told.code() == 1 && told.err.contains("is inside the workspace"),
        "{told:?}"
    );
    let link = desk.home.join("link");
    std::os::unix::fs::symlink(&inside, &link).expect("a link into the workspace");
    let told = run(desk
        .command(&["call", "say hello", "{}"])
        .env("XDG_CONFIG_HOME", &link));
    assert!(
        told.code() == 1 && told.err.contains("is inside the workspace"),
        "{told:?}"
    );

    desk.go(&["pack", "untrust", "alice"]).good();
    desk.refused(&["signed by a key you do not trust"]);
}

/// TP-31: what a policy allows at most is refused above it, and asked of every tool below it.
/// The workspace's own policy can refuse; it can not allow.
#[test]
fn policies_bound_what_packs_need() {
    let desk = Desk::with_pack();
    edit(&desk.pack().join("capabilities.yaml"), |text| {
        text.replace("network: \"none\"", "network: \"outbound\"")
    });
    desk.sign("alice");
    let owner = "callgate/pack-policy.toml";
    desk.home
        .write(owner, "allowed_capabilities = { network = \"none\" }");
    let told = desk.go(&["pack", "install", &desk.pack_text()]);
    assert!(
        told.err
            .contains("`say hello` needs network outbound, and none is allowed"),
        "{told:?}"
    );
    desk.home.write(owner, "max_risk = \"low\"");
    let told = desk.go(&["pack", "install", &desk.pack_text()]);
    assert!(
        told.err.contains("its risk is medium, and max_risk is low"),
        "{told:?}"
    );
    desk.home.write(owner, "");
    desk.go(&["pack", "install", &desk.pack_text()]).good();
    let project = ".namel3ss/trust/policy.toml";
    desk.workspace.write(project, "max_risk = \"low\"\n");
    desk.refused(&["the workspace's policy: its risk is medium"]);
    desk.go(&["pack", "untrust", "alice"]).good();
    desk.workspace
        .write(project, "allow_unverified_enable = true\n");
    desk.refused(&["signed by a key you do not trust"]);
    desk.home.write(owner, "allow_unverified_enable = true\n");
    desk.go(&["trust"]).good();
    desk.runs();
}

/// What has no place in a pack is refused before anything is written, and is named.
#[test]
fn installs_refuse_tricks() {
    let desk = Desk::with_pack();
    let refused = |words: &str| {
        let told = desk.go(&["pack", "install", &desk.pack_text()]);
        assert!(
            told.code() == 1 && told.err.contains(words),
            "{words}: {told:?}"
        );
        let left = std::fs::read_dir(desk.workspace.join(".namel3ss/packs"));
        assert_eq!(left.map_or(0, Iterator::count), 0, "{words}");
    };
    let at = |name: &str| desk.pack().join(name);
    std::os::unix::fs::symlink("/etc/passwd", at("tools/link.py")).expect("a link");
    refused("tools/link.py: a link");
    std::fs::remove_file(at("tools/link.py")).expect("remove it");
    std::os::unix::fs::symlink("/etc", at("etc")).expect("a link to a folder");
    refused("etc: a link");
    std::fs::remove_file(at("etc")).expect("remove it");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    refused("pipe: neither a file nor a folder");
    std::fs::remove_file(at("pipe")).expect("remove it");
    let _socket = std::os::unix::net::UnixListener::bind(at("s")).expect("a socket");
    refused("s: neither a file nor a folder");
    std::fs::remove_file(at("s")).expect("remove it");
    let big = std::fs::File::create(at("big")).expect("a file");
    big.set_len(8 * 1024 * 1024 + 1).expect("a hole");
    refused("big: larger than 8388608 bytes");
    big.set_len(8 * 1024 * 1024).expect("a hole");
    for number in 0..4 {
        std::fs::copy(at("big"), at(&format!("big{number}"))).expect("a copy");
    }
    refused("larger than 33554432 bytes");
    for name in ["big", "big0", "big1", "big2", "big3"] {
        std::fs::remove_file(at(name)).expect("remove it");
    }
    std::fs::write(at("new\nline"), "").expect("a name");
    refused("a name is UTF-8");
    std::fs::remove_file(at("new\nline")).expect("remove it");
    let deep = at(&"d/".repeat(18));
    std::fs::create_dir_all(&deep).expect("folders");
    refused("deeper than 16 folders");
    std::fs::remove_dir_all(at("d")).expect("remove them");
    std::fs::create_dir(at("many")).expect("a folder");
    for number in 0..2000 {
        std::fs::write(at(&format!("many/{number}")), "").expect("a file");
    }
    refused("more than 2000 files");
    std::fs::remove_dir_all(at("many")).expect("remove them");
    edit(&at("pack.yaml"), |text| {
        text.replace("\"acme.greeter\"", "\"../../x\"")
    });
    refused("changed after it was signed: pack.yaml changed");
    std::fs::remove_file(at("callgate.sig")).expect("unsigned");
    refused("pack.yaml: line 1, column 5: an id is");
    edit(&at("pack.yaml"), |text| {
        text.replace("\"../../x\"", "\"acme.greeter\"")
    });
    desk.sign("alice");
    let elsewhere = Folder::new();
    let link = desk.workspace.join(".namel3ss/packs");
    let _ = std::fs::remove_dir(&link);
    std::fs::create_dir_all(desk.workspace.join(".namel3ss")).expect("a folder");
    std::os::unix::fs::symlink(elsewhere.path(), &link).expect("a link");
    refused("packs: is a link");
    std::fs::remove_file(&link).expect("remove it");
    desk.go(&["pack", "install", &desk.pack_text()]).good();
}

/// T-11: a pack's folder is a plugin of the toolhost, trusted by being named; one that changed
/// after it was signed still is not.
#[test]
fn a_pack_is_a_plugin() {
    let desk = Desk::with_pack();
    let list = |place: &Path| desk.go(&["toolhost", "--list", place.to_str().expect("text")]);
    for place in [desk.pack(), desk.pack().join("pack.yaml")] {
        let listed = list(&place).good();
        assert!(
            listed.out.contains("AID.ACME_GREETER.SAY_HELLO.v1"),
            "{listed:?}"
        );
    }
    let run_it = || {
        let pack = desk.pack_text();
        let aid = "AID.ACME_GREETER.SAY_HELLO.v1";
        support::drive::run_with(
            &mut desk.command(&["toolhost", "--run", &pack, aid]),
            br#"{"inputs":{"name":"Ada"}}"#,
        )
    };
    let reply = run_it().good().json();
    assert!(reply.to_string().contains("Hello Ada"), "{reply}");
    edit(&desk.pack().join("tools/say_hello.py"), |text| {
        text.replace("Hello", "Owned")
    });
    let reply = run_it();
    assert_eq!(reply.code(), 3, "{reply:?}");
    assert!(
        reply.out.contains("tools/say_hello.py changed"),
        "{reply:?}"
    );
}

/// TP-4, TP-5: the tool protocol calls it by its plain name.
#[test]
fn the_tool_protocol_knows_packs() {
    let desk = Desk::installed();
    let request = json!({
        "protocol_version": 1, "tool": "say hello", "entry": "tools.say_hello:run",
        "payload": { "name": "Ada" },
    });
    let ran =
        support::drive::run_with(&mut desk.command(&["tool"]), request.to_string().as_bytes());
    let reply = ran.good().json();
    assert_eq!(
        (&reply["ok"], &reply["result"]["message"]),
        (&json!(true), &json!("Hello Ada")),
        "{reply}"
    );
}

/// A killed install leaves no pack, or the whole one; what it leaves half made is swept by the
/// next. Replacing is one moment too.
#[cfg(feature = "failpoints")]
#[test]
fn a_killed_install_leaves_nothing_half() {
    let desk = Desk::with_pack();
    let packs = desk.workspace.join(".namel3ss/packs");
    let names = || {
        let entries = std::fs::read_dir(&packs).expect("the folder of packs");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    };
    let killed = |point: &str, args: &[&str]| {
        let ran = run(desk.command(args).env("CALLGATE_FAILPOINT", point));
        assert!(ran.was_killed(), "{point}: {ran:?}");
    };
    let install = ["pack", "install", &desk.pack_text()];
    for point in [
        "folder.file=kill",
        "folder.file=kill:3",
        "folder.before_put=kill",
    ] {
        killed(point, &install);
        assert!(!packs.join("acme.greeter").exists());
        assert!(names().iter().all(|name| name.starts_with(".callgate-")));
        assert!(
            desk.json(&["pack", "list"])["packs"]
                .as_array()
                .expect("a list")
                .is_empty()
        );
    }
    killed("folder.after_put=kill", &install);
    desk.go(&["pack", "verify", "acme.greeter"]).good();
    let before = std::fs::read(desk.installed_file("pack.yaml")).expect("installed");
    edit(&desk.pack().join("pack.yaml"), |text| {
        text.replace("0.1.0", "0.2.0")
    });
    desk.sign("alice");
    assert_eq!(desk.go(&install).code(), 1, "it is there already");
    let replace = ["pack", "install", "--replace", &desk.pack_text()];
    killed("folder.before_put=kill", &replace);
    assert_eq!(
        std::fs::read(desk.installed_file("pack.yaml")).expect("installed"),
        before
    );
    killed("folder.after_put=kill", &replace);
    desk.go(&["pack", "verify", "acme.greeter"]).good();
    assert_eq!(desk.json(&["pack", "list"])["packs"][0]["version"], "0.2.0");
    desk.go(&replace).good();
    assert_eq!(names(), ["acme.greeter"], "swept");
}

/// What runs is what was verified: a pack that changes while it is served goes on as it was,
/// and a key that is taken back takes its packs along.
#[test]
fn a_running_gate_keeps_to_what_was_verified() {
    let desk = Desk::installed();
    let mut command = desk.command(&["serve"]);
    let serve = Serve::spawn(&mut command, desk.workspace.join("state/gate.sock"));
    let hello = || serve.call(&json!({ "tool": "say hello", "input": { "name": "Ada" } }));
    edit(&desk.installed_file("tools/say_hello.py"), |text| {
        text.replace("Hello", "Owned")
    });
    serve.wait_said("kept the old configuration");
    serve.wait_said("tools/say_hello.py changed");
    // The first worker starts only now, and reads the verified copy.
    let again = desk.json(&["tools"]);
    assert!(again.to_string().contains("say_hello"), "{again}");
    assert_eq!(hello()["output"]["message"], "Hello Ada");
    edit(&desk.installed_file("tools/say_hello.py"), |text| {
        text.replace("Owned", "Hello")
    });
    serve.wait_said("reloaded");
    assert_eq!(hello()["output"]["message"], "Hello Ada");
    desk.go(&["pack", "untrust", "alice"]).good();
    serve.wait_said("only built-in tools are served");
    let fault = wait_for("the tool to go", || {
        let body = hello();
        (body["ok"] == false).then(|| body["fault"]["kind"].clone())
    });
    assert_eq!(fault, "unknown_tool");
    assert!(serve.stop().success());
}

/// A pack's code is laid out once, read only by its tools, and goes when nobody needs it.
#[test]
fn copies_of_code_come_and_go() {
    let desk = Desk::installed();
    desk.runs();
    let copies = || {
        let entries = std::fs::read_dir(desk.workspace.join("state")).expect("the state");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("packs-"))
            .count()
    };
    assert_eq!(copies(), 1);
    edit(&desk.pack().join("tools/say_hello.py"), |text| {
        text.replace("Hello", "Good day")
    });
    desk.sign("alice");
    desk.go(&["pack", "install", "--replace", &desk.pack_text()])
        .good();
    let told = desk.hello();
    assert!(
        told.code() == 1 && told.err.contains("changed since it was trusted"),
        "{told:?}"
    );
    desk.go(&["trust"]).good();
    assert_eq!(desk.hello().good().json()["message"], "Good day Ada");
    assert_eq!(copies(), 1, "the old one is swept");
}

/// The commands of the document, as they are written there.
#[test]
fn the_document_works_as_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/packs.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let blocks = text.split("```sh\n").skip(1);
    let script: String = blocks
        .filter_map(|block| block.split("```").next())
        .collect();
    let (folder, home) = (Folder::new(), Folder::new());
    support::callgate_as("callgate", &folder);
    let mut shell = std::process::Command::new("/bin/sh");
    let search = std::env::var("PATH").unwrap_or_default();
    let ran = run(shell
        .args(["-ec", &script])
        .env("PATH", format!("{}:{search}", folder.join("bin").display()))
        .env("XDG_CONFIG_HOME", home.path())
        .env("CALLGATE_STATE", home.join("state"))
        .current_dir(folder.path()))
    .good();
    let greeted = ran.out.matches("{\"message\":\"Hello Ada\"}").count();
    assert_eq!(greeted, 2, "{ran:?}");
    assert!(ran.out.contains("verified"), "{ran:?}");
}
