//! The only durable bytes. A journal of hash-chained records is the truth; `state.db` is an
//! index folded from it, which can be deleted. All processes of a workspace share both, and any
//! of them may die at any moment.
//!
//! ```text
//! journal/…seg     segments of at most 4 MiB, appended to, never rewritten   journal.rs, frame.rs
//! journal.lock     held while deciding and appending, by one process at a time
//! state.db         the index                                                 index.rs, key_runs.rs, sieve.rs, fold.rs
//! state.mark       how much of the journal the index holds
//! owners/…         a lock file of each living process, and of each driven run  owner.rs
//! head.json        the newest signed head; head.pub, signing.key             head.rs
//! packs-…          verified copies of packs, from which their tools run       assets.rs
//! blobs/…          outputs above 1 MiB, while a key points at them            blobs.rs, sweep.rs
//! artifacts/…      what was too large for an answer, the newest of it        artifacts.rs
//! artifacts/ab/…   artifacts of streamed runs, by their digest                run/commit.rs, run/collect.rs
//! incoming/…       bytes on their way to be one                               run/incoming.rs
//! datasets/…       events, files, reports of streamed runs                    run/log.rs, run/manifest.rs
//! search.db        pieces of files, their words and vectors                     search.rs
//! secrets/…        what the owner gave into keeping for servers               owner_secrets.rs
//! traces/…         a ring of what is known of calls beyond the chain          traces.rs
//! ```
//!
//! A change and its chain record are one frame of the journal. Reading is without locks: each
//! process follows the journal's growth and keeps what the index does not have yet (overlay.rs).
//! Not here: what a call is allowed to do, and the redaction of secrets; the gate does both.

mod approvals;
mod artifacts;
mod assets;
mod blobs;
mod body;
mod calls;
mod chain;
mod error;
pub mod failpoint;
mod fold;
mod folders;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod index;
mod journal;
mod key_runs;
mod keys;
mod leases;
mod memory;
mod nonces;
mod overlay;
mod owner;
mod owner_secrets;
mod pending;
mod pilots;
#[cfg(test)]
mod place;
mod plans;
mod queue;
mod records;
mod run;
mod running;
pub mod search;
mod side;
mod sieve;
mod state;
mod sweep;
mod sync;
mod tokens;
mod traces;
mod trust;
mod verify;

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate_call::Clock;
use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;

pub use approvals::{
    Approval, ApprovalId, ApprovalState, DISPLAYED_BYTES_MAX, PENDING_MAX, PENDING_OF_CALLER_MAX,
};
pub use artifacts::{ARTIFACTS_BYTES_MAX, ARTIFACTS_MAX, Spill};
pub use calls::{
    Begun, BreakerState, End, Finish, Health, KeyId, Recorded, RecordedFault, Refusal, Replay,
    Seen, Start, Started, Ticket, View,
};
pub use chain::{Filter, Record};
pub use error::StoreError;
pub use failpoint::failpoint;
pub use folders::{
    NewFolder, Passing, give_file_with, keep_newest, remove_folder, sweep_folders, write_file,
    write_file_with, write_owner_file,
};
pub use head::{Head, public_key_of};
pub use leases::{LEASE_LIFE_MAX, Lease, LeaseCounts, LeaseGrant, LeaseId, LeaseState};
pub use memory::{NOTE_BYTES_MAX, Note};
pub use nonces::{NONCES_MAX, Nonce};
pub use owner::OwnerId;
pub use owner_secrets::{OwnerSecretError, OwnerSecrets, SecretValue, is_secret_name};
pub use pilots::{
    PILOT_EVENT_BYTES_MAX, PILOT_RUNS_MAX, PilotBegun, PilotEvent, PilotFacts, PilotHold,
    PilotNote, PilotRecord, PilotRecords, PilotRun, PilotState,
};
pub use plans::{
    NewPlan, PLAN_BYTES_MAX, PLANS_MAX, Plan, PlanEar, PlanHead, PlanId, PlanNews, TASKS_MAX, Task,
    TaskPatch, TaskStatus,
};
pub use queue::{BASE_BYTES_MAX, Job, Queue, Shelf};
pub use run::{
    ArtifactProblem, BadArtifact, Checked, Collected, KeptArtifact, RUN_ARTIFACTS_MAX,
    RUN_ARTIFACTS_OPEN_MAX, RUN_FILE_NAME_BYTES_MAX, RUN_LINE_BYTES_MAX, RUN_NAME_BYTES_MAX,
    RUN_TEXT_BYTES_MAX, Run, RunCursor, RunEnd, RunEvents, RunFilter, RunKeeper, RunState,
    STREAMING_BYTES_MAX, STREAMING_EVENTS_MAX, STRICT_BYTES_MAX, STRICT_EVENTS_MAX,
};
pub use running::{GateLock, RunningGate, running_gate};
pub use tokens::{TOKENS_MAX, Token, TokenGrant, TokenState};
pub use traces::{TRACE_BYTES_MAX, TRACES_BYTES_MIN};
pub use trust::TrustLock;
pub use verify::{Bad, Verdict, show_file, verify_file};

use journal::{Journal, Position, SEGMENT_BYTES_MAX};
use state::Inner;

/// Keys, tokens, marks and heads: files of a few hundred bytes. A larger one is damaged.
const SMALL_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A process whose files may not grow beyond this writes segments only. Decision T-12.
const LIMITED_BELOW_BYTES: u64 = 64 * 1024 * 1024;

/// When a record counts as safe. G-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once the kernel has it: survives `kill -9` of anything.
    #[default]
    Process,
    /// Once the disk has it: survives a power cut.
    Power,
}

/// How a store is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// When a record counts as safe.
    pub durability: Durability,
    /// So many finished keys are kept at least; the oldest beyond them leave. At most so many
    /// unfinished ones are taken on. G-3.
    pub keys_max: u64,
    /// How long a key is kept. G-3.
    pub key_life: Duration,
    /// False: never write the index (T-12). A process with a small file-size limit never does.
    pub fold: bool,
    /// True: go on where the state folder can not even be made. Nothing is there, and whatever
    /// must be written is refused (T-12).
    pub may_lack_folder: bool,
    /// All traces together; 0 keeps none.
    pub traces_max_bytes: u64,
    /// All that streamed runs keep: events, files, artifacts and bytes on their way to be one.
    /// What would go beyond is refused before it is written.
    pub runs_bytes_max: u64,
    /// Sizes that only tests have a reason to change.
    pub tuning: Tuning,
}

/// Sizes that only tests have a reason to change.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Largest segment; never above 4 MiB.
    pub segment_bytes: u64,
    /// So much unfolded journal is folded at once.
    pub fold_bytes: u64,
    /// So much is folded at an orderly stop.
    pub close_bytes: u64,
    /// Finished keys of one run of the index.
    pub run_keys: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Process,
            keys_max: 1_000_000,
            key_life: Duration::from_secs(24 * 60 * 60),
            fold: true,
            may_lack_folder: false,
            traces_max_bytes: 64 * 1024 * 1024,
            runs_bytes_max: 64 * 1024 * 1024 * 1024,
            tuning: Tuning::default(),
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_MAX,
            fold_bytes: 16 * 1024 * 1024,
            close_bytes: 1024 * 1024,
            run_keys: 65_536,
        }
    }
}

/// What this process did to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Transactions appended.
    pub frames: u64,
    /// Writes to the journal.
    pub writes: u64,
    /// Syncs to disk.
    pub fsyncs: u64,
    /// Folds into the index.
    pub folds: u64,
    /// Records that could not be written and were given up at the bound of memory.
    pub lost: u64,
    /// Records of the chain, those of other processes too, as far as this one has looked.
    pub seq: u64,
}

/// The state folder of one workspace, as one process sees it.
///
/// # Lock order
///
/// A thread that holds one of these locks waits only for those below it:
///
/// 1. the lock of `trusted/` or of `artifacts/` (flock), never both,
/// 2. `Sync::turn`, for the length of a sync,
/// 3. `inner`, for short sections, never across an await,
/// 4. `journal.lock` (flock), the commit lock of all processes.
///
/// `inner` comes before the commit lock because the threads of a process share one open file of
/// it, which flock does not tell apart. The commit lock is the last one: its holder waits for no
/// other lock, so every process gets it in the end.
///
/// All other locks are leaves. Nothing is waited for under `held`, `traces`, `rooted`, the state of
/// `Sync` and the due time of `Usage`, nor under the locks of `incoming/` and `nonces/`. The locks
/// of single files (owners, runs, blobs, artifacts, jobs) are tried and never waited for, so they
/// may be tried under any other. The index is read under `inner`; a fold that finds its write lock
/// taken gives up.
pub struct Store {
    dir: PathBuf,
    durability: Durability,
    key_life: Duration,
    clock: Arc<dyn Clock>,
    inner: Arc<Mutex<Inner>>,
    sync: Arc<sync::Sync>,
    /// Rung when a keyed call of this process ends.
    ended: Notify,
    /// Locks on the unpacked folders this process uses.
    held: Mutex<Vec<File>>,
    traces: Mutex<traces::Ring>,
    /// What streamed runs keep.
    usage: run::Usage,
    /// Folders of the content store, by first byte, whose names this process has synced.
    rooted: Mutex<BTreeSet<u8>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the state folder, making it if it is missing. Cheap: what was not folded is read
    /// when it is first needed, the index when something in it is.
    pub fn open(dir: &Path, options: Options, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let made = make_folders(dir);
        let mark = index::Mark::read(dir);
        let at = mark
            .as_ref()
            .and_then(index::Mark::position)
            .unwrap_or(Position::START);
        let opened = made.and_then(|()| Journal::open(dir, at, options.tuning.segment_bytes));
        let journal = match opened {
            Err(StoreError::Full { path, source }) if options.may_lack_folder => {
                Journal::nowhere(&path, &source)
            }
            Err(StoreError::Full { path, source }) => {
                return Err(StoreError::Open { path, source });
            }
            opened => opened?,
        };
        let limit = getrlimit(Resource::Fsize).current;
        let may_fold = options.fold && limit.is_none_or(|bytes| bytes >= LIMITED_BELOW_BYTES);
        let (durability, key_life) = (options.durability, options.key_life);
        let traces = traces::Ring::new(dir, options.traces_max_bytes);
        let usage = run::Usage::new(dir, options.runs_bytes_max);
        let inner = Inner::new(dir.to_owned(), options, may_fold, journal, mark);
        inner.sweep(clock.now(), sweep::FILES_AT_OPEN);
        let store = Self {
            dir: dir.to_owned(),
            durability,
            key_life,
            clock,
            inner: Arc::new(Mutex::new(inner)),
            sync: Arc::default(),
            ended: Notify::new(),
            held: Mutex::default(),
            traces: Mutex::new(traces),
            usage,
            rooted: Mutex::default(),
        };
        store.collect_at_open(sweep::FILES_AT_OPEN);
        Ok(store)
    }

    /// The state folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How long a finished or unknown key is kept at least.
    #[must_use]
    pub fn key_life(&self) -> Duration {
        self.key_life
    }

    /// True if the owner's process lives (or is this one). G-4.
    pub fn owner_alive(&self, owner: OwnerId) -> bool {
        self.inner().owner_alive(owner)
    }

    /// Housekeeping, to be called now and then by a process that stays: writes what is pending,
    /// folds if much is unfolded, removes what is over, signs a head if many records have none.
    pub fn maintain(&self) -> Result<(), StoreError> {
        let due = {
            let mut inner = self.inner();
            self.write_pending(&mut inner)?;
            inner.tail(false)?;
            inner.trim()?;
            inner.fold_if_due(self.clock.now());
            inner.sweep(self.clock.now(), usize::MAX);
            inner.head_is_due()
        };
        if due {
            self.sign_head()?;
        }
        Ok(())
    }

    /// An orderly stop: writes what is pending, folds, signs the head if this process added to
    /// the chain. The store can still be used; another `close` does the same again.
    pub fn close(&self) -> Result<(), StoreError> {
        let added = {
            let mut inner = self.inner();
            self.write_pending(&mut inner)?;
            let much = inner.journal.passed_bytes >= inner.options.tuning.close_bytes;
            if much && let Err(error) = inner.fold(self.clock.now()) {
                // The journal has it all; whoever comes next folds.
                tracing::debug!(%error, "fold left to others");
            }
            inner.records > 0
        };
        if added {
            self.sign_head()?;
        }
        Ok(())
    }

    /// True if the newest write of this process went well, so that the next is likely to.
    pub fn writes_well(&self) -> bool {
        self.inner().writes_well
    }

    /// What this process did so far.
    pub fn stats(&self) -> Stats {
        let inner = self.inner();
        Stats {
            records: inner.records,
            frames: inner.journal.frames,
            writes: inner.journal.writes,
            fsyncs: self.sync.count.load(std::sync::atomic::Ordering::Relaxed),
            folds: inner.folds,
            lost: inner.lost,
            seq: inner.journal.position().seq,
        }
    }
}

/// The folders of a state. `Full` if one is not to be had and can not be made.
fn make_folders(dir: &Path) -> Result<(), StoreError> {
    make_private(dir)?;
    for name in ["journal", "owners", "blobs"] {
        make_private(&dir.join(name))?;
    }
    Ok(())
}

/// A folder for its owner alone.
fn make_private(dir: &Path) -> Result<(), StoreError> {
    let fail = |e: io::Error| StoreError::open(dir, e);
    // Out of reach is as good as missing.
    let unmade = |e: io::Error| StoreError::write(dir, e);
    let found = match std::fs::metadata(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let mut builder = DirBuilder::new();
            return builder
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(unmade);
        }
        found => found.map_err(unmade)?,
    };
    if !found.is_dir() {
        return Err(fail(io::ErrorKind::NotADirectory.into()));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(fail(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user owns it; pass --state with a folder of your own",
        )));
    }
    if found.mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(fail)?;
    }
    Ok(())
}

fn random_u64() -> Result<u64, StoreError> {
    getrandom::u64().map_err(|_| StoreError::Random)
}
