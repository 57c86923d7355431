//! `state.db`, the index: what was folded from the journal, up to a watermark. It holds nothing
//! that the journal does not hold, so it can be deleted. A copy of the watermark with the small
//! things that every process needs (`state.mark`) spares most processes the database.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callgate_call::bounded::read_path;
use callgate_call::{CallId, Digest, Timestamp};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde::{Deserialize, Serialize};

use crate::approvals::ApprovalDoc;
use crate::journal::{Place, Position};
use crate::key_runs::{self, Run};
use crate::leases::LeaseDoc;
use crate::overlay::{Entry, EntryState, Small};

use crate::sieve::Sieve;
use crate::tokens::TokenDoc;
use crate::{BreakerState, KeyId, OwnerId, SMALL_FILE_BYTES_MAX, StoreError};

/// How long a reader waits for a moment that only recovery takes.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_millis(100);

/// After so many lookups a process is worth the memory of a sieve.
const SIEVE_LOOKUPS: u32 = 32;

/// The schema, one step after another; a step is never changed once released.
const MIGRATIONS: &[&str] = &[
    concat!(
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;",
    "CREATE TABLE open_keys (key BLOB PRIMARY KEY, entry BLOB NOT NULL) WITHOUT ROWID;",
    "CREATE TABLE leases (hash TEXT PRIMARY KEY, id TEXT NOT NULL, expires_at INTEGER NOT NULL,
                          doc TEXT NOT NULL) WITHOUT ROWID;",
    "CREATE INDEX leases_by_id ON leases (id);",
    "CREATE TABLE approvals (id TEXT PRIMARY KEY, bond TEXT NOT NULL, asked_at INTEGER NOT NULL,
                             asked_seq INTEGER NOT NULL, doc TEXT NOT NULL) WITHOUT ROWID;",
    "CREATE INDEX approvals_by_bond ON approvals (bond);",
    "CREATE TABLE notes (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, text TEXT NOT NULL,
                         meta TEXT);",
    "CREATE VIRTUAL TABLE note_words USING fts5 (text, content = 'notes', content_rowid = 'id',
                                      tokenize = 'unicode61 remove_diacritics 0');",
    ),
    concat!(
        "CREATE TABLE plans (id INTEGER PRIMARY KEY, updated_at INTEGER NOT NULL,
                             head TEXT NOT NULL);",
        "CREATE TABLE plan_tasks (plan INTEGER NOT NULL, place INTEGER NOT NULL,
                                  doc TEXT NOT NULL, PRIMARY KEY (plan, place)) WITHOUT ROWID;",
    ),
    concat!(
        "CREATE TABLE streamed_runs (id TEXT PRIMARY KEY, seq INTEGER NOT NULL,
                                     start TEXT NOT NULL, closed TEXT) WITHOUT ROWID;",
        "CREATE INDEX streamed_runs_by_seq ON streamed_runs (seq);",
        "CREATE TABLE run_artifacts (run TEXT NOT NULL, artifact TEXT NOT NULL,
                                     seq INTEGER NOT NULL, digest TEXT NOT NULL,
                                     doc TEXT NOT NULL,
                                     PRIMARY KEY (run, artifact)) WITHOUT ROWID;",
        "CREATE INDEX run_artifacts_by_digest ON run_artifacts (digest);",
    ),
    concat!(
        "CREATE TABLE pilot_runs (run TEXT PRIMARY KEY, seq INTEGER NOT NULL, request TEXT UNIQUE)
                                  WITHOUT ROWID;",
        "CREATE INDEX pilot_runs_by_seq ON pilot_runs (seq);",
        "CREATE TABLE pilot_events (run TEXT NOT NULL, place INTEGER NOT NULL, doc TEXT NOT NULL,
                                    PRIMARY KEY (run, place)) WITHOUT ROWID;",
    ),
];

/// The watermark: how much of the journal the index holds, and what was true there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    segment: u64,
    offset: u64,
    pub(crate) seq: u64,
    hash: String,
    ordinal: u64,
    open: u64,
    /// The index holds finished keys, leases, approvals, notes; else nobody need look.
    pub(crate) keys: bool,
    pub(crate) leases: bool,
    pub(crate) approvals: bool,
    pub(crate) notes: bool,
    /// Absent from marks written before there were plans; so are the tokens below.
    #[serde(default)]
    pub(crate) plans: bool,
    #[serde(default)]
    pub(crate) streamed_runs: bool,
    #[serde(default)]
    pub(crate) pilots: bool,
    breakers: BTreeMap<String, (u32, u64)>,
    trust: BTreeMap<String, String>,
    #[serde(default)]
    tokens: BTreeMap<String, TokenDoc>,
    /// Absent from marks of release 0.1.0: what was asked before is not counted then.
    #[serde(default)]
    asks: BTreeMap<String, (String, u64)>,
}

impl Mark {
    pub(crate) fn new(at: Position, small: &Small) -> Self {
        Self {
            segment: at.segment,
            offset: at.offset,
            seq: at.seq,
            hash: Digest(at.hash).to_hex(),
            ordinal: small.ordinal,
            open: small.open,
            keys: false,
            leases: false,
            approvals: false,
            notes: false,
            plans: false,
            streamed_runs: false,
            pilots: false,
            breakers: small
                .breakers
                .iter()
                .map(|(tool, state)| (tool.clone(), (state.failures, state.failed_at.0)))
                .collect(),
            trust: small.trust.clone(),
            tokens: small.tokens.clone(),
            asks: small.asks.clone(),
        }
    }

    /// Where to go on reading the journal. `None` if the mark makes no sense.
    pub(crate) fn position(&self) -> Option<Position> {
        let hash = Digest::from_hex(&self.hash)?.0;
        Some(Position {
            segment: self.segment,
            offset: self.offset,
            seq: self.seq,
            hash,
        })
    }

    pub(crate) fn small(&self) -> Small {
        let state = |&(failures, at): &(u32, u64)| BreakerState {
            failures,
            failed_at: Timestamp(at),
        };
        Small {
            breakers: self
                .breakers
                .iter()
                .map(|(tool, b)| (tool.clone(), state(b)))
                .collect(),
            trust: self.trust.clone(),
            tokens: self.tokens.clone(),
            asks: self.asks.clone(),
            ordinal: self.ordinal,
            open: self.open,
        }
    }

    /// True if the index holds unfinished keys.
    pub(crate) fn has_open(&self) -> bool {
        self.open > 0
    }

    pub(crate) fn set_open(&mut self, open: u64) {
        self.open = open;
    }

    /// The copy beside the index. `None` without an index: then the copy tells of nothing.
    pub(crate) fn read(state: &Path) -> Option<Self> {
        let text = read_path(state.join("state.mark"), SMALL_FILE_BYTES_MAX).ok()?;
        std::fs::metadata(state.join("state.db")).ok()?;
        let mark: Self = serde_json::from_slice(&text).ok()?;
        mark.position().map(|_| mark)
    }

    /// Renews the copy. It may be missing or old without harm.
    pub(crate) fn write(&self, state: &Path) -> std::io::Result<()> {
        let fresh = state.join("state.mark.new");
        let text = serde_json::to_vec(self)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(&text)?;
        std::fs::rename(&fresh, state.join("state.mark"))
    }
}

/// The index, open.
pub(crate) struct Index {
    pub(crate) db: Connection,
    runs: Vec<Run>,
    sieve: Option<Sieve>,
    /// All runs are in the sieve.
    sifted: bool,
    open: HashMap<KeyId, Entry>,
    version: i64,
    lookups: u32,
}

/// What the index says of a key.
pub(crate) enum Found {
    Open(Entry),
    Finished(Place),
}

impl Index {
    /// Opens the index. Without `writable` it must be there already.
    pub(crate) fn open(state: &Path, writable: bool) -> Result<Self, StoreError> {
        let path: PathBuf = state.join("state.db");
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if writable {
            // SQLite would make it readable to others; the files beside it take its mode.
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path);
            file.map_err(|e| StoreError::write(&path, e))?;
            flags |= OpenFlags::SQLITE_OPEN_READ_WRITE;
        } else {
            flags |= OpenFlags::SQLITE_OPEN_READ_ONLY;
        }
        let mut db = Connection::open_with_flags(&path, flags)?;
        db.set_prepared_statement_cache_capacity(64);
        db.busy_timeout(BUSY_TIMEOUT)?;
        if writable {
            // A fold writes whole runs of keys; fewer, larger pages make that half as dear. It
            // takes effect only while the file is empty.
            db.pragma_update(None, "page_size", 16384)?;
            db.pragma_update(None, "journal_mode", "wal")?;
            db.pragma_update(None, "synchronous", "normal")?;
            migrate(&mut db)?;
        }
        let mut index = Self {
            db,
            runs: Vec::new(),
            sieve: None,
            sifted: false,
            open: HashMap::new(),
            version: -1,
            lookups: 0,
        };
        index.refresh()?;
        Ok(index)
    }

    /// The watermark; `None` before the first fold.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, StoreError> {
        let text: Option<String> = self
            .db
            .prepare_cached("SELECT value FROM meta WHERE name = 'mark'")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    pub(crate) fn set_mark(&self, mark: &Mark) -> Result<(), StoreError> {
        let text = serde_json::to_string(mark).expect("plain values become JSON");
        self.db
            .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('mark', ?1)")?
            .execute([text])?;
        Ok(())
    }

    /// Reads runs and unfinished keys again if another process, or `changed` ourselves, wrote.
    pub(crate) fn refresh(&mut self) -> Result<(), StoreError> {
        let version: i64 = self
            .db
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        if version == self.version {
            return Ok(());
        }
        self.runs = key_runs::load(&self.db)?;
        self.open = load_open(&self.db)?;
        if let Some(sieve) = &mut self.sieve {
            key_runs::sift(&self.db, &self.runs, sieve)?;
            self.sifted = self.runs.iter().all(|run| sieve.has(run.id));
        }
        self.version = version;
        Ok(())
    }

    /// What this connection wrote is to be read again.
    pub(crate) fn changed(&mut self) -> Result<(), StoreError> {
        self.version = -1;
        self.refresh()
    }

    /// What the index says of a key. What others folded since is in the caller's overlay, so
    /// an old sieve that says no is right.
    pub(crate) fn find(&mut self, key: &KeyId) -> Result<Option<Found>, StoreError> {
        self.lookups = self.lookups.saturating_add(1);
        if self.lookups == SIEVE_LOOKUPS {
            let mut sieve = Sieve::new();
            key_runs::sift(&self.db, &self.runs, &mut sieve)?;
            self.sifted = self.runs.iter().all(|run| sieve.has(run.id));
            self.sieve = Some(sieve);
        }
        let absent = self.sifted
            && self
                .sieve
                .as_ref()
                .is_some_and(|sieve| sieve.look(key).is_none());
        if absent && !self.open.contains_key(key) {
            return Ok(None);
        }
        // Another process may merge runs between two looks; then all is looked at again.
        loop {
            self.refresh()?;
            let version = self.version;
            let found = self.search(key)?;
            if found.is_some() {
                return Ok(found);
            }
            self.refresh()?;
            if self.version == version {
                return Ok(None);
            }
        }
    }

    fn search(&self, key: &KeyId) -> Result<Option<Found>, StoreError> {
        if let Some(entry) = self.open.get(key) {
            return Ok(Some(Found::Open(*entry)));
        }
        let sieve = self.sieve.as_ref().map(|sieve| sieve.look(key));
        let may_hold = |run: &&Run| sieve.as_ref().is_none_or(|sieve| sieve.may_hold(run.id));
        for run in self.runs.iter().rev().filter(may_hold) {
            if let Some(place) = run.find(&self.db, key)? {
                return Ok(Some(Found::Finished(place)));
            }
        }
        Ok(None)
    }

    /// A lease by the hash of its token.
    pub(crate) fn lease(&self, hash: &str) -> Result<Option<LeaseDoc>, StoreError> {
        self.doc("SELECT doc FROM leases WHERE hash = ?1", hash)
    }

    /// A lease by its id.
    pub(crate) fn lease_by_id(&self, id: &str) -> Result<Option<LeaseDoc>, StoreError> {
        self.doc("SELECT doc FROM leases WHERE id = ?1", id)
    }

    pub(crate) fn leases(&self) -> Result<Vec<LeaseDoc>, StoreError> {
        self.docs("SELECT doc FROM leases")
    }

    pub(crate) fn approval(&self, id: &str) -> Result<Option<ApprovalDoc>, StoreError> {
        self.doc("SELECT doc FROM approvals WHERE id = ?1", id)
    }

    /// The newest approval with this bond.
    pub(crate) fn approval_by_bond(&self, bond: &str) -> Result<Option<ApprovalDoc>, StoreError> {
        let newest = "SELECT doc FROM approvals WHERE bond = ?1
                      ORDER BY asked_at DESC, asked_seq DESC LIMIT 1";
        self.doc(newest, bond)
    }

    pub(crate) fn approvals(&self) -> Result<Vec<ApprovalDoc>, StoreError> {
        self.docs("SELECT doc FROM approvals")
    }

    fn doc<T: for<'de> Deserialize<'de>>(
        &self,
        select: &'static str,
        name: &str,
    ) -> Result<Option<T>, StoreError> {
        let mut select = self.db.prepare_cached(select)?;
        let doc: Option<String> = select.query_row([name], |row| row.get(0)).optional()?;
        Ok(doc.and_then(|doc| serde_json::from_str(&doc).ok()))
    }

    fn docs<T: for<'de> Deserialize<'de>>(
        &self,
        select: &'static str,
    ) -> Result<Vec<T>, StoreError> {
        let mut select = self.db.prepare_cached(select)?;
        let docs = select.query_map([], |row| row.get::<_, String>(0))?;
        let mut all = Vec::new();
        for doc in docs {
            all.extend(serde_json::from_str(&doc?));
        }
        Ok(all)
    }
}

fn migrate(db: &mut Connection) -> Result<(), StoreError> {
    let version = |db: &Connection| -> rusqlite::Result<usize> {
        db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
            .map(|version| usize::try_from(version).unwrap_or(0))
    };
    if version(db)? >= MIGRATIONS.len() {
        return Ok(());
    }
    let step = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for (number, migration) in MIGRATIONS.iter().enumerate().skip(version(&step)?) {
        step.execute_batch(migration)?;
        if number == 0 {
            step.execute_batch(key_runs::SCHEMA)?;
        }
        step.pragma_update(None, "user_version", (number + 1) as i64)?;
    }
    step.commit()?;
    Ok(())
}

/// The unfinished keys.
pub(crate) fn load_open(db: &Connection) -> Result<HashMap<KeyId, Entry>, StoreError> {
    let mut select = db.prepare_cached("SELECT key, entry FROM open_keys")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    let mut open = HashMap::new();
    for row in rows {
        let (key, entry): ([u8; 16], Vec<u8>) = row?;
        open.extend(decode_entry(&entry).map(|entry| (KeyId(key), entry)));
    }
    Ok(open)
}

/// An unfinished key's entry as a row holds it.
pub(crate) fn encode_entry(entry: &Entry) -> Option<Vec<u8>> {
    let owner = match entry.state {
        EntryState::InFlight { owner } => Some(owner),
        EntryState::Unknown => None,
        EntryState::Finished { .. } | EntryState::Ending { .. } | EntryState::Free => return None,
    };
    let mut bytes = Vec::with_capacity(81);
    bytes.push(u8::from(owner.is_some()));
    bytes.extend_from_slice(&entry.call.0.to_le_bytes());
    bytes.extend_from_slice(&entry.bond.0);
    bytes.extend_from_slice(&entry.at.to_le_bytes());
    bytes.extend_from_slice(&owner.unwrap_or_default().0.to_le_bytes());
    bytes.extend_from_slice(&entry.seq.to_le_bytes());
    Some(bytes)
}

fn decode_entry(bytes: &[u8]) -> Option<Entry> {
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let owner = OwnerId(u64_at(57)?);
    Some(Entry {
        state: if bytes[0] == 1 {
            EntryState::InFlight { owner }
        } else {
            EntryState::Unknown
        },
        call: CallId(u128::from_le_bytes(bytes.get(1..17)?.try_into().ok()?)),
        bond: Digest(bytes.get(17..49)?.try_into().ok()?),
        at: u64_at(49)?,
        seq: u64_at(65)?,
    })
}
