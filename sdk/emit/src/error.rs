//! What can go wrong, and whether the script may go on.

use std::io;

use callgate_wires::stream::{ARTIFACT_WORDS_BYTES_MAX, BadRequest, StreamFault};

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The descriptors of the process.
    #[error("take over stdin and stdout")]
    Descriptors(#[source] io::Error),
    /// Stdin could not be read.
    #[error("read the run request")]
    Read(#[source] io::Error),
    /// The line is no request.
    #[error("bad run request")]
    Request(#[source] BadRequest),
}

/// Why something was not emitted.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    /// The stream broke, now or before. Nothing can be emitted any more.
    #[error("the stream is broken")]
    Stream(#[source] io::Error),
    /// The run has been said to be over.
    #[error("the run was completed or failed before")]
    AfterTerminal,
    /// It can not be sent as it is; nothing of it was.
    #[error("can not be sent")]
    Unsendable(#[source] StreamFault),
    /// An artifact's name or content type that nobody takes; nothing of it was sent.
    #[error("{field} is at most {ARTIFACT_WORDS_BYTES_MAX} bytes long, not {bytes}")]
    TooLong {
        /// Which of the two.
        field: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// A value that has no JSON; nothing of it was sent.
    #[error("no JSON value")]
    Value(#[source] serde_json::Error),
    /// The bytes of an artifact could not be read. There is no such artifact.
    #[error("read the bytes of artifact `{name}`")]
    Read {
        /// As it would have been called.
        name: String,
        /// The reader's error.
        #[source]
        source: io::Error,
    },
    /// A sidecar file that was not stored.
    #[error("`{filename}` was not stored: {reason}")]
    Refused {
        /// Its name.
        filename: String,
        /// The other side's words.
        reason: String,
    },
    /// A sidecar file of which nobody says whether it was stored.
    #[error("no answer on `{filename}`")]
    NoAnswer {
        /// Its name.
        filename: String,
        /// Why there was none.
        #[source]
        source: io::Error,
    },
}
