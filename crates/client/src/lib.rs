//! The client's side of a running gate, for the commands of the same owner: requests over its
//! socket, and conversations between a client and one gate after another, which keep what was
//! asked and not answered.

mod gate;
pub mod mcp_requests;
pub mod relay;
pub mod rpc_requests;

pub use gate::{Client, ClientError, Talk};
