//! The client's half of a legacy conversation over standard input and output: lines of a server
//! out of its bytes, what each line is, and the messages that a client writes. No I/O, no clock.
//!
//! A client's ids are numbers of its own. The reader is strict where a line decides the fate of a
//! call (ids, duplicate members, JSON of results) and lenient elsewhere: unknown members, a missing
//! `jsonrpc`, byte order marks and lines that are no messages are tolerated.

mod lines;
mod message;
mod write;

pub use lines::{LINE_BYTES_MAX, ServerLine, ServerLines};
pub use message::{
    AnswerBody, AnswerError, LineSubject, ResultForm, ServerError, ServerMessage, read_line,
    subject_of,
};
pub use write::{
    write_call, write_cancelled, write_initialize, write_initialized, write_list, write_method,
    write_method_not_found, write_pong,
};
