//! What the tests of streamed runs share.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use callgate_call::{
    CallId, Digest, KeepError, Partition, RunArtifact, RunEvent, RunLog, RunPolicy, RunStart, Runs,
};
use callgate_store::{RunKeeper, Store};

pub fn start(run: &str, policy: RunPolicy) -> RunStart {
    RunStart {
        run_id: run.to_owned(),
        call: CallId(7),
        attempt: 1,
        job_id: Some("job".to_owned()),
        parent_run_id: None,
        partition: Partition {
            dataset: "callgate".to_owned(),
            source: "shop".to_owned(),
            category: "default".to_owned(),
            day: "2025-06-15".to_owned(),
        },
        policy,
    }
}

/// Where a run of `start` is. S-16.
pub fn folder_of(run: &str) -> PathBuf {
    let parts = "datasets/callgate/partitions/source=shop/category=default/day=2025-06-15";
    PathBuf::from(parts).join(format!("run_id={run}"))
}

pub fn begin(store: &Arc<Store>, run: &str, policy: RunPolicy) -> Box<dyn RunLog> {
    try_begin(store, &start(run, policy)).unwrap()
}

pub fn try_begin(store: &Arc<Store>, start: &RunStart) -> Result<Box<dyn RunLog>, KeepError> {
    RunKeeper::new(Arc::clone(store)).begin(start)
}

pub fn line(seq: u64) -> String {
    format!("{{\"seq\":{seq}}}")
}

pub fn emit(log: &mut dyn RunLog, seq: u64, kind: &str) -> Result<(), KeepError> {
    emit_line(log, seq, kind, &line(seq))
}

pub fn emit_line(log: &mut dyn RunLog, seq: u64, kind: &str, line: &str) -> Result<(), KeepError> {
    let line = line.as_bytes();
    log.event(&RunEvent { seq, kind, line })
}

pub fn commit(log: &mut dyn RunLog, id: &str, bytes: u64) -> Result<Digest, KeepError> {
    log.commit(&RunArtifact {
        artifact_id: id,
        name: "page.html",
        content_type: "text/html",
        bytes,
    })
}

/// The numbers of the events that can be read.
pub fn seqs(store: &Store, run: &str) -> Vec<u64> {
    let mut events = store.run_events(run).unwrap().unwrap();
    let mut seqs = Vec::new();
    while let Some(line) = events.next_line().unwrap() {
        let event: serde_json::Value = serde_json::from_slice(line).unwrap();
        seqs.push(event["seq"].as_u64().unwrap());
    }
    seqs
}

/// The bytes of an artifact, if it exists.
pub fn bytes_of(store: &Store, run: &str, id: &str) -> Option<Vec<u8>> {
    let (_, file) = store.artifact_of(run, id).unwrap()?;
    let mut bytes = Vec::new();
    file.expect("a committed artifact has its bytes")
        .read_to_end(&mut bytes)
        .unwrap();
    Some(bytes)
}
