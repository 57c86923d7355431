//! Who keeps the search index, as `[search]` says.

use std::sync::Arc;

use callgate_search::VectorStore;
use callgate_search::chroma::{Chroma, Place};

use crate::config::{SearchConfig, StoreKind};
use crate::environment::Referrer;
use crate::setup::{Parts, SettingsError, SetupError};

/// Why the index that `[search]` names cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The variable of the token is not set.
    #[error("search.token_env: `{0}` is not set")]
    NoToken(String),
    /// A server without an address.
    #[error("search.url: a Chroma server has an address")]
    NoUrl,
    /// An address that cannot be asked.
    #[error("search: {0}")]
    Server(String),
}

impl Parts {
    /// The one that the configuration in force names, else our own.
    pub fn vector_store(&self) -> Result<Arc<dyn VectorStore>, SetupError> {
        let config = self.in_force()?.into_config();
        Ok(self
            .vector_store_of(&config.search)
            .map_err(SettingsError::from)?)
    }

    /// The one that a configuration names.
    pub fn vector_store_of(
        &self,
        config: &SearchConfig,
    ) -> Result<Arc<dyn VectorStore>, SearchError> {
        let engine = Arc::clone(&self.engine);
        if config.store == StoreKind::Local {
            return Ok(engine);
        }
        let url = config.url.clone();
        let token = match &config.token_env {
            None => None,
            Some(name) => {
                let token = self.environment.referred_text(name, Referrer::Builtin);
                let token = token.ok_or_else(|| SearchError::NoToken(name.clone()))?;
                Some(token.to_owned())
            }
        };
        let or =
            |word: &Option<String>, usual: &str| word.clone().unwrap_or_else(|| usual.to_owned());
        let place = Place {
            url: url.ok_or(SearchError::NoUrl)?,
            tenant: or(&config.tenant, "default_tenant"),
            database: or(&config.database, "default_database"),
            collection: or(&config.collection, "callgate"),
            token,
        };
        let chroma = Chroma::new(place, engine, Arc::clone(&self.dialer));
        Ok(Arc::new(chroma.map_err(SearchError::Server)?))
    }
}
