//! The MCP server of a workspace: its settings, and the key by which it recognises what its
//! clients keep for it.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Caller, Cancel, Wire};
use callgate_doors::mcp::stdio::{self, Ends, GRACE, Stdio};
use callgate_doors::mcp::{Behind, Peer, Seal, Server, Settings};
use callgate_doors::pipe::{PipeReader, PipeWriter};
use callgate_gate::Gate;
use callgate_registry::setup::Parts;

use crate::commands::StopSignals;
use crate::commands::relayed::say_given_up;
use crate::error::CommandError;

/// A call that takes longer becomes a task, where its client knows tasks.
pub const TASK_AFTER: Duration = Duration::from_secs(3);

/// The server in front of `gate`.
pub fn server(parts: &Parts, gate: Arc<Gate>, task_after: Duration) -> Arc<Server> {
    // Where the state can not be written, what clients keep is good for this process only.
    let key = parts.store.secret("mcp").unwrap_or_else(|_| {
        let mut key = [0; 32];
        // Without randomness nothing sealed is accepted by anybody else either.
        let _ = getrandom::fill(&mut key);
        key
    });
    let settings = Settings {
        name: "callgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: None,
        task_after,
    };
    let seal = Seal::new(key, Arc::clone(&parts.clock));
    Arc::new(Server::new(Behind::Gate(gate), settings, seal))
}

/// Serves the owner of standard input and output until it hangs up or we are told to stop: all tools,
/// or only those that fit a pattern.
pub async fn serve_stdio(
    server: &Arc<Server>,
    uid: u32,
    only: &[String],
    stop: &Cancel,
) -> Result<(), CommandError> {
    let stdin = PipeReader::new(io::stdin().as_fd())
        .map_err(CommandError::system("read standard input"))?;
    let stdout = PipeWriter::new(io::stdout().as_fd())
        .map_err(CommandError::system("write standard output"))?;
    let left = serve_ends(server, uid, only, Stdio { stdin, stdout }, stop).await?;
    say_given_up(left, GRACE);
    Ok(())
}

/// The same over other ends. How many requests were given up at the end of what is asked.
pub async fn serve_ends(
    server: &Arc<Server>,
    uid: u32,
    only: &[String],
    ends: impl Ends,
    stop: &Cancel,
) -> Result<usize, CommandError> {
    let mut signals = StopSignals::watch()?;
    let peer = Peer::new(Caller::uid(uid), Wire::Mcp, None, only);
    // Running calls end, and their ends are recorded.
    let stopped = signals.then(|| {
        stop.cancel();
        server.cancel_all();
    });
    // The signal arm is never ready: it cancels the calls, and the conversation ends by itself, so
    // no answer is cut off.
    let ended = tokio::select! {
        ended = stdio::serve(server, peer, ends, stop) => ended,
        never = stopped => match never {},
    };
    server.cancel_all();
    server.stop().await;
    match ended {
        // A client that went away is how this ends.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::system("serve MCP")(error))
        }
        Err(_) => Ok(0),
        Ok(left) => Ok(left),
    }
}
