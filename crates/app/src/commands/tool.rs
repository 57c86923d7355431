//! `callgate tool`: one request of the tool protocol on standard input, its reply on standard
//! output. The owner's own command: it may run any function of the workspace, registered or
//! not, through the gate like everything else.

use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::bounded::read_all;
use callgate_call::{Caller, Cancel, Fault, Roots};
use callgate_doors::pipe::write_all;
use callgate_doors::tool::{self, Owner};
use callgate_registry::config::ServiceConfig;
use callgate_registry::entries::Functions;
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_wires::tool_protocol::{LocalRequest, REQUEST_BYTES_MAX, RequestError};
use clap::Args;

use crate::cli::{Done, Place, runtime};
use crate::compose::{self, chain};
use crate::error::CommandError;

/// Run one request of the tool protocol: request on stdin, reply on stdout.
///
/// The request's `tool` is a registered one whose code is the request's `entry`; any other
/// `entry` (module:function) is looked for in the workspace and run as `entry/MODULE/FUNCTION`.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Tool {}

const AFTER_HELP: &str = "\
Try:
  echo '{\"protocol_version\":1,\"tool\":\"greet\",\"entry\":\"tools.sample:greet\",
         \"payload\":{\"name\":\"Ada\"}}' | callgate tool

Python is that of .venv if the workspace has one, else the one that is configured, else python3.
What the function prints does not reach stdout. `capability_context` and `sandbox` in the request
tighten what holds the tool; they loosen nothing.

Exit codes:
  0  the request was answered: ok is true, or false with the error's type and message
  1  nothing was carried out: what came on stdin is no request, or the workspace did not open;
     the reply says why
  2  the command line is wrong";

pub fn run(environment: &Environment, place: &Place, _: &Tool) -> Done {
    let request = match read_request() {
        Ok(request) => request,
        Err(fault) => return Ok(print(&tool::refuse_with(&fault), ExitCode::FAILURE)),
    };
    match carry_out(environment, place, request) {
        Ok(reply) => Ok(print(&reply, ExitCode::SUCCESS)),
        Err(error) => {
            let message = chain(&error);
            let fault = Fault::Internal { message };
            Ok(print(&tool::refuse_with(&fault), ExitCode::FAILURE))
        }
    }
}

/// The whole of standard input. TP-2.
fn read_request() -> Result<LocalRequest, Fault> {
    let most = REQUEST_BYTES_MAX as u64;
    let bytes = read_all(std::io::stdin().lock(), most).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => Fault::too_large("the request", most),
        _ => Fault::Internal {
            message: format!("read standard input: {error}"),
        },
    })?;
    LocalRequest::parse(&bytes).map_err(|error: RequestError| Fault::BadRequest {
        reason: error.to_string(),
    })
}

fn carry_out(
    environment: &Environment,
    place: &Place,
    request: LocalRequest,
) -> Result<Vec<u8>, CommandError> {
    let parts = super::open(environment, place)?;
    let roots = match roots(&parts.paths.workspace, &request) {
        Ok(roots) => roots,
        Err(fault) => return Ok(tool::refuse_with(&fault)),
    };
    let mut setup = super::setup(&parts)?;
    let everything = vec!["*".to_owned()];
    setup.entries = Some(Arc::new(Functions::new(
        &parts,
        everything,
        service(&parts),
        None,
    )));
    let gate = compose::gate(&parts, setup);
    let cancel = Cancel::new();
    let owner = Owner {
        caller: Caller::uid(environment.uid),
        roots,
        workspace: parts.paths.workspace.clone(),
        cancel: cancel.clone(),
    };
    let reply = runtime()?.block_on(async {
        let mut signals = super::StopSignals::watch()?;
        // The call ends, and its end is recorded.
        let stopped = signals.then(|| cancel.cancel());
        // The signal arm is never ready: it cancels the call, and the other arm returns the
        // recorded outcome.
        tokio::select! {
            reply = tool::answer(&gate, owner, request) => Ok::<_, CommandError>(reply),
            never = stopped => match never {},
        }
    })?;
    super::close(&parts);
    Ok(reply)
}

/// Where the request wants the call kept. TP-12.
fn roots(workspace: &Path, request: &LocalRequest) -> Result<Option<Roots>, Fault> {
    let Some(context) = &request.context else {
        return Ok(None);
    };
    let Some(root) = &context.filesystem_root else {
        return Ok(None);
    };
    let resolved = |path: &String| workspace.join(path).canonicalize();
    let root = resolved(root).map_err(|error| Fault::NotFound {
        message: format!("filesystem_root {root}: {error}"),
    })?;
    // What is not there can not be read, so it need not be named.
    let reads = context
        .filesystem_read_roots
        .iter()
        .flat_map(resolved)
        .collect();
    Ok(Some(Roots { root, reads }))
}

/// What the configuration says of functions that are not registered.
fn service(parts: &Parts) -> ServiceConfig {
    let in_force = parts.in_force();
    in_force.map_or_else(
        |_| ServiceConfig::default(),
        |found| found.into_config().service,
    )
}

/// One line; a reader that went away is no success.
fn print(reply: &[u8], code: ExitCode) -> ExitCode {
    let line = [reply, b"\n"].concat();
    match write_all(std::io::stdout().as_fd(), &line) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}
