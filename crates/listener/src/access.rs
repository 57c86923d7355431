//! Who an HTTP request comes from. Doors ask; how tokens are kept and checked is behind the
//! trait.

mod fetch;
pub mod jwt;
pub(crate) mod keys;
mod tokens;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use callgate_call::{Caller, Scope};
use serde_json::Value;

pub use tokens::Guard;

/// A caller that was recognised.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `uid:N`, `token:NAME`, `sub:NAME` or `anonymous`. G-11.
    pub caller: Caller,
    /// What its token allows at most.
    pub scope: Option<Arc<Scope>>,
    /// The request brought the owner's own token, and none of another kind.
    pub has_owner_token: bool,
}

/// A caller that was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// What is wrong.
    pub lacks: Lack,
    /// For people. Never holds anything of the token.
    pub words: &'static str,
}

/// What a stranger lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// No token came.
    Token,
    /// The one that came is not good.
    GoodToken,
    /// It is good, and for nothing here.
    Scope,
    /// Nobody can say just now.
    Answer,
}

impl Lack {
    /// RFC 6750's word, where it has one; and the reason that records tell.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "no_token",
            Self::GoodToken => "invalid_token",
            Self::Scope => "insufficient_scope",
            Self::Answer => "temporarily_unavailable",
        }
    }
}

/// The future of a recognition.
pub type Recognised<'a> = Pin<Box<dyn Future<Output = Result<Identity, Stranger>> + Send + 'a>>;

/// Recognises callers.
pub trait Access: Send + Sync {
    /// Who brings this bearer token, or none.
    fn recognise<'a>(&'a self, bearer: Option<&'a str>) -> Recognised<'a>;

    /// RFC 9728: how to get a token, for a server at `resource`. `None` if tokens are made by
    /// hand only.
    fn metadata(&self, resource: &str) -> Option<Value>;
}

/// Everybody is the same caller: the owner behind a Unix socket, or nobody in particular.
#[derive(Clone, Debug)]
pub struct Everybody(pub Caller);

impl Access for Everybody {
    fn recognise<'a>(&'a self, _: Option<&'a str>) -> Recognised<'a> {
        let identity = Identity {
            caller: self.0.clone(),
            scope: None,
            has_owner_token: false,
        };
        Box::pin(std::future::ready(Ok(identity)))
    }

    fn metadata(&self, _: &str) -> Option<Value> {
        None
    }
}
