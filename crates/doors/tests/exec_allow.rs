//! Which programs `exec/run` takes where the owner lists some: `exec.allow`. R-9, G-9.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::rpc::{Client, rpc};
use callgate_testing_workspace::{Folder, Opened, environment, trust};

fn said(client: &mut Client, params: Value) -> Value {
    client.good("exec/run", params)["stdout"].clone()
}

/// The code, and which field is at fault.
fn bad(client: &mut Client, params: Value) -> (i64, Value) {
    let (code, data) = client.bad("exec/run", params);
    (code, data["field"].clone())
}

/// JR-12, JR-89, JR-166, R-9: a program by its name is the owner's, not one of the workspace.
#[test]
fn programs_are_allowed_by_name() {
    let folder = Folder::new();
    folder.executable("git", "#!/bin/sh\necho planted\n");
    folder.write(
        "callgate.toml",
        "[exec]\nallow = [\"printf\", \"./own.sh\", \"git\"]\n",
    );
    folder.executable("own.sh", "#!/bin/sh\necho own\n");
    trust(&folder);
    let path = format!("{}:.:/usr/bin:/bin", folder.path().display());
    let environment = environment(&folder, &[("PATH", path.as_ref())]);
    let mut client = Client::of(Opened::in_environment(&folder, &environment));
    let params = json!({ "command": "printf", "args": ["x"] });
    assert_eq!(said(&mut client, params), "x");
    assert_eq!(said(&mut client, json!({ "command": "./own.sh" })), "own\n");
    for command in ["echo", "/usr/bin/printf", "./../own.sh", "./git"] {
        let refused = bad(&mut client, json!({ "command": command }));
        assert_eq!(refused, (1002, json!("command")), "{command}");
    }
    let params = json!({ "command": "printf x", "shell": true });
    assert_eq!(bad(&mut client, params), (1002, json!("shell")));
    let params = json!({ "command": "git", "args": ["--version"] });
    let answer = client.ask("exec/run", params);
    assert_ne!(answer["result"]["stdout"], "planted\n");
}

const OWN: &str = "#!/bin/sh\necho own\n";

/// Programs that are listed, one of them by a link, and others of their names.
fn listed() -> Folder {
    let folder = Folder::new();
    for place in ["bin/a", "x/a"] {
        folder.write(place, "");
    }
    folder.executable("own.sh", OWN);
    folder.executable("bin/linked.sh", OWN);
    symlink("bin/linked.sh", folder.join("link.sh")).expect("a link");
    for planted in ["x/own.sh", "x/link.sh"] {
        folder.executable(planted, "#!/bin/sh\necho planted\n");
    }
    folder.write(
        "callgate.toml",
        "[exec]\nallow = [\"./own.sh\", \"./link.sh\", \"./later.sh\", \"sh\"]\n",
    );
    trust(&folder);
    folder
}

/// JR-12, R-9: a path of the list is the file there and no other, wherever its caller stands, and
/// whatever leads there.
#[test]
fn a_path_of_the_list_is_one_file() {
    let folder = listed();
    let mut client = rpc(&folder);
    for (command, cwd) in [("./own.sh", "x"), ("x/own.sh", "."), ("./link.sh", "x")] {
        let params = json!({ "command": command, "cwd": cwd });
        let refused = bad(&mut client, params);
        assert_eq!(refused, (1002, json!("command")), "{command} in {cwd}");
    }
    let whole = folder.join("own.sh").display().to_string();
    for (command, cwd) in [
        ("./own.sh", "."),
        ("x/../own.sh", "."),
        ("../own.sh", "x"),
        ("./link.sh", "."),
        (&*whole, "x"),
    ] {
        let params = json!({ "command": command, "cwd": cwd });
        assert_eq!(said(&mut client, params), "own\n", "{command} in {cwd}");
    }
}

/// JR-12, R-9: a listed path that leads elsewhere than when the configuration was read is not run,
/// whichever link on its way was replaced, and by whom.
#[test]
fn a_listed_link_that_leads_elsewhere_is_refused() {
    let folder = Folder::new();
    folder.write("bin/a", "");
    folder.executable("bin/real.sh", OWN);
    folder.executable("planted.sh", "#!/bin/sh\necho planted\n");
    for (name, to) in [
        ("one.sh", "bin/real.sh"),
        ("two.sh", "mid"),
        ("mid", "bin/real.sh"),
        ("other", "planted.sh"),
    ] {
        symlink(to, folder.join(name)).expect("a link");
    }
    folder.write(
        "callgate.toml",
        "[exec]\nallow = [\"./one.sh\", \"./two.sh\", \"ln\"]\n",
    );
    trust(&folder);
    let mut client = rpc(&folder);
    for command in ["./one.sh", "./two.sh"] {
        assert_eq!(said(&mut client, json!({ "command": command })), "own\n");
    }
    // Callers of `files/*` replace no link; a program that may write the workspace can.
    let moved = json!({ "from": "other", "to": "mid", "overwrite": true });
    for (method, params) in [
        ("files/delete", json!({ "path": "mid" })),
        ("files/move", moved),
    ] {
        assert_eq!(client.bad(method, params).0, 1002, "{method}");
    }
    for link in ["one.sh", "mid"] {
        let params = json!({ "command": "ln", "args": ["-sf", "planted.sh", link] });
        client.good("exec/run", params);
    }
    for command in ["./one.sh", "./two.sh"] {
        let end = folder.join(command).canonicalize().expect("an end");
        assert!(end.ends_with("planted.sh"), "{command}");
        let refused = bad(&mut client, json!({ "command": command }));
        assert_eq!(refused, (1002, json!("command")), "{command}");
    }
}

/// G-9b, G-9c: nobody who may run a program of the list may change it.
#[test]
fn what_is_listed_is_kept() {
    let folder = listed();
    let mut client = rpc(&folder);
    for path in ["own.sh", "link.sh", "bin/linked.sh", "later.sh"] {
        for (method, params) in [
            (
                "files/write",
                json!({ "path": path, "content": "x", "overwrite": true }),
            ),
            ("files/delete", json!({ "path": path })),
            (
                "files/move",
                json!({ "from": "x/own.sh", "to": path, "overwrite": true }),
            ),
        ] {
            assert_eq!(client.bad(method, params).0, 1002, "{method} {path}");
        }
    }
    let command = "echo x > own.sh; rm -f own.sh; echo x > bin/linked.sh; mv bin other";
    client.good("exec/run", json!({ "command": command, "shell": true }));
    for kept in ["own.sh", "bin/linked.sh"] {
        assert_eq!(folder.read(kept).as_deref(), Some(OWN), "{kept}");
    }
}

/// where programs are listed, no variable of a call makes one of them run another, on any of
/// the three ways to start one. Without a list any program may be run anyway.
#[test]
fn variables_do_not_name_programs_beside_a_list() {
    let folder = Folder::new();
    folder.executable("planted.sh", "#!/bin/sh\necho ran > ran\n");
    folder.write("a", "one\n");
    folder.write(
        "callgate.toml",
        "[exec]\nallow = [\"git\"]\nallow_env = [\"GIT_AUTHOR_*\"]\n",
    );
    trust(&folder);
    let mut client = rpc(&folder);
    let git = |client: &mut Client, args: &[&str]| {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let args = [&who, args].concat();
        let params =
            json!({ "command": "git", "args": args, "env": { "GIT_AUTHOR_NAME": "owner" } });
        let ended = client.good("exec/run", params);
        assert_eq!(ended["exit_code"], 0, "{ended}");
        ended["stdout"].clone()
    };
    git(&mut client, &["init"]);
    git(&mut client, &["add", "a"]);
    git(&mut client, &["commit", "-m", "one"]);
    assert_eq!(git(&mut client, &["log", "--format=%an"]), "owner\n");
    folder.write("a", "two\n");
    for env in [
        json!({ "GIT_EXTERNAL_DIFF": "./planted.sh" }),
        json!({ "GIT_PAGER": "./planted.sh", "GIT_PAGER_IN_USE": "1" }),
        json!({
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "diff.external",
            "GIT_CONFIG_VALUE_0": "./planted.sh",
        }),
        json!({ "HOME": "." }),
        json!({ "PATH": "." }),
        json!({ "LANG": "$(./planted.sh)" }),
    ] {
        let params = json!({ "command": "git", "args": ["diff"], "env": env });
        let (code, field) = bad(&mut client, params.clone());
        assert_eq!(code, 1003, "{env}");
        assert!(
            field
                .as_str()
                .is_some_and(|field| field.starts_with("env."))
        );
        assert_eq!(client.bad("terminals/create", params).0, 1003, "{env}");
        let params = json!({ "command": ["git", "diff"], "env": env });
        assert_eq!(client.bad("runs/start", params).0, 1003, "{env}");
    }
    assert_eq!(folder.read("ran"), None);
    let plain = json!({ "LANG": "C", "LC_ALL": "C", "NO_COLOR": "1" });
    let params = json!({ "command": "git", "args": ["status"], "env": plain });
    client.good("exec/run", params);
    let free = Folder::new();
    let mut client = rpc(&free);
    let params = json!({ "command": "sh", "args": ["-c", "$TOOL"], "env": { "TOOL": "echo x" } });
    assert_eq!(said(&mut client, params), "x\n");
}
