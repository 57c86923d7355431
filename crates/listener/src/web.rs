//! The parts that every door on HTTP shares: admission, reading a body, and plain answers. Each
//! door words its refusals itself.

mod admit;
mod body;
mod events;
mod responses;

use std::sync::Arc;

use crate::access::Access;

/// Paths and who answers them.
pub use axum::Router;

pub use admit::{Refused, kept_bearer, no_longer_good};
pub use body::{read_body, read_body_of};
pub use events::{EVENTS_WAITING_MAX, HEARTBEAT, event_stream};
pub use responses::{Kinds, accepts, content_type_is_json, empty, json_response};

/// Which names a server answers to.
#[derive(Clone, Debug)]
pub enum Names {
    /// A Unix socket: who may connect was decided before.
    Any,
    /// Loopback names, and these hosts besides (`host` or `host:port`).
    Loopback(Vec<String>),
}

/// The rules of admission at one listener.
#[derive(Clone)]
pub struct Entrance {
    /// Recognises callers by their tokens.
    pub access: Arc<dyn Access>,
    /// The names that requests may use for this server.
    pub names: Names,
}

impl Entrance {
    /// Callers that `access` recognises, at a server that answers to `names`.
    #[must_use]
    pub fn new(access: Arc<dyn Access>, names: Names) -> Self {
        Self { access, names }
    }
}
