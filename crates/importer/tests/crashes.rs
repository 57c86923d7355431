//! SIGKILL at each step of a run and of a restore: every file has its old content or its new one,
//! and the next command finishes the work.

#![cfg(feature = "failpoints")]

use std::fs;
use std::path::{Path, PathBuf};

use callgate_importer::{
    Edit, Home, RunId, Selection, apply, arm_from, find, plan_replace, read, restore, runs,
};

use crate::{Desk, own_entry};

/// More points than a run of three files passes.
const POINTS_MAX: u32 = 200;
const HOME: &str = "IMPORTER_CRASH_HOME";
const BACKUPS: &str = "IMPORTER_CRASH_BACKUPS";
const ACTION: &str = "IMPORTER_CRASH_ACTION";
const POINT: &str = "IMPORTER_CRASH_POINT";

fn desk() -> Desk {
    let desk = Desk::with(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"a": {"command": "a"}}}"#,
    );
    desk.write(".codex/config.toml", "[mcp_servers.a]\ncommand = \"a\"\n");
    desk.write(
        ".config/goose/config.yaml",
        "extensions:\n  a:\n    type: stdio\n    cmd: a\n",
    );
    desk
}

fn edits(home: &Home) -> Vec<Edit> {
    let files = find(home);
    let edits = files.iter().map(|file| {
        let settings = read(file).unwrap();
        plan_replace(file, &settings, &Selection::All, &own_entry(file.client)).unwrap()
    });
    edits.collect()
}

/// The process that is killed. It does nothing unless a test below starts it.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "its settings are in the environment"
)]
fn killed_process() {
    let Some(home) = std::env::var_os(HOME) else {
        return;
    };
    let home = PathBuf::from(home);
    let home = Home {
        config: home.join(".config"),
        home,
        claude_config_dir: None,
    };
    let backups = PathBuf::from(std::env::var_os(BACKUPS).unwrap());
    let action = std::env::var(ACTION).unwrap();
    let edits = edits(&home);
    assert!(arm_from(&std::env::var(POINT).unwrap()));
    match action.split_once(' ') {
        None => drop(apply(&edits, &backups, "now").unwrap()),
        Some((_, run)) => drop(restore(run.parse().unwrap(), &backups, false).unwrap()),
    }
}

/// Runs an action that is killed at a point. Returns whether it was.
#[expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the test needs a process that dies"
)]
fn is_killed(desk: &Desk, action: &str, point: u32) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::killed_process", "--nocapture"])
        .env(HOME, desk.home().home)
        .env(BACKUPS, desk.backups())
        .env(ACTION, action)
        .env(POINT, format!("*=kill:{point}"))
        .output()
        .unwrap();
    match ran.status.signal() {
        Some(9) => true,
        None if ran.status.success() => false,
        _ => panic!("{}", String::from_utf8_lossy(&ran.stdout)),
    }
}

/// Names of temporary files below a folder.
fn temporaries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(temporaries(&entry.path()));
        } else if entry
            .path()
            .extension()
            .is_some_and(|ending| ending == "tmp")
        {
            found.push(entry.path());
        }
    }
    found
}

fn assert_whole(edits: &[Edit], at: &str) {
    for edit in edits {
        let now = fs::read(&edit.path).unwrap();
        assert!(
            now == edit.before || now == edit.after,
            "{at}: {}",
            edit.path.display()
        );
    }
}

fn assert_before(edits: &[Edit], at: &str) {
    for edit in edits {
        assert_eq!(fs::read(&edit.path).unwrap(), edit.before, "{at}");
    }
}

#[test]
fn a_run_is_killed_at_every_step() {
    let mut killed = 0;
    for point in 0..POINTS_MAX {
        let desk = desk();
        let edits = edits(&desk.home());
        let at = format!("step {point}");
        let was_killed = is_killed(&desk, "apply", point);
        assert_whole(&edits, &at);
        let listed = if desk.backups().exists() {
            runs(&desk.backups()).unwrap()
        } else {
            Vec::new()
        };
        match listed.as_slice() {
            [] => assert_before(&edits, &at),
            [run] => drop(restore(run.id, &desk.backups(), false).unwrap()),
            _ => panic!("{at}: {listed:?}"),
        }
        assert_before(&edits, &at);
        // The next run removes what the killed one left.
        let next = apply(&edits, &desk.backups(), "later").unwrap();
        assert_eq!(temporaries(desk.folder.path()), [] as [PathBuf; 0], "{at}");
        restore(next, &desk.backups(), false).unwrap();
        assert_before(&edits, &at);
        if !was_killed {
            break;
        }
        killed += 1;
    }
    assert!((20..POINTS_MAX).contains(&killed), "{killed}");
}

#[test]
fn a_restore_is_killed_at_every_step() {
    let mut killed = 0;
    for point in 0..POINTS_MAX {
        let desk = desk();
        let edits = edits(&desk.home());
        let at = format!("step {point}");
        let run: RunId = apply(&edits, &desk.backups(), "now").unwrap();
        let was_killed = is_killed(&desk, &format!("restore {run}"), point);
        assert_whole(&edits, &at);
        restore(run, &desk.backups(), false).unwrap();
        assert_before(&edits, &at);
        assert_eq!(temporaries(desk.folder.path()), [] as [PathBuf; 0], "{at}");
        if !was_killed {
            break;
        }
        killed += 1;
    }
    assert!((15..POINTS_MAX).contains(&killed), "{killed}");
}
