//! What lies between an MCP client on our pipes and the gate that serves it. It knows what the
//! client waits for, so that the conversation outlives the gate: another one is told what a
//! legacy client said in its handshake, and gets the calls again that a key keeps from running
//! twice; of the others nobody knows whether they ran, and their client is told so.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::rc::Rc;

use callgate_doors::mcp::stdio::{GRACE, LINE_BYTES_MAX};
use callgate_doors::pipe::{PipeReader, PipeWriter};
use callgate_wires::jsonrpc::{INTERNAL_ERROR, RpcError, write_error_object};
use callgate_wires::line::{Line, LineSplitter};
use callgate_wires::mcp::meta;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;

/// Longest line of a gate, which is no stranger: all that fits into its own bounds.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest call that is kept to be sent again. Longer ones are answered as if they had no key.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// What a legacy client may say of itself that is remembered.
const SESSION_LINES_MAX: usize = 1024;
/// The id under which a new gate hears it again. Nobody waits for the answer.
const AGAIN: &str = "\"callgate-again\"";

const LOST: &str = "the gate went away before it answered: whether the call took effect is not \
                    known. It was not made again, because it has no idempotency key";

/// A conversation with one client, over one gate after another.
pub struct Relay {
    input: Input,
    stdout: PipeWriter,
    book: RefCell<Book>,
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

/// What was said and not answered yet.
#[derive(Default)]
struct Book {
    in_flight: HashMap<Box<str>, Open>,
    /// What the handshake consists of, and the ids it came under.
    session: Vec<(Option<Box<str>>, Vec<u8>)>,
    /// Rung with each answer.
    answer: Rc<Notify>,
}

/// A request without an answer.
enum Open {
    Asked,
    /// May be sent again: the whole line.
    Kept(Vec<u8>),
    /// Has no answer for as long as it is of use.
    Listens,
}

/// As much of a message as matters here.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

impl Relay {
    /// Between standard input and output. Must be called inside a runtime.
    pub fn new() -> io::Result<Self> {
        let input = Input {
            stdin: PipeReader::new(io::stdin().as_fd())?,
            lines: LineSplitter::new(LINE_BYTES_MAX),
            chunk: vec![0; 64 * 1024],
            unsent: Vec::new(),
            is_over: false,
        };
        Ok(Self {
            input,
            stdout: PipeWriter::new(io::stdout().as_fd())?,
            book: RefCell::default(),
        })
    }

    /// Carries lines between the client and `gate` until one of them hangs up.
    pub async fn carry(&mut self, gate: impl AsyncRead + AsyncWrite) -> Ended {
        let (from, to) = tokio::io::split(gate);
        let up = async {
            // A gate that reads no more has hung up, which `down` will notice.
            let _ = up(&mut self.input, &self.book, &self.stdout, to).await;
            std::future::pending::<()>().await;
        };
        let gone = tokio::select! {
            done = down(from, &self.book, &self.stdout) => done.is_err(),
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
    pub async fn wait(&mut self) -> bool {
        let kept = !self.book.get_mut().in_flight.is_empty() || !self.input.unsent.is_empty();
        if !kept {
            self.input.hear().await;
        }
        kept || !self.input.is_over
    }

    /// Tells the client of the calls that were lost with their gate.
    pub async fn tell_lost(&mut self) -> io::Result<()> {
        let Book {
            in_flight, session, ..
        } = self.book.get_mut();
        // A handshake that nobody answered is the client's to begin again.
        session.retain(|(id, _)| id.as_ref().is_none_or(|id| !in_flight.contains_key(id)));
        let mut told = Vec::new();
        in_flight.retain(|id, kept| {
            let is_kept = matches!(kept, Open::Kept(_));
            if !is_kept {
                told.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
                told.extend_from_slice(id.as_bytes());
                told.extend_from_slice(b",\"error\":");
                write_error_object(&RpcError::new(INTERNAL_ERROR, LOST), &mut told);
                told.extend_from_slice(b"}\n");
            }
            is_kept
        });
        self.stdout.write_all(&told).await
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
    book: &RefCell<Book>,
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

/// What the client says, to the gate: first what an earlier gate has heard already.
async fn up(
    input: &mut Input,
    book: &RefCell<Book>,
    stdout: &PipeWriter,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let again = book.borrow().again();
    to.write_all(&again).await?;
    loop {
        input.take_lines();
        send(&mut input.unsent, book, &mut to).await?;
        if input.is_over {
            // The gate would end what runs; its client may still wait for it.
            tokio::select! {
                () = Book::all_answered(book) => {}
                () = stdout.unheard() => {}
                () = tokio::time::sleep(GRACE) => {}
            }
            book.borrow_mut().in_flight.clear();
            return to.shutdown().await;
        }
        input.hear().await;
    }
}

/// What the gate says, to the client, in whole lines. The error is the client's.
async fn down(
    mut from: impl AsyncRead + Unpin,
    book: &RefCell<Book>,
    stdout: &PipeWriter,
) -> io::Result<()> {
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
            if let Line::Text(line) = line {
                book.borrow_mut().answered(line, &mut batch);
            }
        }
        stdout.write_all(&batch).await?;
        batch.clear();
    }
}

impl Book {
    /// Notes what the client said.
    fn said(&mut self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Envelope<'_>>(line) else {
            return; // the gate will say what is wrong with it
        };
        let id = message.id.map(|id| Box::from(id.get()));
        let Some(method) = message.method else { return };
        match &*method {
            "notifications/cancelled" => {
                if let Some(id) = message.params.and_then(cancelled) {
                    self.in_flight.remove(&*id);
                }
            }
            "initialize"
            | "notifications/initialized"
            | "logging/setLevel"
            | "resources/subscribe"
            | "resources/unsubscribe"
                if self.session.len() < SESSION_LINES_MAX =>
            {
                self.session.push((id.clone(), line.to_vec()));
            }
            _ => {}
        }
        if let Some(id) = id {
            let is_kept = method == "tools/call"
                && line.len() <= KEPT_BYTES_MAX
                && message.params.is_some_and(has_key);
            let open = match &*method {
                _ if is_kept => Open::Kept(line.to_vec()),
                "subscriptions/listen" => Open::Listens,
                _ => Open::Asked,
            };
            self.in_flight.insert(id, open);
        }
    }

    /// Notes what the gate said and hands it on, unless nobody asked.
    fn answered(&mut self, line: &[u8], out: &mut Vec<u8>) {
        if let Ok(Envelope {
            id: Some(id),
            method: None,
            ..
        }) = serde_json::from_slice(line)
        {
            if id.get() == AGAIN {
                return;
            }
            self.in_flight.remove(id.get());
            self.answer.notify_one();
        }
        out.extend_from_slice(line);
        out.push(b'\n');
    }

    /// Waits until nothing is left to wait for.
    async fn all_answered(book: &RefCell<Self>) {
        let answer = Rc::clone(&book.borrow().answer);
        while !book.borrow().is_quiet() {
            answer.notified().await;
        }
    }

    fn is_quiet(&self) -> bool {
        let listens = |open: &Open| matches!(open, Open::Listens);
        self.in_flight.values().all(listens)
    }

    /// What a new gate must hear.
    fn again(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, line) in &self.session {
            match (id, serde_json::from_slice::<Value>(line)) {
                (Some(_), Ok(mut message)) => {
                    message["id"] = AGAIN.trim_matches('"').into();
                    out.extend_from_slice(message.to_string().as_bytes());
                }
                _ => out.extend_from_slice(line),
            }
            out.push(b'\n');
        }
        for open in self.in_flight.values() {
            if let Open::Kept(line) = open {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
        out
    }
}

fn cancelled(params: &RawValue) -> Option<Box<str>> {
    let params: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(params.get()).ok()?;
    params.get("requestId").map(|id| id.get().into())
}

/// True if a call runs once, however often it is sent. Looked for as text first: calls are many.
fn has_key(params: &RawValue) -> bool {
    params.get().contains(meta::KEY)
        && serde_json::from_str::<Value>(params.get())
            .is_ok_and(|params| params["_meta"][meta::KEY].is_string())
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

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
    #[tokio::test]
    async fn what_no_gate_got_is_kept() {
        let line = |id: u8| format!("{{\"id\":{id},\"method\":\"tools/call\"}}\n");
        let all = line(1) + &line(2) + &line(3);
        for taken in 0..=all.len() {
            let (mut unsent, book) = (all.clone().into_bytes(), RefCell::<Book>::default());
            let sent = send(&mut unsent, &book, Breaks(taken)).await;
            assert_eq!(sent.is_ok(), taken == all.len(), "{taken}");
            let whole = taken / line(1).len();
            assert_eq!(book.borrow().in_flight.len(), whole, "{taken}");
            assert_eq!(unsent, &all.as_bytes()[whole * line(1).len()..], "{taken}");
        }
    }
}
