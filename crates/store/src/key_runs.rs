//! Finished keys in the index: runs of at most some 65,536 keys each, in the order they ended.
//! A fold adds to the newest run only, so its cost does not grow with the number of keys, and
//! the oldest leave a run at a time. A run is a list of pages found by the key's first bits, as
//! keys are hashes; a filter (sieve.rs) tells absent keys without a look at the disk. A key's
//! newest run wins. All that is kept of a key is the place of its record in the journal.

use rusqlite::{Connection, params};

use crate::KeyId;
use crate::journal::Place;
use crate::sieve::{Sieve, filter_of};

/// Keys of a page, about: one row then fills most of a page of the database.
const PAGE_KEYS: usize = 512;
/// Bytes of a key in a page: the id, the segment, the offset.
const KEY_BYTES: usize = 24;
/// Bits of a page number in a row id.
const PAGE_BITS: u32 = 24;

/// One run.
pub(crate) struct Run {
    pub(crate) id: i64,
    pages: u64,
    pub(crate) keys: u64,
    pub(crate) newest_at: u64,
}

/// Stands for a key that was set free: no segment has the number 0.
pub(crate) const FREE: Place = Place {
    segment: 0,
    offset: 0,
};

/// A key that ended.
pub(crate) type Indexed = (KeyId, Place);

pub(crate) const SCHEMA: &str = "
    CREATE TABLE runs (id INTEGER PRIMARY KEY, pages INTEGER NOT NULL, keys INTEGER NOT NULL,
                       newest_at INTEGER NOT NULL);
    CREATE TABLE run_filters (run INTEGER PRIMARY KEY, filter BLOB NOT NULL);
    CREATE TABLE key_pages (id INTEGER PRIMARY KEY, keys BLOB NOT NULL);
";

/// The runs there are, oldest first, without their filters.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<Vec<Run>> {
    let mut rows = db.prepare_cached("SELECT id, pages, keys, newest_at FROM runs ORDER BY id")?;
    let runs = rows.query_map([], |row| {
        Ok(Run {
            id: row.get(0)?,
            pages: row.get::<_, i64>(1)?.max(1).unsigned_abs(),
            keys: row.get::<_, i64>(2)?.unsigned_abs(),
            newest_at: row.get::<_, i64>(3)?.unsigned_abs(),
        })
    })?;
    runs.collect()
}

/// Brings a sieve up to date: a run never changes, it comes and goes.
pub(crate) fn sift(db: &Connection, runs: &[Run], sieve: &mut Sieve) -> rusqlite::Result<()> {
    sieve.retain(&runs.iter().map(|run| run.id).collect::<Vec<_>>());
    for run in runs {
        if !sieve.has(run.id) {
            let mut select = db.prepare_cached("SELECT filter FROM run_filters WHERE run = ?1")?;
            let mut rows = select.query([run.id])?;
            if let Some(row) = rows.next()? {
                sieve.add(run.id, row.get_ref(0)?.as_blob()?);
            }
        }
    }
    Ok(())
}

impl Run {
    /// The place of the key's record, if the key is in this run.
    pub(crate) fn find(&self, db: &Connection, key: &KeyId) -> rusqlite::Result<Option<Place>> {
        let mut select = db.prepare_cached("SELECT keys FROM key_pages WHERE id = ?1")?;
        let mut rows = select.query([row_id(self.id, page_of(key, self.pages))])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let (keys, _) = row.get_ref(0)?.as_blob()?.as_chunks::<KEY_BYTES>();
        let found = keys.binary_search_by(|entry| entry[..16].cmp(&key.0[..]));
        Ok(found.ok().map(|index| decode(&keys[index]).1))
    }
}

/// Adds keys, in the order they ended, to the newest run or new ones.
pub(crate) fn add(
    db: &Connection,
    ended: &[Indexed],
    newest_at: u64,
    run_keys_max: usize,
) -> rusqlite::Result<()> {
    let mut ended = ended;
    if ended.is_empty() {
        return Ok(());
    }
    let runs = load(db)?;
    let mut next = runs.last().map_or(1, |run| run.id + 1);
    if let Some(last) = runs.last()
        && last.keys as usize + ended.len() <= run_keys_max
    {
        let old = read(db, last)?;
        remove(db, last.id)?;
        write(
            db,
            next,
            &merge(old, sorted(ended)),
            newest_at.max(last.newest_at),
        )?;
        return Ok(());
    }
    while !ended.is_empty() {
        let (run, rest) = ended.split_at(ended.len().min(run_keys_max));
        write(db, next, &sorted(run), newest_at)?;
        next += 1;
        ended = rest;
    }
    Ok(())
}

/// Drops old runs: those wholly older than `alive_from`, and those beyond `keys_max` keys.
pub(crate) fn expire(db: &Connection, alive_from: u64, keys_max: u64) -> rusqlite::Result<()> {
    let runs = load(db)?;
    let mut keys: u64 = runs.iter().map(|run| run.keys).sum();
    for run in runs {
        if run.newest_at > alive_from && keys - run.keys < keys_max {
            break;
        }
        keys -= run.keys;
        remove(db, run.id)?;
    }
    Ok(())
}

fn sorted(keys: &[Indexed]) -> Vec<Indexed> {
    let mut keys = keys.to_vec();
    keys.sort_unstable_by_key(|(key, _)| *key);
    keys
}

/// Of a key in both, the newer place stays.
fn merge(old: Vec<Indexed>, new: Vec<Indexed>) -> Vec<Indexed> {
    let mut merged = Vec::with_capacity(old.len() + new.len());
    let mut old = old.into_iter().peekable();
    for indexed in new {
        while let Some(older) = old.next_if(|older| older.0 < indexed.0) {
            merged.push(older);
        }
        old.next_if(|older| older.0 == indexed.0);
        merged.push(indexed);
    }
    merged.extend(old);
    merged
}

/// Keys for which room is made at once.
const KEYS_HINT_MAX: usize = 1 << 20;

fn read(db: &Connection, run: &Run) -> rusqlite::Result<Vec<Indexed>> {
    // bound: `KEYS_HINT_MAX`; a damaged count makes it slower, not larger.
    let mut keys = Vec::with_capacity((run.keys as usize).min(KEYS_HINT_MAX));
    let mut select =
        db.prepare_cached("SELECT keys FROM key_pages WHERE id >= ?1 AND id < ?2 ORDER BY id")?;
    let mut rows = select.query([row_id(run.id, 0), row_id(run.id + 1, 0)])?;
    while let Some(row) = rows.next()? {
        keys.extend(
            row.get_ref(0)?
                .as_blob()?
                .chunks_exact(KEY_BYTES)
                .map(decode),
        );
    }
    Ok(keys)
}

fn remove(db: &Connection, run: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM key_pages WHERE id >= ?1 AND id < ?2")?
        .execute([row_id(run, 0), row_id(run + 1, 0)])?;
    db.prepare_cached("DELETE FROM run_filters WHERE run = ?1")?
        .execute([run])?;
    db.prepare_cached("DELETE FROM runs WHERE id = ?1")?
        .execute([run])?;
    Ok(())
}

fn write(db: &Connection, run: i64, keys: &[Indexed], newest_at: u64) -> rusqlite::Result<()> {
    let pages = (keys.len() / PAGE_KEYS).max(1) as u64;
    let mut insert = db.prepare_cached("INSERT INTO key_pages (id, keys) VALUES (?1, ?2)")?;
    let mut page = Vec::with_capacity(PAGE_KEYS * 2 * KEY_BYTES);
    for of_page in keys.chunk_by(|a, b| page_of(&a.0, pages) == page_of(&b.0, pages)) {
        page.clear();
        for (key, place) in of_page {
            page.extend_from_slice(&key.0);
            page.extend_from_slice(&place.segment.to_le_bytes());
            page.extend_from_slice(&place.offset.to_le_bytes());
        }
        insert.execute(params![row_id(run, page_of(&of_page[0].0, pages)), page])?;
    }
    db.prepare_cached("INSERT INTO run_filters (run, filter) VALUES (?1, ?2)")?
        .execute(params![run, filter_of(keys.iter().map(|(key, _)| key))])?;
    db.prepare_cached("INSERT INTO runs (id, pages, keys, newest_at) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![
            run,
            pages as i64,
            keys.len() as i64,
            newest_at as i64
        ])?;
    Ok(())
}

fn decode(bytes: &[u8]) -> Indexed {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let key = KeyId(bytes[..16].try_into().expect("16 bytes"));
    (
        key,
        Place {
            segment: u32_at(16),
            offset: u32_at(20),
        },
    )
}

fn row_id(run: i64, page: u64) -> i64 {
    (run << PAGE_BITS) | (page as i64 & ((1 << PAGE_BITS) - 1))
}

fn page_of(key: &KeyId, pages: u64) -> u64 {
    let first = u32::from_be_bytes(key.0[..4].try_into().expect("4 bytes"));
    (u64::from(first) * pages) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> KeyId {
        KeyId(
            blake3::hash(&n.to_le_bytes()).as_bytes()[..16]
                .try_into()
                .unwrap(),
        )
    }

    fn place(n: u64) -> Place {
        Place {
            segment: n as u32,
            offset: 7,
        }
    }

    fn find(db: &Connection, runs: &[Run], n: u64) -> Option<Place> {
        let key = key(n);
        runs.iter()
            .rev()
            .filter_map(|run| run.find(db, &key).unwrap())
            .next()
    }

    /// G-3: keys are found while they are kept, the oldest leave first.
    #[test]
    fn runs_grow_merge_and_expire() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        for fold in 0..10_u64 {
            let keys: Vec<Indexed> = (fold * 300..fold * 300 + 300)
                .map(|n| (key(n), place(n)))
                .collect();
            add(&db, &keys, fold, 1000).unwrap();
        }
        let runs = load(&db).unwrap();
        assert_eq!(
            runs.iter().map(|run| run.keys).collect::<Vec<_>>(),
            [900, 900, 900, 300]
        );
        for n in 0..3000 {
            assert_eq!(find(&db, &runs, n), Some(place(n)));
        }
        for n in 3000..6000 {
            assert_eq!(find(&db, &runs, n), None);
        }
        let mut sieve = Sieve::new();
        sift(&db, &runs, &mut sieve).unwrap();
        assert!((0..3000).all(|n| !sieve.look(&key(n)).is_none()));

        add(&db, &[(key(1), place(9999))], 11, 1000).unwrap();
        let runs = load(&db).unwrap();
        assert_eq!(find(&db, &runs, 1), Some(place(9999)), "the newest wins");
        expire(&db, 0, 2000).unwrap();
        let runs = load(&db).unwrap();
        assert_eq!(find(&db, &runs, 2), None);
        assert_eq!(find(&db, &runs, 1), Some(place(9999)));
        assert_eq!(
            find(&db, &runs, 900),
            Some(place(900)),
            "as many as are promised stay"
        );
        expire(&db, 11, 2000).unwrap();
        assert!(load(&db).unwrap().is_empty());
    }
}
