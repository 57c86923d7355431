//! What no caller sees of `search.db`.

use super::*;

fn scratch(name: &str) -> PathBuf {
    let state = std::env::temp_dir().join(format!("callgate-search-{name}-{}", std::process::id()));
    // What a killed run of the same number left behind is not ours.
    let _ = std::fs::remove_dir_all(&state);
    state
}

/// G-8: under `power` a commit is on the disk, and only there is it waited for.
#[test]
fn durable_where_it_is_asked_for() {
    let state = scratch("durable");
    let synchronous = |db: &SearchDb| -> i64 {
        let found = db
            .db
            .pragma_query_value(None, "synchronous", |row| row.get(0));
        found.unwrap()
    };
    let (normal, full) = (1, 2);
    for (durability, wanted) in [(Durability::Process, normal), (Durability::Power, full)] {
        let made = SearchDb::create(&state).unwrap().keeping(durability);
        assert_eq!(synchronous(&made.unwrap()), wanted, "{durability:?}");
        let known = SearchDb::open(&state).unwrap().unwrap().keeping(durability);
        assert_eq!(synchronous(&known.unwrap()), wanted, "{durability:?}");
    }
    std::fs::remove_dir_all(&state).unwrap();
}

/// The files of a folder alone are read, whatever their names sort like.
#[test]
fn files_of_a_folder() {
    let state = scratch("files");
    let mut db = SearchDb::create(&state).unwrap();
    let stamp = Stamp {
        size: 1,
        mtime: 2,
        ctime: 3,
    };
    let step = db.begin().unwrap();
    let all = [
        "a.rs",
        "src/a.rs",
        "src/é/b.rs",
        "src/é/x/c.rs",
        "src-b/d.rs",
        "src0",
        "src.rs",
    ];
    for path in all {
        step.put_file(path, stamp, &[0; 32], &[]).unwrap();
    }
    step.commit().unwrap();
    let files = |folder: &str, deep: bool| {
        let mut files: Vec<String> = db.files_in(folder, deep).unwrap().into_keys().collect();
        files.sort();
        files
    };
    for (folder, deep, wanted) in [
        ("", false, &["a.rs", "src.rs", "src0"][..]),
        ("src", false, &["src/a.rs"]),
        ("src", true, &["src/a.rs", "src/é/b.rs", "src/é/x/c.rs"]),
        ("src/é", false, &["src/é/b.rs"]),
        ("src/é", true, &["src/é/b.rs", "src/é/x/c.rs"]),
        ("src/a.rs", false, &["src/a.rs"]),
        ("sr", true, &[]),
    ] {
        assert_eq!(files(folder, deep), wanted, "{folder} {deep}");
    }
    assert_eq!(files("", true).len(), all.len());
    std::fs::remove_dir_all(&state).unwrap();
}

/// A look at a folder is a look at its part of the index.
#[test]
fn a_folder_is_found_by_its_path() {
    let state = scratch("plan");
    let db = SearchDb::create(&state).unwrap();
    let plan = format!("EXPLAIN QUERY PLAN {FILES_IN}");
    let mut plan = db.db.prepare(&plan).unwrap();
    let steps = plan.query_map(params!["src", "src/", "src0", false], |row| {
        row.get::<_, String>(3)
    });
    let steps: Vec<String> = steps.unwrap().map(Result::unwrap).collect();
    assert!(
        !steps.iter().any(|step| step.starts_with("SCAN")),
        "{steps:?}"
    );
    std::fs::remove_dir_all(&state).unwrap();
}
