//! Packs with the real program: an untouched one runs, and one that was touched anywhere does
//! not load, with the reason; the owner decides whose packs count.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::support::desk::{Desk, edit, flip};
use crate::support::drive::{Serve, run};
use crate::support::{Folder, wait_for};
use callgate_testing::is_skipped_without_root;
use serde_json::json;

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
        crate::support::drive::run_with(
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
    let ran = crate::support::drive::run_with(
        &mut desk.command(&["tool"]),
        request.to_string().as_bytes(),
    );
    let reply = ran.good().json();
    assert_eq!(
        (&reply["ok"], &reply["result"]["message"]),
        (&json!(true), &json!("Hello Ada")),
        "{reply}"
    );
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

/// P-16: root's tools in somebody else's workspace become that somebody, who may read their
/// code and nothing of root's state.
#[test]
fn code_for_another_user_is_outside_the_state() {
    use std::os::unix::fs::MetadataExt as _;
    if is_skipped_without_root("tools of another user") {
        return;
    }
    let desk = Desk::installed();
    let code = Folder::new();
    std::os::unix::fs::chown(desk.workspace.path(), Some(65_534), None).expect("chown");
    for name in [".namel3ss", ".namel3ss/packs"] {
        std::os::unix::fs::chown(desk.workspace.join(name), Some(65_534), None).expect("chown");
    }
    let go = |args: &[&str]| {
        run(desk
            .command(args)
            .env("CALLGATE_CODE", code.join("code"))
            .env("PATH", "/usr/bin:/bin"))
    };
    go(&["tools"]).good();
    let copies: Vec<PathBuf> = std::fs::read_dir(code.join("code"))
        .expect("the copies")
        .map(|entry| entry.expect("a copy").path())
        .collect();
    assert_eq!(copies.len(), 1);
    for path in [&copies[0], &copies[0].join("tools/say_hello.py")] {
        let found = std::fs::metadata(path).expect("of the copy");
        assert_eq!(
            (found.uid(), found.mode() & 0o044, found.mode() & 0o022),
            (0, 0o044, 0)
        );
    }
    let called = go(&["call", "say hello", r#"{"name":"Ada"}"#]).good();
    assert_eq!(called.json(), json!({ "message": "Hello Ada" }));
    // A place that others may write is refused, and said so.
    std::fs::set_permissions(
        code.join("code"),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .expect("chmod");
    let told = go(&["call", "say hello", "{}"]);
    assert!(
        told.code() == 1 && told.err.contains("lay out pack acme.greeter"),
        "{told:?}"
    );
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
    crate::support::callgate_as("callgate", &folder);
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

/// P-11, P-16: a Node tool of a pack runs from the code that was verified, as its owner and, for
/// root, in somebody else's workspace; what the installed file has become does not matter to it.
#[test]
fn a_pack_of_node() {
    let desk = Desk::new();
    desk.go(&["pack", "init", &desk.pack_text()]).good();
    let made = desk.go(&["pack", "keygen", "alice"]).good();
    std::fs::remove_file(desk.pack().join("tools/say_hello.py")).expect("no Python");
    let helper = "export const word = \"Hello\";\n";
    let tool = "import { word } from \"./word.mjs\";\n\
        export const run = (input) => ({ message: `${word} ${input.name ?? \"you\"}` });\n";
    for (name, text) in [("word.mjs", helper), ("say_hello.mjs", tool)] {
        std::fs::write(desk.pack().join("tools").join(name), text).expect("its code");
    }
    edit(&desk.pack().join("tools.yaml"), |text| {
        text.replace("\"python\"", "\"node\"")
    });
    desk.sign("alice");
    desk.go(&["pack", "trust", "alice", made.out.trim_end()])
        .good();
    desk.go(&["pack", "install", &desk.pack_text()]).good();
    desk.go(&["trust"]).good();
    let (code, bin) = (Folder::new(), Folder::new());
    let path = path_with_node(&bin);
    let call = || {
        let mut command = desk.command(&["call", "say hello", r#"{"name":"Ada"}"#]);
        command
            .env("CALLGATE_CODE", code.join("code"))
            .env("PATH", &path);
        run(&mut command).good().json()
    };
    assert_eq!(call(), json!({ "message": "Hello Ada" }));
    flip(&desk.installed_file("tools/word.mjs"), 25);
    desk.refused(&["tools/word.mjs changed"]);
    flip(&desk.installed_file("tools/word.mjs"), 25);
    if !rustix::process::geteuid().is_root() {
        return; // only root becomes somebody else
    }
    for name in ["", ".namel3ss", ".namel3ss/packs"] {
        let path = desk.workspace.join(name);
        std::os::unix::fs::chown(path, Some(65_534), None).expect("chown");
    }
    assert_eq!(call(), json!({ "message": "Hello Ada" }));
}

/// A search path with a Node that everybody can get at: the one the tests were given may be in
/// root's own folder.
fn path_with_node(bin: &Folder) -> OsString {
    use std::os::unix::fs::PermissionsExt as _;
    let usual = std::env::var_os("PATH").expect("a search path");
    let Some(given) = std::env::var_os("CALLGATE_TEST_NODE") else {
        return usual;
    };
    for (path, from) in [(bin.path(), None), (&bin.join("node"), Some(given))] {
        if let Some(from) = from {
            crate::support::copy_program(Path::new(&from), path);
        }
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("open it");
    }
    let mut path = bin.path().as_os_str().to_owned();
    path.push(":");
    path.push(usual);
    path
}
