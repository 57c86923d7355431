//! Packs: one that was touched anywhere does not load, with the reason, and the owner decides whose
//! packs count. Installing them, and their commands, are tested with the program.

use std::path::Path;

use crate::support::calls::fault_of;
use crate::support::desk::{Desk, edit, flip};
use crate::support::in_process::Opened;

/// With the owner's files in the workspace nothing of a pack is served, and the reason is said.
fn refused_inside(desk: &Desk, config: &Path) {
    let environment = desk.environment_of(config);
    let opened = Opened::in_environment(&desk.workspace, &environment);
    assert_eq!(fault_of(&opened, "say hello"), Some("unknown_tool"));
    let note = opened.parts.in_force().expect("a readable state").note();
    assert!(note.contains("is inside the workspace"), "{note}");
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
    desk.make_key("mallory");
    desk.sign(&desk.installed_file(""), "mallory");
    desk.refused(&[
        "signed by a key you do not trust",
        "calls itself \"mallory\"",
    ]);
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
    let note = desk.note();
    assert!(note.contains("did you mean `allowed_packs`?"), "{note}");
    policy("");
    desk.runs();

    let keys = desk.home.join("callgate/pack-keys.toml");
    let mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    mode(0o622);
    assert!(desk.hello().is_err());
    let note = desk.note();
    assert!(note.contains("others may write it"), "{note}");
    mode(0o600);
    desk.runs();

    // What is inside the workspace is in the tools' reach.
    let inside = desk.workspace.join("config");
    std::fs::create_dir(&inside).expect("a folder");
    refused_inside(&desk, &inside);
    let link = desk.home.join("link");
    std::os::unix::fs::symlink(&inside, &link).expect("a link into the workspace");
    refused_inside(&desk, &link);

    desk.untrust_key("alice");
    desk.refused(&["signed by a key you do not trust"]);
}
