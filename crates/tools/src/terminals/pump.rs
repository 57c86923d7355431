//! Moves what a child prints into its session, for as long as there is a child. It waits for
//! nobody but the child.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::Stream;
use callgate_sandbox::{Child, Ending, Exit, Home};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::Receiver;

use super::engine::Shared;
use super::session::Session;
use super::text::Decoder;
use crate::programs::leave;

/// Bytes that are taken at once: a screenful of notices costs more than one of this size.
const BATCH_BYTES: usize = 64 * 1024;

/// How long a terminal that floods is left alone between two reads. The kernel fills it up 4 KiB
/// at a time, and whoever comes back at once only disturbs it at that: both wait for the same
/// locks, or for each other. With a pause in which it gets filled half as much again gets through.
/// It is slept, because who does the filling may need our core; to wake up takes several times as
/// long as this.
const BREATH: Duration = Duration::from_micros(5);

/// So many bytes at once are a flood.
const FLOOD_BYTES: usize = 1024;

const SIGHUP: u8 = 1;
const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

/// One of a child's streams.
pub struct Source {
    pub stream: Stream,
    pub end: pipe::Receiver,
    pub decoder: Decoder,
    /// Nobody writes to it any more.
    over: bool,
}

impl Source {
    pub fn new(stream: Stream, end: pipe::Receiver, decoder: Decoder) -> Self {
        Self {
            stream,
            end,
            decoder,
            over: false,
        }
    }

    /// Ready when there is something to read.
    async fn ready(&self) {
        // One that fails is told so when it is read.
        match self.over {
            true => std::future::pending().await,
            false => drop(self.end.readable().await),
        }
    }

    fn read(&mut self, batch: &mut Batch) {
        let read = batch.read(|bytes| self.end.try_read(bytes));
        self.over = read.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
    }

    /// What is left when the child has gone.
    fn drain(&mut self, session: &Session, batch: &mut Batch) {
        while !self.over {
            // The runtime may not have heard yet that there is something.
            let read = |bytes: &mut [u8]| Ok(rustix::io::read(&self.end, bytes)?);
            self.over = batch.read(read).is_err();
            let text = self.decoder.feed(batch.take());
            session.printed(self.stream, &text);
        }
        let text = self.decoder.finish();
        session.printed(self.stream, &text);
    }
}

/// What was read at once.
struct Batch {
    bytes: Box<[u8]>,
    filled: usize,
}

impl Batch {
    fn new() -> Self {
        Self {
            bytes: vec![0; BATCH_BYTES].into(),
            filled: 0,
        }
    }

    fn take(&mut self) -> &[u8] {
        &self.bytes[..std::mem::take(&mut self.filled)]
    }

    /// Reads until there is nothing more, or enough. `WouldBlock` if there was nothing, any other
    /// error at the end.
    fn read(&mut self, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<()> {
        while self.filled < BATCH_BYTES {
            match read(&mut self.bytes[self.filled..]) {
                Ok(0) if self.filled == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) => return Ok(()),
                Ok(count) => {
                    self.filled += count;
                    if count >= FLOOD_BYTES && self.filled < BATCH_BYTES {
                        std::thread::sleep(BREATH);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is met again when there is nothing before it.
                Err(_) if self.filled > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A child and what it prints.
pub struct Pump {
    pub session: Arc<Session>,
    /// With whom its log shares a bound.
    pub shared: Arc<Shared>,
    pub child: Child,
    pub home: Option<Home>,
    pub signals: Receiver<u8>,
    pub stdout: Source,
    /// Where it is told apart.
    pub stderr: Option<Source>,
}

impl Pump {
    /// Until nothing is left of the child.
    pub async fn run(mut self) {
        let mut batch = Batch::new();
        let exit = loop {
            match self.next(&mut batch).await {
                Happened::Ended(exit) => break exit,
                Happened::Asked(signal) => self.signal(signal),
                Happened::Printed(stream) => self.pass(stream, &mut batch),
                Happened::Quiet => self.release(),
            }
            self.shared.bound_logs();
            // Others print too.
            tokio::task::yield_now().await;
        };
        self.stdout.drain(&self.session, &mut batch);
        if let Some(stderr) = &mut self.stderr {
            stderr.drain(&self.session, &mut batch);
        }
        self.session.ended(exit.ending);
        self.shared.bound_logs();
        leave(self.home.take()).await;
    }

    async fn next(&mut self, batch: &mut Batch) -> Happened {
        let holds = self.holds();
        let Self {
            child,
            signals,
            stdout,
            stderr,
            shared,
            ..
        } = self;
        // All arms may be dropped: what a stream had was not read yet.
        tokio::select! {
            exit = child.wait() => Happened::Ended(exit),
            Some(signal) = signals.recv() => Happened::Asked(signal),
            stream = fill(stdout, stderr.as_mut(), batch) => Happened::Printed(stream),
            () = tokio::time::sleep(shared.held_max), if holds => Happened::Quiet,
        }
    }

    fn holds(&self) -> bool {
        let held = |source: &Source| source.decoder.holds();
        held(&self.stdout) || self.stderr.as_ref().is_some_and(held)
    }

    fn pass(&mut self, stream: Stream, batch: &mut Batch) {
        let source = match (stream, &mut self.stderr) {
            (Stream::Stderr, Some(stderr)) => stderr,
            _ => &mut self.stdout,
        };
        let text = source.decoder.feed(batch.take());
        self.session.printed(stream, &text);
    }

    fn release(&mut self) {
        for source in [Some(&mut self.stdout), self.stderr.as_mut()]
            .into_iter()
            .flatten()
        {
            let text = source.decoder.release();
            self.session.printed(source.stream, &text);
        }
    }

    /// A shell at its prompt bears SIGTERM; what ends it is what the end of its terminal sends.
    fn signal(&self, signal: u8) {
        match signal {
            SIGKILL => self.child.kill(),
            SIGTERM if self.child.ignores(SIGTERM) => {
                self.child.signal(SIGHUP);
            }
            other => {
                self.child.signal(other);
            }
        }
    }
}

impl Drop for Pump {
    /// However it comes to its end, its session does too: the child goes with it.
    fn drop(&mut self) {
        if self.session.end().is_none() {
            self.session.ended(Ending::Lost);
        }
    }
}

enum Happened {
    Ended(Exit),
    Asked(u8),
    Printed(Stream),
    /// Nothing more has come after what is held back.
    Quiet,
}

/// Which of them has printed something.
async fn fill(stdout: &mut Source, stderr: Option<&mut Source>, batch: &mut Batch) -> Stream {
    let Some(stderr) = stderr else {
        stdout.ready().await;
        stdout.read(batch);
        return Stream::Stdout;
    };
    // `ready` reads nothing: the stream that has something is read below.
    let ready = tokio::select! {
        () = stdout.ready() => Stream::Stdout,
        () = stderr.ready() => Stream::Stderr,
    };
    match ready {
        Stream::Stdout => stdout.read(batch),
        Stream::Stderr => stderr.read(batch),
    }
    ready
}
