//! The MCP servers of a configuration: `[[server]]` and its entry in `callgate.lock` become tools.

pub mod edit;
mod needs;
pub mod variables;
