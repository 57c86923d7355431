//! What a child says beside its output: passed to the sink, and its end kept.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use callgate_call::{Sink, Stream};

use crate::flood::Flood;
use crate::tail::Tail;

/// One of a child's own streams.
#[derive(Debug)]
pub(crate) struct Chatter {
    stream: Stream,
    flood: Flood,
}

impl Chatter {
    /// The reading end, and the writing end for the child.
    pub fn new(stream: Stream) -> io::Result<(Self, OwnedFd)> {
        let (flood, far) = Flood::new()?;
        Ok((Self { stream, flood }, far))
    }

    /// A stream that says nothing: what the child writes there goes another way.
    pub fn silent(stream: Stream) -> Self {
        let flood = Flood::default();
        Self { stream, flood }
    }

    /// A new call begins.
    pub fn begin(&mut self) {
        self.flood.begin();
    }

    /// Reads and passes on for as long as it is polled. Cancel safe.
    pub async fn pump(&mut self, tail: &mut Tail, sink: &dyn Sink) {
        let stream = self.stream;
        let pass = |bytes: &[u8]| pass(stream, bytes, tail, sink);
        self.flood.pump(pass).await;
    }

    /// Passes on what is there, without waiting.
    pub fn pass_rest(&mut self, tail: &mut Tail, sink: &dyn Sink) {
        let stream = self.stream;
        self.flood
            .pass_rest(|bytes| pass(stream, bytes, tail, sink));
    }

    /// The descriptor, while it is open.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.flood.fd()
    }
}

fn pass(stream: Stream, bytes: &[u8], tail: &mut Tail, sink: &dyn Sink) {
    tail.push(bytes);
    sink.chunk(stream, bytes);
}
