//! What a vector server was given of the pieces of files, so that only what has changed since is
//! given to it.

use rusqlite::params;

use super::{SearchDb, Step, Told, bad};
use crate::StoreError;

/// Came later than the rest, and is made where it is missing.
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS pushed (server TEXT NOT NULL, key TEXT NOT NULL,
                          chunk INTEGER NOT NULL, PRIMARY KEY (server, key)) WITHOUT ROWID";

/// A piece that a server is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct Unpushed {
    /// Its number, which another one of its key would not have.
    pub chunk: i64,
    /// What is told of it.
    pub told: Told,
    /// Its vector.
    pub vector: Vec<u8>,
}

impl SearchDb {
    /// Makes room for what is known of servers.
    pub fn prepare_pushed(&self) -> Result<(), StoreError> {
        self.db.execute_batch(SCHEMA).map_err(bad)
    }

    /// Up to `max` pieces of files, with vectors of a model, that a server has not.
    pub fn unpushed(
        &self,
        server: &str,
        model: &str,
        max: usize,
    ) -> Result<Vec<Unpushed>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "SELECT chunks.id, vectors.vector FROM chunks
                 JOIN vectors ON vectors.model = ?2 AND vectors.hash = chunks.hash
                 WHERE chunks.file IS NOT NULL AND NOT EXISTS
                 (SELECT 1 FROM pushed WHERE server = ?1 AND pushed.key = chunks.key
                  AND pushed.chunk = chunks.id) LIMIT ?3",
            )
            .map_err(bad)?;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = select.query_map(params![server, model, max], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
        });
        let mut all = Vec::new();
        for row in rows.map_err(bad)? {
            let (chunk, vector) = row.map_err(bad)?;
            if let Some(told) = self.told(chunk)? {
                all.push(Unpushed {
                    chunk,
                    told,
                    vector,
                });
            }
        }
        Ok(all)
    }

    /// Up to `max` keys that a server has and that no piece of a file has any more.
    pub fn pushed_in_vain(&self, server: &str, max: usize) -> Result<Vec<String>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "SELECT key FROM pushed WHERE server = ?1 AND NOT EXISTS
                 (SELECT 1 FROM chunks WHERE namespace = '' AND chunks.key = pushed.key) LIMIT ?2",
            )
            .map_err(bad)?;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let rows = select.query_map(params![server, max], |row| row.get(0));
        rows.map_err(bad)?.collect::<Result<_, _>>().map_err(bad)
    }

    /// How many pieces a server was given.
    pub fn pushed(&self, server: &str) -> Result<u64, StoreError> {
        let count = "SELECT count(*) FROM pushed WHERE server = ?1";
        let count = self
            .db
            .query_row(count, [server], |row| row.get::<_, i64>(0));
        count.map(i64::unsigned_abs).map_err(bad)
    }

    /// The mark that a server's collection had when it held what was given from here, and nothing
    /// else.
    pub fn pushed_mark(&self, server: &str) -> Result<Option<String>, StoreError> {
        self.meta(&mark_of(server))
    }

    /// A mark that nobody has.
    pub fn fresh_mark() -> Result<String, StoreError> {
        Ok(format!("{:016x}", crate::random_u64()?))
    }

    /// True if a piece of a file has this key.
    pub fn has_key(&self, key: &str) -> Result<bool, StoreError> {
        let any = "SELECT 1 FROM chunks WHERE namespace = '' AND key = ?1";
        let mut any = self.db.prepare_cached(any).map_err(bad)?;
        any.exists([key]).map_err(bad)
    }
}

impl Step<'_> {
    /// A server has this piece now.
    pub fn put_pushed(&self, server: &str, key: &str, chunk: i64) -> Result<(), StoreError> {
        let put = "INSERT OR REPLACE INTO pushed (server, key, chunk) VALUES (?1, ?2, ?3)";
        self.run(put, params![server, key, chunk]).map(drop)
    }

    /// A server has it no more.
    pub fn remove_pushed(&self, server: &str, key: &str) -> Result<(), StoreError> {
        let remove = "DELETE FROM pushed WHERE server = ?1 AND key = ?2";
        self.run(remove, [server, key]).map(drop)
    }

    /// Keeps the mark of a server's collection; an empty one is nobody's.
    pub fn set_pushed_mark(&self, server: &str, mark: &str) -> Result<(), StoreError> {
        self.set_meta(&mark_of(server), mark)
    }

    /// What a server has is not known.
    pub fn forget_pushed(&self, server: &str) -> Result<(), StoreError> {
        self.run("DELETE FROM pushed WHERE server = ?1", [server])
            .map(drop)
    }
}

fn mark_of(server: &str) -> String {
    format!("pushed_mark {server}")
}
