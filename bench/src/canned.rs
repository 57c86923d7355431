//! Servers that look at nothing and answer the same bytes to everything: no server on this
//! machine, in this runtime, can be faster. Each is a process of its own, like those that it is
//! compared with, and ends with the harness's word.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{fs, io};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};

use crate::daemon::Daemon;
use crate::scratch::Scratch;
use crate::{Failure, in_process};

/// The first word of a harness that is such a server; then how it answers, the file that has the
/// answer, and its socket where it has no port.
pub const SERVE: &str = "--canned";
const BYTES: &str = "bytes";
const HYPER: &str = "hyper";
const SOCKET: &str = "socket";

/// At a port.
pub fn bytes(scratch: &Scratch, answer: &[u8]) -> Result<(u16, Daemon), Failure> {
    at_port(scratch, BYTES, answer)
}

/// The same body by the HTTP library ours has: what is left above it is our own work.
pub fn by_hyper(scratch: &Scratch, body: &[u8]) -> Result<(u16, Daemon), Failure> {
    at_port(scratch, HYPER, body)
}

/// At a socket.
pub fn at_socket(scratch: &Scratch, answer: &[u8], socket: &Path) -> Result<Daemon, Failure> {
    let (daemon, _) = Daemon::heard(command(scratch, SOCKET, answer)?.arg(socket))?;
    Ok(daemon)
}

fn at_port(scratch: &Scratch, how: &str, answer: &[u8]) -> Result<(u16, Daemon), Failure> {
    let (daemon, port) = Daemon::heard(&mut command(scratch, how, answer)?)?;
    Ok((port.trim().parse()?, daemon))
}

fn command(scratch: &Scratch, how: &str, answer: &[u8]) -> Result<Command, Failure> {
    let file = scratch.root().join(format!("canned-{how}"));
    fs::write(&file, answer)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SERVE).arg(how).arg(file);
    Ok(command)
}

/// Serves until it is killed.
pub fn serve(words: Vec<OsString>) -> ExitCode {
    let served = in_process::runtime().and_then(|runtime| runtime.block_on(answer_all(&words)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("callgate-bench {SERVE}: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn answer_all(words: &[OsString]) -> Result<(), Failure> {
    let [how, file, rest @ ..] = words else {
        return Err("how to answer, and with what, is missing".into());
    };
    let answer = Bytes::from(fs::read(file)?);
    if how == SOCKET {
        let listener = UnixListener::bind(rest.first().ok_or("a socket is missing")?)?;
        say("")?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(repeat(stream, answer.clone()));
        }
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    say(&listener.local_addr()?.port().to_string())?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answer = answer.clone();
        if how == BYTES {
            tokio::spawn(repeat(stream, answer));
            continue;
        }
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer.clone();
            async move {
                request.into_body().collect().await?;
                let mut response = Response::new(Full::new(answer));
                let kind = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                Ok::<_, hyper::Error>(response)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// The harness waits for this line.
fn say(line: &str) -> io::Result<()> {
    println!("{line}");
    io::stdout().flush()
}

/// A request is smaller than what one read takes, and sent by one write.
async fn repeat<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: Bytes) -> io::Result<()> {
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {
        stream.write_all(&answer).await?;
    }
    Ok(())
}
