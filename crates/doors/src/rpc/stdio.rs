//! JSON-RPC over a pair of pipes: one message, or one batch, a line. What was asked before the end
//! of input is answered for as long as somebody can hear it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Cancel, Fault};
use callgate_wires::jsonrpc;
use callgate_wires::line::{Line, LineSplitter};

use super::conversation::{self, Received, converse};
use super::errors::error_of;
use super::{Peer, Reached, Rpc};
use crate::mcp::stdio::{Ends, LINE_BYTES_MAX};
use crate::pipe::{PipeReader, PipeWriter};

const READ_BYTES: usize = 64 * 1024;

/// Standard input and output. Whoever ends the one and holds the other waits for all answers,
/// however late they read them.
pub struct Stdio {
    /// Requests.
    pub stdin: PipeReader,
    /// Answers.
    pub stdout: PipeWriter,
}

impl Ends for Stdio {
    const GRACE: Duration = Duration::MAX;

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stdin.read(buffer).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout.write_all(bytes).await
    }

    async fn unheard(&mut self) {
        self.stdout.unheard().await;
    }
}

/// Serves one conversation until its end, or until `stop`.
pub async fn serve<E: Ends>(rpc: &Arc<Rpc>, peer: Peer, ends: E, stop: &Cancel) -> io::Result<()> {
    let lines = Lines {
        ends,
        splitter: LineSplitter::new(LINE_BYTES_MAX),
        chunk: vec![0; READ_BYTES],
        ended: false,
    };
    converse(rpc, peer, Reached::Stdio, lines, stop).await
}

struct Lines<E> {
    ends: E,
    splitter: LineSplitter,
    chunk: Vec<u8>,
    ended: bool,
}

impl<E: Ends> conversation::Ends for Lines<E> {
    const GRACE: Duration = E::GRACE;
    // Whoever started us may be stopped for as long as they like.
    const PATIENCE: Option<Duration> = None;

    async fn receive(&mut self) -> io::Result<Received> {
        loop {
            while let Some(line) = self.splitter.next_line() {
                match line {
                    Line::Text(line) if line.trim_ascii().is_empty() => {}
                    Line::Text(line) => return Ok(Received::Message(line.to_vec())),
                    Line::TooLong => return Ok(Received::Reply(too_long())),
                }
            }
            if self.ended {
                return Ok(Received::End);
            }
            match self.ends.read(&mut self.chunk).await? {
                0 => self.ended = true,
                read => self.splitter.feed(&self.chunk[..read]),
            }
            if self.ended
                && let Some(rest) = self.splitter.finish()
                && !rest.trim_ascii().is_empty()
            {
                return Ok(Received::Message(rest.to_vec()));
            }
        }
    }

    async fn unheard(&mut self) {
        self.ends.unheard().await;
    }

    fn put(&self, message: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(message);
        out.push(b'\n');
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.ends.write(bytes).await
    }

    fn put_farewell(&self, _: &mut Vec<u8>) {}
}

fn too_long() -> Vec<u8> {
    let mut line = Vec::new();
    let error = error_of(&Fault::too_large("request", LINE_BYTES_MAX as u64));
    jsonrpc::write_error(None, &error, &mut line);
    line.push(b'\n');
    line
}
