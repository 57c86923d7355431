//! What programs put beside the workspace's files, each in a namespace.

use callgate_store::search::{NewChunk, SearchDb};

use super::loaded::space_of;
use super::{Engine, SearchError};
use crate::scan::{DIMENSIONS_MAX, to_bytes};
use crate::words::{counted, packed};

/// All of the index; beyond, nothing more is put by programs.
const BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;

/// Something to put.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// What is kept of it; its words and its hash are made here.
    pub chunk: NewChunk,
    /// Its vector, if it has one.
    pub embedding: Option<Vec<f32>>,
}

impl Engine {
    /// Puts items into a namespace, all or none; each takes the place of the one with its id.
    pub fn upsert(&self, namespace: &str, items: Vec<Item>) -> Result<usize, SearchError> {
        let mut db = SearchDb::create(&self.state)?.keeping(self.durability)?;
        if db.bytes()? > BYTES_MAX {
            return Err(SearchError::Full);
        }
        let space = space_of(namespace);
        // Before the index is locked: words take their time.
        let ready = |Item { chunk, embedding }| {
            let words = packed(&counted(&[&chunk.path, &chunk.text]));
            let hash = hash(namespace, &chunk.key);
            let namespace = namespace.to_owned();
            let chunk = NewChunk {
                namespace,
                words,
                hash,
                ..chunk
            };
            (chunk, embedding)
        };
        let items: Vec<_> = items.into_iter().map(ready).collect();
        let step = db.begin()?;
        let known = step.meta(&space)?;
        let mut dimensions = known.and_then(|known| known.parse::<usize>().ok());
        for (chunk, embedding) in &items {
            step.put_chunk(chunk)?;
            match embedding {
                None => step.remove_vector(&space, chunk.hash)?,
                Some(vector) => {
                    check(vector, *dimensions.get_or_insert(vector.len()))?;
                    step.put_vector(&space, chunk.hash, &to_bytes(vector))?;
                }
            }
        }
        if let Some(dimensions) = dimensions {
            step.set_meta(&space, &dimensions.to_string())?;
        }
        step.commit()?;
        Ok(items.len())
    }

    /// Removes items from a namespace; how many there were.
    pub fn delete(&self, namespace: &str, keys: &[String]) -> Result<usize, SearchError> {
        let Some(db) = SearchDb::open(&self.state)? else {
            return Ok(0);
        };
        let mut db = db.keeping(self.durability)?;
        let space = space_of(namespace);
        let step = db.begin()?;
        let mut count = 0;
        for key in keys {
            count += usize::from(step.remove_chunk(namespace, key)?);
            step.remove_vector(&space, hash(namespace, key))?;
        }
        if step.is_empty(namespace)? {
            // The next vectors may be of another model.
            step.remove_meta(&space)?;
        }
        step.commit()?;
        Ok(count)
    }
}

fn check(vector: &[f32], wanted: usize) -> Result<(), SearchError> {
    let has = vector.len();
    let reason = if has == 0 || has > DIMENSIONS_MAX {
        format!("has {has} numbers, and must have 1 to {DIMENSIONS_MAX}")
    } else if has != wanted {
        format!("has {has} numbers, the vectors of the namespace have {wanted}")
    } else if vector.iter().any(|value| !value.is_finite()) {
        "has a number that is too large".to_owned()
    } else {
        return Ok(());
    };
    Err(SearchError::wrong("items.embedding", reason))
}

/// Names the vector of an item: it is its own, whatever its text.
fn hash(namespace: &str, key: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(namespace.len() as u64).to_le_bytes());
    hasher.update(namespace.as_bytes());
    hasher.update(key.as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    short
}
