//! Runs of the pilot: the same in every process and wherever they are kept, before and after folds
//! and without the index; one writer at a time; requests known again. TH-134, TH-147.

use crate::common::*;
use callgate_store::{
    Options, PILOT_EVENT_BYTES_MAX, PilotBegun, PilotEvent, PilotFacts, PilotNote, PilotRun,
    PilotState, Store, StoreError, Tuning,
};
use serde_json::{Value, json};

fn options() -> Options {
    Options {
        tuning: Tuning {
            segment_bytes: 6000,
            fold_bytes: 9000,
            close_bytes: 0,
            run_keys: 16,
        },
        ..Options::default()
    }
}

fn begin(store: &Store, run: &str, request: Option<&str>) -> PilotBegun {
    let doc = json!({ "run": run });
    store.pilot_begin(run, request, "begin", &doc).unwrap()
}

fn append(store: &Store, run: &str, place: u32, doc: &Value) -> Result<(), StoreError> {
    let facts = PilotFacts {
        aid: "AID.A.B.v1",
        status: "OK",
        state: "00",
    };
    let note = PilotNote {
        event: "tool_ok",
        step: place,
        ends: false,
    };
    store.pilot_append(run, place, note, doc, facts)
}

/// The steps that a run's events tell of.
fn steps(events: &[PilotEvent]) -> Vec<u32> {
    events.iter().map(|event| event.step).collect()
}

#[test]
fn folding_changes_nothing() {
    let folder = Folder::new("pilots");
    let clock = clock();
    let stores = [0, 1].map(|_| open_with(&folder, options(), &clock));
    for number in 0..40_u32 {
        let (writer, reader) = (
            &stores[number as usize % 2],
            &stores[(number as usize + 1) % 2],
        );
        let (run, request) = (format!("{number:032x}"), format!("r{number}"));
        assert_eq!(begin(writer, &run, Some(&request)), PilotBegun::New);
        for place in 1..=number % 5 {
            append(
                writer,
                &run,
                place,
                &json!({ "x": "y".repeat(200), "n": 1.5 }),
            )
            .unwrap();
        }
        assert_eq!(
            steps(&reader.pilot_events(&run).unwrap()).len() as u32,
            number % 5 + 1
        );
        let known = PilotBegun::Known { run };
        assert_eq!(begin(reader, "ff", Some(&request)), known);
    }
    assert!(stores.iter().any(|store| store.stats().folds > 0));
    let told = |store: &Store| {
        let runs = store.pilot_runs(100, None, |_| true).unwrap();
        assert_eq!(runs.len(), 40);
        let with_events = runs.iter().map(|run| {
            let events = store.pilot_events(&run.run).unwrap();
            assert_eq!(events.len() as u32, run.events);
            assert_eq!(events.last().unwrap().at, run.newest_at);
            assert_eq!(store.pilot_run(&run.run).unwrap().as_ref(), Some(run));
            let of = store
                .pilot_of_request(run.request.as_ref().unwrap())
                .unwrap();
            assert_eq!(of.as_ref(), Some(&run.run));
            // Who drives a run may have gone since.
            let state = PilotState::Running;
            let run = PilotRun {
                state,
                ..run.clone()
            };
            (run, events)
        });
        with_events.collect::<Vec<_>>()
    };
    let whole = told(&stores[0]);
    assert_eq!(told(&stores[1]), whole);
    for store in &stores {
        store.close().unwrap();
    }
    assert_eq!(told(&open_with(&folder, options(), &clock)), whole);
    drop(stores);
    for name in ["state.db", "state.db-wal", "state.db-shm", "state.mark"] {
        let _ = std::fs::remove_file(folder.0.join(name));
    }
    let rebuilt = open_with(&folder, options(), &clock);
    assert_eq!(told(&rebuilt), whole, "the journal has it all");
    assert!(rebuilt.verify().unwrap().bad.is_none());
    let page = rebuilt.pilot_runs(3, None, |_| true).unwrap();
    let next = rebuilt
        .pilot_runs(3, Some(page[2].cursor), |_| true)
        .unwrap();
    let paged: Vec<_> = page.into_iter().chain(next).collect();
    let ids = |run: &PilotRun| run.run.clone();
    let newest = whole.iter().map(|(run, _)| ids(run)).take(6);
    assert!(paged.iter().map(ids).eq(newest));
    let fifth = |run: &PilotRun| run.events == 5;
    assert_eq!(rebuilt.pilot_runs(100, None, fifth).unwrap().len(), 8);
}

#[test]
fn one_writer_at_a_time() {
    let folder = Folder::new("pilots");
    let (ours, theirs) = (open(&folder), open(&folder));
    begin(&ours, "0a", None);
    assert!(matches!(
        theirs.pilot_begin("0a", None, "begin", &json!({})),
        Err(StoreError::Refused { .. })
    ));
    append(&theirs, "0a", 1, &json!({})).unwrap();
    assert!(matches!(
        append(&ours, "0a", 1, &json!({})),
        Err(StoreError::Busy { .. })
    ));
    append(&ours, "0a", 2, &json!({})).unwrap();
    assert_eq!(steps(&theirs.pilot_events("0a").unwrap()), [0, 1, 2]);
    assert!(theirs.pilot_events("0b").unwrap().is_empty());
    let large = json!("x".repeat(PILOT_EVENT_BYTES_MAX));
    assert!(matches!(
        append(&ours, "0a", 3, &large),
        Err(StoreError::TooLarge { .. })
    ));
}

/// A run goes on while the process lives that drives it, and has ended only when that was said.
#[test]
fn how_far_it_is() {
    let folder = Folder::new("pilots");
    let reader = open(&folder);
    let writer = open(&folder);
    let state = || reader.pilot_run("0a").unwrap().map(|run| run.state);
    assert_eq!(state(), None);
    begin(&writer, "0a", None);
    assert_eq!(state(), Some(PilotState::Running));
    drop(writer);
    assert_eq!(state(), Some(PilotState::Lost));
    let note = PilotNote {
        event: "noop",
        step: 1,
        ends: true,
    };
    let (doc, facts) = (json!({}), PilotFacts::default());
    reader.pilot_append("0a", 1, note, &doc, facts).unwrap();
    assert_eq!(state(), Some(PilotState::Ended("noop".to_owned())));
    append(&reader, "0a", 2, &doc).unwrap();
    assert_eq!(state(), Some(PilotState::Running), "it was taken up again");
}
