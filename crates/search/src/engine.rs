//! The index in memory: read when first asked for, and followed from then on. A look at whether
//! another process has changed it is one read of a page; what came and went since is read alone.

mod embed;
mod items;
mod loaded;
mod notes;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callgate_call::Clock;
use callgate_store::search::{SearchDb, Told};
use callgate_store::{Durability, StoreError};

use crate::model::{MODEL, Model, ModelError, model_id};
use crate::words::{self, Word};
pub use items::Item;
use loaded::Loaded;
pub(crate) use loaded::{FUSED_MAX, RERANK};

/// Words of a query beyond this are left out.
const QUERY_WORDS_MAX: usize = 64;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Words, or what is meant.
    pub query: Option<String>,
    /// A vector to be near to.
    pub embedding: Option<Vec<f32>>,
    /// How many at most.
    pub top_k: usize,
    /// Whose pieces; empty for the workspace's files.
    pub namespace: String,
    /// How paths begin.
    pub path_prefix: String,
    /// Of these tags one is enough.
    pub tags: Vec<String>,
    /// Vectors are told as well.
    pub include_vectors: bool,
    /// Both rankings count, where there are two.
    pub rerank: bool,
}

/// A piece that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What is known of it.
    pub told: Told,
    /// How well it fits; what it measures depends on how it was found.
    pub score: f32,
    /// Its vector, if that was asked for and it has one.
    pub vector: Option<Vec<f32>>,
}

/// What was found, the best first, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The pieces.
    pub found: Vec<Found>,
    /// The model that made vectors of the query.
    pub embedding_model: Option<String>,
    /// How long that took.
    pub embed_time_ms: Option<u64>,
    /// How two rankings were made one.
    pub rerank_model: Option<String>,
}

/// Why nothing could be looked for.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// There is no index.
    #[error("there is no search index: run `callgate index`")]
    Missing,
    /// Somebody else has it.
    #[error("the search index is locked by another process")]
    Locked,
    /// It can not be read.
    #[error("the search index can not be used: `callgate index` says why")]
    Broken(#[source] StoreError),
    /// What was asked makes no sense.
    #[error("{field}: {reason}")]
    Wrong {
        /// The member that is wrong.
        field: &'static str,
        /// Why.
        reason: String,
    },
    /// There is no room for more.
    #[error("the search index has 8 GiB, and takes nothing more")]
    Full,
    /// The model can not be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its vectors say something else than those that are made here.
    #[error("the search index has vectors of {has}, and {ours} is here: run `callgate index`")]
    OtherModel {
        /// The model of the index, with its digest.
        has: String,
        /// The one that is known here.
        ours: String,
    },
    /// A vector server does not answer as it should.
    #[error("the vector server {url} {reason}")]
    Server {
        /// Where it is.
        url: String,
        /// What it does instead.
        reason: String,
    },
    /// Nobody waits for an answer any more.
    #[error("it was stopped")]
    Stopped,
    /// There are no vectors to compare with.
    #[error("the search index has no vectors: {0}")]
    NoVectors(String),
}

impl SearchError {
    pub(crate) fn wrong(field: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Wrong { field, reason }
    }
}

impl From<StoreError> for SearchError {
    fn from(error: StoreError) -> Self {
        if error.is_locked() {
            Self::Locked
        } else {
            Self::Broken(error)
        }
    }
}

/// The index of a workspace, as one process sees it.
///
/// `loaded` and `model` are never held together: a query is embedded before the index is locked. The
/// indexer's lock (`lock_indexer`) is tried and never waited for.
pub struct Engine {
    pub(crate) state: PathBuf,
    loaded: Mutex<Option<Loaded>>,
    /// Where the model is, if it is anywhere.
    model_folder: Option<PathBuf>,
    /// Read once for all engines of a process.
    model: Arc<Mutex<Option<Arc<Model>>>>,
    clock: Arc<dyn Clock>,
    /// Of what programs put: nobody could make it again.
    durability: Durability,
}

impl Engine {
    /// The index in a state folder, which is not looked at yet, and the model in its own.
    #[must_use]
    pub fn new(state: &Path, model_folder: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            state: state.to_owned(),
            loaded: Mutex::new(None),
            model_folder,
            model: Arc::default(),
            clock,
            durability: Durability::default(),
        }
    }

    /// What programs put is kept so. G-8.
    #[must_use]
    pub fn keeping(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// An index of what can be made again in another folder, with the same model.
    #[must_use]
    pub fn beside(&self, state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            loaded: Mutex::new(None),
            model_folder: self.model_folder.clone(),
            model: Arc::clone(&self.model),
            clock: Arc::clone(&self.clock),
            durability: Durability::default(),
        }
    }

    /// What fits best. `may` says whether the caller may know of a path.
    pub fn search(&self, ask: &Ask, may: &dyn Fn(&str) -> bool) -> Result<Answer, SearchError> {
        let words = query_words(ask)?;
        let embedded = match ask.embedding {
            None if self.has_model_vectors(ask)? => {
                self.embedded(ask.query.as_deref().unwrap_or_default())?
            }
            Some(_) => {
                self.has_model_vectors(ask)?;
                None
            }
            None => None,
        };
        let mut loaded = self.lock();
        let loaded = self.current(&mut loaded)?;
        let Some((embedding, time_ms)) = embedded else {
            return loaded.answer(ask, &words, may);
        };
        let ask = Ask {
            embedding: Some(embedding),
            ..ask.clone()
        };
        let mut answer = loaded.answer(&ask, &words, may)?;
        answer.embedding_model = Some(MODEL.to_owned());
        answer.embed_time_ms = Some(time_ms);
        Ok(answer)
    }

    /// True if a vector of the query would have others to be compared with.
    fn has_model_vectors(&self, ask: &Ask) -> Result<bool, SearchError> {
        let mut loaded = self.lock();
        let loaded = self.current(&mut loaded)?;
        if !ask.namespace.is_empty() {
            return Ok(false);
        }
        if let Some(has) = loaded.other_model() {
            let ours = model_id();
            return Err(SearchError::OtherModel { has, ours });
        }
        Ok(loaded.has_vectors_of(MODEL))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index as it is now.
    fn current<'a>(&self, loaded: &'a mut Option<Loaded>) -> Result<&'a mut Loaded, SearchError> {
        let fresh = match loaded.take() {
            Some(mut known) if known.is_of(&self.state) => match known.follow()? {
                true => known,
                false => self.read()?,
            },
            _ => self.read()?,
        };
        Ok(loaded.insert(fresh))
    }

    /// True if there is an index to follow.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.state.join("search.db").is_file()
    }

    fn read(&self) -> Result<Loaded, SearchError> {
        let db = SearchDb::open(&self.state)?.ok_or(SearchError::Missing)?;
        Loaded::read(db)
    }
}

/// The words of a query; an embedding may be there instead.
pub(crate) fn query_words(ask: &Ask) -> Result<Vec<Word>, SearchError> {
    let mut all = Vec::new();
    words::words(ask.query.as_deref().unwrap_or_default(), |word| {
        let word = words::hash(word);
        if all.len() < QUERY_WORDS_MAX && !all.contains(&word) {
            all.push(word);
        }
    });
    if ask.embedding.is_none() && all.is_empty() {
        let reason = "neither a query with words in it nor an embedding";
        return Err(SearchError::wrong("query", reason));
    }
    Ok(all)
}
