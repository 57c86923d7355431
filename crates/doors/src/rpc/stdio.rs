//! JSON-RPC over a pair of pipes: one message, or one batch, a line. The end of input ends what
//! still runs after a while.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::Cancel;
use callgate_wires::jsonrpc::{self, INVALID_REQUEST, RpcError};
use callgate_wires::line::{Line, LineSplitter};

use super::conversation::{self, Received, converse};
use super::{Peer, Reached, Rpc};
use crate::mcp::stdio::{Ends, LINE_BYTES_MAX};

const READ_BYTES: usize = 64 * 1024;

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
    let error = RpcError::new(INVALID_REQUEST, "the message is longer than 16 MiB");
    jsonrpc::write_error(None, &error, &mut line);
    line.push(b'\n');
    line
}
