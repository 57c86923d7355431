//! The numbers of the bridge contract.

/// Largest payload of a frame; exactly this many bytes are allowed. BR-6, B-6.
pub const MESSAGE_BYTES_MAX: usize = 10_485_760;

/// Bytes of a frame's length, big-endian. BR-2.
pub const PREFIX_BYTES: usize = 4;

/// Largest schema file. The contract has no number; this is what one line of MCP carries.
pub const SCHEMA_FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

const _: () = assert!(MESSAGE_BYTES_MAX < u32::MAX as usize);
