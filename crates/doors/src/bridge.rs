//! The bridge's two ends: `parent` serves the gate's tools to bridges, `relay` passes an MCP
//! client's calls on to a parent. Contract `docs/contracts/bridge.md`, decisions B.

pub mod parent;
mod relay;
mod stream;

pub use relay::Pool;
