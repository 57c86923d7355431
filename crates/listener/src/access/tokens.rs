//! Recognises callers on TCP: the owner by its token, others by tokens of the store, others
//! again by what a configured issuer signed (`jwt.rs`). Decisions G-10 and G-11.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use callgate_call::{BearerToken, Caller};
use callgate_gate::Gate;
use serde_json::Value;

use super::jwt::Issuer;
use super::{Access, Identity, Lack, Recognised, Stranger};

/// Longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// What the tokens of the store begin with, and no JWT does.
const OURS: &str = "cgt_";

/// Asks everybody for a token.
pub struct Guard {
    gate: Arc<Gate>,
    owner: Identity,
    /// Of the owner's token.
    owner_hash: blake3::Hash,
    issuer: ArcSwapOption<Issuer>,
}

impl Guard {
    /// Recognises `owner` by `token`, and the tokens that `gate` knows.
    #[must_use]
    pub fn new(gate: Arc<Gate>, owner: Caller, token: &BearerToken) -> Self {
        Self {
            gate,
            owner: Identity {
                caller: owner,
                scope: None,
                has_owner_token: true,
            },
            owner_hash: blake3::hash(token.reveal().as_bytes()),
            issuer: ArcSwapOption::empty(),
        }
    }

    /// From now on tokens of this issuer count, or of none.
    pub fn set_issuer(&self, issuer: Option<Issuer>) {
        self.issuer.store(issuer.map(Arc::new));
    }

    async fn identify(&self, bearer: Option<&str>) -> Result<Identity, Stranger> {
        let Some(bearer) = bearer else {
            return Err(Stranger {
                lacks: Lack::Token,
                words: "a bearer token is needed",
            });
        };
        if bearer.is_empty() || bearer.len() > TOKEN_BYTES_MAX {
            return Err(NOT_GOOD);
        }
        // Hashes are compared, and in constant time.
        if blake3::hash(bearer.as_bytes()) == self.owner_hash {
            return Ok(self.owner.clone());
        }
        if bearer.starts_with(OURS) {
            return self.ours(&BearerToken::new(bearer));
        }
        match self.issuer.load_full() {
            Some(issuer) => issuer.recognise(bearer).await,
            None => Err(NOT_GOOD),
        }
    }

    fn ours(&self, bearer: &BearerToken) -> Result<Identity, Stranger> {
        let token = match self.gate.active_token(bearer) {
            Ok(token) => token,
            Err(fault) => {
                tracing::warn!(target: "callgate_doors::access::tokens", %fault, "look a token up");
                return Err(Stranger {
                    lacks: Lack::Answer,
                    words: "tokens can not be looked up just now",
                });
            }
        };
        match token {
            Some(token) => Ok(Identity {
                caller: Caller::named(&format!("token:{}", token.name)),
                scope: Some(Arc::new(token.scope)),
                has_owner_token: false,
            }),
            None => Err(NOT_GOOD),
        }
    }
}

/// Which of these it is helps only those who guess.
const NOT_GOOD: Stranger = Stranger {
    lacks: Lack::GoodToken,
    words: "the token is not known, was revoked or has expired",
};

impl Access for Guard {
    fn recognise<'a>(&'a self, bearer: Option<&'a str>) -> Recognised<'a> {
        Box::pin(self.identify(bearer))
    }

    fn metadata(&self, resource: &str) -> Option<Value> {
        let issuer = self.issuer.load();
        issuer.as_ref().map(|issuer| issuer.metadata(resource))
    }
}
