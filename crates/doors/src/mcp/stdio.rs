//! MCP over a pair of pipes: one message a line, both eras on one pipe. Requests run at the
//! same time; what answers at once is answered in one write with its neighbours.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Cancel, Change, Listener};
use callgate_gate::{Attempt, Ticket};
use callgate_wires::jsonrpc::{self, INTERNAL_ERROR, Id, Message, RpcError};
use callgate_wires::line::{Line, LineSplitter};
use callgate_wires::mcp::{self, CancelledParams, Params};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinSet};

use super::outbox::Outgoing;
use super::{Era, Outbox, Peer, Request, Server, Session, listen};
use crate::pipe::{PipeReader, PipeWriter};

/// Longest message.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Requests at work at the same time on one pipe; further ones are refused.
const IN_FLIGHT_MAX: usize = 512;
/// Largest read, and answers that are gathered before they are written.
const BATCH_BYTES: usize = 64 * 1024;
/// How long what runs may still answer once standard input has ended: `echo … | callgate mcp`.
pub const GRACE: Duration = Duration::from_secs(5);
/// So many answers are written together. Few enough that a client with a few more calls under
/// way can send the next ones while we are at work.
const BATCH_ANSWERS: usize = 8;

/// The two ends of a conversation in lines.
pub trait Ends: Send {
    /// How long what runs may still answer once reading has ended.
    const GRACE: Duration;

    /// Reads some bytes; 0 is the end. Bytes are taken only when it returns them.
    fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Writes everything, waiting for the reader.
    fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Ready once nobody is left to be answered, where that can be known.
    fn unheard(&mut self) -> impl Future<Output = ()> + Send;
}

/// Standard input and output.
pub struct Stdio {
    /// Requests.
    pub stdin: PipeReader,
    /// Answers.
    pub stdout: PipeWriter,
}

impl Ends for Stdio {
    const GRACE: Duration = GRACE;

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stdin.read(buffer).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout.write_to_client(bytes, &self.stdin, GRACE).await
    }

    async fn unheard(&mut self) {
        self.stdout.unheard().await;
    }
}

/// A socket, or what became of an HTTP connection.
pub struct Socket<S>(pub S);

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Ends for Socket<S> {
    // Its other end is a relay of ours, which hangs up when its client has its answers.
    const GRACE: Duration = Duration::ZERO;

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    async fn unheard(&mut self) {
        std::future::pending().await
    }
}

/// Serves one conversation until its end, or until `stop`. How many requests had no answer when
/// the time was over that their ends allow them once nothing more is asked.
pub async fn serve(
    server: &Arc<Server>,
    peer: Peer,
    mut ends: impl Ends,
    stop: &Cancel,
) -> io::Result<usize> {
    let (out, outgoing) = Outbox::new();
    let peer = Peer {
        session: Some(server.next_conversation()),
        ..peer
    };
    let mut pipe = Pipe::new(server, peer, out, outgoing);
    let served = pipe.run(&mut ends, stop).await;
    // Whoever still speaks must not wait for us to listen.
    pipe.outgoing.close();
    while pipe.outgoing.try_recv().is_ok() {}
    // Nobody is left to tell: what still runs ends, and its end is recorded.
    for cancel in pipe.in_flight.values() {
        cancel.cancel();
    }
    while pipe.work.join_next().await.is_some() {}
    served
}

struct Pipe {
    server: Arc<Server>,
    peer: Peer,
    session: Arc<Session>,
    out: Outbox,
    outgoing: mpsc::Receiver<Outgoing>,
    in_flight: HashMap<Id, Arc<Cancel>>,
    /// Those in flight that never end by themselves.
    listening: HashSet<Id>,
    work: JoinSet<Option<Vec<u8>>>,
    /// Whose request each task of `work` is.
    worked_on: HashMap<task::Id, Id>,
    /// Answers that wait to be written, a line each.
    ready: Vec<u8>,
    /// Whose answers in `ready` are not safe yet, and where they are.
    unsettled: Vec<(Id, std::ops::Range<usize>)>,
    ticket: Option<Ticket>,
}

/// How the task of a request ended.
type Done = Result<(task::Id, Option<Vec<u8>>), JoinError>;

/// What happened next.
enum Next {
    Read(usize),
    Done(Done),
    Say(Outgoing),
    Changed(Option<Change>),
    Stop,
}

impl Pipe {
    fn new(
        server: &Arc<Server>,
        peer: Peer,
        out: Outbox,
        outgoing: mpsc::Receiver<Outgoing>,
    ) -> Self {
        Self {
            server: Arc::clone(server),
            peer,
            session: Arc::default(),
            out,
            outgoing,
            in_flight: HashMap::new(),
            listening: HashSet::new(),
            work: JoinSet::new(),
            worked_on: HashMap::new(),
            ready: Vec::new(),
            unsettled: Vec::new(),
            ticket: None,
        }
    }

    async fn run(&mut self, ends: &mut impl Ends, stop: &Cancel) -> io::Result<usize> {
        let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
        let mut chunk = vec![0; BATCH_BYTES];
        let ending = self.server.ending.clone();
        let mut stopping = false;
        let mut changes = self.server.gate().map(|gate| gate.changes().listen());
        loop {
            let next = tokio::select! {
                // Reading is cancel-safe: bytes leave the pipe only when the read returns them.
                count = ends.read(&mut chunk), if !stopping => Next::Read(count?),
                Some(done) = self.work.join_next_with_id() => Next::Done(done),
                Some(outgoing) = self.outgoing.recv() => Next::Say(outgoing),
                change = changed(&mut changes) => Next::Changed(change),
                () = stop.cancelled(), if !stopping => Next::Stop,
                () = ending.cancelled(), if stopping => return self.last(ends).await,
            };
            match next {
                Next::Read(0) => {
                    if let Some(rest) = splitter.finish() {
                        let rest = rest.to_vec();
                        self.take(&rest);
                    }
                    return self.finish(ends).await;
                }
                Next::Read(count) => {
                    splitter.feed(&chunk[..count]);
                    while let Some(line) = splitter.next_line() {
                        match line {
                            Line::Text(line) if line.trim_ascii().is_empty() => {}
                            Line::Text(line) => self.take(line),
                            Line::TooLong => self.refuse(
                                None,
                                &RpcError::new(
                                    jsonrpc::INVALID_REQUEST,
                                    "the message is longer than 16 MiB",
                                ),
                            ),
                        }
                        if self.ready.len() > BATCH_BYTES || self.unsettled.len() >= BATCH_ANSWERS {
                            self.send(ends).await?;
                        }
                    }
                }
                Next::Done(done) => self.done(done),
                Next::Say(said) => self.say(said),
                Next::Changed(change) => self.tell(change),
                // What runs is still answered, unless even that must end.
                Next::Stop => stopping = true,
            }
            if stopping && self.in_flight.is_empty() {
                return self.last(ends).await;
            }
            self.send(ends).await?;
        }
    }

    /// Told to stop: what is ready is written, and nothing is given up.
    async fn last(&mut self, ends: &mut impl Ends) -> io::Result<usize> {
        self.send(ends).await?;
        Ok(0)
    }

    /// Nothing more is asked. What runs may still be answered, if that takes no longer than the
    /// ends allow and somebody hears it.
    async fn finish<E: Ends>(&mut self, ends: &mut E) -> io::Result<usize> {
        self.send(ends).await?;
        self.session.fall_silent();
        for id in &self.listening {
            if let Some(listening) = self.in_flight.get(id) {
                listening.cancel();
            }
        }
        let late = tokio::time::sleep(E::GRACE);
        let mut late = std::pin::pin!(late);
        let ending = self.server.ending.clone();
        loop {
            // `join_next_with_id` and `recv` are cancel safe, and `late` outlives the loop. The
            // order is free: `done` puts what was said before an answer in front of it.
            tokio::select! {
                done = self.work.join_next_with_id() => match done {
                    None => return Ok(0),
                    Some(done) => self.done(done),
                },
                Some(outgoing) = self.outgoing.recv() => self.say(outgoing),
                () = ends.unheard() => return Ok(0),
                () = ending.cancelled() => return Ok(0),
                () = &mut late => {
                    let open = self.in_flight.keys();
                    return Ok(open.filter(|id| !self.listening.contains(id)).count());
                }
            }
            self.send(ends).await?;
        }
    }

    /// A request is over. One whose task panicked is answered as well: its client waits.
    fn done(&mut self, done: Done) {
        let task = done.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        let Some(id) = self.worked_on.remove(&task) else {
            return;
        };
        let answer = match done {
            Ok((_, answer)) => answer,
            Err(_) => {
                let error = RpcError::new(INTERNAL_ERROR, "the request's task ended early");
                let mut message = Vec::new();
                jsonrpc::write_error(Some(&id), &error, &mut message);
                Some(message)
            }
        };
        let id = id.plain();
        self.in_flight.remove(&id);
        self.listening.remove(&id);
        // What was said before the answer is told before it.
        while let Ok(said) = self.outgoing.try_recv() {
            self.say(said);
        }
        if let Some(answer) = answer {
            self.ready.extend_from_slice(&answer);
            self.ready.push(b'\n');
        }
    }

    fn say(&mut self, said: Outgoing) {
        match said {
            Outgoing::Message(message) => {
                self.ready.extend_from_slice(&message);
                self.ready.push(b'\n');
            }
            // A pipe is not let go of.
            Outgoing::Linger => {}
        }
    }

    fn take(&mut self, line: &[u8]) {
        match mcp::parse(line) {
            Err(malformed) => {
                let error = RpcError::new(malformed.code, malformed.message);
                self.refuse(malformed.id.as_ref(), &error);
            }
            Ok(Message::Response { id, result }) => self.session.answered(&id, result),
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancelled(&params.unwrap_or_default());
                }
            }
            Ok(Message::Request {
                id, method, params, ..
            }) => {
                self.request(id, method, params);
            }
        }
    }

    fn cancelled(&mut self, params: &Params) {
        let params: Option<CancelledParams> = params.read().ok();
        let id = params.and_then(|params| params.request());
        if let Some(cancel) = id.and_then(|id| self.in_flight.get(&id)) {
            cancel.cancel();
        }
    }

    fn request(&mut self, id: Id, method: String, params: Option<Params>) {
        let request = match self.prepared(&id, method, params) {
            Ok(request) => request,
            Err(error) => return self.refuse(Some(&id), &error),
        };
        let start = self.ready.len();
        let mut request = match self.server.attempt(request, &mut self.ready) {
            Attempt::Done(answered) => {
                self.ready.push(b'\n');
                if answered.ticket.is_some() {
                    self.ticket = self.ticket.max(answered.ticket);
                    self.unsettled.push((id, start..self.ready.len()));
                }
                return;
            }
            Attempt::Pending(request) => request,
        };
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            let words = format!("{IN_FLIGHT_MAX} requests are in flight on this pipe");
            return self.refuse(Some(&id), &RpcError::new(INTERNAL_ERROR, words));
        }
        if self.in_flight.contains_key(&id.plain()) {
            let words = "a request with this id is in flight";
            let error = RpcError::new(jsonrpc::INVALID_REQUEST, words);
            return self.refuse(Some(&id), &error);
        }
        request.cancel = Arc::new(self.server.ending.child_token());
        self.in_flight
            .insert(id.plain(), Arc::clone(&request.cancel));
        if request.method == "subscriptions/listen" {
            self.listening.insert(id.plain());
        }
        let server = Arc::clone(&self.server);
        let task = self.work.spawn(async move {
            let mut message = Vec::new();
            let answered = server.answer(&mut request, &mut message).await;
            (!answered.silent).then_some(message)
        });
        self.worked_on.insert(task.id(), id);
    }

    fn prepared(
        &self,
        id: &Id,
        method: String,
        params: Option<Params>,
    ) -> Result<Request, RpcError> {
        let mut asked = self.server.asked(method, params)?;
        let era = if asked.meta.version.is_some() || asked.method == "server/discover" {
            asked.meta.check_modern()?;
            Era::modern(&mut asked.meta)
        } else {
            Era::Legacy(Arc::clone(&self.session))
        };
        let mut request = self
            .server
            .request(id.clone(), asked, era, self.peer.clone());
        request.out = self.out.clone();
        Ok(request)
    }

    fn refuse(&mut self, id: Option<&Id>, error: &RpcError) {
        jsonrpc::write_error(id, error, &mut self.ready);
        self.ready.push(b'\n');
    }

    /// A legacy client is told of changes as they come; a modern one listens for them.
    fn tell(&mut self, change: Option<Change>) {
        use std::sync::atomic::Ordering;
        if !self.session.begun.load(Ordering::Relaxed) {
            return;
        }
        for change in listen::told(&self.session, change) {
            let (method, params) = listen::notification(&change);
            jsonrpc::write_notification(method, &params, &mut self.ready);
            self.ready.push(b'\n');
        }
    }

    /// Makes answers safe and writes them, in one write. An outcome that could not be recorded
    /// is not told.
    async fn send(&mut self, ends: &mut impl Ends) -> io::Result<()> {
        if let (Some(ticket), Some(gate)) = (self.ticket.take(), self.server.gate())
            && let Err(fault) = gate.settle(ticket).await
        {
            let error = RpcError::new(INTERNAL_ERROR, fault.to_string());
            let told = std::mem::take(&mut self.ready);
            let mut from = 0;
            for (id, answer) in std::mem::take(&mut self.unsettled) {
                self.ready.extend_from_slice(&told[from..answer.start]);
                self.refuse(Some(&id), &error);
                from = answer.end;
            }
            self.ready.extend_from_slice(&told[from..]);
        }
        self.unsettled.clear();
        if self.ready.is_empty() {
            return Ok(());
        }
        // A client that does not read holds us up, but not once all must end.
        tokio::select! {
            written = ends.write(&self.ready) => written?,
            () = self.server.ending.cancelled() => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        self.ready.clear();
        if self.ready.capacity() > 16 * BATCH_BYTES {
            self.ready = Vec::new();
        }
        Ok(())
    }
}

async fn changed(changes: &mut Option<Listener>) -> Option<Change> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig;
    use super::*;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, Lines, ReadHalf};

    async fn next(answers: &mut Lines<BufReader<ReadHalf<DuplexStream>>>) -> Value {
        let answer = answers.next_line().await.unwrap().unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// One more than may be at work is refused, at once and alone; one that ends makes room.
    #[tokio::test]
    async fn requests_in_flight_are_bounded() {
        let (server, _) = rig::server();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let stop = Cancel::new();
        let client = async {
            let (reading, mut writing) = tokio::io::split(near);
            let mut answers = BufReader::new(reading).lines();
            let call = |id: usize| {
                json!({
                    "jsonrpc": "2.0", "id": id, "method": "tools/call",
                    "params": { "name": "hangs" },
                })
            };
            for id in 0..IN_FLIGHT_MAX {
                let line = format!("{}\n", call(id));
                writing.write_all(line.as_bytes()).await.unwrap();
            }
            // What needs no room is answered all the same.
            let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
            let lines = format!("{ping}\n{}\n", call(IN_FLIGHT_MAX));
            writing.write_all(lines.as_bytes()).await.unwrap();
            assert_eq!(next(&mut answers).await["id"], "p");
            let refused = next(&mut answers).await;
            assert_eq!(refused["id"], IN_FLIGHT_MAX);
            assert_eq!(refused["error"]["code"], INTERNAL_ERROR);
            let cancel = json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": { "requestId": 7 },
            });
            writing
                .write_all(format!("{cancel}\n").as_bytes())
                .await
                .unwrap();
            // Taken once the one before is gone: then it is the ping that is answered.
            for id in IN_FLIGHT_MAX + 1.. {
                let lines = format!("{}\n{ping}\n", call(id));
                writing.write_all(lines.as_bytes()).await.unwrap();
                let answer = next(&mut answers).await;
                if answer["id"] == "p" {
                    break;
                }
                assert_eq!(answer["error"]["code"], INTERNAL_ERROR);
                assert_eq!(next(&mut answers).await["id"], "p");
            }
            drop(writing);
        };
        let peer = rig::peer();
        let (served, ()) = tokio::join!(serve(&server, peer, Socket(far), &stop), client);
        served.unwrap();
    }

    /// A panic costs its own request, which is answered, and whose id may be used again.
    #[tokio::test]
    async fn a_panic_is_answered() {
        let (server, _) = rig::server();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let stop = Cancel::new();
        let client = async {
            let (reading, mut writing) = tokio::io::split(near);
            let mut answers = BufReader::new(reading).lines();
            for _ in 0..2 {
                let call = json!({
                    "jsonrpc": "2.0", "id": "x", "method": "tools/call",
                    "params": { "name": rig::PANICS },
                });
                writing
                    .write_all(format!("{call}\n").as_bytes())
                    .await
                    .unwrap();
                let answer = next(&mut answers).await;
                assert_eq!(answer["id"], "x");
                assert_eq!(answer["error"]["code"], INTERNAL_ERROR, "{answer}");
            }
        };
        let peer = rig::peer();
        let (served, ()) = tokio::join!(serve(&server, peer, Socket(far), &stop), client);
        served.unwrap();
    }

    /// Whoever wants to listen and is refused leaves nothing behind on the pipe.
    #[tokio::test]
    async fn refused_listeners_are_forgotten() {
        let (server, _) = rig::server();
        let (out, outgoing) = Outbox::new();
        let mut pipe = Pipe::new(&server, rig::peer(), out, outgoing);
        for id in 0..3 {
            let params = Some(Params::Other(json!({ "_meta": rig::modern_meta() })));
            let method = "subscriptions/listen".to_owned();
            pipe.request(Id::number(id), method, params);
            assert_eq!(pipe.listening.len(), 1);
            let done = pipe.work.join_next_with_id().await.unwrap();
            pipe.done(done);
        }
        assert!(pipe.listening.is_empty() && pipe.in_flight.is_empty());
        assert!(pipe.worked_on.is_empty());
        assert_eq!(pipe.ready.split(|byte| *byte == b'\n').count(), 4);
    }
}
