//! Streamed runs, from their beginning to their end and read back: in the files, in the chain
//! and through the index.

use std::sync::Arc;
use std::time::Duration;

use crate::common::runs::*;
use crate::common::{Folder, assert_good, clock, kinds, open, open_with};
use callgate_call::{Digest, KeepError, RunFile, RunPolicy, RunVerdict};
use callgate_store::{Options, RunFilter, RunState, Store, Tuning};
use serde_json::{Value, json};

fn json_at(folder: &Folder, path: &str) -> Value {
    let path = folder.0.join(folder_of("r1")).join(path);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// S-16, S-14: a run's events, files, report and manifest are where the contract says; its
/// artifact is known by its digest; the chain tells the story in order.
#[test]
fn a_run_is_kept() {
    let folder = Folder::new("runs");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    assert_eq!(store.run("r1").unwrap().unwrap().state, RunState::Running);
    assert_eq!(seqs(&store, "r1"), [] as [u64; 0]);
    emit(&mut *log, 1, "item").unwrap();
    log.chunk("a", b"one ").unwrap();
    emit(&mut *log, 2, "log").unwrap();
    log.chunk("a", b"two").unwrap();
    let digest = commit(&mut *log, "a", 7).unwrap();
    assert_eq!(digest, Digest::of_bytes(b"one two"));
    emit(&mut *log, 3, "artifact").unwrap();
    let file = RunFile {
        name: "notes.txt",
        content_type: "text/plain",
        data: b"hello",
    };
    log.file(&file).unwrap();
    emit(&mut *log, 4, "run_complete").unwrap();
    assert_eq!(log.idle().unwrap(), None);
    assert_eq!(seqs(&store, "r1"), [1, 2, 3, 4]);
    log.seal().unwrap();
    let counts = log.counts();
    assert_eq!((counts.received, counts.persisted), (4, 4));
    let report = json!({ "run_id": "r1", "outcome": "success" });
    log.end(RunVerdict::Success, &report).unwrap();

    let events = std::fs::read(folder.0.join(folder_of("r1")).join("events.jsonl")).unwrap();
    assert_eq!(
        events,
        (1..=4)
            .map(|n| line(n) + "\n")
            .collect::<String>()
            .as_bytes()
    );
    assert_eq!(json_at(&folder, "report.json"), report);
    assert_eq!(
        json_at(&folder, "files/notes.txt.meta.json"),
        json!({ "content_type": "text/plain" })
    );
    let manifest = json_at(&folder, "manifest.json");
    let hex = Digest::of_bytes(&events).to_hex();
    assert_eq!(manifest["events"]["digest"], hex);
    assert_eq!(manifest["events"]["size_bytes"], events.len());
    let rows = json!({ "artifact": 1, "item": 1, "log": 1, "run_complete": 1 });
    assert_eq!(manifest["events"]["rows"], rows);
    assert_eq!(manifest["outcome"], "success");
    assert_eq!(manifest["started_at"], "2025-06-15T15:06:40.000Z");
    let artifact = json!({
        "artifact_id": "a", "name": "page.html", "content_type": "text/html",
        "size_bytes": 7, "digest": digest.to_hex(),
    });
    assert_eq!(manifest["artifacts"], json!([artifact]));
    assert_eq!(manifest["files"][0]["name"], "notes.txt");
    assert_eq!(manifest["files"][0]["size_bytes"], 5);

    let run = store.run("r1").unwrap().unwrap();
    let RunState::Ended(end) = &run.state else {
        panic!("{run:?}");
    };
    assert_eq!((end.verdict, end.received), (RunVerdict::Success, 4));
    assert_eq!(end.events.to_hex(), hex);
    assert_eq!(bytes_of(&store, "r1", "a").unwrap(), b"one two");
    assert_eq!(
        bytes_of(&store, "r1", &digest.to_hex()).unwrap(),
        b"one two"
    );
    assert!(store.artifact(&digest).unwrap().is_some());
    assert!(store.artifact_of("r1", "b").unwrap().is_none());
    let told = ["run.start", "artifact.commit", "run.end"];
    assert_eq!(kinds(&store), told);
    assert_good(&store);
    let left = std::fs::read_dir(folder.0.join("incoming")).unwrap();
    assert_eq!(left.count(), 0, "nothing is under way");
}

/// A run whose report can not be written is told as a failure, and the chain says the same; no
/// paper is left that says otherwise.
#[test]
fn without_its_papers_it_is_no_success() {
    let folder = Folder::new("no-papers");
    let store = Arc::new(open(&folder));
    for paper in ["report.json", "manifest.json"] {
        let mut log = begin(&store, paper, RunPolicy::Strict);
        emit(&mut *log, 1, "run_complete").unwrap();
        let own = folder.0.join(folder_of(paper));
        std::fs::create_dir(own.join(paper)).unwrap();
        let ended = log.end(RunVerdict::Success, &json!({ "outcome": "success" }));
        assert!(matches!(ended, Err(KeepError::Failed(_))), "{ended:?}");
        let state = store.run(paper).unwrap().unwrap().state;
        assert_eq!(state.as_str(), "policy_failure", "{paper}");
        assert!(!own.join("report.json").is_file(), "{paper}");
    }
    assert_good(&store);
}

/// A name is used once, whatever became of its run and whoever keeps it.
#[test]
fn a_name_is_used_once() {
    let folder = Folder::new("runs-once");
    let (one, two) = (Arc::new(open(&folder)), Arc::new(open(&folder)));
    let log = begin(&one, "r1", RunPolicy::Strict);
    let taken = KeepError::Exists {
        name: "run r1".to_owned(),
    };
    let again = |store| try_begin(store, &start("r1", RunPolicy::Strict)).err();
    assert_eq!(again(&one), Some(taken.clone()));
    assert_eq!(again(&two), Some(taken.clone()));
    log.end(RunVerdict::ScriptError, &Value::Null).unwrap();
    assert_eq!(again(&two), Some(taken.clone()));
    let mut elsewhere = start("r1", RunPolicy::Strict);
    elsewhere.partition.source = "other".to_owned();
    assert_eq!(try_begin(&two, &elsewhere).err(), Some(taken));
    assert_good(&two);
}

/// Names that can not be one are refused before anything is made of them.
#[test]
fn bad_names() {
    let folder = Folder::new("runs-names");
    let store = Arc::new(open(&folder));
    let long = "x".repeat(129);
    for bad in ["", ".", "..", "a/b", "a\0b", "a\nb", "\u{7f}", &long] {
        let fields: [fn(&mut callgate_call::RunStart) -> &mut String; 5] = [
            |start| &mut start.run_id,
            |start| &mut start.partition.dataset,
            |start| &mut start.partition.source,
            |start| &mut start.partition.category,
            |start| &mut start.partition.day,
        ];
        for field in fields {
            let mut start = start("r1", RunPolicy::Strict);
            *field(&mut start) = bad.to_owned();
            let refused = try_begin(&store, &start).err().unwrap();
            assert!(matches!(refused, KeepError::BadName(_)), "{bad}: {refused}");
        }
    }
    assert!(!folder.0.join("datasets").exists());
    let longest = "é".repeat(64);
    let mut log = begin(&store, &longest, RunPolicy::Strict);
    let (longest_file, longer_file) = ("x".repeat(245), "x".repeat(246));
    let data = b"x";
    log.file(&RunFile {
        name: &longest_file,
        content_type: "x",
        data,
    })
    .unwrap();
    assert!(store.run_file(&longest, &longest_file).unwrap().is_some());
    for bad in ["", ".", "..", "a/b", "a\0b", &longer_file] {
        let file = RunFile {
            name: bad,
            content_type: "x",
            data: b"",
        };
        assert!(
            matches!(log.file(&file), Err(KeepError::BadName(_))),
            "{bad}"
        );
    }
    for id in ["", &"x".repeat(1025)] {
        assert!(matches!(log.chunk(id, b"x"), Err(KeepError::BadName(_))));
        assert!(matches!(
            commit(&mut *log, id, 0),
            Err(KeepError::BadName(_))
        ));
    }
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    assert!(store.run(&longest).unwrap().is_some());
}

/// Files beside the events: once each, and what stands beside a file is not written over.
#[test]
fn files_are_written_once() {
    let folder = Folder::new("runs-files");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    let mut put = |name: &str, data: &[u8]| {
        log.file(&RunFile {
            name,
            content_type: "text/plain",
            data,
        })
    };
    put("a", b"1").unwrap();
    put("b.meta.json", b"2").unwrap();
    for taken in ["a", "a.meta.json", "b"] {
        let exists = KeepError::Exists {
            name: taken.to_owned(),
        };
        assert_eq!(put(taken, b"3"), Err(exists));
    }
    put("empty", b"").unwrap();
    let read = |name| std::fs::read(folder.0.join(folder_of("r1")).join("files").join(name));
    assert_eq!(read("a").unwrap(), b"1");
    assert_eq!(read("b.meta.json").unwrap(), b"2");
    assert_eq!(
        read("a.meta.json").unwrap(),
        b"{\"content_type\":\"text/plain\"}\n"
    );
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    let names: Vec<_> = json_at(&folder, "manifest.json")["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["a", "b.meta.json", "empty"]);
    assert!(store.run_file("r1", "a").unwrap().is_some());
    assert!(store.run_file("r1", "../report.json").unwrap().is_none());
}

/// A link where a folder should be is not followed.
#[test]
fn links_are_not_followed() {
    let folder = Folder::new("runs-links");
    let elsewhere = Folder::new("runs-elsewhere");
    std::fs::create_dir_all(&elsewhere.0).unwrap();
    let store = Arc::new(open(&folder));
    std::fs::create_dir(folder.0.join("datasets")).unwrap();
    std::os::unix::fs::symlink(&elsewhere.0, folder.0.join("datasets/callgate")).unwrap();
    let refused = try_begin(&store, &start("r1", RunPolicy::Strict))
        .err()
        .unwrap();
    assert!(matches!(refused, KeepError::Failed(_)), "{refused}");
    assert!(!refused.to_string().contains("runs-links"), "{refused}");
    assert_eq!(std::fs::read_dir(&elsewhere.0).unwrap().count(), 0);
    assert!(store.run("r1").unwrap().is_none());
}

/// D-15: a run that is given up without an end was lost; what it committed stays.
#[test]
fn given_up_is_lost() {
    let folder = Folder::new("runs-lost");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    emit(&mut *log, 1, "item").unwrap();
    log.idle().unwrap();
    emit(&mut *log, 2, "item").unwrap();
    log.chunk("a", b"kept").unwrap();
    commit(&mut *log, "a", 4).unwrap();
    log.chunk("b", b"never").unwrap();
    drop(log);
    assert!(matches!(
        store.run("r1").unwrap().unwrap().state,
        RunState::Lost(_)
    ));
    assert_eq!(bytes_of(&store, "r1", "a").unwrap(), b"kept");
    assert!(bytes_of(&store, "r1", "b").is_none());
    assert_eq!(seqs(&store, "r1"), [1], "as far as it was written");
    assert_eq!(
        std::fs::read_dir(folder.0.join("incoming"))
            .unwrap()
            .count(),
        0
    );
    // What a write left half is no event.
    let path = folder.0.join(folder_of("r1")).join("events.jsonl");
    let torn = [std::fs::read(&path).unwrap(), b"{\"seq\":".to_vec()].concat();
    std::fs::write(&path, torn).unwrap();
    assert_eq!(seqs(&store, "r1"), [1]);
    assert_eq!(kinds(&store), ["run.start", "artifact.commit", "run.lost"]);
    assert_good(&store);
}

/// Whoever reads along sees each event once, in order, as it is written.
#[test]
fn events_can_be_followed() {
    let folder = Folder::new("runs-follow");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    let mut events = open(&folder).run_events("r1").unwrap().unwrap();
    assert_eq!(events.next_line().unwrap(), None);
    let mut read = 0;
    for seq in 1..=5000 {
        emit_line(
            &mut *log,
            seq,
            "item",
            &format!(
                "{{\"seq\":{seq},\"x\":\"{}\"}}",
                "y".repeat(seq as usize % 700)
            ),
        )
        .unwrap();
        if seq % 7 == 0 {
            log.idle().unwrap();
        }
        if seq % 31 == 0 {
            while let Some(line) = events.next_line().unwrap() {
                let event: Value = serde_json::from_slice(line).unwrap();
                read += 1;
                assert_eq!(event["seq"], read);
            }
            assert_eq!(read, seq / 7 * 7);
        }
    }
}

/// What was read of a run once need not be read again: one goes on at the byte where a line begins,
/// and nowhere else.
#[test]
fn events_from_the_middle() {
    let folder = Folder::new("runs-middle");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    let mut events = store.run_events("r1").unwrap().unwrap();
    assert!(events.go_to(0).unwrap(), "the first will begin there");
    assert!(!events.go_to(1).unwrap());
    for seq in 1..=3 {
        emit(&mut *log, seq, "item").unwrap();
    }
    log.seal().unwrap();
    let line_bytes = 1 + line(1).len() as u64;
    let mut starts = Vec::new();
    for at in 0..=3 * line_bytes + 1 {
        if !events.go_to(at).unwrap() {
            continue;
        }
        starts.push(at);
        let mut seqs = Vec::new();
        assert_eq!(events.offset(), at);
        while let Some(line) = events.next_line().unwrap() {
            let event: Value = serde_json::from_slice(line).unwrap();
            seqs.push(event["seq"].as_u64().unwrap());
        }
        let wanted: Vec<u64> = (at / line_bytes + 1..=3).collect();
        assert_eq!(seqs, wanted, "from {at}");
        assert_eq!(events.offset(), 3 * line_bytes);
    }
    assert_eq!(starts, [0, 1, 2, 3].map(|line| line * line_bytes));
}

/// Lists and looks say the same before and after folds, in every process and without the index.
#[test]
fn folding_changes_nothing() {
    let folder = Folder::new("runs-fold");
    let clock = clock();
    let options = Options {
        tuning: Tuning {
            segment_bytes: 6000,
            fold_bytes: 9000,
            close_bytes: 0,
            run_keys: 16,
        },
        ..Options::default()
    };
    let stores: Vec<Arc<Store>> = (0..3)
        .map(|_| Arc::new(open_with(&folder, options.clone(), &clock)))
        .collect();
    let mut going = Vec::new();
    for n in 0..90_usize {
        clock.advance(Duration::from_millis(1));
        let store = &stores[n % 3];
        let mut start = start(&format!("r{n}"), RunPolicy::Strict);
        start.job_id = Some(format!("job{}", n % 4));
        let mut log = try_begin(store, &start).unwrap();
        log.chunk("a", n.to_string().as_bytes()).unwrap();
        commit(&mut *log, "a", n.to_string().len() as u64).unwrap();
        going.push(log);
        if n % 2 == 0 {
            let log = going.remove(0);
            match n % 6 {
                0 => drop(log),
                _ => log.end(RunVerdict::Success, &json!(n)).unwrap(),
            }
        }
    }
    let all = |store: &Store| {
        let filter = RunFilter::default();
        let mut runs = Vec::new();
        let mut after = None;
        loop {
            let page = store.runs(&filter, 7, after).unwrap();
            after = page.last().map(|run| run.cursor);
            if after.is_none() {
                break;
            }
            runs.extend(page);
        }
        let artifacts: Vec<_> = runs
            .iter()
            .map(|run| store.run_artifacts(&run.run_id).unwrap())
            .collect();
        (runs, artifacts)
    };
    let wanted = all(&stores[0]);
    assert_eq!(wanted.0.len(), 90);
    let names: Vec<_> = wanted.0.iter().map(|run| run.run_id.clone()).collect();
    let newest_first: Vec<_> = (0..90).rev().map(|n| format!("r{n}")).collect();
    assert_eq!(names, newest_first);
    assert!(wanted.1.iter().all(|artifacts| artifacts.len() == 1));
    for store in &stores {
        assert!(all(store) == wanted);
    }
    assert!(stores.iter().any(|store| store.stats().folds > 0));
    for store in &stores {
        store.close().unwrap();
        assert!(all(store) == wanted);
    }
    let fresh = open_with(&folder, options.clone(), &clock);
    assert!(all(&fresh) == wanted);
    for (word, count) in [
        ("running", 45),
        ("lost", 15),
        ("success", 30),
        ("script_error", 0),
    ] {
        let filter = RunFilter {
            state: Some(word.to_owned()),
            ..RunFilter::default()
        };
        assert_eq!(
            fresh.runs(&filter, 100, None).unwrap().len(),
            count,
            "{word}"
        );
    }
    let filter = RunFilter {
        job_id: Some("job1".to_owned()),
        source: Some("shop".to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(fresh.runs(&filter, 100, None).unwrap().len(), 23);
    for name in ["state.db", "state.mark"] {
        let _ = std::fs::remove_file(folder.0.join(name));
    }
    let without = open_with(&folder, options, &clock);
    assert!(all(&without) == wanted);
    assert_good(&without);
}
