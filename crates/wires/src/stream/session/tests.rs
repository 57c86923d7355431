//! Each rule kept and broken, and each limit at its edge.

use super::*;

const MAX: u64 = 100;

fn session() -> Session {
    Session::new(Rules {
        run_id: "r1".to_owned(),
        attempt: 2,
        versions: Vec::new(),
        artifact_bytes_max: MAX,
    })
}

fn head(seq: u64, kind: &str) -> EventHead<'_> {
    EventHead {
        contract_version: "0.1.0",
        run_id: "r1",
        attempt: 2,
        seq,
        kind,
    }
}

fn record(id: &str, bytes: u64) -> CommitRecord<'_> {
    CommitRecord {
        artifact_id: Some(id),
        name: Some("a.png"),
        content_type: Some("image/png"),
        size_bytes: Some(bytes),
    }
}

fn whole(id: &str, bytes: u64) -> Whole {
    Whole {
        artifact_id: id.to_owned(),
        name: "a.png".to_owned(),
        content_type: "image/png".to_owned(),
        bytes,
    }
}

/// The commit record as the next event.
fn commit(session: &mut Session, record: &CommitRecord<'_>) -> Result<Option<Whole>, Breach> {
    let kind = session.event(&head(session.events() + 1, "artifact"));
    assert_eq!(kind, Ok(EventKind::Artifact));
    session.commit(record)
}

/// One chunk to its end.
fn chunk(
    session: &mut Session,
    id: &str,
    seq: u64,
    last: bool,
    bytes: u64,
) -> Result<Option<Whole>, Breach> {
    session.chunk(id, seq, last, bytes)?;
    assert_eq!(session.current(), id);
    Ok(session.chunk_end())
}

/// ST-26, ST-28, ST-29, ST-33, S-4: whose events they are, and in what order.
#[test]
fn identity_and_order() {
    let mut session = session();
    let wrong = [
        (
            EventHead {
                contract_version: "1.0.0",
                run_id: "other",
                ..head(7, "item")
            },
            "contract_version \"1.0.0\" is not 0.x",
        ),
        (
            EventHead {
                run_id: "r2",
                ..head(1, "item")
            },
            "event 1: run_id is \"r2\", not \"r1\"",
        ),
        (
            EventHead {
                attempt: 1,
                ..head(1, "item")
            },
            "event 1: attempt is 1, not 2",
        ),
        (head(0, "item"), "event seq is 0, not 1"),
        (head(2, "item"), "event seq is 2, not 1"),
    ];
    for (head, words) in wrong {
        assert_eq!(session.event(&head).unwrap_err().to_string(), words);
    }
    let set = Rules {
        versions: vec!["1.0.0".to_owned(), "1.1.0".to_owned()],
        ..session.rules.clone()
    };
    let breach = Session::new(set).event(&head(1, "item")).unwrap_err();
    let words = "contract_version \"0.1.0\" is not 1.0.0 or 1.1.0";
    assert_eq!(breach.to_string(), words);
    for seq in 1..=3 {
        assert_eq!(session.event(&head(seq, "item")), Ok(EventKind::Plain));
    }
    for seq in [1, 3, 5] {
        let breach = session.event(&head(seq, "item")).unwrap_err();
        assert_eq!(breach.to_string(), format!("event seq is {seq}, not 4"));
    }
    assert_eq!(session.events(), 3);
}

/// ST-4, ST-42, ST-43, S-3, S-9: what kinds there are, and that the terminal one is the last.
#[test]
fn nothing_follows_the_terminal_event() {
    for (kind, wanted) in [
        ("log", EventKind::Log),
        ("mystery", EventKind::Plain),
        ("artifact", EventKind::Artifact),
    ] {
        assert_eq!(session().event(&head(1, kind)), Ok(wanted));
    }
    for (kind, wanted) in [
        ("run_complete", EventKind::Complete),
        ("run_error", EventKind::Error),
    ] {
        let mut session = session();
        assert_eq!(session.file(), FileWhen::InTime);
        assert_eq!(session.event(&head(1, kind)), Ok(wanted));
        for after in ["log", "item", "run_complete", "run_error"] {
            let breach = session.event(&head(2, after)).unwrap_err().to_string();
            assert_eq!(
                breach,
                format!("event 2 (`{after}`) after the terminal event")
            );
        }
        // Chunks are no events. ST-65.
        assert_eq!(chunk(&mut session, "a", 1, true, 3), Ok(None));
        assert_eq!(session.file(), FileWhen::AfterTerminal);
    }
}

/// ST-61, ST-62: chunks of an artifact are counted, those of others apart.
#[test]
fn chunks_come_in_order() {
    let mut session = session();
    for seq in [0, 2] {
        let breach = session.chunk("a", seq, false, 1).unwrap_err().to_string();
        assert_eq!(breach, format!("artifact \"a\": chunk seq is {seq}, not 1"));
    }
    assert_eq!(chunk(&mut session, "a", 1, false, 5), Ok(None));
    assert_eq!(chunk(&mut session, "b", 1, false, 5), Ok(None));
    for seq in [1, 3] {
        let breach = session.chunk("a", seq, false, 1).unwrap_err().to_string();
        assert_eq!(breach, format!("artifact \"a\": chunk seq is {seq}, not 2"));
    }
    assert_eq!(chunk(&mut session, "a", 2, true, 0), Ok(None));
    for seq in [2, 3] {
        let breach = session.chunk("a", seq, true, 1).unwrap_err().to_string();
        assert_eq!(breach, "artifact \"a\": a chunk after the last");
    }
    let long = "x".repeat(ARTIFACT_ID_BYTES_MAX);
    assert_eq!(chunk(&mut session, &long, 1, true, 0), Ok(None));
    for id in [String::new(), format!("{long}x")] {
        assert_eq!(session.chunk(&id, 1, true, 0), Err(Breach::ArtifactId));
    }
}

/// ST-58, ST-62, ST-66, ST-67, S-10: the commit record before, between and after the bytes.
#[test]
fn a_commit_may_come_at_any_time() {
    for at in 0..=3 {
        let mut session = session();
        let mut made = Vec::new();
        for step in 0..=3 {
            if step == at {
                made.extend(commit(&mut session, &record("a", 30)).unwrap());
            }
            if step < 3 {
                let last = step == 2;
                made.extend(chunk(&mut session, "a", step + 1, last, 10).unwrap());
            }
            let both = step == 3 || (step == 2 && at < 3);
            assert_eq!(made.len(), usize::from(both), "{at} {step}");
        }
        assert_eq!(made, [whole("a", 30)]);
        assert_eq!(session.end(), Ok(()));
        let tally = ArtifactTally {
            total: 1,
            committed: 1,
            orphaned: 0,
            chunks: 3,
            bytes: 30,
        };
        assert_eq!(session.tally(), tally);
        let again = commit(&mut session, &record("a", 30)).unwrap_err();
        assert_eq!(again.to_string(), "artifact \"a\" is committed twice");
    }
    // Of an empty artifact there is one empty chunk. ST-64.
    let mut session = session();
    assert_eq!(chunk(&mut session, "e", 1, true, 0), Ok(None));
    let made = commit(&mut session, &record("e", 0));
    assert_eq!(made, Ok(Some(whole("e", 0))));
}

/// ST-67, ST-68, ST-70: bytes without a commit record are orphaned; a commit record without
/// bytes is no end.
#[test]
fn what_is_not_both_is_no_artifact() {
    let mut session = session();
    assert_eq!(chunk(&mut session, "orphan", 1, true, 7), Ok(None));
    assert_eq!(chunk(&mut session, "half", 1, false, 7), Ok(None));
    assert_eq!(session.end(), Ok(()));
    let tally = session.tally();
    assert_eq!((tally.total, tally.committed, tally.orphaned), (2, 0, 2));
    assert_eq!(commit(&mut session, &record("half", 9)), Ok(None));
    assert_eq!(commit(&mut session, &record("none", 0)), Ok(None));
    let twice = commit(&mut session, &record("none", 0)).unwrap_err();
    assert_eq!(twice.to_string(), "artifact \"none\" is committed twice");
    let words = "artifact \"half\": its commit record came, 7 of 9 bytes did";
    assert_eq!(session.end().unwrap_err().to_string(), words);
}

/// ST-70: a size that is not that of the bytes, whichever comes first.
#[test]
fn sizes_must_agree() {
    let mismatch = |declared, received| Breach::Size {
        artifact_id: "a".to_owned(),
        declared,
        received,
    };
    for declared in [9, 11] {
        let mut session = session();
        chunk(&mut session, "a", 1, true, 10).unwrap();
        let late = commit(&mut session, &record("a", declared));
        assert_eq!(late, Err(mismatch(declared, 10)));
    }
    for declared in [9, 11] {
        let mut session = session();
        commit(&mut session, &record("a", declared)).unwrap();
        let early = chunk(&mut session, "a", 1, true, 10);
        assert_eq!(early, Err(mismatch(declared, 10)));
    }
    // More than declared is seen before the last chunk.
    let mut session = session();
    commit(&mut session, &record("a", 9)).unwrap();
    assert_eq!(chunk(&mut session, "a", 1, false, 10), Err(mismatch(9, 10)));
    let mut session = self::session();
    chunk(&mut session, "a", 1, false, 10).unwrap();
    let between = commit(&mut session, &record("a", 9));
    assert_eq!(between, Err(mismatch(9, 10)));
    let words = mismatch(9, 10).to_string();
    assert_eq!(words, "artifact \"a\": 10 bytes came, size_bytes is 9");
}

/// ST-69: just below, at and past the bound, declared and received.
#[test]
fn artifacts_are_bounded() {
    for bytes in [MAX - 1, MAX] {
        let mut session = session();
        commit(&mut session, &record("a", bytes)).unwrap();
        let made = chunk(&mut session, "a", 1, true, bytes);
        assert_eq!(made, Ok(Some(whole("a", bytes))));
    }
    let declared = commit(&mut session(), &record("a", MAX + 1)).unwrap_err();
    let words = "artifact \"a\" is declared with 101 bytes, and at most 100 are taken";
    assert_eq!(declared.to_string(), words);
    let mut session = session();
    chunk(&mut session, "a", 1, false, MAX).unwrap();
    let received = chunk(&mut session, "a", 2, true, 1).unwrap_err();
    let words = "artifact \"a\" is received with 101 bytes, and at most 100 are taken";
    assert_eq!(received.to_string(), words);
    assert!(chunk(&mut session, "b", 1, true, u64::MAX).is_err());
}

/// ST-37, ST-70: what a commit record must have.
#[test]
fn fields_of_a_commit_record() {
    let long = "x".repeat(ARTIFACT_WORDS_BYTES_MAX + 1);
    for wrong in [
        CommitRecord {
            artifact_id: None,
            ..record("", 1)
        },
        record("", 1),
        CommitRecord {
            size_bytes: None,
            ..record("a", 1)
        },
        CommitRecord {
            name: Some(&long),
            ..record("a", 1)
        },
        CommitRecord {
            content_type: Some(&long),
            ..record("a", 1)
        },
    ] {
        let breach = commit(&mut session(), &wrong).unwrap_err();
        assert!(
            matches!(breach, Breach::CommitField { seq: 1, .. }),
            "{breach}"
        );
    }
    let bare = CommitRecord {
        name: None,
        content_type: None,
        ..record("a", 1)
    };
    assert_eq!(commit(&mut session(), &bare), Ok(None));
}

/// The bounds on how many there are, at once and in all.
#[test]
fn artifacts_are_counted() {
    let mut session = session();
    for index in 0..ARTIFACTS_OPEN_MAX {
        session.chunk(&format!("a{index}"), 1, false, 0).unwrap();
    }
    let breach = session.chunk("one more", 1, true, 0).unwrap_err();
    assert_eq!(breach.to_string(), "more than 256 artifacts at once");
    session.chunk("a0", 2, true, 0).unwrap();
    session.chunk("one more", 1, true, 0).unwrap();
    let mut session = self::session();
    for index in 0..ARTIFACTS_MAX {
        session.chunk(&format!("a{index}"), 1, true, 0).unwrap();
    }
    let breach = session.chunk("one more", 1, true, 0).unwrap_err();
    assert_eq!(breach.to_string(), "more than 65536 artifacts");
}
