//! Installing packs with the real program: what has no place in one is refused before anything
//! is written, and a killed install leaves nothing half.

use crate::support::Folder;
use crate::support::desk::{Desk, edit};
#[cfg(feature = "failpoints")]
use crate::support::drive::run;

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
