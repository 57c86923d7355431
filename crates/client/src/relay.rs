//! What lies between a client on our pipes and the gate that serves it, in lines. It knows what
//! the client waits for (its [`PendingRequests`], which each wire keeps in its own way), so that the
//! conversation outlives the gate: it goes on with the next one, or with one of this process.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use callgate_doors::mcp::stdio::LINE_BYTES_MAX;
use callgate_doors::pipe::{PipeReader, PipeWriter};
use callgate_wires::line::{Line, LineSplitter};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Notify;

use crate::Client;

/// Longest line of a gate, which is no stranger: all that fits into its own bounds.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes between the relay and a server in the same process.
pub const RELAYED_BYTES: usize = 64 * 1024;

/// What was said and not answered yet, as a wire knows it.
pub trait PendingRequests: Default {
    /// How long a client that asks nothing more may wait for its answers, and leave them unread.
    const GRACE: Duration;

    /// Notes what the client said.
    fn said(&mut self, line: &[u8]);

    /// Notes what the gate said and hands it on, unless nobody asked. True for an answer.
    fn answered(&mut self, line: &[u8], out: &mut Vec<u8>) -> bool;

    /// How many answers the client waits for that will come by themselves.
    fn waited_for(&self) -> usize;

    /// True if it waits for none.
    fn is_quiet(&self) -> bool {
        self.waited_for() == 0
    }

    /// What a new gate must hear, whole lines: what is safe to be said twice.
    fn again(&self) -> Vec<u8>;

    /// True if there is anything of that which the client waits for.
    fn has_kept(&self) -> bool;

    /// The gate is gone: what the client is told of that, whole lines. Only what is kept to be
    /// said again stays.
    fn lost(&mut self) -> Vec<u8>;

    /// The client waits no longer.
    fn forget(&mut self);
}

/// A conversation with one client, over one gate after another.
pub struct Relay<B> {
    input: Input,
    /// Standard input again, to notice its end while somebody else reads it.
    asks: PipeReader,
    stdout: PipeWriter,
    requests: RefCell<B>,
    /// Rung with each answer.
    answer: Notify,
    notify: fn(Notice),
}

/// What the client says, in lines.
struct Input {
    stdin: PipeReader,
    lines: LineSplitter,
    chunk: Vec<u8>,
    /// Whole lines no gate has all of yet. What a gate did not get can not have run.
    unsent: Vec<u8>,
    is_over: bool,
}

/// Why a gate serves no longer.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client hung up.
    Client,
    /// The gate did.
    Gate,
}

/// How being attached went.
pub enum Attached<B> {
    /// No gate answered.
    Never,
    /// Its client hung up, or we were told to stop.
    Over,
    /// No gate answers any more, and the client is still there.
    Lost(Box<Relay<B>>),
}

/// Where a gate has a conversation of the kind that is wanted.
pub struct Pipe {
    /// The path at its socket.
    pub path: &'static str,
    /// What the connection becomes.
    pub protocol: &'static str,
    /// What else the request for it says; printable ASCII.
    pub headers: Vec<(&'static str, String)>,
    /// Shows a person what happens.
    pub notify: fn(Notice),
}

/// What a person is to know of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// No gate answers any more, so the process serves by itself.
    GateGone,
    /// Requests that get no answer, because the input ended so long ago.
    GivenUp {
        /// How many.
        count: usize,
        /// How long ago.
        after: Duration,
    },
}

/// Serves by the running gate, and when that is gone by the next one, to which `next` connects.
pub async fn attached<B: PendingRequests>(
    gate: UnixStream,
    next: impl AsyncFn() -> Option<UnixStream>,
    pipe: &Pipe,
    stop: impl Future<Output = ()>,
) -> io::Result<Attached<B>> {
    // A stop drops the conversation as it is: the gate sees a client that has left, and the client
    // the end of the pipe.
    tokio::select! {
        left = follow(gate, next, pipe) => left,
        () = stop => Ok(Attached::Over),
    }
}

async fn follow<B: PendingRequests>(
    mut gate: UnixStream,
    next: impl AsyncFn() -> Option<UnixStream>,
    pipe: &Pipe,
) -> io::Result<Attached<B>> {
    let mut relay = Relay::<B>::new(pipe.notify)?;
    loop {
        if relay.carry(gate).await == Ended::Client {
            return Ok(Attached::Over);
        }
        relay.tell_lost().await?;
        if !relay.wait().await {
            return Ok(Attached::Over);
        }
        gate = match next().await {
            Some(gate) => gate,
            None => {
                (pipe.notify)(Notice::GateGone);
                return Ok(Attached::Lost(Box::new(relay)));
            }
        };
    }
}

/// A conversation with the gate at `socket`; `None` if none answers there.
pub async fn attach(socket: &Path, pipe: &Pipe) -> Option<UnixStream> {
    let client = Client::connect(socket).await?;
    upgraded(client.into_stream(), pipe).await.ok()
}

/// Asks a connection to become a conversation in lines.
async fn upgraded(mut stream: UnixStream, pipe: &Pipe) -> io::Result<UnixStream> {
    let Pipe {
        path,
        protocol,
        headers,
        notify: _,
    } = pipe;
    let mut request = format!(
        "GET {path} HTTP/1.1\r\nHost: gate\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
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

impl<B: PendingRequests> Relay<B> {
    /// Between standard input and output. Must be called inside a runtime.
    fn new(notify: fn(Notice)) -> io::Result<Self> {
        let input = Input {
            stdin: PipeReader::new(io::stdin().as_fd())?,
            lines: LineSplitter::new(LINE_BYTES_MAX),
            chunk: vec![0; 64 * 1024],
            unsent: Vec::new(),
            is_over: false,
        };
        Ok(Self {
            input,
            asks: PipeReader::new(io::stdin().as_fd())?,
            stdout: PipeWriter::new(io::stdout().as_fd())?,
            requests: RefCell::default(),
            answer: Notify::new(),
            notify,
        })
    }

    /// Carries lines between the client and `gate` until one of them hangs up.
    pub async fn carry(&mut self, gate: impl AsyncRead + AsyncWrite) -> Ended {
        let (from, to) = tokio::io::split(gate);
        let heard = Heard {
            requests: &self.requests,
            asks: &self.asks,
            stdout: &self.stdout,
            answer: &self.answer,
            notify: self.notify,
        };
        let up = async {
            // A gate that reads no more has hung up, which `down` will notice.
            let _ = heard.up(&mut self.input, to).await;
            std::future::pending::<Infallible>().await
        };
        // Only `down` ends. Dropping `up` loses nothing of the client's: what was read and not sent
        // whole stays in `input`, and goes to the next gate.
        let gone = tokio::select! {
            done = heard.down(from) => done.is_err(),
            never = up => match never {},
        };
        // A gate that goes while its client waits for the last answers is lost like any other.
        let is_done = self.input.is_over && self.input.unsent.is_empty();
        match gone || is_done && self.requests.get_mut().is_quiet() {
            true => Ended::Client,
            false => Ended::Gate,
        }
    }

    /// Waits until there is something for another gate to do, which so long may take to start;
    /// false if there will be nothing.
    async fn wait(&mut self) -> bool {
        let kept = self.requests.get_mut().has_kept() || !self.input.unsent.is_empty();
        if !kept {
            self.input.hear().await;
        }
        kept || !self.input.is_over
    }

    /// Tells the client of the calls that were lost with their gate.
    async fn tell_lost(&mut self) -> io::Result<()> {
        let told = self.requests.get_mut().lost();
        let patience = B::GRACE;
        self.stdout
            .write_to_client(&told, &self.asks, patience)
            .await
    }
}

impl Input {
    async fn hear(&mut self) {
        // An input that can not be read is over.
        let count = self.stdin.read(&mut self.chunk).await.unwrap_or(0);
        self.lines.feed(&self.chunk[..count]);
        self.is_over = count == 0;
    }

    /// Takes the whole lines that were heard.
    fn take_lines(&mut self) {
        while let Some(line) = self.lines.next_line() {
            match line {
                Line::Text(line) => self.unsent.extend_from_slice(line),
                // The gate has the words for it: any line as long will do.
                Line::TooLong => self
                    .unsent
                    .resize(self.unsent.len() + LINE_BYTES_MAX + 1, b'x'),
            }
            self.unsent.push(b'\n');
        }
        if self.is_over
            && let Some(rest) = self.lines.finish()
        {
            self.unsent.extend_from_slice(rest);
            self.unsent.push(b'\n');
        }
    }
}

/// Hands whole lines on and notes each as said once the gate has all of it: nothing waits in
/// between, so that no answer comes first. What it did not get stays.
async fn send(
    unsent: &mut Vec<u8>,
    requests: &RefCell<impl PendingRequests>,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut sent = 0;
    while sent < unsent.len() {
        match to.write(&unsent[sent..]).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => sent += count,
        }
        let newline = unsent[..sent].iter().rposition(|&byte| byte == b'\n');
        let whole = newline.map_or(0, |at| at + 1);
        for line in unsent[..whole].split_inclusive(|&byte| byte == b'\n') {
            requests.borrow_mut().said(&line[..line.len() - 1]);
        }
        unsent.drain(..whole);
        sent -= whole;
    }
    to.flush().await
}

/// The client's side while a gate serves it.
struct Heard<'a, B> {
    requests: &'a RefCell<B>,
    asks: &'a PipeReader,
    stdout: &'a PipeWriter,
    answer: &'a Notify,
    notify: fn(Notice),
}

impl<B: PendingRequests> Heard<'_, B> {
    /// What the client says, to the gate: first what an earlier gate has heard already.
    async fn up(&self, input: &mut Input, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
        let again = self.requests.borrow().again();
        to.write_all(&again).await?;
        loop {
            input.take_lines();
            send(&mut input.unsent, self.requests, &mut to).await?;
            if input.is_over {
                // The gate would end what runs; its client may still wait for it.
                tokio::select! {
                    () = self.all_answered() => {}
                    () = self.stdout.unheard() => {}
                    () = tokio::time::sleep(B::GRACE) => {
                        let count = self.requests.borrow().waited_for();
                        (self.notify)(Notice::GivenUp { count, after: B::GRACE });
                    }
                }
                self.requests.borrow_mut().forget();
                return to.shutdown().await;
            }
            input.hear().await;
        }
    }

    /// What the gate says, to the client, in whole lines. The error is the client's.
    async fn down(&self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut lines = LineSplitter::new(ANSWER_BYTES_MAX);
        let mut chunk = vec![0; 64 * 1024];
        let mut batch = Vec::new();
        loop {
            match from.read(&mut chunk).await {
                // However it went: it is gone.
                Ok(0) | Err(_) => return Ok(()),
                Ok(count) => lines.feed(&chunk[..count]),
            }
            while let Some(line) = lines.next_line() {
                if let Line::Text(line) = line
                    && self.requests.borrow_mut().answered(line, &mut batch)
                {
                    self.answer.notify_one();
                }
            }
            self.stdout
                .write_to_client(&batch, self.asks, B::GRACE)
                .await?;
            batch.clear();
        }
    }

    /// Waits until nothing is left to wait for.
    async fn all_answered(&self) {
        while !self.requests.borrow().is_quiet() {
            self.answer.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use crate::mcp_requests::McpRequests;
    use crate::rpc_requests::RpcRequests;

    /// Takes so many bytes, at most three at a time, and then breaks.
    struct Breaks(usize);

    impl AsyncWrite for Breaks {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.0).min(3);
            self.0 -= count;
            Poll::Ready(match count {
                0 => Err(io::ErrorKind::BrokenPipe.into()),
                _ => Ok(count),
            })
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A call counts as made once the gate has its whole line, and is kept for the next gate
    /// otherwise, wherever the gate went away.
    async fn what_no_gate_got_is_kept<B: PendingRequests>() {
        let line =
            |id: u8| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}\n");
        let all = line(1) + &line(2) + &line(3);
        for taken in 0..=all.len() {
            let (mut unsent, requests) = (all.clone().into_bytes(), RefCell::<B>::default());
            let sent = send(&mut unsent, &requests, Breaks(taken)).await;
            assert_eq!(sent.is_ok(), taken == all.len(), "{taken}");
            let whole = taken / line(1).len();
            let told = String::from_utf8(requests.borrow_mut().lost()).unwrap();
            assert_eq!(told.matches("\"error\"").count(), whole, "{taken}: {told}");
            assert_eq!(unsent, &all.as_bytes()[whole * line(1).len()..], "{taken}");
        }
    }

    #[tokio::test]
    async fn lines_that_were_cut() {
        what_no_gate_got_is_kept::<McpRequests>().await;
        what_no_gate_got_is_kept::<RpcRequests>().await;
    }
}
