//! JSON-RPC over a pair of pipes: one message, or one batch, a line. Requests run at the same
//! time and are answered as they end; the end of input ends what still runs after a while.

use std::io;
use std::sync::Arc;

use callgate_call::Cancel;
use callgate_wires::jsonrpc::{self, INVALID_REQUEST, RpcError, parse_batch};
use callgate_wires::line::{Line, LineSplitter};
use tokio::task::JoinSet;

use super::{BATCH_MAX, Peer, Reached, Rpc};
use crate::mcp::stdio::{Ends, LINE_BYTES_MAX};

/// Lines at work at the same time; the next one waits.
const IN_FLIGHT_MAX: usize = 256;
const READ_BYTES: usize = 64 * 1024;

/// Serves one conversation until its end, or until `stop`.
pub async fn serve<E: Ends>(
    rpc: &Arc<Rpc>,
    peer: Peer,
    mut ends: E,
    stop: &Cancel,
) -> io::Result<()> {
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut chunk = vec![0; READ_BYTES];
    let mut work: JoinSet<Option<Vec<u8>>> = JoinSet::new();
    let take = |line: &[u8], work: &mut JoinSet<Option<Vec<u8>>>| {
        let (rpc, peer, came) = (Arc::clone(rpc), peer.clone(), parse_batch(line, BATCH_MAX));
        work.spawn(async move { rpc.answer(&peer, &Reached::Stdio, came).await });
    };
    loop {
        while work.len() < IN_FLIGHT_MAX
            && let Some(line) = splitter.next_line()
        {
            match line {
                Line::Text(line) if line.trim_ascii().is_empty() => {}
                Line::Text(line) => take(line, &mut work),
                Line::TooLong => ends.write(&too_long()).await?,
            }
        }
        tokio::select! {
            read = ends.read(&mut chunk), if work.len() < IN_FLIGHT_MAX => match read? {
                0 => break,
                read => splitter.feed(&chunk[..read]),
            },
            Some(done) = work.join_next() => say(&mut ends, done.ok().flatten()).await?,
            () = stop.cancelled() => {
                // Half a line is nothing that was asked for.
                splitter = LineSplitter::new(LINE_BYTES_MAX);
                break;
            }
        }
    }
    if let Some(rest) = splitter
        .finish()
        .filter(|rest| !rest.trim_ascii().is_empty())
    {
        let rest = rest.to_vec();
        take(&rest, &mut work);
    }
    let last = async {
        while let Some(done) = work.join_next().await {
            say(&mut ends, done.ok().flatten()).await?;
        }
        io::Result::Ok(())
    };
    // Whoever still runs after that has nobody to tell; dropping it ends it.
    tokio::time::timeout(E::GRACE, last).await.unwrap_or(Ok(()))
}

async fn say(ends: &mut impl Ends, answer: Option<Vec<u8>>) -> io::Result<()> {
    match answer {
        Some(mut answer) => {
            answer.push(b'\n');
            ends.write(&answer).await
        }
        None => Ok(()),
    }
}

fn too_long() -> Vec<u8> {
    let mut line = Vec::new();
    let error = RpcError::new(INVALID_REQUEST, "the message is longer than 16 MiB");
    jsonrpc::write_error(None, &error, &mut line);
    line.push(b'\n');
    line
}
