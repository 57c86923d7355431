//! A conversation that lasts: a pair of pipes, a WebSocket. Requests run at the same time and are
//! answered as they end; events stand between the answers. One place writes, so nothing is torn.
//! A client that does not read is waited for, and nobody else is: its events stay in their ring,
//! which it is told the gap of, and its requests are not read.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Cancel, Told};
use callgate_wires::jsonrpc::parse_batch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::news::{News, notification};
use super::{BATCH_MAX, Peer, Reached, Rpc};

/// Messages at work at the same time; the next one waits.
const IN_FLIGHT_MAX: usize = 256;
/// So much is gathered before it is written.
const GATHERED_BYTES: usize = 64 * 1024;
/// How long a call that was ended may take to say so.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// How long a write may still take once all is to end.
const LAST_WRITE: Duration = Duration::from_secs(1);
/// How long a conversation that was stopped may take altogether.
pub const LAST_WORDS: Duration = Duration::from_secs(7);
const _: () = assert!(LAST_WORDS.as_secs() > LAST_ANSWER.as_secs() + LAST_WRITE.as_secs());

/// Where a conversation's messages come from and go to.
pub(super) trait Ends: Send {
    /// How long what runs may still answer once reading has ended.
    const GRACE: Duration;
    /// How long a client may leave a write unread before it is given up.
    const PATIENCE: Option<Duration>;

    /// The next thing that came. Nothing is lost where this is given up.
    fn receive(&mut self) -> impl Future<Output = io::Result<Received>> + Send;

    /// Ready once nobody is left to be answered, where that can be known.
    fn unheard(&mut self) -> impl Future<Output = ()> + Send;

    /// Appends a message as it is written.
    fn put(&self, message: &[u8], out: &mut Vec<u8>);

    /// Writes everything, waiting for the reader.
    fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Appends what is said last.
    fn put_farewell(&self, out: &mut Vec<u8>);
}

/// What came.
pub(super) enum Received {
    Message(Vec<u8>),
    /// Nothing to carry out; these bytes are the answer as it is written.
    Reply(Vec<u8>),
    End,
}

/// Has one conversation until its end, or until `stop`.
pub(super) async fn converse<E: Ends>(
    rpc: &Arc<Rpc>,
    mut peer: Peer,
    reached: Reached,
    ends: E,
    stop: &Cancel,
) -> io::Result<()> {
    let topics = rpc.gate.topics();
    let hearer = topics.connection();
    let subscription = topics.listen(hearer.clone());
    peer.hearer = Some(hearer);
    let news = News::new(Arc::clone(&rpc.gate), peer.clone(), subscription);
    let mut conversation = Conversation {
        rpc,
        peer,
        reached,
        ends,
        stop,
        news,
        work: JoinSet::new(),
        out: Vec::new(),
    };
    let why = conversation.go_on().await?;
    conversation.finish(why).await?;
    let Conversation { ends, out, .. } = &mut conversation;
    ends.put_farewell(out);
    conversation.flush().await
}

struct Conversation<'a, E> {
    rpc: &'a Arc<Rpc>,
    peer: Peer,
    reached: Reached,
    ends: E,
    stop: &'a Cancel,
    news: News,
    work: JoinSet<Option<Vec<u8>>>,
    /// What waits to be written.
    out: Vec<u8>,
}

/// What happened next.
enum Next {
    Received(Received),
    Done(Option<Vec<u8>>),
    Told(Told),
    Stop,
}

/// Why nothing more is read.
#[derive(Clone, Copy)]
enum Why {
    /// Nothing more comes.
    End,
    /// We were told to stop.
    Stop,
}

impl<E: Ends> Conversation<'_, E> {
    /// Until nothing more comes.
    async fn go_on(&mut self) -> io::Result<Why> {
        loop {
            let may_read = self.work.len() < IN_FLIGHT_MAX;
            // All arms are cancel safe: bytes that were read stay in the ends, answers in the set,
            // events in the ring.
            let next = tokio::select! {
                received = self.ends.receive(), if may_read => Next::Received(received?),
                Some(done) = self.work.join_next() => Next::Done(done.ok().flatten()),
                told = self.news.next() => Next::Told(told),
                () = self.stop.cancelled() => Next::Stop,
            };
            match next {
                Next::Received(Received::Message(message)) => self.begin(&message),
                Next::Received(Received::Reply(reply)) => {
                    self.out.extend_from_slice(&reply);
                    self.flush().await?;
                }
                Next::Received(Received::End) => return Ok(Why::End),
                Next::Stop => return Ok(Why::Stop),
                Next::Done(answer) => self.answer(answer).await?,
                Next::Told(told) => {
                    self.put(&notification(&told));
                    self.tell().await?;
                    self.flush().await?;
                }
            }
        }
    }

    /// What still runs has as long as the ends allow while somebody hears it, or all it takes
    /// where it is we who stop; whatever is left then has nobody to tell, and ends as it is dropped.
    async fn finish(&mut self, why: Why) -> io::Result<()> {
        let end = self.rpc.closing.end.clone();
        let late = async {
            let stopped = async {
                end.cancelled().await;
                tokio::time::sleep(LAST_ANSWER).await;
            };
            match why {
                Why::End => drop(timeout(E::GRACE, stopped).await),
                Why::Stop => stopped.await,
            }
        };
        let mut late = std::pin::pin!(late);
        loop {
            // `join_next` and `next` are cancel safe, and `late` outlives the loop.
            let done = tokio::select! {
                done = self.work.join_next() => done,
                told = self.news.next() => {
                    self.put(&notification(&told));
                    self.flush().await?;
                    continue;
                }
                () = self.ends.unheard() => None,
                () = &mut late => None,
            };
            match done {
                Some(done) => self.answer(done.ok().flatten()).await?,
                None => return Ok(()),
            }
        }
    }

    fn begin(&mut self, message: &[u8]) {
        let (rpc, peer) = (Arc::clone(self.rpc), self.peer.clone());
        let (reached, came) = (self.reached.clone(), parse_batch(message, BATCH_MAX));
        self.work
            .spawn(async move { rpc.answer(&peer, &reached, came).await });
    }

    /// An answer, and those that are ready with it. What was told before is said before.
    async fn answer(&mut self, first: Option<Vec<u8>>) -> io::Result<()> {
        let mut answer = first;
        loop {
            self.tell().await?;
            if let Some(answer) = answer {
                self.put(&answer);
            }
            if self.out.len() >= GATHERED_BYTES {
                self.flush().await?;
            }
            match self.work.try_join_next() {
                Some(done) => answer = done.ok().flatten(),
                None => return self.flush().await,
            }
        }
    }

    /// All events up to this moment.
    async fn tell(&mut self) -> io::Result<()> {
        let until = self.rpc.gate.topics().count();
        while self.news.place() < until
            && let Some(told) = self.news.now()
        {
            self.put(&notification(&told));
            if self.out.len() >= GATHERED_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    fn put(&mut self, message: &[u8]) {
        self.ends.put(message, &mut self.out);
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.out);
        let stop = self.stop.clone();
        let given_up = async {
            let stopped = async {
                stop.cancelled().await;
                tokio::time::sleep(LAST_WRITE).await;
            };
            match E::PATIENCE {
                Some(patience) => drop(timeout(patience, stopped).await),
                None => stopped.await,
            }
        };
        // A dropped write may have sent half a message. The error ends the conversation, so nothing
        // follows it.
        tokio::select! {
            written = self.ends.write(&bytes) => written,
            () = given_up => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}
