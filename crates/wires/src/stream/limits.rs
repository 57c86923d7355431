//! The numbers of the stream contract, and ours where it has none.

/// Bytes of a frame's length, big-endian. ST-1.
pub const PREFIX_BYTES: usize = 4;

/// Largest payload of a frame: 16 MiB less its prefix. ST-3, S-1.
pub const FRAME_PAYLOAD_MAX: usize = 16 * 1024 * 1024 - PREFIX_BYTES;

/// Most bytes of one chunk. ST-64.
pub const CHUNK_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Most bytes of a sidecar file. ST-74.
pub const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How deep the maps and lists of a frame are nested, the frame's own map counted. What is stored
/// of it can then be read, and put into an answer, by all that reads JSON 128 deep. G-1.
pub const DEPTH_MAX: usize = 120;

/// Keys of the maps that are open at one place of a frame, which are remembered to find one
/// that comes twice.
pub const KEYS_MAX: usize = 1 << 20;

/// The longest run request.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// As much of a frame is looked at for the head of a chunk. One whose head is longer is held
/// until it is there.
pub(super) const HEAD_BYTES_MAX: usize = 4096;

/// A buffer that once held a large frame is let go of above this.
pub(super) const KEPT_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(DEPTH_MAX < crate::json::DEPTH_MAX);
const _: () = assert!(CHUNK_BYTES_MAX + HEAD_BYTES_MAX < FRAME_PAYLOAD_MAX);
const _: () = assert!(FRAME_PAYLOAD_MAX < u32::MAX as usize);
