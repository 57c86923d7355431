//! `callgate mcp`: MCP on standard input and output. Attaches to the workspace's running
//! `serve`, so that all its clients share one gate; stands alone where there is none. Prints
//! what a host's settings need to start it.

mod hosts;

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use callgate_doors::mcp::http::PIPE_PROTOCOL;
use callgate_doors::pipe::{PipeReader, PipeWriter};
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
    if !args.standalone {
        let paths = place.paths(environment).map_err(|error| chain(&error))?;
        let attached = runtime()?.block_on(attach(&paths.socket));
        if let Some(ended) = attached {
            ended.map_err(|error| format!("the gate went away: {error}"))?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let parts = super::open(environment, place)?;
    let served = runtime()?.block_on(async {
        let watched = Watched::now(&parts).map_err(|error| chain(&error))?;
        let setup = parts.setup().map_err(|error| chain(&error))?;
        let gate = Arc::new(parts.gate(setup));
        let server = mcp::server(&parts, Arc::clone(&gate), mcp::TASK_AFTER);
        tokio::select! {
            ended = mcp::serve_stdio(&server, environment.uid) => ended,
            () = watched.follow(&parts, &gate, &|_| {}) => unreachable!("never ends"),
            () = super::tend(&parts.store) => unreachable!("never ends"),
        }
    });
    super::close(&parts)?;
    served?;
    Ok(ExitCode::SUCCESS)
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

/// Carries lines between our pipes and the gate at `socket`; `None` if none answers there.
async fn attach(socket: &Path) -> Option<io::Result<()>> {
    let client = Client::connect(socket).await?;
    let stream = upgraded(client.into_stream()).await.ok()?;
    Some(relay(stream).await)
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

async fn relay(stream: UnixStream) -> io::Result<()> {
    let mut stdin = PipeReader::new(io::stdin().as_fd())?;
    let stdout = PipeWriter::new(io::stdout().as_fd())?;
    let (from, mut to) = stream.into_split();
    let up = async {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match stdin.read(&mut chunk).await? {
                0 => return to.shutdown().await,
                count => to.write_all(&chunk[..count]).await?,
            }
        }
    };
    let down = async {
        let mut from = from;
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match from.read(&mut chunk).await? {
                0 => return Ok(()),
                count => stdout.write_all(&chunk[..count]).await?,
            }
        }
    };
    // The gate hangs up when it has answered what was asked before the end of our input.
    tokio::select! {
        done = down => done,
        Err(error) = up => Err(error),
    }
}
