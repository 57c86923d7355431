//! Who an HTTP request comes from. Doors ask; how tokens are kept and checked is behind the
//! trait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use callgate_call::{Caller, Scope};
use serde_json::Value;

/// A caller that was recognised.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `uid:N`, `token:NAME`, `sub:NAME` or `anonymous`. G-11.
    pub caller: Caller,
    /// What its token allows at most.
    pub scope: Option<Arc<Scope>>,
}

/// A caller that was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// RFC 6750's word, if a token came: `invalid_token` or `insufficient_scope`.
    pub error: Option<&'static str>,
    /// For people.
    pub words: String,
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
        };
        Box::pin(std::future::ready(Ok(identity)))
    }

    fn metadata(&self, _: &str) -> Option<Value> {
        None
    }
}
