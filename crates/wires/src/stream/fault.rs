//! Why a stream is none. Each is the end of it: nothing after it is read. ST-6, ST-7.

use super::limits::{CHUNK_BYTES_MAX, DEPTH_MAX, FILE_BYTES_MAX, FRAME_PAYLOAD_MAX, KEYS_MAX};

/// Why bytes are no frames of this contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame: {got} of {wanted} bytes")]
    Cut {
        /// Bytes of it that came, the prefix included.
        got: usize,
        /// Bytes it has, as far as that is known.
        wanted: usize,
    },
    /// The length of a frame reads as text.
    #[error("text where a frame was due: {text:?}; stdout carries frames only")]
    Text {
        /// The bytes of the length.
        text: String,
    },
    /// A length of zero.
    #[error("a frame of no bytes")]
    Empty,
    /// The prefix promises more than is allowed.
    #[error("frame of {len} bytes exceeds {FRAME_PAYLOAD_MAX} bytes")]
    TooLarge {
        /// What the prefix says.
        len: u32,
    },
    /// Some other msgpack value.
    #[error("a frame that is no map")]
    NotAMap,
    /// More than one value in a frame.
    #[error("{bytes} bytes after the map of a frame")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A key twice in one map, be it the frame's or one inside it.
    #[error("key {key:?} twice in one map")]
    DuplicateKey {
        /// Its first characters.
        key: String,
    },
    /// A value that is not whole though its frame is.
    #[error("a value that reaches beyond its frame")]
    Short,
    /// The one byte that begins no value.
    #[error("byte 0xc1, which is no msgpack")]
    Reserved,
    /// Maps and lists inside each other.
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// A key that has no text.
    #[error("a list or a map as the key of a map")]
    OddKey,
    /// Too many to look for one that comes twice.
    #[error("more than {KEYS_MAX} keys")]
    TooManyKeys,
    /// A field that must be there.
    #[error("{frame} without `{field}`")]
    Missing {
        /// What it should be in.
        frame: &'static str,
        /// Its key.
        field: &'static str,
    },
    /// A field that is something else.
    #[error("`{field}` of {frame} is not {wanted}")]
    WrongType {
        /// What it is in.
        frame: &'static str,
        /// Its key.
        field: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A status that is none.
    #[error("status {status:?} is none of completed, error and crash")]
    Status {
        /// Its first characters.
        status: String,
    },
    /// Too much data in a chunk.
    #[error("chunk of {bytes} bytes exceeds {CHUNK_BYTES_MAX} bytes")]
    ChunkTooLarge {
        /// How much.
        bytes: usize,
    },
    /// Too much data in a sidecar file.
    #[error("file of {bytes} bytes exceeds {FILE_BYTES_MAX} bytes")]
    FileTooLarge {
        /// How much.
        bytes: usize,
    },
    /// A name that is empty or could lead elsewhere. ST-72.
    #[error("file name {name:?} is empty or has `/`, `\\` or `..` in it")]
    FileName {
        /// Its first characters.
        name: String,
    },
    /// What only the runtime sends. ST-75.
    #[error("`file_write_ack` from an executor")]
    AckFromExecutor,
}

/// The first characters of something that is told and could be long.
pub(super) fn start_of(bytes: &[u8]) -> String {
    const CHARACTERS: usize = 64;
    let enough = &bytes[..bytes.len().min(4 * CHARACTERS)];
    String::from_utf8_lossy(enough)
        .chars()
        .take(CHARACTERS)
        .collect()
}
