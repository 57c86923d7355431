//! The tool protocol's messages: one request on a process's stdin and its reply on stdout, the
//! same over HTTP to a tool service, and the handshake with one; and the files by which tools
//! are bound and packed. Contract `docs/contracts/tool-protocol.md`, decisions P.
//!
//! A field that nobody knows is ignored, as the contract's own host does; one that is known and
//! has the wrong type is refused. Ours begin with `callgate/`. What a binding becomes, and
//! whether a pack counts, is not decided here.

mod bindings;
mod capabilities;
mod context;
mod fields;
mod handshake;
mod limits;
mod lines;
mod pack;
mod reply;
mod request;

pub use bindings::{
    Binding, Claim, Kind, Purity, RunnerWord, is_entry, read_bindings, slug, write_bindings,
};
pub use capabilities::{
    Capabilities, Env, Filesystem, Network, Risk, Subprocess, read_capabilities, write_capabilities,
};
pub use context::{CapabilityContext, FLAGS, GuaranteeSet, SECRETS_ALLOWED};
pub use fields::{Ours, RequestError};
pub use handshake::{HandshakeReply, HandshakeRequest};
pub use limits::{
    HANDSHAKE_PATH, PROTOCOL_VERSION, READ_ROOTS_MAX, REQUEST_BYTES_MAX, SECRETS_MAX, SERVICE_PATH,
    TIMEOUT_MS_MAX, TRACE_ID_BYTES_MAX,
};
pub use lines::{FILE_BYTES_MAX, LineError, TOOLS_MAX};
pub use pack::{PackManifest, is_pack_id, read_pack, write_pack};
pub use reply::{Check, Reply, ReplyError, Said, Told, write_local, write_service};
pub use request::{LocalRequest, Project, ServiceRequest};
