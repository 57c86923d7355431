//! Conversations in lines, served in the test's own process over a pair of sockets. The test's side
//! has the calls of a process's pipes: send a line, wait for a reply, end the input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use callgate_call::{Caller, Cancel, Wire};
use callgate_doors::http::Closing;
use callgate_doors::mcp::stdio::Ends;
use callgate_doors::mcp::{self, Behind, Seal, Server, Settings};
use callgate_doors::pipe::{PipeReader, PipeWriter};
use callgate_doors::rpc::{Peer, Rpc, stdio};
use callgate_doors::toolhost::{self, Answered};
use callgate_gate::Gate;
use callgate_registry::setup::Builtins;
use callgate_registry::workspace::Source;
use callgate_tools::planner::publisher;
use callgate_wires::toolhost::Entry;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::task::TaskTracker;

use callgate_testing_workspace::{Folder, Opened, block_on};

/// The longest wait for a reply. No single step of a test takes this long.
const PATIENCE: Duration = Duration::from_secs(90);

/// Replies that may wait to be read by the test.
const REPLIES_MAX: usize = 1024;

/// How often the journal is looked at for plans that other conversations changed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The served end of a conversation. Answers are given for as long as they take, as on pipes.
struct Served(tokio::net::UnixStream);

impl Ends for Served {
    const GRACE: Duration = Duration::MAX;

    async fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer).await
    }

    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await
    }

    async fn unheard(&mut self) {
        std::future::pending().await
    }
}

/// The test's side of a conversation.
pub struct Host {
    line: UnixStream,
    replies: Receiver<String>,
    served: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts a thread that serves the other end of a new pair of sockets.
    fn start(serve: impl FnOnce(UnixStream) + Send + 'static) -> Self {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let served = thread::spawn(move || serve(far));
        let reading = near.try_clone().expect("a second handle");
        let (sender, replies) = sync_channel(REPLIES_MAX);
        thread::spawn(move || {
            for line in BufReader::new(reading).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            line: near,
            replies,
            served: Some(served),
        }
    }

    /// A conversation in JSON-RPC with the workspace in `folder`.
    pub fn rpc(folder: &Folder) -> Self {
        Self::rpc_of(Opened::new(folder))
    }

    /// A conversation in JSON-RPC with an open workspace.
    pub fn rpc_of(opened: Opened) -> Self {
        let gate = opened.gate().expect("a setup");
        Self::start(move |far| block_on(serve_rpc(&opened, gate, served(far))))
    }

    /// A conversation of the toolhost's `--serve` with the built-in tools.
    pub fn toolhost_builtins(folder: &Folder) -> Self {
        let opened = Opened::new(folder);
        let setup = opened.parts.builtins().expect("a setup");
        let gate = opened.gate_of(setup);
        Self::start(move |far| block_on(serve_toolhost(&opened, &gate, far)))
    }

    /// A conversation of the toolhost's `--serve` with the tools of the workspace as a plugin.
    pub fn toolhost(folder: &Folder) -> Self {
        let opened = Opened::new(folder);
        let gate = plugin(&opened);
        Self::start(move |far| block_on(serve_toolhost(&opened, &gate, far)))
    }

    /// A conversation in MCP: with all tools that are served over MCP, or `only` those that fit.
    pub fn mcp(folder: &Folder, only: &[&str]) -> Self {
        Self::mcp_of(Opened::new(folder), only)
    }

    /// A conversation in MCP with an open workspace.
    pub fn mcp_of(opened: Opened, only: &[&str]) -> Self {
        let gate = opened.gate().expect("a setup");
        let only: Vec<String> = only.iter().map(|&pattern| pattern.to_owned()).collect();
        Self::start(move |far| block_on(serve_mcp(&opened, gate, &only, served(far))))
    }

    /// Writes bytes. Returns whether the other end was there to read them.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        self.line.write_all(bytes).is_ok()
    }

    /// Writes one line. Returns whether the other end was there to read it.
    pub fn send(&mut self, request: &Value) -> bool {
        self.send_bytes(format!("{request}\n").as_bytes())
    }

    /// The next reply.
    pub fn reply(&self) -> Value {
        let line = match self.replies.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => panic!("the conversation is over"),
            Err(RecvTimeoutError::Timeout) => panic!("no reply"),
        };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Sends a request and waits for the reply.
    pub fn ask(&mut self, request: &Value) -> Value {
        assert!(self.send(request), "nobody reads {request}");
        self.reply()
    }

    /// Ends the input and waits for the end of the conversation.
    pub fn end(mut self) {
        self.line.shutdown(Shutdown::Write).expect("end the input");
        let served = self.served.take().expect("joined once");
        served.join().expect("the conversation ends in order");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.line.shutdown(Shutdown::Both);
        if let Some(served) = self.served.take() {
            let _ = served.join();
        }
    }
}

fn served(far: UnixStream) -> impl FnOnce() -> Served {
    move || {
        far.set_nonblocking(true).expect("a socket");
        Served(tokio::net::UnixStream::from_std(far).expect("a socket"))
    }
}

/// Serves JSON-RPC as `callgate rpc --standalone` does.
async fn serve_rpc(opened: &Opened, gate: Arc<Gate>, served: impl FnOnce() -> Served) {
    let (calls, closing) = (TaskTracker::new(), Closing::default());
    let methods = Rpc::new(gate, calls.clone(), closing.clone());
    let peer = Peer {
        caller: Caller::uid(opened.parts.environment.uid),
        scope: None,
        wire: Wire::Rpc,
        lease_group: Wire::Rpc.lease_group(),
        hearer: None,
    };
    let store = &opened.parts.store;
    let plans = async {
        store
            .follow_plans(publisher(opened.parts.topics.clone()))
            .expect("follow plans");
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            store.look().expect("look at the journal");
        }
    };
    // The arm of plans is never ready. Biased so that plans are followed before anything is asked.
    tokio::select! {
        biased;
        () = plans => {}
        talked = stdio::serve(&methods, peer, served(), &closing.stop) => {
            // A test that drops its side hangs up.
            let _ = talked;
        }
    }
    closing.end.cancel();
    calls.close();
    calls.wait().await;
}

/// Serves MCP as `callgate mcp --standalone` does.
async fn serve_mcp(
    opened: &Opened,
    gate: Arc<Gate>,
    only: &[String],
    served: impl FnOnce() -> Served,
) {
    let settings = Settings {
        name: "callgate".to_owned(),
        version: "0".to_owned(),
        instructions: None,
        task_after: PATIENCE,
    };
    let key = opened.parts.store.secret("mcp").expect("a secret");
    let seal = Seal::new(key, Arc::clone(&opened.parts.clock));
    let server = Arc::new(Server::new(Behind::Gate(gate), settings, seal));
    let caller = Caller::uid(opened.parts.environment.uid);
    let peer = mcp::Peer::new(caller, Wire::Mcp, None, only);
    // A test that drops its side hangs up.
    let _ = mcp::stdio::serve(&server, peer, served(), &Cancel::new()).await;
    server.cancel_all();
    server.stop().await;
}

/// The gate in front of the workspace as a plugin, which naming it makes trusted.
fn plugin(opened: &Opened) -> Arc<Gate> {
    let source = Source::of_plugin(&opened.parts.paths.workspace).expect("a plugin");
    let setup = opened
        .parts
        .setup_of(source, Builtins::Without, String::new());
    opened.gate_of(setup.expect("a setup"))
}

/// The settings of the toolhost, for a client that waits long.
fn toolhost_of(opened: &Opened) -> toolhost::Host {
    toolhost::Host {
        caller: Caller::uid(opened.parts.environment.uid),
        default_timeout: PATIENCE,
        timeout_max: None,
        strict_ok: false,
        in_band_leases: false,
        stop: Cancel::new(),
    }
}

async fn serve_toolhost(opened: &Opened, gate: &Gate, far: UnixStream) {
    let mut stdin = PipeReader::new(far.as_fd()).expect("a reader");
    let stdout = PipeWriter::new(far.as_fd()).expect("a writer");
    // A test that drops its side hangs up.
    let _ = toolhost::serve(gate, &toolhost_of(opened), &mut stdin, &stdout).await;
}

/// One request to the toolhost's `--run`, of the workspace as a plugin, or to `tool_exec`.
pub fn run_once(folder: &Folder, entry: Entry, aid: &str, request: &[u8]) -> Answered {
    run_once_of(Opened::new(folder), entry, aid, request)
}

/// One request to the toolhost, for an open workspace.
pub fn run_once_of(opened: Opened, entry: Entry, aid: &str, request: &[u8]) -> Answered {
    let gate = match entry {
        Entry::ToolExec => opened.gate().expect("a setup"),
        _ => plugin(&opened),
    };
    let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
    thread::scope(|scope| {
        scope.spawn(move || {
            // A toolhost that refuses what is too long does not read the rest.
            let _ = near.write_all(request);
        });
        block_on(async move {
            let mut stdin = PipeReader::new(far.as_fd()).expect("a reader");
            drop(far);
            let host = toolhost_of(&opened);
            let answered = toolhost::run_once(&gate, &host, entry, aid, &mut stdin).await;
            answered.expect("read the request")
        })
    })
}
