//! Runs: edits carried out, listed, taken back, and refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use callgate_importer::{
    ApplyError, Edit, EditError, FileState, RestoreError, RunId, Selection, apply, find, forget,
    plan_replace, read, restore, runs,
};

use crate::{Desk, own_entry};

const CURSOR: &str = ".cursor/mcp.json";
const KIRO: &str = ".kiro/settings/mcp.json";
const ENTRY: &str =
    r#"{"mcpServers": {"a": {"command": "a", "env": {"A_TOKEN": "tok-secret-1"}}}}"#;
const TIME: &str = "2026-11-19T10:00:00Z";

fn edits(desk: &Desk) -> Vec<Edit> {
    let files = find(&desk.home());
    let edits = files.iter().map(|file| {
        let settings = read(file).unwrap();
        plan_replace(file, &settings, &Selection::All, &own_entry(file.client)).unwrap()
    });
    edits.collect()
}

fn two_files() -> Desk {
    let desk = Desk::with(CURSOR, ENTRY);
    desk.write(KIRO, ENTRY.replace("\"a\"", "\"b\""));
    desk
}

/// Names in a folder and below it.
fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        names.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            names.extend(self::names(&entry.path()));
        }
    }
    names.sort();
    names
}

#[test]
fn every_fixture_is_given_back_byte_for_byte() {
    let desk = Desk::full();
    let files = find(&desk.home());
    let before: Vec<_> = files
        .iter()
        .map(|file| fs::read(&file.path).unwrap())
        .collect();
    let all = names(&desk.home().home);
    let edits = edits(&desk);
    let run = apply(&edits, &desk.backups(), TIME).unwrap();
    for (file, edit) in files.iter().zip(&edits) {
        assert_eq!(fs::read(&file.path).unwrap(), edit.after);
    }
    assert_eq!(names(&desk.home().home), all);
    let restored = restore(run, &desk.backups(), false).unwrap();
    assert!(restored.iter().zip(&edits).all(|(restored, edit)| {
        restored.found
            == if edit.is_empty() {
                FileState::Before
            } else {
                FileState::After
            }
    }));
    for (file, before) in files.iter().zip(&before) {
        assert_eq!(fs::read(&file.path).unwrap(), *before);
    }
    assert_eq!(names(&desk.home().home), all);
    // A second time there is nothing to do.
    let restored = restore(run, &desk.backups(), false).unwrap();
    assert!(
        restored
            .iter()
            .all(|restored| restored.found == FileState::Before)
    );
}

#[test]
fn runs_are_listed_and_forgotten() {
    let desk = two_files();
    assert_eq!(runs(&desk.backups()).unwrap(), []);
    let first = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    restore(first, &desk.backups(), false).unwrap();
    let second = apply(&edits(&desk)[..1], &desk.backups(), "later").unwrap();
    assert_eq!(
        (first.to_string(), second.to_string()),
        ("1".to_owned(), "2".to_owned())
    );
    fs::write(desk.home().home.join(KIRO), "{}").unwrap();
    let listed = runs(&desk.backups()).unwrap();
    let states =
        |at: usize| -> Vec<FileState> { listed[at].files.iter().map(|file| file.state).collect() };
    assert_eq!(listed.len(), 2);
    assert_eq!((listed[0].id, listed[1].made_at.as_str()), (first, "later"));
    assert_eq!(states(0), [FileState::After, FileState::Changed]);
    assert_eq!(states(1), [FileState::After]);
    forget(first, &desk.backups()).unwrap();
    assert_eq!(runs(&desk.backups()).unwrap().len(), 1);
    let gone = restore(first, &desk.backups(), false);
    assert!(matches!(
        gone,
        Err(RestoreError::Backups(ApplyError::UnknownRun { .. }))
    ));
    assert!(matches!(
        forget(first, &desk.backups()),
        Err(ApplyError::UnknownRun { .. })
    ));
    for text in ["", "0", "01", "-1", "x", "1/2"] {
        assert!(text.parse::<RunId>().is_err(), "{text}");
    }
}

#[test]
fn backups_are_for_their_owner_alone() {
    let desk = two_files();
    apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    for name in names(&desk.backups()) {
        let mode = fs::metadata(&name).unwrap().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
}

#[test]
fn mode_and_owner_are_kept() {
    let desk = two_files();
    let path = desk.home().home.join(CURSOR);
    for mode in [0o600, 0o644, 0o640] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let owner = if is_root {
            (64123, 64124)
        } else {
            (
                fs::metadata(&path).unwrap().uid(),
                fs::metadata(&path).unwrap().gid(),
            )
        };
        if is_root {
            std::os::unix::fs::chown(&path, Some(owner.0), Some(owner.1)).unwrap();
        }
        let properties = || {
            let about = fs::metadata(&path).unwrap();
            (about.mode() & 0o7777, about.uid(), about.gid())
        };
        let run = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
        assert_eq!(properties(), (mode, owner.0, owner.1));
        restore(run, &desk.backups(), false).unwrap();
        assert_eq!(properties(), (mode, owner.0, owner.1));
    }
}

#[test]
fn a_link_in_the_home_stays_a_link() {
    let desk = Desk::with("dotfiles/cursor.json", ENTRY);
    fs::create_dir(desk.home().home.join(".cursor")).unwrap();
    let link = desk.home().home.join(CURSOR);
    symlink("../dotfiles/cursor.json", &link).unwrap();
    let run = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let target = desk.home().home.join("dotfiles/cursor.json");
    assert!(
        fs::read_to_string(&target)
            .unwrap()
            .contains("/opt/callgate")
    );
    restore(run, &desk.backups(), false).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), ENTRY);
}

#[test]
fn a_link_that_leaves_the_home_is_not_edited() {
    let desk = Desk::empty();
    let outside = desk.folder.write("outside/cursor.json", ENTRY);
    fs::create_dir(desk.home().home.join(".cursor")).unwrap();
    symlink(&outside, desk.home().home.join(CURSOR)).unwrap();
    let file = desk.file();
    let settings = read(&file).unwrap();
    let edit = plan_replace(&file, &settings, &Selection::All, &own_entry("cursor"));
    assert!(matches!(edit, Err(EditError::LeavesHome { real, .. }) if real == outside));
    // The folder may be the link as well.
    let desk = Desk::empty();
    let outside = desk.folder.write("outside/mcp.json", ENTRY);
    symlink(outside.parent().unwrap(), desk.home().home.join(".cursor")).unwrap();
    let file = desk.file();
    let settings = read(&file).unwrap();
    let edit = plan_replace(&file, &settings, &Selection::All, &own_entry("cursor"));
    assert!(matches!(edit, Err(EditError::LeavesHome { .. })));
}

#[test]
fn a_file_with_two_names_is_not_edited() {
    let desk = Desk::with(CURSOR, ENTRY);
    fs::hard_link(
        desk.home().home.join(CURSOR),
        desk.home().home.join("other"),
    )
    .unwrap();
    let file = desk.file();
    let settings = read(&file).unwrap();
    let edit = plan_replace(&file, &settings, &Selection::All, &own_entry("cursor"));
    assert!(matches!(edit, Err(EditError::HardLinked { names: 2, .. })));
}

#[test]
fn a_file_that_changed_since_it_was_read_is_left_alone() {
    let desk = two_files();
    let edits = edits(&desk);
    let path = desk.home().home.join(KIRO);
    fs::write(&path, "{ }").unwrap();
    let refused = apply(&edits, &desk.backups(), TIME);
    assert!(matches!(refused, Err(ApplyError::Changed { path: at }) if at == path));
    assert_eq!(fs::read_to_string(&path).unwrap(), "{ }");
    assert_eq!(
        fs::read_to_string(desk.home().home.join(CURSOR)).unwrap(),
        ENTRY
    );
    assert_eq!(runs(&desk.backups()).unwrap(), []);
}

#[test]
fn files_are_given_back_when_a_later_one_can_not_be_written() {
    let desk = two_files();
    let edits = edits(&desk);
    // A folder in place of the temporary file keeps the second one from being written.
    let blocked = desk.home().home.join(".kiro/settings/.callgate-1-1.tmp/x");
    fs::create_dir_all(&blocked).unwrap();
    let failed = apply(&edits, &desk.backups(), TIME);
    assert!(
        matches!(failed, Err(ApplyError::Write { .. })),
        "{failed:?}"
    );
    for edit in &edits {
        assert_eq!(fs::read(&edit.path).unwrap(), edit.before);
    }
    assert_eq!(runs(&desk.backups()).unwrap(), []);
    fs::remove_dir_all(blocked.parent().unwrap()).unwrap();
    let run = apply(&edits, &desk.backups(), TIME).unwrap();
    assert_eq!(run.to_string(), "1");
}

#[test]
fn one_file_is_edited_once_in_a_run() {
    let desk = Desk::with(CURSOR, ENTRY);
    let edits = [edits(&desk), edits(&desk)].concat();
    assert!(matches!(
        apply(&edits, &desk.backups(), TIME),
        Err(ApplyError::SameFile { .. })
    ));
    assert_eq!(
        fs::read_to_string(desk.home().home.join(CURSOR)).unwrap(),
        ENTRY
    );
}

#[test]
fn one_process_changes_files_at_a_time() {
    let desk = two_files();
    let run = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    let lock = fs::File::open(desk.backups().join("lock")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(
        apply(&[], &desk.backups(), TIME),
        Err(ApplyError::Busy)
    ));
    let restored = restore(run, &desk.backups(), true);
    assert!(matches!(
        restored,
        Err(RestoreError::Backups(ApplyError::Busy))
    ));
    // A list needs no lock.
    assert_eq!(runs(&desk.backups()).unwrap().len(), 1);
    lock.unlock().unwrap();
    restore(run, &desk.backups(), false).unwrap();
}

#[test]
fn a_file_that_changed_since_the_run_is_given_back_by_force_only() {
    let desk = two_files();
    let run = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    let path = desk.home().home.join(CURSOR);
    let written = fs::read_to_string(&path).unwrap();
    let since = written.replace("{\"mcpServers\"", "{\"x\": 1, \"mcpServers\"");
    fs::write(&path, &since).unwrap();
    let Err(RestoreError::Changed { conflicts, .. }) = restore(run, &desk.backups(), false) else {
        panic!("restored");
    };
    assert_eq!(conflicts.len(), 1);
    let conflict = &conflicts[0];
    assert_eq!(
        (conflict.path.as_path(), conflict.state),
        (path.as_path(), FileState::Changed)
    );
    assert!(
        conflict.by_run.contains("-{\"mcpServers\": {\"a\""),
        "{}",
        conflict.by_run
    );
    assert!(conflict.since.contains("+{\"x\": 1"), "{}", conflict.since);
    assert!(
        !conflict.by_run.contains("tok-secret-1"),
        "{}",
        conflict.by_run
    );
    // None is given back while one is in doubt.
    assert_eq!(fs::read_to_string(&path).unwrap(), since);
    assert!(
        !fs::read_to_string(desk.home().home.join(KIRO))
            .unwrap()
            .contains("tok-secret-1")
    );
    restore(run, &desk.backups(), true).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), ENTRY);
    let kept = desk.backups().join(format!("{run}/0.overwritten"));
    assert_eq!(fs::read_to_string(kept).unwrap(), since);
}

#[test]
fn a_file_that_is_gone_is_made_again_by_force_only() {
    let desk = Desk::with(CURSOR, ENTRY);
    let run = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    let path = desk.home().home.join(CURSOR);
    fs::remove_file(&path).unwrap();
    let Err(RestoreError::Changed { conflicts, .. }) = restore(run, &desk.backups(), false) else {
        panic!("restored");
    };
    assert_eq!(conflicts[0].state, FileState::Missing);
    restore(run, &desk.backups(), true).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), ENTRY);
}

#[test]
fn a_damaged_backup_is_not_given_back() {
    let desk = two_files();
    let run = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    fs::write(desk.backups().join("1/1.before"), "{}").unwrap();
    let after = fs::read(desk.home().home.join(CURSOR)).unwrap();
    for is_forced in [false, true] {
        let restored = restore(run, &desk.backups(), is_forced);
        assert!(matches!(restored, Err(RestoreError::Damaged { .. })));
        assert_eq!(fs::read(desk.home().home.join(CURSOR)).unwrap(), after);
    }
}

#[test]
fn a_link_put_in_the_place_of_a_file_is_not_written_through() {
    let desk = Desk::with(CURSOR, ENTRY);
    let run = apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    let path = desk.home().home.join(CURSOR);
    let outside = desk.folder.write("outside.json", "{}");
    fs::remove_file(&path).unwrap();
    symlink(&outside, &path).unwrap();
    assert!(matches!(
        restore(run, &desk.backups(), false),
        Err(RestoreError::Changed { .. })
    ));
    restore(run, &desk.backups(), true).unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "{}");
    assert_eq!(fs::read_to_string(&path).unwrap(), ENTRY);
}

#[test]
fn an_edit_that_changes_nothing_leaves_the_file_alone() {
    let desk = Desk::with(CURSOR, ENTRY);
    let path = desk.home().home.join(CURSOR);
    apply(&edits(&desk), &desk.backups(), TIME).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    let again = edits(&desk);
    assert!(again[0].is_empty());
    let run = apply(&again, &desk.backups(), TIME).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    let restored = restore(run, &desk.backups(), false).unwrap();
    assert_eq!(restored[0].found, FileState::Before);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
}
