//! The tool protocol: the files by which tools are bound and packed. What a binding becomes,
//! and whether a pack counts, is not decided here.

mod bindings;
mod capabilities;
mod lines;
mod pack;

pub use bindings::{
    Binding, Claim, Kind, Purity, RunnerWord, is_entry, read_bindings, slug, write_bindings,
};
pub use capabilities::{
    Capabilities, Env, Filesystem, Network, Risk, Subprocess, read_capabilities, write_capabilities,
};
pub use lines::{FILE_BYTES_MAX, LineError, TOOLS_MAX};
pub use pack::{PackManifest, is_pack_id, read_pack, write_pack};
