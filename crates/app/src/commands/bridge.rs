//! `callgate bridge SOCKET SCHEMA`: MCP on standard input and output, framed JSON towards the
//! parent at SOCKET. Opens no workspace and no store; its argument rules are the contract's,
//! not clap's.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::{Caller, Cancel, Wire};
use callgate_doors::bridge::Pool;
use callgate_doors::mcp::stdio::{self, Stdio};
use callgate_doors::mcp::{Behind, Peer, Seal, Server, Settings};
use callgate_doors::pipe::PipeReader;

use crate::bridge::read_schema_file;
use crate::cli::{init_log, runtime};
use crate::clock::SystemClock;
use crate::environment::Environment;
use crate::mcp::TASK_AFTER;
use crate::show;

const USAGE: &str = "\
usage: callgate bridge SOCKET SCHEMA
       MCP on stdin and stdout for the tools of the parent process at SOCKET; SCHEMA is the
       file in which the parent lists them. `callgate bridge-config` prints a client's entry.";

/// Exactly two words; any other number is a slip. BR-24.
pub fn main(environment: &Environment, words: &[OsString]) -> ExitCode {
    let [socket, schema] = words else {
        show::say(USAGE);
        return ExitCode::FAILURE;
    };
    init_log(environment);
    match run(environment, Path::new(socket), Path::new(schema)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            show::complain(&words);
            ExitCode::FAILURE
        }
    }
}

fn run(environment: &Environment, socket: &Path, schema: &Path) -> Result<(), String> {
    let tools = read_schema_file(schema, environment.uid)
        .map_err(|error| format!("schema file {}: {error}", schema.display()))?;
    let pool = Pool::new(socket, environment.uid, &tools);
    let settings = Settings {
        name: "callgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: None,
        task_after: TASK_AFTER,
        approve_by_client: Vec::new(),
    };
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| format!("no randomness: {error}"))?;
    let seal = Seal::new(key, Arc::new(SystemClock::new(environment)));
    let server = Arc::new(Server::new(Behind::Relay(Arc::new(pool)), settings, seal));
    let peer = Peer {
        caller: Caller::uid(environment.uid),
        wire: Wire::Mcp,
        scope: None,
    };
    runtime()?.block_on(serve(&server, peer))
}

async fn serve(server: &Arc<Server>, peer: Peer) -> Result<(), String> {
    let told_to_stop = super::told_to_stop()?;
    let stdin = PipeReader::new(io::stdin().as_fd())
        .map_err(|error| format!("read standard input: {error}"))?;
    let stdout = io::stdout();
    let ends = Stdio {
        stdin,
        stdout: stdout.as_fd(),
    };
    let stop = Cancel::new();
    let ended = tokio::select! {
        ended = stdio::serve(server, peer, ends, &stop) => ended,
        // Calls that are dropped close their connections, which the parent sees.
        () = told_to_stop => Ok(()),
    };
    match ended {
        // A client that went away is how this ends.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("serve MCP: {error}"))
        }
        _ => Ok(()),
    }
}
