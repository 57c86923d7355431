//! Notes of memory: an index of what the store keeps, which can be made again from it.

use callgate_call::Cancel;
use callgate_store::search::{NewChunk, SearchDb};

use super::loaded::space_of;
use super::{Ask, Engine, Item, SearchError};
use crate::model::model_id;
use crate::scan::to_bytes;

const NAMESPACE: &str = "notes";
/// Where the number of the newest note is that is here.
const NEWEST: &str = "newest_note";
/// Where it says which model made vectors of notes.
const MODEL_OF_NOTES: &str = "model_of_notes";

impl Engine {
    /// The newest note that is here; 0 if none is.
    pub fn newest_note(&self) -> Result<u64, SearchError> {
        let Some(db) = SearchDb::open(&self.state)? else {
            return Ok(0);
        };
        let newest = db.meta(NEWEST)?;
        Ok(newest.and_then(|id| id.parse().ok()).unwrap_or(0))
    }

    /// Takes in notes with their numbers, in order. Again is as good as once.
    pub fn take_notes(&self, notes: Vec<(u64, String)>) -> Result<(), SearchError> {
        let Some(newest) = notes.iter().map(|(id, _)| *id).max() else {
            return Ok(());
        };
        let item = |(id, text): (u64, String)| Item {
            chunk: NewChunk {
                key: id.to_string(),
                text,
                ..NewChunk::default()
            },
            embedding: None,
        };
        self.upsert(NAMESPACE, notes.into_iter().map(item).collect())?;
        let mut db = SearchDb::create(&self.state)?;
        let step = db.begin()?;
        step.set_meta(NEWEST, &newest.to_string())?;
        Ok(step.commit()?)
    }

    /// Makes vectors of up to `max` notes that have none, if there is a model.
    pub fn embed_notes(&self, max: usize, stop: &Cancel) -> Result<(), SearchError> {
        if !self.has_model() {
            return Ok(());
        }
        let Some(mut db) = SearchDb::open(&self.state)? else {
            return Ok(());
        };
        let (space, ours) = (space_of(NAMESPACE), model_id());
        if db.meta(MODEL_OF_NOTES)?.as_ref() != Some(&ours) {
            let step = db.begin()?;
            step.remove_vectors(&space)?;
            step.set_meta(MODEL_OF_NOTES, &ours)?;
            step.commit()?;
        }
        let mut made = Vec::new();
        for (hash, text) in db.unembedded(NAMESPACE, &space, max)? {
            if stop.is_cancelled() {
                return Err(SearchError::Stopped);
            }
            if let Some((vector, _)) = self.embedded(&text)? {
                made.push((hash, to_bytes(&vector)));
            }
        }
        if !made.is_empty() {
            let step = db.begin()?;
            for (hash, vector) in &made {
                step.put_vector(&space, *hash, vector)?;
            }
            step.commit()?;
        }
        Ok(())
    }

    /// The numbers of the `k` notes that fit best, by words and, with a model, by meaning.
    pub fn find_notes(&self, query: &str, k: usize) -> Result<Vec<(u64, f32)>, SearchError> {
        let mut ask = Ask {
            query: Some(query.to_owned()),
            top_k: k,
            namespace: NAMESPACE.to_owned(),
            rerank: true,
            ..Ask::default()
        };
        if self.has_model() {
            ask.embedding = self.embedded(query)?.map(|(vector, _)| vector);
        }
        let found = match self.search(&ask, &|_| true) {
            Err(SearchError::NoVectors(_)) => {
                ask.embedding = None;
                self.search(&ask, &|_| true)
            }
            found => found,
        };
        let numbered = |found: super::Found| Some((found.told.key.parse().ok()?, found.score));
        Ok(found?.found.into_iter().filter_map(numbered).collect())
    }
}
