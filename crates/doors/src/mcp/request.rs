//! One request of a client on its way to its answer: what its message says, the era it is of, and
//! for a call the tool that it names. The tool is looked up here and nowhere else.

use std::sync::Arc;

use callgate_call::{Cancel, LogLevel};
use callgate_gate::FoundTool;
use callgate_wires::jsonrpc::{Id, RpcError};
use callgate_wires::mcp::{self, CacheScope, ClientCapabilities, Params, RequestMeta, ResultType};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::dispatch::Refusal;
use super::{Behind, Outbox, Peer, Server, Session};

/// The time for which clients may cache a list, a resource or our capabilities.
const CACHE_TTL_MS: u64 = 60_000;

/// One request on its way to its answer.
pub(crate) struct Request {
    pub id: Id,
    pub method: String,
    pub params: Params,
    pub meta: RequestMeta,
    pub era: Era,
    pub peer: Peer,
    /// The tool that a call names, unless it is behind a relay.
    pub found: Option<FoundTool>,
    /// Answers to the round before.
    pub round: RoundParams,
    /// The way for messages that belong to this request.
    pub out: Outbox,
    /// Ends it early.
    pub cancel: Arc<Cancel>,
}

/// The params that answer the round before.
#[derive(Default)]
pub(crate) struct RoundParams {
    /// Answers to the questions.
    pub responses: Option<Map<String, Value>>,
    /// The state that the client kept, sealed.
    pub state: Option<String>,
}

/// The capabilities and wishes of a client, from the request or from its handshake.
#[derive(Clone)]
pub(crate) enum Era {
    /// Everything is in the request.
    Modern {
        capabilities: Box<ClientCapabilities>,
        log_level: Option<LogLevel>,
    },
    /// It was said in the handshake.
    Legacy(Arc<Session>),
}

impl Request {
    /// Its params, in the type of its method.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let read = self.params.read();
        read.map_err(|error| Refusal::from(RpcError::from(error)))
    }
}

impl Era {
    /// The modern era, as the metadata of a request says it.
    pub fn modern(meta: &mut RequestMeta) -> Self {
        Self::Modern {
            capabilities: meta.capabilities.take().unwrap_or_default(),
            log_level: meta.log_level.as_deref().and_then(LogLevel::parse),
        }
    }

    pub fn is_modern(&self) -> bool {
        matches!(self, Self::Modern { .. })
    }

    /// True if the client said it has `capability`.
    pub fn has(&self, capability: &str) -> bool {
        match self {
            Self::Modern { capabilities, .. } => capabilities.has(capability),
            Self::Legacy(session) => session.has(capability),
        }
    }

    pub fn has_extension(&self, extension: &str) -> bool {
        match self {
            Self::Modern { capabilities, .. } => capabilities.has_extension(extension),
            // Tasks were an experiment in the legacy era and another one.
            Self::Legacy(_) => false,
        }
    }

    /// True if a log message of `level` is wanted.
    pub fn wants_log(&self, level: LogLevel) -> bool {
        match self {
            Self::Modern { log_level, .. } => log_level.is_some_and(|from| level >= from),
            Self::Legacy(session) => level >= session.log_level(),
        }
    }

    /// The `resultType` of whole results.
    pub fn complete(&self) -> Option<ResultType> {
        self.is_modern().then_some(ResultType::Complete)
    }

    /// The `cacheScope` of results: lists depend on their caller.
    pub fn cache_scope(&self) -> Option<CacheScope> {
        self.is_modern().then_some(CacheScope::Private)
    }

    /// The `ttlMs` of results that may be cached.
    pub fn cache_ttl_ms(&self) -> Option<u64> {
        self.is_modern().then_some(CACHE_TTL_MS)
    }
}

/// A request before its era is known, without its id.
pub(super) struct Asked {
    pub method: String,
    pub params: Params,
    pub meta: RequestMeta,
    pub found: Option<FoundTool>,
}

impl Server {
    /// Reads what a request says of itself, and looks up the tool that a call names.
    pub(super) fn asked(&self, method: String, params: Option<Params>) -> Result<Asked, RpcError> {
        let mut params = params.unwrap_or_default();
        let meta = params.take_meta()?;
        if !params.is_object() {
            return Err(mcp::invalid("`params` must be an object"));
        }
        let found = match (&params, &self.behind) {
            (Params::CallTool(call), Behind::Gate(gate)) => Some(gate.find(&call.name)),
            _ => None,
        };
        Ok(Asked {
            method,
            params,
            meta,
            found,
        })
    }

    /// A request that nothing cancels and that says nothing before its answer, until it has to
    /// wait.
    pub(super) fn request(&self, id: Id, asked: Asked, era: Era, peer: Peer) -> Request {
        let Asked {
            method,
            mut params,
            meta,
            found,
        } = asked;
        let round = match &mut params {
            Params::CallTool(call) => RoundParams {
                responses: call.input_responses.take(),
                state: call.request_state.take(),
            },
            Params::Other(_) => RoundParams::default(),
        };
        Request {
            id,
            method,
            params,
            meta,
            era,
            peer,
            found,
            round,
            out: self.nowhere.clone(),
            cancel: Arc::clone(&self.never),
        }
    }
}
