//! The contracts as types and byte machines. No I/O, no async, no clock: decoders are fed
//! bytes and hand out messages, encoders append bytes to a buffer.
//!
//! What a message means is the door's business, not ours.

pub mod bridge;
pub mod json;
pub mod jsonrpc;
pub mod line;
pub mod mcp;
pub mod sse;
pub mod stream;
pub mod tool_protocol;
pub mod toolhost;
