//! Streamed runs: events, files and artifacts of what an executor emits. That a run began, that
//! an artifact exists and how a run ended are records of the chain; all else is in files.
//!
//! ```text
//! datasets/D/partitions/source=S/category=C/day=D/run_id=R/      S-16
//!     events.jsonl     lines in the order of their numbers       events.rs, policy.rs
//!     files/NAME       with NAME.meta.json                       log.rs
//!     report.json      manifest.json                             manifest.rs
//! incoming/…           bytes of artifacts, a folder for a run    incoming.rs
//! artifacts/ab/…       artifacts, by their digest                commit.rs, collect.rs
//! ```

mod collect;
mod commit;
mod disk;
mod docs;
mod events;
mod give;
mod incoming;
mod index;
mod list;
mod log;
mod manifest;
mod names;
mod policy;
mod read;
mod rows;
mod usage;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use callgate_call::{KeepError, RunCounts, RunLog, RunStart, Runs, Timestamp};

pub use collect::{ArtifactProblem, BadArtifact, Checked, Collected};
pub use incoming::RUN_ARTIFACTS_OPEN_MAX;
pub use list::{KeptArtifact, Run, RunCursor, RunEnd, RunFilter, RunState};
pub use log::RUN_ARTIFACTS_MAX;
pub use names::{RUN_FILE_NAME_BYTES_MAX, RUN_NAME_BYTES_MAX, RUN_TEXT_BYTES_MAX};
pub use policy::{STREAMING_BYTES_MAX, STREAMING_EVENTS_MAX, STRICT_BYTES_MAX, STRICT_EVENTS_MAX};
pub use read::{RUN_LINE_BYTES_MAX, RunEvents};

pub(crate) use docs::{ArtifactDoc, EndDoc, LostDoc, StartDoc};
pub(crate) use index::RunStates;
pub(crate) use usage::Usage;

use crate::{Store, StoreError, records};
use disk::Folder;

/// Keeps runs in a store.
#[derive(Clone, Debug)]
pub struct RunKeeper {
    store: Arc<Store>,
}

impl RunKeeper {
    /// Keeps them in this one.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

impl Runs for RunKeeper {
    fn begin(&self, start: &RunStart) -> Result<Box<dyn RunLog>, KeepError> {
        names::check_start(start)?;
        let waiting = policy::Waiting::new(&start.policy)?;
        self.store.usage.refresh(|| self.store.clock.micros());
        let path = names::path_of(&start.partition, &start.run_id);
        let (state, own) = make_folders(&self.store, &path)
            .map_err(names::failed("the run's folder could not be made"))?;
        let began = self.record(start)?;
        Ok(Box::new(log::KeptRun {
            store: Arc::clone(&self.store),
            start: start.clone(),
            began,
            state,
            path,
            own,
            counts: RunCounts::default(),
            waiting,
            rows: rows::Rows::default(),
            events: events::EventFile::new(),
            incoming: incoming::Incoming::default(),
            committed: HashSet::new(),
            artifacts: Vec::new(),
            files: Vec::new(),
            files_folder: None,
            is_rooted: false,
            is_over: false,
        }))
    }
}

impl RunKeeper {
    /// Says in the chain that the run begins, if no other has its name.
    fn record(&self, start: &RunStart) -> Result<Timestamp, KeepError> {
        let store = &self.store;
        let begun = store.commit_at("run.io", "run.io", |inner, now| {
            if inner.run_row(&start.run_id)?.is_some() {
                return Ok(None);
            }
            let doc = start_doc(start, inner.owner()?.0, now);
            records::run_start(&mut inner.pending, now, doc);
            Ok(Some(now))
        });
        match begun.map_err(names::unrecorded)? {
            Some(now) => store
                .settle_written()
                .map(|()| now)
                .map_err(names::unrecorded),
            None => Err(KeepError::Exists {
                name: format!("run {}", start.run_id),
            }),
        }
    }
}

/// The state folder, and the run's own with all on the way to it. One that a killed process made and never told of is
/// as good as a new one: nothing is put in it before the chain tells of the run.
fn make_folders(store: &Store, path: &[String]) -> io::Result<(Folder, Folder)> {
    let state = Folder::open(&store.dir)?;
    let mut own = Folder::open(&store.dir)?;
    for name in path {
        own = own.make(name)?;
    }
    Ok((state, own))
}

fn start_doc(start: &RunStart, owner: u64, now: Timestamp) -> StartDoc {
    StartDoc {
        run: start.run_id.clone(),
        call: start.call.to_string(),
        attempt: start.attempt,
        job: start.job_id.clone(),
        parent: start.parent_run_id.clone(),
        dataset: start.partition.dataset.clone(),
        source: start.partition.source.clone(),
        category: start.partition.category.clone(),
        day: start.partition.day.clone(),
        policy: start.policy.as_str().to_owned(),
        owner,
        at: now.0,
    }
}

impl Store {
    /// Bytes that streamed runs keep, as far as this process knows.
    pub fn runs_bytes(&self) -> u64 {
        self.usage.refresh(|| self.clock.micros());
        self.usage.used()
    }

    /// The folder of a run; nothing if there is no such run, or no folder.
    fn run_folder_of(&self, run: &Run) -> Result<Option<Folder>, StoreError> {
        let path = names::path_of(&run.partition, &run.run_id);
        let enter = || -> io::Result<Folder> {
            let mut folder = Folder::open(&self.dir)?;
            for name in &path {
                folder = folder.enter(name)?;
            }
            Ok(folder)
        };
        match enter() {
            Ok(folder) => Ok(Some(folder)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::read(&self.dir.join("datasets"), e)),
        }
    }
}
