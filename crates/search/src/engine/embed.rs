//! Vectors of pieces and of queries, made by the model where there is one.

use std::sync::{Arc, PoisonError};

use callgate_call::Cancel;
use callgate_store::search::SearchDb;

use super::{Engine, SearchError};
use crate::model::{MODEL, Model, ModelError, WEIGHTS};
use crate::scan::to_bytes;

/// Vectors that nothing here can be compared with go, and theirs are made anew.
fn forget_other_models(db: &mut SearchDb) -> Result<(), SearchError> {
    if let Some(other) = other_model(db)? {
        let step = db.begin()?;
        step.remove_vectors(&other.0)?;
        step.remove_meta("model")?;
        step.remove_meta("model_digest")?;
        step.commit()?;
    }
    Ok(())
}

/// Name and digest of the model that has made vectors of files, if it is not ours.
pub(super) fn other_model(db: &SearchDb) -> Result<Option<(String, String)>, SearchError> {
    let Some(name) = db.meta("model")? else {
        return Ok(None);
    };
    let digest = db.meta("model_digest")?;
    let digest = digest.unwrap_or_else(|| WEIGHTS.sha256.to_owned());
    let is_ours = name == MODEL && digest == WEIGHTS.sha256;
    Ok((!is_ours).then_some((name, digest)))
}

impl Engine {
    /// True if a model is installed.
    #[must_use]
    pub fn has_model(&self) -> bool {
        let folder = self.model_folder.as_ref();
        folder.is_some_and(|folder| folder.join(WEIGHTS.name).is_file())
    }

    /// True if somebody has begun to make vectors of files, and there is a model to go on with.
    #[must_use]
    pub fn wants_vectors(&self) -> bool {
        let model = SearchDb::open(&self.state).ok().flatten();
        let model = model.and_then(|db| db.meta("model").ok().flatten());
        model.as_deref() == Some(MODEL) && self.has_model()
    }

    /// How many pieces of files have no vector yet.
    pub fn unembedded(&self) -> Result<u64, SearchError> {
        let db = SearchDb::open(&self.state)?.ok_or(SearchError::Missing)?;
        Ok(db.count_unembedded("", MODEL)?)
    }

    /// Makes vectors of up to `max` pieces of files that have none; how many it made, which are
    /// fewer if it was stopped.
    pub fn embed_some(&self, max: usize, stop: &Cancel) -> Result<usize, SearchError> {
        let Some(mut db) = SearchDb::open(&self.state)? else {
            return Err(SearchError::Missing);
        };
        forget_other_models(&mut db)?;
        let texts = db.unembedded("", MODEL, max)?;
        if texts.is_empty() {
            return Ok(0);
        }
        let model = self.model()?;
        let made: Vec<_> = texts
            .iter()
            .take_while(|_| !stop.is_cancelled())
            .map(|(hash, text)| (*hash, to_bytes(&model.embed(text))))
            .collect();
        let step = db.begin()?;
        step.set_meta("model", MODEL)?;
        step.set_meta("model_digest", WEIGHTS.sha256)?;
        for (hash, vector) in &made {
            step.put_vector(MODEL, *hash, vector)?;
        }
        step.commit()?;
        Ok(made.len())
    }

    /// The vector of a query and how long that took; `None` where no model is installed. One
    /// that was changed is an error: answers would be others than they seem.
    pub(crate) fn embedded(&self, text: &str) -> Result<Option<(Vec<f32>, u64)>, SearchError> {
        let model = match self.model() {
            Err(SearchError::Model(ModelError::Missing)) => return Ok(None),
            model => model?,
        };
        let began = self.clock.micros();
        let vector = model.embed(text);
        let took = self.clock.micros().saturating_sub(began);
        Ok(Some((vector, took.div_ceil(1000))))
    }

    fn model(&self) -> Result<Arc<Model>, SearchError> {
        let mut known = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = known.as_ref() {
            return Ok(Arc::clone(model));
        }
        let folder = self.model_folder.as_ref().ok_or(ModelError::Missing)?;
        let model = Arc::new(Model::load(folder)?);
        Ok(Arc::clone(known.insert(model)))
    }
}
