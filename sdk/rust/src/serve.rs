//! Serving on a thread of its own: connections side by side, one call at a time on each.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use callgate_wires::bridge::limits::MESSAGE_BYTES_MAX;
use callgate_wires::bridge::{
    CallTool, FrameDecoder, FrameError, IPC_ERROR, SIZE_ERROR, Said, write_error, write_result,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::files::{Files, StartError};
use crate::handler::{ToolError, Tools};

/// Connections served at the same time; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 256;

/// Largest read.
const READ_BYTES: usize = 16 * 1024;

/// The gate's words for a result that no frame holds. F-17, B-6.
const OUTPUT_TOO_LARGE: &str = "output exceeds 10 MiB";
const _: () = assert!(MESSAGE_BYTES_MAX == 10 * 1024 * 1024);

/// What the thread needs.
pub(crate) struct Serving {
    pub tools: Tools,
    pub listener: StdListener,
    pub stopped: watch::Receiver<bool>,
}

impl Serving {
    /// Serves on a new thread, which owns `files`: they are gone when it ends.
    pub fn spawn(self, files: Files) -> Result<JoinHandle<()>, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::make("start the runtime"))?;
        let listener = {
            // It wants to be made inside the runtime.
            let _inside = runtime.enter();
            UnixListener::from_std(self.listener).map_err(StartError::make("serve the socket"))?
        };
        let (tools, stopped) = (Arc::new(self.tools), self.stopped);
        let serve = move || {
            runtime.block_on(async {
                // A stop drops the loop with its connections, and with them the calls under way:
                // their bridges see a closed connection.
                tokio::select! {
                    () = stop_of(stopped) => {}
                    () = accept(listener, tools) => {}
                }
            });
            drop(files);
            // A plain function that still runs is not waited for.
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("callgate-bridge".to_owned())
            .spawn(serve)
            .map_err(StartError::make("start the thread"))
    }
}

async fn stop_of(mut stopped: watch::Receiver<bool>) {
    // An error means that whoever could stop us is gone.
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn accept(listener: UnixListener, tools: Arc<Tools>) {
    let uid = rustix::process::geteuid().as_raw();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        // `accept` and `join_next` are cancel safe. A round that only removes an ended connection
        // gives its place back, and the next one takes a place again.
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if stream.peer_cred().is_ok_and(|peer| peer.uid() == uid) => {
                    let tools = Arc::clone(&tools);
                    connections.spawn(async move {
                        // A connection that breaks is its bridge's business.
                        let _ = converse(stream, &tools).await;
                        drop(place);
                    });
                }
                Ok(_) => {} // another user's: closed unread
                // Out of descriptors or the like: others may finish meanwhile.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection to its end.
async fn converse(mut stream: UnixStream, tools: &Tools) -> io::Result<()> {
    let mut decoder = FrameDecoder::default();
    let mut chunk = vec![0; READ_BYTES];
    let mut out = Vec::new();
    loop {
        let payload = match decoder.next_frame() {
            Ok(Some(payload)) => payload.to_vec(),
            Ok(None) => {
                match stream.read(&mut chunk).await? {
                    0 => return farewell(stream, decoder.finish()).await,
                    count => decoder.feed(&chunk[..count]),
                }
                continue;
            }
            Err(error) => return farewell(stream, Err(error)).await,
        };
        // Dropping `answer` aborts the tool's task, as nobody is left to be told; `hung_up` reads
        // nothing. Biased so that an answer that is ready is written.
        let answered = tokio::select! {
            biased;
            answered = answer(&payload, tools) => answered,
            () = hung_up(&stream) => return Ok(()),
        };
        match answered {
            Ok(result) => {
                if write_result(result.to_string().as_bytes(), &mut out).is_err() {
                    write_error(&Said::new(SIZE_ERROR, OUTPUT_TOO_LARGE), &mut out);
                }
            }
            Err(said) => write_error(&said, &mut out),
        }
        stream.write_all(&out).await?;
        out.clear();
    }
}

/// The end of a connection. What follows a bad frame can not be read; the bridge is told why.
/// B-5.
async fn farewell(mut stream: UnixStream, ended: Result<(), FrameError>) -> io::Result<()> {
    let Err(error) = ended else { return Ok(()) };
    let kind = match error {
        FrameError::TooLarge { .. } => SIZE_ERROR,
        FrameError::Cut { .. } => IPC_ERROR,
    };
    let mut out = Vec::new();
    write_error(&Said::new(kind, error.to_string()), &mut out);
    stream.write_all(&out).await
}

async fn answer(payload: &[u8], tools: &Tools) -> Result<Value, Said> {
    let asked = CallTool::parse(payload)?;
    let Some(tool) = tools.get(&asked.name) else {
        let words = format!("Unknown tool: {}", asked.name);
        return Err(Said::new("ToolNotFoundError", words));
    };
    let arguments = Value::Object(asked.arguments);
    let checked = tool.schema.check(&arguments);
    checked.map_err(|words| Said::new("ValueError", words))?;
    let Value::Object(arguments) = arguments else {
        unreachable!("made of an object above")
    };
    let running = Ends(tool.handler.start(arguments));
    match running.await {
        Ok(Ok(reply)) => Ok(reply.into_result()),
        Ok(Err(ToolError { kind, message })) => Err(Said::new(kind, message)),
        Err(ended) if ended.is_panic() => Err(Said::new("RuntimeError", "the tool panicked")),
        Err(_) => Err(Said::new(IPC_ERROR, "the tool was ended")),
    }
}

/// A call's task, which ends with whoever waits for it.
struct Ends<T>(tokio::task::JoinHandle<T>);

impl<T> Future for Ends<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Ready once the bridge has closed the connection; never for one that only ended sending.
async fn hung_up(stream: &UnixStream) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let seen = stream.ready(Interest::PRIORITY).await;
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = poll(&mut fds, Some(&now));
    if seen.is_ok() && polled.is_ok() && !fds[0].revents().contains(PollFlags::HUP) {
        std::future::pending::<()>().await;
    }
}
