//! `search.db`: pieces of the workspace's files with their words and vectors, and what programs
//! put beside them. What is of files is made from them and can be made again; what programs
//! brought can not. A file's pieces come and go in one transaction with what is known of the
//! file, so that a killed indexer leaves whole files or nothing. What the pieces mean is the
//! affair of `search`.

mod pushed;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, params};
use rustix::fs::{FlockOperation, flock};

use crate::{Durability, StoreError, failpoint};
pub use pushed::Unpushed;

/// How long one waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// Removed pieces that are remembered, so that readers can follow; one who is further behind
/// reads all anew.
const GONE_MAX: i64 = 100_000;
/// The one schema there is so far. An index of another is not read; it is made again.
const VERSION: i64 = 1;

const SCHEMA: &str = "
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL,
                        mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, hash BLOB NOT NULL);
    CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL,
                         key TEXT NOT NULL, file INTEGER, path TEXT NOT NULL, line_start INTEGER,
                         line_end INTEGER, lang TEXT, commit_id TEXT, etag TEXT,
                         tags TEXT NOT NULL, hash BLOB NOT NULL, words BLOB NOT NULL,
                         UNIQUE (namespace, key));
    CREATE INDEX chunks_by_file ON chunks (file) WHERE file IS NOT NULL;
    CREATE INDEX chunks_by_hash ON chunks (hash);
    CREATE TABLE texts (chunk INTEGER PRIMARY KEY, text TEXT NOT NULL);
    CREATE TABLE gone (seq INTEGER PRIMARY KEY AUTOINCREMENT, chunk INTEGER NOT NULL);
    CREATE TABLE vectors (seq INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL,
                          model TEXT NOT NULL, vector BLOB NOT NULL, UNIQUE (model, hash));
    CREATE TRIGGER chunk_gone AFTER DELETE ON chunks BEGIN
        INSERT INTO gone (chunk) VALUES (old.id);
        DELETE FROM texts WHERE chunk = old.id;
    END;
";

/// A file, and what is beneath a folder, by a look at that part of the names.
const FILES_IN: &str = "
    SELECT path, id, size, mtime, ctime, hash FROM files WHERE path = ?1
        OR path >= ?2 AND path < ?3 AND (?4 OR instr(substr(path, length(?2) + 1), '/') = 0)";

/// What tells that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes.
    pub size: i64,
    /// Nanoseconds, as are those of the inode's change.
    pub mtime: i64,
    /// Can not be set back, as the other can.
    pub ctime: i64,
}

/// A file that is indexed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// Its number.
    pub id: i64,
    /// As it was when it was read.
    pub stamp: Stamp,
    /// Digest of its bytes.
    pub hash: Vec<u8>,
}

/// A piece to keep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewChunk {
    /// Unique in its namespace.
    pub key: String,
    /// Empty for what is of files.
    pub namespace: String,
    /// Where it is from.
    pub path: String,
    /// First and last line, from 1.
    pub lines: Option<(u32, u32)>,
    /// The language, where it is known.
    pub lang: Option<String>,
    /// The commit that was checked out.
    pub commit: Option<String>,
    /// The etag of the file.
    pub etag: Option<String>,
    /// Marks to filter by.
    pub tags: Vec<String>,
    /// Names what is embedded: pieces with the same text have the same.
    pub hash: [u8; 16],
    /// Its words, as `search` packs them.
    pub words: Vec<u8>,
    /// What it says.
    pub text: String,
}

/// A piece as ranking needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row1 {
    /// Rises with every piece that is put.
    pub id: i64,
    /// Empty for what is of files.
    pub namespace: String,
    /// Where it is from.
    pub path: String,
    /// Marks to filter by, each ended by a newline.
    pub tags: String,
    /// Names what is embedded.
    pub hash: [u8; 16],
    /// Its words, packed.
    pub words: Vec<u8>,
}

/// What is told of a piece.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "as in `NewChunk`")]
pub struct Told {
    pub key: String,
    pub path: String,
    pub lines: Option<(u32, u32)>,
    pub lang: Option<String>,
    pub commit: Option<String>,
    pub etag: Option<String>,
    pub tags: Vec<String>,
    pub hash: [u8; 16],
    pub text: String,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub files: u64,
    pub chunks: u64,
    pub vectors: u64,
}

/// The index, open in one process.
#[derive(Debug)]
pub struct SearchDb {
    db: Connection,
    /// Which file it was when it was opened.
    file: FileId,
}

/// Device and inode. While a connection has the file open, no other one gets them.
type FileId = (u64, u64);

/// Held by the one indexer of a workspace.
#[derive(Debug)]
pub struct IndexerLock(#[allow(dead_code, reason = "the lock lives as long as this")] File);

fn bad(source: rusqlite::Error) -> StoreError {
    StoreError::Search { source }
}

impl StoreError {
    /// True if another process has the search index locked for longer than one waits.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        match self {
            Self::Search { source } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ),
            _ => false,
        }
    }
}

/// Where the index of a state folder is.
fn place(state: &Path) -> PathBuf {
    state.join("search.db")
}

fn file_id(path: &Path) -> Option<FileId> {
    let about = path.metadata().ok().filter(Metadata::is_file)?;
    Some((about.dev(), about.ino()))
}

/// Takes the indexer's lock; `None` if another process has it.
pub fn lock_indexer(state: &Path) -> Result<Option<IndexerLock>, StoreError> {
    let path = state.join("search.lock");
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let file = options
        .open(&path)
        .map_err(|e| StoreError::write(&path, e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(IndexerLock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(StoreError::write(&path, error)),
    }
}

impl SearchDb {
    /// Opens the index; `None` if there is none, or one of another version.
    pub fn open(state: &Path) -> Result<Option<Self>, StoreError> {
        let path = place(state);
        // Looked at before it is opened: one that is replaced in between is opened again.
        let Some(file) = file_id(&path) else {
            return Ok(None);
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&path, flags).map_err(bad)?;
        let this = Self::with(db, file)?;
        Ok((this.version()? == VERSION).then_some(this))
    }

    /// Opens the index, making it, and its folder in the state, where there is none.
    pub fn create(state: &Path) -> Result<Self, StoreError> {
        let path = place(state);
        match DirBuilder::new().mode(0o700).create(state) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(StoreError::write(state, e));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        // SQLite would make it readable to others; the files beside it take its mode.
        let file = options.append(true).create(true).mode(0o600).open(&path);
        let about = file.and_then(|file| file.metadata());
        let about = about.map_err(|e| StoreError::write(&path, e))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&path, flags).map_err(bad)?;
        db.pragma_update(None, "page_size", 8192).map_err(bad)?;
        db.pragma_update(None, "journal_mode", "wal").map_err(bad)?;
        let mut this = Self::with(db, (about.dev(), about.ino()))?;
        if this.version()? == 0 {
            let step = this.begin()?;
            // Another process may have been first.
            if step.db.version()? == 0 {
                step.db.db.execute_batch(SCHEMA).map_err(bad)?;
                let set = step.db.db.pragma_update(None, "user_version", VERSION);
                set.map_err(bad)?;
            }
            step.commit()?;
            // The schema is committed before the names are synced, and nothing that is kept durably
            // is written before that: a loss of power leaves no index, or an empty one.
            let folder = File::open(state).and_then(|folder| folder.sync_all());
            folder.map_err(|e| StoreError::write(state, e))?;
        }
        match this.version()? {
            VERSION => Ok(this),
            other => Err(StoreError::Refused {
                reason: format!(
                    "the search index is of version {other}, ours is {VERSION}: remove {}",
                    path.display()
                ),
            }),
        }
    }

    /// What is committed from here on is as durable as this says. What is of files can be made
    /// again, and needs no more than it has. G-8.
    pub fn keeping(self, durability: Durability) -> Result<Self, StoreError> {
        if durability == Durability::Power {
            self.db
                .pragma_update(None, "synchronous", "full")
                .map_err(bad)?;
        }
        Ok(self)
    }

    /// True while the file of a state folder is the one that is open here. One that was removed
    /// stays as it was for whoever has it open, and never says so.
    #[must_use]
    pub fn is_of(&self, state: &Path) -> bool {
        file_id(&place(state)) == Some(self.file)
    }

    fn with(db: Connection, file: FileId) -> Result<Self, StoreError> {
        db.set_prepared_statement_cache_capacity(64);
        db.busy_timeout(BUSY_TIMEOUT).map_err(bad)?;
        let set = db.pragma_update(None, "synchronous", "normal");
        set.map_err(bad)?;
        Ok(Self { db, file })
    }

    fn version(&self) -> Result<i64, StoreError> {
        let found = self
            .db
            .pragma_query_value(None, "user_version", |row| row.get(0));
        found.map_err(bad)
    }

    /// How large the index is.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let number = |name: &str| {
            let found = self
                .db
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            found.map(i64::unsigned_abs).map_err(bad)
        };
        Ok(number("page_count")?.saturating_mul(number("page_size")?))
    }

    /// Changes when another process has written.
    pub fn data_version(&self) -> Result<i64, StoreError> {
        let found = self
            .db
            .pragma_query_value(None, "data_version", |row| row.get(0));
        found.map_err(bad)
    }

    /// A word that was put under this name.
    pub fn meta(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("SELECT value FROM meta WHERE name = ?1")
            .map_err(bad)?;
        select
            .query_row([name], |row| row.get(0))
            .optional()
            .map_err(bad)
    }

    /// How much there is.
    pub fn counts(&self) -> Result<Counts, StoreError> {
        let select = "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM chunks),
                             (SELECT count(*) FROM vectors)";
        let row = |row: &Row<'_>| {
            let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
            Ok(Counts {
                files: count(0)?,
                chunks: count(1)?,
                vectors: count(2)?,
            })
        };
        self.db.query_row(select, [], row).map_err(bad)
    }

    /// The files that are indexed of a folder, or the one that is named, by path; those of its
    /// folders too if `deep`. The empty folder is the workspace.
    pub fn files_in(
        &self,
        folder: &str,
        deep: bool,
    ) -> Result<HashMap<String, KnownFile>, StoreError> {
        let (from, to) = match folder {
            "" => (String::new(), char::MAX.to_string()),
            // What comes next after a slash is a zero.
            folder => (format!("{folder}/"), format!("{folder}0")),
        };
        let mut select = self.db.prepare_cached(FILES_IN).map_err(bad)?;
        let rows = select.query_map(params![folder, from, to, deep], |row| {
            let stamp = Stamp {
                size: row.get(2)?,
                mtime: row.get(3)?,
                ctime: row.get(4)?,
            };
            let (id, hash) = (row.get(1)?, row.get(5)?);
            Ok((row.get(0)?, KnownFile { id, stamp, hash }))
        });
        rows.map_err(bad)?.collect::<Result<_, _>>().map_err(bad)
    }

    /// From here to `end_view` the index is as it is now, whatever others put meanwhile.
    pub fn begin_view(&self) -> Result<(), StoreError> {
        self.db.execute_batch("BEGIN").map_err(bad)
    }

    /// Ends the view.
    pub fn end_view(&self) -> Result<(), StoreError> {
        self.db.execute_batch("ROLLBACK").map_err(bad)
    }

    /// Calls `each` with the pieces that were put after `id`, in order.
    pub fn chunks_after(&self, id: i64, mut each: impl FnMut(Row1)) -> Result<(), StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "SELECT id, namespace, path, tags, hash, words FROM chunks WHERE id > ?1 ORDER BY id",
            )
            .map_err(bad)?;
        let rows = select.query_map([id], |row| {
            Ok(Row1 {
                id: row.get(0)?,
                namespace: row.get(1)?,
                path: row.get(2)?,
                tags: row.get(3)?,
                hash: row.get(4)?,
                words: row.get(5)?,
            })
        });
        for row in rows.map_err(bad)? {
            each(row.map_err(bad)?);
        }
        Ok(())
    }

    /// The newest mark of what went.
    pub fn gone_mark(&self) -> Result<i64, StoreError> {
        let mark = "SELECT coalesce(max(seq), 0) FROM gone";
        let found = self.db.query_row(mark, [], |row| row.get(0));
        found.map_err(bad)
    }

    /// The pieces that went after the mark `seq`, and the new mark; `None` if nobody knows any
    /// more.
    pub fn gone_after(&self, seq: i64) -> Result<Option<(Vec<i64>, i64)>, StoreError> {
        let oldest = "SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM gone";
        let (min, max): (i64, i64) = self
            .db
            .query_row(oldest, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(bad)?;
        if max <= seq {
            return Ok(Some((Vec::new(), seq)));
        }
        if min > seq + 1 {
            return Ok(None);
        }
        let mut select = self
            .db
            .prepare_cached("SELECT chunk FROM gone WHERE seq > ?1 ORDER BY seq")
            .map_err(bad)?;
        let rows = select.query_map([seq], |row| row.get(0)).map_err(bad)?;
        let gone = rows.collect::<Result<_, _>>().map_err(bad)?;
        Ok(Some((gone, max)))
    }

    /// What is told of a piece; `None` if it is gone.
    pub fn told(&self, id: i64) -> Result<Option<Told>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "SELECT key, path, line_start, line_end, lang, commit_id, etag, tags, hash,
                        (SELECT text FROM texts WHERE chunk = id) FROM chunks WHERE id = ?1",
            )
            .map_err(bad)?;
        let told = |row: &Row<'_>| {
            let lines: (Option<u32>, Option<u32>) = (row.get(2)?, row.get(3)?);
            let tags: String = row.get(7)?;
            Ok(Told {
                key: row.get(0)?,
                path: row.get(1)?,
                lines: lines.0.zip(lines.1),
                lang: row.get(4)?,
                commit: row.get(5)?,
                etag: row.get(6)?,
                tags: tags.lines().map(str::to_owned).collect(),
                hash: row.get(8)?,
                text: row.get::<_, Option<String>>(9)?.unwrap_or_default(),
            })
        };
        select.query_row([id], told).optional().map_err(bad)
    }

    /// Calls `each` with model, hash and vector of those that came after `seq`; gives the
    /// newest mark.
    pub fn vectors_after(
        &self,
        seq: i64,
        mut each: impl FnMut(&str, [u8; 16], &[u8]),
    ) -> Result<i64, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "SELECT seq, model, hash, vector FROM vectors WHERE seq > ?1 ORDER BY seq",
            )
            .map_err(bad)?;
        let mut rows = select.query([seq]).map_err(bad)?;
        let mut newest = seq;
        while let Some(row) = rows.next().map_err(bad)? {
            newest = row.get(0).map_err(bad)?;
            let (model, vector) = (row.get_ref(1), row.get_ref(3));
            let hash = row.get(2).map_err(bad)?;
            if let (Ok(model), Ok(vector)) = (model, vector)
                && let (Ok(model), Ok(vector)) = (model.as_str(), vector.as_blob())
            {
                each(model, hash, vector);
            }
        }
        Ok(newest)
    }

    /// A vector as it was put: little-endian floats.
    pub fn vector(&self, model: &str, hash: [u8; 16]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("SELECT vector FROM vectors WHERE model = ?1 AND hash = ?2")
            .map_err(bad)?;
        let found = select.query_row(params![model, hash], |row| row.get(0));
        found.optional().map_err(bad)
    }

    /// Up to `max` pieces of a namespace that have no vector of `model` yet.
    pub fn unembedded(
        &self,
        namespace: &str,
        model: &str,
        max: usize,
    ) -> Result<Vec<([u8; 16], String)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "SELECT hash, (SELECT text FROM texts WHERE chunk = chunks.id) FROM chunks
                 WHERE namespace = ?3 AND NOT EXISTS
                 (SELECT 1 FROM vectors WHERE model = ?1 AND vectors.hash = chunks.hash)
                 GROUP BY hash LIMIT ?2",
            )
            .map_err(bad)?;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = select.query_map(params![model, max, namespace], |row| {
            let text: Option<String> = row.get(1)?;
            Ok((row.get(0)?, text.unwrap_or_default()))
        });
        rows.map_err(bad)?.collect::<Result<_, _>>().map_err(bad)
    }

    /// How many texts of a namespace have no vector of `model` yet.
    pub fn count_unembedded(&self, namespace: &str, model: &str) -> Result<u64, StoreError> {
        let count = "SELECT count(DISTINCT hash) FROM chunks WHERE namespace = ?2 AND NOT EXISTS
                     (SELECT 1 FROM vectors WHERE model = ?1 AND vectors.hash = chunks.hash)";
        let count = self
            .db
            .query_row(count, [model, namespace], |row| row.get(0));
        count.map(i64::unsigned_abs).map_err(bad)
    }

    /// Begins a change. Dropped without `commit`, it never was.
    pub fn begin(&mut self) -> Result<Step<'_>, StoreError> {
        self.db.execute_batch("BEGIN IMMEDIATE").map_err(bad)?;
        Ok(Step {
            db: self,
            open: true,
        })
    }
}

/// A change under way.
#[derive(Debug)]
pub struct Step<'a> {
    db: &'a mut SearchDb,
    open: bool,
}

impl Step<'_> {
    fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, StoreError> {
        let mut statement = self.db.db.prepare_cached(sql).map_err(bad)?;
        statement.execute(params).map_err(bad)
    }

    /// A word that was put under this name.
    pub fn meta(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.db.meta(name)
    }

    /// Puts a word under a name.
    pub fn set_meta(&self, name: &str, value: &str) -> Result<(), StoreError> {
        let put = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
        self.run(put, [name, value]).map(drop)
    }

    /// A file that has other times than it had, and the same bytes.
    pub fn touch(&self, id: i64, stamp: Stamp) -> Result<(), StoreError> {
        let put = "UPDATE files SET size = ?2, mtime = ?3, ctime = ?4 WHERE id = ?1";
        let Stamp { size, mtime, ctime } = stamp;
        self.run(put, params![id, size, mtime, ctime]).map(drop)
    }

    /// A file as it is now, in place of what was known of it.
    pub fn put_file(
        &self,
        path: &str,
        stamp: Stamp,
        hash: &[u8],
        chunks: &[NewChunk],
    ) -> Result<(), StoreError> {
        self.remove_file(path)?;
        let put = "INSERT INTO files (path, size, mtime, ctime, hash) VALUES (?1, ?2, ?3, ?4, ?5)";
        let Stamp { size, mtime, ctime } = stamp;
        self.run(put, params![path, size, mtime, ctime, hash])?;
        let file = self.db.db.last_insert_rowid();
        chunks
            .iter()
            .try_for_each(|chunk| self.insert(chunk, Some(file)))
    }

    /// Forgets a file.
    pub fn remove_file(&self, path: &str) -> Result<(), StoreError> {
        let chunks = "DELETE FROM chunks WHERE file = (SELECT id FROM files WHERE path = ?1)";
        self.run(chunks, [path])?;
        self.run("DELETE FROM files WHERE path = ?1", [path])
            .map(drop)
    }

    /// A piece of a program's, in place of the one with its key.
    pub fn put_chunk(&self, chunk: &NewChunk) -> Result<(), StoreError> {
        self.remove_chunk(&chunk.namespace, &chunk.key)?;
        self.insert(chunk, None)
    }

    /// Removes a piece; false if there is none.
    pub fn remove_chunk(&self, namespace: &str, key: &str) -> Result<bool, StoreError> {
        let remove = "DELETE FROM chunks WHERE namespace = ?1 AND key = ?2 AND file IS NULL";
        Ok(self.run(remove, [namespace, key])? > 0)
    }

    fn insert(&self, chunk: &NewChunk, file: Option<i64>) -> Result<(), StoreError> {
        let tags: String = chunk.tags.iter().map(|tag| format!("{tag}\n")).collect();
        let put = "INSERT INTO chunks (namespace, key, file, path, line_start, line_end,
                       lang, commit_id, etag, tags, hash, words)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        self.run(
            put,
            params![
                chunk.namespace,
                chunk.key,
                file,
                chunk.path,
                chunk.lines.map(|lines| lines.0),
                chunk.lines.map(|lines| lines.1),
                chunk.lang,
                chunk.commit,
                chunk.etag,
                tags,
                chunk.hash,
                chunk.words,
            ],
        )?;
        let id = self.db.db.last_insert_rowid();
        let put = "INSERT INTO texts (chunk, text) VALUES (?1, ?2)";
        self.run(put, params![id, chunk.text]).map(drop)
    }

    /// Keeps a vector: little-endian floats.
    pub fn put_vector(&self, model: &str, hash: [u8; 16], vector: &[u8]) -> Result<(), StoreError> {
        let put = "INSERT OR REPLACE INTO vectors (model, hash, vector) VALUES (?1, ?2, ?3)";
        self.run(put, params![model, hash, vector]).map(drop)
    }

    /// Forgets a vector.
    pub fn remove_vector(&self, model: &str, hash: [u8; 16]) -> Result<(), StoreError> {
        let remove = "DELETE FROM vectors WHERE model = ?1 AND hash = ?2";
        self.run(remove, params![model, hash]).map(drop)
    }

    /// Forgets all vectors of a model.
    pub fn remove_vectors(&self, model: &str) -> Result<(), StoreError> {
        self.run("DELETE FROM vectors WHERE model = ?1", [model])
            .map(drop)
    }

    /// Forgets a word.
    pub fn remove_meta(&self, name: &str) -> Result<(), StoreError> {
        self.run("DELETE FROM meta WHERE name = ?1", [name])
            .map(drop)
    }

    /// True if nothing is in a namespace.
    pub fn is_empty(&self, namespace: &str) -> Result<bool, StoreError> {
        let any = "SELECT 1 FROM chunks WHERE namespace = ?1 LIMIT 1";
        let mut any = self.db.db.prepare_cached(any).map_err(bad)?;
        any.exists([namespace]).map(|any| !any).map_err(bad)
    }

    /// Removes vectors that no piece has any more.
    pub fn sweep_vectors(&self) -> Result<usize, StoreError> {
        let sweep = "DELETE FROM vectors WHERE NOT EXISTS
                         (SELECT 1 FROM chunks WHERE chunks.hash = vectors.hash)";
        self.run(sweep, [])
    }

    /// Puts the change in place.
    pub fn commit(mut self) -> Result<(), StoreError> {
        let old = "DELETE FROM gone WHERE seq <= (SELECT max(seq) FROM gone) - ?1";
        self.run(old, [GONE_MAX])?;
        failpoint("search.before_commit");
        self.db.db.execute_batch("COMMIT").map_err(bad)?;
        self.open = false;
        failpoint("search.after_commit");
        Ok(())
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.db.db.execute_batch("ROLLBACK");
        }
    }
}
