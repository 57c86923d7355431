//! `callgate mcp`: MCP on standard input and output. Attaches to the workspace's running
//! `serve`, so that all its clients share one gate; stands alone where there is none.

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

use crate::cli::{Done, Place, runtime};
use crate::client::Client;
use crate::compose::chain;
use crate::environment::Environment;
use crate::mcp;

/// Serve MCP on standard input and output.
#[derive(Args)]
pub struct Mcp {
    /// Do not attach to a running `callgate serve`
    #[arg(long)]
    standalone: bool,
}

pub fn run(environment: &Environment, place: &Place, args: &Mcp) -> Done {
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
        let setup = parts.setup().map_err(|error| chain(&error))?;
        let gate = Arc::new(parts.gate(setup));
        let server = mcp::server(&parts, gate, mcp::TASK_AFTER);
        tokio::select! {
            ended = mcp::serve_stdio(&server, environment.uid) => ended,
            () = super::tend(&parts.store) => unreachable!("never ends"),
        }
    });
    super::close(&parts)?;
    served?;
    Ok(ExitCode::SUCCESS)
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
