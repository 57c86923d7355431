//! What a stream is made of beside events: chunks, run results and sidecar files.

use super::event::Envelope;
use super::proxy::ProxyUsed;

/// What a [`Decoder`](super::Decoder) hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A whole event.
    Event(Envelope<'a>),
    /// A chunk begins. Its bytes follow, and then `ChunkEnd`.
    Chunk(ChunkHead<'a>),
    /// Some bytes of the chunk that began, in order; never none.
    Bytes(&'a [u8]),
    /// The chunk is whole, and so was its frame.
    ChunkEnd,
    /// How the executor says the run went.
    RunResult(RunResult<'a>),
    /// A sidecar file, whole.
    FileWrite(FileWrite<'a>),
}

/// What a chunk says of itself. ST-60 to ST-63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead<'a> {
    /// The artifact it is of.
    pub artifact_id: &'a str,
    /// Its place in the artifact, as it says.
    pub seq: u64,
    /// No chunk of this artifact comes after it.
    pub is_last: bool,
    /// Bytes that follow.
    pub bytes: usize,
}

/// How the executor says the run went. ST-45 to ST-49, ST-25.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunResult<'a> {
    /// In one word.
    pub status: Status,
    /// In a sentence.
    pub message: Option<&'a str>,
    /// Such as `TypeError`.
    pub error_type: Option<&'a str>,
    /// Where it happened.
    pub stack: Option<&'a str>,
    /// What was used of the proxy that was offered.
    pub proxy_used: Option<ProxyUsed<'a>>,
}

/// The executor's own word for how it went. ST-46.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words are the contract's")]
pub enum Status {
    Completed,
    Error,
    Crash,
}

impl Status {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Crash => "crash",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Completed, Self::Error, Self::Crash]
            .into_iter()
            .find(|status| status.as_str() == word)
    }
}

/// A sidecar file. ST-71 to ST-74.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite<'a> {
    /// Comes back in the acknowledgement; 0 asks for none.
    pub write_id: u32,
    /// A name without folders.
    pub filename: &'a str,
    /// What kind of bytes.
    pub content_type: &'a str,
    /// All of it.
    pub data: &'a [u8],
}
