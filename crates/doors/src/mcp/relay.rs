//! Tools that are not behind the gate of this process: the bridge's parent has them.

use std::future::Future;
use std::pin::Pin;

use callgate_call::Cancel;
use callgate_wires::mcp::ToolDefinition;
use serde_json::{Map, Value};

/// One call to be passed on.
#[derive(Debug)]
pub struct RelayCall {
    /// As the client named it.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Our own part of the request's `_meta`, for a parent that is a Callgate.
    pub meta: Map<String, Value>,
    /// Ends it early.
    pub cancel: Cancel,
}

/// The future of a result: `content`, `isError` and what else the parent gave.
pub type RelayFuture<'a> = Pin<Box<dyn Future<Output = Map<String, Value>> + Send + 'a>>;

/// Passes calls on.
pub trait Relay: Send + Sync {
    /// The tools as MCP lists them.
    fn tools(&self) -> &[ToolDefinition];

    /// One call. Whatever goes wrong is a result with `isError`. B-1.
    fn call(&self, call: RelayCall) -> RelayFuture<'_>;
}
