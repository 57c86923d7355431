//! `callgate mcp`: MCP on standard input and output. Attaches to the workspace's running
//! `serve`, so that all its clients share one gate; stands alone where there is none, or no
//! longer. Prints what a host's settings need to start it.

mod hosts;
mod relay;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_doors::mcp::Server;
use callgate_doors::mcp::http::PIPE_PROTOCOL;
use callgate_doors::mcp::stdio::Socket;
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::serve::http::PORT_DEFAULT;
use crate::cli::{Done, Place, runtime};
use crate::client::Client;
use crate::compose::chain;
use crate::environment::Environment;
use crate::mcp;
use crate::show;
use crate::watch::Watched;
use hosts::{Host, Way};
use relay::{Ended, Relay};

/// Bytes between the relay and a server in the same process.
const RELAYED_BYTES: usize = 64 * 1024;

/// Serve MCP on standard input and output.
#[derive(Args)]
pub struct Mcp {
    /// Do not attach to a running `callgate serve`
    #[arg(long)]
    standalone: bool,
    /// Print the settings of a host that is to reach this workspace, and where they go
    #[arg(long, value_name = "HOST", conflicts_with = "standalone")]
    print_config: Option<Host>,
    /// With --print-config: by the HTTP of a running `callgate serve`
    #[arg(long, requires = "print_config")]
    http: bool,
    /// With --http: its port
    #[arg(long, requires = "http", default_value_t = PORT_DEFAULT)]
    port: u16,
}

pub fn run(environment: &Environment, place: &Place, args: &Mcp) -> Done {
    if let Some(host) = args.print_config {
        return print_config(environment, place, args, host);
    }
    let runtime = runtime()?;
    let mut relay = None;
    if !args.standalone {
        let paths = place.paths(environment).map_err(|error| chain(&error))?;
        let attached = runtime.block_on(attached(&paths.socket));
        match attached.map_err(|error| format!("serve MCP: {error}"))? {
            Attached::Never => {}
            Attached::Over => return Ok(ExitCode::SUCCESS),
            Attached::Lost(left) => relay = Some(left),
        }
    }
    let parts = super::open(environment, place)?;
    let served = runtime.block_on(async {
        let watched = Watched::now(&parts).map_err(|error| chain(&error))?;
        let setup = parts.setup().map_err(|error| chain(&error))?;
        let gate = Arc::new(parts.gate(setup));
        let server = mcp::server(&parts, Arc::clone(&gate), mcp::TASK_AFTER);
        tokio::select! {
            ended = alone(&server, environment.uid, relay) => ended,
            () = watched.follow(&parts, &gate, &|_| {}) => unreachable!("never ends"),
            () = super::tend(&parts.store) => unreachable!("never ends"),
        }
    });
    super::close(&parts)?;
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Serves without a running gate: our pipes, or what a gate that is gone has left.
async fn alone(server: &Arc<Server>, uid: u32, relay: Option<Box<Relay>>) -> Result<(), String> {
    let Some(mut relay) = relay else {
        return mcp::serve_stdio(server, uid).await;
    };
    let (near, far) = tokio::io::duplex(RELAYED_BYTES);
    let (served, _) = tokio::join!(mcp::serve_ends(server, uid, Socket(far)), relay.carry(near));
    served
}

/// How being attached went.
enum Attached {
    /// No gate answered.
    Never,
    /// Its client hung up.
    Over,
    /// No gate answers any more, and the client is still there.
    Lost(Box<Relay>),
}

/// Serves by the gate at `socket`, and when that is gone by the next one there.
async fn attached(socket: &Path) -> io::Result<Attached> {
    let Some(mut gate) = attach(socket).await else {
        return Ok(Attached::Never);
    };
    let mut relay = Relay::new()?;
    loop {
        if relay.carry(gate).await == Ended::Client {
            return Ok(Attached::Over);
        }
        relay.tell_lost().await?;
        if !relay.wait().await {
            return Ok(Attached::Over);
        }
        gate = match attach(socket).await {
            Some(gate) => gate,
            None => {
                show::say("the gate is gone: serving alone");
                return Ok(Attached::Lost(Box::new(relay)));
            }
        };
    }
}

/// The settings on stdout, the words on stderr: what is printed can be piped into a file.
fn print_config(environment: &Environment, place: &Place, args: &Mcp, host: Host) -> Done {
    let way = if args.http {
        Way::Http {
            url: format!("http://127.0.0.1:{}/mcp", args.port),
        }
    } else {
        stdio(environment, place)?
    };
    let settings = host
        .settings(&way)
        .ok_or_else(|| "its settings take programs only: leave out --http".to_owned())?;
    show::say(&format!("for {}:", host.place()));
    show::data(&format!("{settings:#}\n"));
    if args.http {
        show::say(hosts::TOKEN_WORDS);
    }
    Ok(ExitCode::SUCCESS)
}

/// This program, with everything said that a host does not hand on.
fn stdio(environment: &Environment, place: &Place) -> Result<Way, String> {
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("{} is not UTF-8, and JSON is", path.display())),
    };
    let paths = place.paths(environment).map_err(|error| chain(&error))?;
    let program = std::fs::read_link(&environment.program)
        .map_err(|error| format!("find this program: {error}"))?;
    let mut args = vec!["mcp".to_owned(), "--workspace".to_owned()];
    args.push(text(&paths.workspace)?);
    if place.state.is_some() || environment.os("CALLGATE_STATE").is_some() {
        args.extend(["--state".to_owned(), text(&paths.state)?]);
    }
    if place.socket.is_some() {
        args.extend(["--socket".to_owned(), text(&paths.socket)?]);
    }
    Ok(Way::Stdio {
        program: text(&program)?,
        args,
    })
}

/// A conversation with the gate at `socket`; `None` if none answers there.
async fn attach(socket: &Path) -> Option<UnixStream> {
    let client = Client::connect(socket).await?;
    upgraded(client.into_stream()).await.ok()
}

/// Asks a connection to become a conversation in lines.
async fn upgraded(mut stream: UnixStream) -> io::Result<UnixStream> {
    let request = format!(
        "GET /mcp/pipe HTTP/1.1\r\nHost: gate\r\nConnection: Upgrade\r\nUpgrade: {PIPE_PROTOCOL}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // Byte by byte, so that nothing of the conversation is taken with the head.
    while !head.ends_with(b"\r\n\r\n") {
        const HEAD_BYTES_MAX: usize = 4096;
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(stream.read_u8().await?);
    }
    if head.starts_with(b"HTTP/1.1 101") {
        Ok(stream)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}
