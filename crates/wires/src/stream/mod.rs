//! The stream contract (`docs/contracts/stream.md`): what an executor writes to its stdout, and
//! what it reads from its stdin.
//!
//! A [`Decoder`] is fed bytes and hands out [`Piece`]s: events, run results and sidecar files
//! whole, the data of a chunk as it comes, so that nobody ever holds one. It is one pass over
//! the bytes without a tree of values; an event that came whole is borrowed from what was fed.
//! The other direction is [`RunRequest`] (one JSON line) and [`Ack`] frames. [`encode`] writes
//! what an executor sends.
//!
//! Sequence numbers, identities and artifacts are a [`Session`]'s to judge, and what a run comes
//! to is [`outcome`]'s.

mod ack;
mod control;
mod decoder;
pub mod encode;
mod event;
mod fault;
mod frame;
mod json;
mod limits;
mod msgpack;
pub mod outcome;
mod proxy;
mod request;
mod session;
mod time;
mod version;

pub use ack::Ack;
pub use control::{ChunkHead, FileWrite, Piece, RunResult, Status};
pub use decoder::{Decoder, payload_len};
pub use event::Envelope;
pub use fault::StreamFault;
pub use json::{Mask, Masked};
pub use limits::{
    CHUNK_BYTES_MAX, DEPTH_MAX, FILE_BYTES_MAX, FRAME_PAYLOAD_MAX, KEYS_MAX, PREFIX_BYTES,
    REQUEST_BYTES_MAX,
};
pub use proxy::{ProxyEndpoint, ProxyProtocol, ProxyUsed};
pub use request::{BadRequest, RunRequest, Storage};
pub use session::{
    ARTIFACT_BYTES_MAX, ARTIFACT_ID_BYTES_MAX, ARTIFACT_WORDS_BYTES_MAX, ARTIFACTS_MAX,
    ARTIFACTS_OPEN_MAX, ArtifactTally, Breach, CommitRecord, EventHead, EventKind, FileWhen, Rules,
    Session, Whole,
};
pub use time::time_text;
pub use version::{CONTRACT_VERSION, accepts, major};
