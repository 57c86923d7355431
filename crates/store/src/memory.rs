//! Notes of the built-in memory tool: appended to the journal, found by their words. The index
//! narrows down the folded ones (FTS5); the order among all that is found is decided here, so
//! that folding does not change an answer.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use callgate_call::Timestamp;
use rusqlite::{Row, params};

use crate::index::Index;
use crate::overlay::NoteDoc;
use crate::{Store, StoreError, records};

/// Largest text of one note.
pub const NOTE_BYTES_MAX: usize = 1024 * 1024;
/// Words of a query beyond this are left out.
const QUERY_WORDS_MAX: usize = 32;
/// So many folded notes are compared at least.
const CANDIDATES_MIN: usize = 64;
/// More notes than this are never returned.
const NOTES_MAX: usize = 1000;

/// A note that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Its number.
    pub id: u64,
    /// When it was appended.
    pub at: Timestamp,
    /// What was appended.
    pub text: String,
    /// What came along with it, as JSON text.
    pub meta: Option<String>,
    /// How well it fits the query, up to 1; higher is better.
    pub score: f64,
}

impl Store {
    /// Appends a note; it is in the file on return.
    pub fn memory_append(&self, text: &str, meta: Option<&str>) -> Result<u64, StoreError> {
        if text.len() + meta.map_or(0, str::len) > NOTE_BYTES_MAX {
            return Err(StoreError::TooLarge {
                what: "note",
                max_bytes: NOTE_BYTES_MAX,
            });
        }
        self.commit(|inner, now| {
            records::memory_append(&mut inner.pending, now, text, meta);
            Ok(inner.journal.position().seq + inner.pending.mark() as u64)
        })
    }

    /// Up to `max` notes that came after the one with this number, in their order.
    pub fn memory_after(&self, id: u64, max: usize) -> Result<Vec<Note>, StoreError> {
        let select = "SELECT id, at, text, meta FROM notes WHERE id > ?1 ORDER BY id LIMIT ?2";
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        self.memory_where(select, id, limit, |note| note.id > id, max)
    }

    /// The note with this number.
    pub fn memory_note(&self, id: u64) -> Result<Option<Note>, StoreError> {
        let select = "SELECT id, at, text, meta FROM notes WHERE id = ?1 LIMIT ?2";
        let found = self.memory_where(select, id, 1, |note| note.id == id, 1)?;
        Ok(found.into_iter().next())
    }

    /// Folded notes by a selection, and the others by the same in words of Rust.
    fn memory_where(
        &self,
        select: &str,
        id: u64,
        limit: i64,
        fits: impl Fn(&NoteDoc) -> bool,
        max: usize,
    ) -> Result<Vec<Note>, StoreError> {
        self.read(|inner, _| {
            let mut found: BTreeMap<u64, Note> = BTreeMap::new();
            if inner.mark.as_ref().is_some_and(|mark| mark.notes)
                && let Some(index) = inner.index()?
            {
                let mut select = index.db.prepare_cached(select)?;
                let id = i64::try_from(id).unwrap_or(i64::MAX);
                let rows = select.query_map(params![id, limit], note_doc)?;
                for row in rows {
                    let note = row?;
                    found.insert(note.id, told(&note, 0.0));
                }
            }
            for note in inner.overlay.notes.iter().filter(|note| fits(note)) {
                found.insert(note.id, told(note, 0.0));
            }
            Ok(found.into_values().take(max).collect())
        })
    }

    /// The `k` notes that fit the words of `query` best. No word, no note.
    pub fn memory_query(&self, query: &str, k: usize) -> Result<Vec<Note>, StoreError> {
        let k = k.min(NOTES_MAX);
        let wanted: BTreeSet<String> = words(query).take(QUERY_WORDS_MAX).collect();
        if wanted.is_empty() || k == 0 {
            return Ok(Vec::new());
        }
        self.read(|inner, _| {
            let folded = match &inner.mark {
                Some(mark) if mark.notes => match inner.index()? {
                    Some(index) => candidates(index, &wanted, k)?,
                    None => Vec::new(),
                },
                _ => Vec::new(),
            };
            let mut notes: Vec<Note> = folded
                .iter()
                .filter(|note| !inner.overlay.notes.iter().any(|newer| newer.id == note.id))
                .chain(&inner.overlay.notes)
                .filter_map(|note| scored(note, &wanted))
                .collect();
            notes.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
            notes.truncate(k);
            Ok(notes)
        })
    }
}

/// Lower-case words; what separates them means nothing, so no query has a syntax.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

fn candidates(
    index: &Index,
    wanted: &BTreeSet<String>,
    k: usize,
) -> Result<Vec<NoteDoc>, StoreError> {
    // Words have no quotes in them, so quoting them is safe.
    let quoted: Vec<String> = wanted.iter().map(|word| format!("\"{word}\"")).collect();
    let mut select = index.db.prepare_cached(
        "SELECT notes.id, notes.at, notes.text, notes.meta FROM note_words
         JOIN notes ON notes.id = note_words.rowid
         WHERE note_words MATCH ?1 ORDER BY bm25(note_words), notes.id DESC LIMIT ?2",
    )?;
    let limit = CANDIDATES_MIN.max(k.saturating_mul(4)) as i64;
    let rows = select.query_map(params![quoted.join(" OR "), limit], note_doc)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn note_doc(row: &Row<'_>) -> rusqlite::Result<NoteDoc> {
    Ok(NoteDoc {
        id: row.get::<_, i64>(0)?.unsigned_abs(),
        at: row.get::<_, i64>(1)?.unsigned_abs(),
        text: row.get(2)?,
        meta: row.get(3)?,
    })
}

fn told(note: &NoteDoc, score: f64) -> Note {
    Note {
        id: note.id,
        at: Timestamp(note.at),
        text: note.text.clone(),
        meta: note.meta.clone(),
        score,
    }
}

/// The share of the wanted words it has; among equals, the one that says little else.
fn scored(note: &NoteDoc, wanted: &BTreeSet<String>) -> Option<Note> {
    let mut total = 0_usize;
    let mut hits = 0_usize;
    let mut found = HashSet::new();
    for word in words(&note.text) {
        total += 1;
        if let Some(word) = wanted.get(&word) {
            hits += 1;
            found.insert(word);
        }
    }
    if found.is_empty() {
        return None;
    }
    let share = found.len() as f64 / wanted.len() as f64;
    let density = hits as f64 / total as f64;
    Some(told(note, share * 0.9 + density * 0.1))
}
