//! `callgate rpc`: the workspace contract, JSON-RPC on standard input and output. Attaches to the
//! workspace's running `serve`, so that what its calls leave behind (a terminal's session) stays;
//! stands alone where there is none, or no longer.

use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::{Caller, Cancel, Wire};
use callgate_client::relay::{Attached, Pipe, RELAYED_BYTES, Relay};
use callgate_client::rpc_requests::RpcRequests;
use callgate_doors::http::Closing;
use callgate_doors::mcp::stdio::Socket;
use callgate_doors::pipe::{PipeReader, PipeWriter};
use callgate_doors::rpc::http::PIPE_PROTOCOL;
use callgate_doors::rpc::stdio::Stdio;
use callgate_doors::rpc::{self, Peer, Rpc as Methods};
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use clap::Args;
use tokio_util::task::TaskTracker;

use super::StopSignals;
use super::relayed;
use crate::cli::{Done, Place, runtime};
use crate::compose;
use crate::error::CommandError;
use crate::watch::Watched;

/// Where a running gate has this conversation.
const PIPE: Pipe = Pipe {
    headers: Vec::new(),
    notify: relayed::say,
    path: "/rpc/pipe",
    protocol: PIPE_PROTOCOL,
};

/// Serve JSON-RPC on standard input and output: files and every other tool, a message a line.
#[derive(Args)]
pub struct Rpc {
    /// Do not attach to a running `callgate serve`
    #[arg(long)]
    standalone: bool,
}

pub fn run(environment: &Environment, place: &Place, args: &Rpc) -> Done {
    let runtime = runtime()?;
    let mut relay = None;
    if !args.standalone {
        let attached = runtime.block_on(relayed::converse(environment, place, &PIPE));
        match attached? {
            Attached::Never => {}
            Attached::Over => return Ok(ExitCode::SUCCESS),
            Attached::Lost(left) => relay = Some(left),
        }
    }
    let parts = Arc::new(super::open(environment, place)?);
    let served = runtime.block_on(serve(environment, &parts, relay));
    super::close(&parts);
    served?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    environment: &Environment,
    parts: &Arc<Parts>,
    relay: Option<Box<Relay<RpcRequests>>>,
) -> Result<(), CommandError> {
    let mut signals = StopSignals::watch()?;
    let watched = Watched::now(parts)?;
    let setup = super::setup(parts)?;
    let gate = Arc::new(compose::gate(parts, setup));
    let mut services = super::services_of(parts, &gate, watched, |_| {});
    services.start("plans", super::follow_plans(parts));
    let (calls, closing) = (TaskTracker::new(), Closing::default());
    let methods = Methods::new(Arc::clone(&gate), calls.clone(), closing.clone());
    let Closing { stop, end } = closing;
    let peer = Peer {
        caller: Caller::uid(environment.uid),
        scope: None,
        wire: Wire::Rpc,
        lease_group: Wire::Rpc.lease_group(),
        hearer: None,
    };
    let stop_all = || {
        stop.cancel();
        end.cancel();
    };
    let conversation = async {
        // The signal arm is never ready: it ends the calls, and the conversation ends by itself, so
        // no answer is cut off.
        tokio::select! {
            talked = talk(&methods, peer, relay, &stop) => talked,
            never = signals.then(stop_all) => match never {},
        }
    };
    let (talked, ended) = services.while_running(conversation, |_| stop_all()).await;
    // What nobody waits for ends, and its end is recorded.
    end.cancel();
    calls.close();
    calls.wait().await;
    services.stop().await;
    if let Some(ended) = ended {
        return Err(ended.into());
    }
    match talked {
        // A client that went away is how this ends.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::system("serve JSON-RPC")(error))
        }
        _ => Ok(()),
    }
}

/// The conversation itself: on our pipes, or on what a gate that is gone has left.
async fn talk(
    methods: &Arc<Methods>,
    peer: Peer,
    relay: Option<Box<Relay<RpcRequests>>>,
    stop: &Cancel,
) -> io::Result<()> {
    let Some(mut relay) = relay else {
        let stdin = PipeReader::new(io::stdin().as_fd())?;
        let stdout = PipeWriter::new(io::stdout().as_fd())?;
        return rpc::stdio::serve(methods, peer, Stdio { stdin, stdout }, stop).await;
    };
    let (near, far) = tokio::io::duplex(RELAYED_BYTES);
    let served = rpc::stdio::serve(methods, peer, Socket(far), stop);
    let carried = async { tokio::join!(served, relay.carry(near)).0 };
    // The relay has all patience with a client that asks nothing more; who stops us has not.
    let given_up = async {
        stop.cancelled().await;
        tokio::time::sleep(rpc::LAST_WORDS).await;
    };
    // What `given_up` drops are answers that the client has not read for as long as `LAST_WORDS`;
    // the outcomes are in the journal.
    tokio::select! {
        ended = carried => ended,
        () = given_up => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
