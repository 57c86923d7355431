//! `callgate bridge SOCKET SCHEMA`: MCP on standard input and output, framed JSON towards the
//! parent at SOCKET. Opens no workspace and no store; its argument rules are the contract's,
//! not clap's.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::Cancel;
use callgate_doors::bridge::Pool;
use callgate_doors::mcp::{Behind, Seal, Server, Settings};
use callgate_registry::environment::Environment;

use crate::bridge::read_schema_file;
use crate::cli::{init_log, runtime};
use crate::clock::SystemClock;
use crate::compose::chain;
use crate::error::CommandError;
use crate::mcp::{TASK_AFTER, serve_stdio};
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
        Err(error) => {
            show::complain(&chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(environment: &Environment, socket: &Path, schema: &Path) -> Result<(), CommandError> {
    let tools =
        read_schema_file(schema, environment.uid).map_err(|source| CommandError::Schemas {
            path: schema.to_owned(),
            source,
        })?;
    let pool = Pool::new(socket, environment.uid, &tools);
    let settings = Settings {
        name: "callgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: None,
        task_after: TASK_AFTER,
    };
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(CommandError::Random)?;
    let seal = Seal::new(key, Arc::new(SystemClock::new(environment)));
    let server = Arc::new(Server::new(Behind::Relay(Arc::new(pool)), settings, seal));
    runtime()?.block_on(serve_stdio(&server, environment.uid, &[], &Cancel::new()))
}
