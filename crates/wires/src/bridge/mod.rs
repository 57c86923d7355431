//! The bridge: framed JSON between a parent, which has the tools, and a bridge, which speaks
//! MCP to a client. Contract `docs/contracts/bridge.md`, decisions B.
//!
//! Both ends are here, because we are both; what a call does is the door's business.

mod answer;
mod frame;
pub mod limits;
mod request;
mod schema;

pub use answer::{Answer, IPC_ERROR, SIZE_ERROR, Said, VALUE_ERROR, write_error, write_result};
pub use frame::{FrameDecoder, FrameError, close_frame, open_frame};
pub use request::{CallTool, write_call};
pub use schema::{SchemaFileError, ToolSchema, read_schemas, write_schemas};
