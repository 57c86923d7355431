//! What the doors on HTTP have in common: who may speak at all, how a body is read, and the
//! plain answers. How a refusal is worded is each door's own.

mod admit;
mod body;
mod events;
mod responses;

use std::sync::Arc;

use crate::access::Access;

/// Paths and who answers them.
pub use axum::Router;

pub(crate) use admit::{Refused, kept_bearer, no_longer_good};
pub(crate) use body::{read_body, read_body_of};
pub(crate) use events::{EVENTS_WAITING_MAX, HEARTBEAT, event_stream};
pub(crate) use responses::{Kinds, accepts, content_type_is_json, empty, json_response};

/// Which names a server answers to.
#[derive(Clone, Debug)]
pub enum Names {
    /// A Unix socket: who may connect was decided before.
    Any,
    /// Loopback names, and these hosts besides (`host` or `host:port`).
    Loopback(Vec<String>),
}

/// Who is let in at one listener, and under which names.
#[derive(Clone)]
pub struct Entrance {
    pub(crate) access: Arc<dyn Access>,
    pub(crate) names: Names,
}

impl Entrance {
    /// Callers that `access` recognises, at a server that answers to `names`.
    #[must_use]
    pub fn new(access: Arc<dyn Access>, names: Names) -> Self {
        Self { access, names }
    }
}
