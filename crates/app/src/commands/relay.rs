//! What lies between a client on our pipes and the gate that serves it, in lines. It knows what
//! the client waits for (its `Book`, which each wire keeps in its own way), so that the
//! conversation outlives the gate: it goes on with the next one, or with one of this process.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callgate_doors::mcp::stdio::LINE_BYTES_MAX;
use callgate_doors::pipe::{PipeReader, PipeWriter};
use callgate_registry::paths::PathsError;
use callgate_wires::line::{Line, LineSplitter};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::StopSignals;
use crate::cli::Place;
use crate::client::Client;
use crate::error::CommandError;
use crate::show;

/// Longest line of a gate, which is no stranger: all that fits into its own bounds.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes between the relay and a server in the same process.
pub const RELAYED_BYTES: usize = 64 * 1024;

/// What was said and not answered yet, as a wire knows it.
pub trait Book: Default {
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
    book: RefCell<B>,
    /// Rung with each answer.
    answer: Notify,
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
}

/// Says that nobody answers at a socket that was named. Where none was, standing alone is as usual
/// as being attached.
pub fn say_alone(place: &Place) {
    if let Some(socket) = &place.socket {
        let socket = socket.display();
        show::say(&format!(
            "no gate of yours answers at {socket}: serving alone"
        ));
    }
}

/// Says that so many requests are not waited for any longer, since nobody asks anything more.
pub fn say_given_up(count: usize, after: Duration) {
    if count > 0 {
        let (seconds, ending) = (after.as_secs(), if count == 1 { "" } else { "s" });
        show::warn(&format!(
            "the input ended {seconds} s ago: {count} request{ending} without an answer so far \
             will get none, and what runs of it is ended"
        ));
    }
}

/// Serves by the running gate, and when that is gone by the next one. `socket` says where to look,
/// each time anew: the next gate may be elsewhere.
pub async fn attached<B: Book>(
    socket: &dyn Fn() -> Result<PathBuf, PathsError>,
    pipe: &Pipe,
) -> Result<Attached<B>, CommandError> {
    let Some(gate) = attach(&socket()?, pipe).await else {
        return Ok(Attached::Never);
    };
    let mut signals = StopSignals::watch()?;
    tokio::select! {
        left = follow(gate, socket, pipe) => left.map_err(CommandError::system("relay")),
        () = signals.next() => Ok(Attached::Over),
    }
}

async fn follow<B: Book>(
    mut gate: UnixStream,
    socket: &dyn Fn() -> Result<PathBuf, PathsError>,
    pipe: &Pipe,
) -> io::Result<Attached<B>> {
    let mut relay = Relay::<B>::new()?;
    loop {
        if relay.carry(gate).await == Ended::Client {
            return Ok(Attached::Over);
        }
        relay.tell_lost().await?;
        if !relay.wait().await {
            return Ok(Attached::Over);
        }
        let next = match socket() {
            Ok(socket) => attach(&socket, pipe).await,
            Err(_) => None,
        };
        gate = match next {
            Some(gate) => gate,
            None => {
                show::say("the gate is gone: serving alone");
                return Ok(Attached::Lost(Box::new(relay)));
            }
        };
    }
}

/// A conversation with the gate at `socket`; `None` if none answers there.
async fn attach(socket: &Path, pipe: &Pipe) -> Option<UnixStream> {
    let client = Client::connect(socket).await?;
    upgraded(client.into_stream(), pipe).await.ok()
}

/// Asks a connection to become a conversation in lines.
async fn upgraded(mut stream: UnixStream, pipe: &Pipe) -> io::Result<UnixStream> {
    let Pipe {
        path,
        protocol,
        headers,
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

impl<B: Book> Relay<B> {
    /// Between standard input and output. Must be called inside a runtime.
    fn new() -> io::Result<Self> {
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
            book: RefCell::default(),
            answer: Notify::new(),
        })
    }

    /// Carries lines between the client and `gate` until one of them hangs up.
    pub async fn carry(&mut self, gate: impl AsyncRead + AsyncWrite) -> Ended {
        let (from, to) = tokio::io::split(gate);
        let heard = Heard {
            book: &self.book,
            asks: &self.asks,
            stdout: &self.stdout,
            answer: &self.answer,
        };
        let up = async {
            // A gate that reads no more has hung up, which `down` will notice.
            let _ = heard.up(&mut self.input, to).await;
            std::future::pending::<()>().await;
        };
        let gone = tokio::select! {
            done = heard.down(from) => done.is_err(),
            () = up => unreachable!("waits for the gate to hang up"),
        };
        // A gate that goes while its client waits for the last answers is lost like any other.
        let is_done = self.input.is_over && self.input.unsent.is_empty();
        match gone || is_done && self.book.get_mut().is_quiet() {
            true => Ended::Client,
            false => Ended::Gate,
        }
    }

    /// Waits until there is something for another gate to do, which so long may take to start;
    /// false if there will be nothing.
    async fn wait(&mut self) -> bool {
        let kept = self.book.get_mut().has_kept() || !self.input.unsent.is_empty();
        if !kept {
            self.input.hear().await;
        }
        kept || !self.input.is_over
    }

    /// Tells the client of the calls that were lost with their gate.
    async fn tell_lost(&mut self) -> io::Result<()> {
        let told = self.book.get_mut().lost();
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
    book: &RefCell<impl Book>,
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
            book.borrow_mut().said(&line[..line.len() - 1]);
        }
        unsent.drain(..whole);
        sent -= whole;
    }
    to.flush().await
}

/// The client's side while a gate serves it.
struct Heard<'a, B> {
    book: &'a RefCell<B>,
    asks: &'a PipeReader,
    stdout: &'a PipeWriter,
    answer: &'a Notify,
}

impl<B: Book> Heard<'_, B> {
    /// What the client says, to the gate: first what an earlier gate has heard already.
    async fn up(&self, input: &mut Input, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
        let again = self.book.borrow().again();
        to.write_all(&again).await?;
        loop {
            input.take_lines();
            send(&mut input.unsent, self.book, &mut to).await?;
            if input.is_over {
                // The gate would end what runs; its client may still wait for it.
                tokio::select! {
                    () = self.all_answered() => {}
                    () = self.stdout.unheard() => {}
                    () = tokio::time::sleep(B::GRACE) => {
                        say_given_up(self.book.borrow().waited_for(), B::GRACE);
                    }
                }
                self.book.borrow_mut().forget();
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
                    && self.book.borrow_mut().answered(line, &mut batch)
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
        while !self.book.borrow().is_quiet() {
            self.answer.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::super::mcp::book::Book as McpBook;
    use super::super::rpc::book::Book as RpcBook;
    use super::*;

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
    async fn what_no_gate_got_is_kept<B: Book>() {
        let line =
            |id: u8| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}\n");
        let all = line(1) + &line(2) + &line(3);
        for taken in 0..=all.len() {
            let (mut unsent, book) = (all.clone().into_bytes(), RefCell::<B>::default());
            let sent = send(&mut unsent, &book, Breaks(taken)).await;
            assert_eq!(sent.is_ok(), taken == all.len(), "{taken}");
            let whole = taken / line(1).len();
            let told = String::from_utf8(book.borrow_mut().lost()).unwrap();
            assert_eq!(told.matches("\"error\"").count(), whole, "{taken}: {told}");
            assert_eq!(unsent, &all.as_bytes()[whole * line(1).len()..], "{taken}");
        }
    }

    #[tokio::test]
    async fn lines_that_were_cut() {
        what_no_gate_got_is_kept::<McpBook>().await;
        what_no_gate_got_is_kept::<RpcBook>().await;
    }
}
