//! `callgate rpc`: the workspace contract, JSON-RPC on standard input and output.

use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::{Caller, Wire};
use callgate_doors::http::Closing;
use callgate_doors::mcp::stdio::Stdio;
use callgate_doors::pipe::{PipeReader, PipeWriter};
use callgate_doors::rpc::{self, Peer, Rpc as Methods};
use clap::Args;
use tokio_util::task::TaskTracker;

use super::StopSignals;
use crate::cli::{Done, Place, runtime};
use crate::compose::{Parts, chain};
use crate::environment::Environment;
use crate::watch::Watched;

/// Serve JSON-RPC on standard input and output: files and every other tool, a message a line.
#[derive(Args)]
pub struct Rpc {}

pub fn run(environment: &Environment, place: &Place, _: &Rpc) -> Done {
    let parts = super::open(environment, place)?;
    let served = runtime()?.block_on(serve(environment, &parts));
    super::close(&parts)?;
    served?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(environment: &Environment, parts: &Parts<'_>) -> Result<(), String> {
    let mut signals = StopSignals::watch()?;
    let watched = Watched::now(parts).map_err(|error| chain(&error))?;
    let setup = parts.setup().map_err(|error| chain(&error))?;
    let gate = Arc::new(parts.gate(setup));
    let plans = super::follow_plans(parts);
    let (calls, closing) = (TaskTracker::new(), Closing::default());
    let methods = Methods::new(Arc::clone(&gate), calls.clone(), closing.clone());
    let Closing { stop, end } = closing;
    let stdin = PipeReader::new(io::stdin().as_fd())
        .map_err(|error| format!("read standard input: {error}"))?;
    let stdout = PipeWriter::new(io::stdout().as_fd())
        .map_err(|error| format!("write standard output: {error}"))?;
    let peer = Peer {
        caller: Caller::uid(environment.uid),
        scope: None,
        wire: Wire::Rpc,
        hearer: None,
    };
    let told = async {
        signals.next().await;
        stop.cancel();
        end.cancel();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = rpc::stdio::serve(&methods, peer, Stdio { stdin, stdout }, &stop) => ended,
        () = told => unreachable!("waits for the conversation to end"),
        () = watched.follow(parts, &gate, &|_| {}) => unreachable!("never ends"),
        () = super::tend(&parts.store) => unreachable!("never ends"),
        () = plans => unreachable!("never ends"),
    };
    // What nobody waits for ends, and its end is recorded.
    end.cancel();
    calls.close();
    calls.wait().await;
    match ended {
        // A client that went away is how this ends.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("serve JSON-RPC: {error}"))
        }
        _ => Ok(()),
    }
}
