//! What a running tool says on its way to the caller: without secrets, and as a sign of life
//! that extends its time.

use std::sync::atomic::{AtomicU64, Ordering};

use callgate_call::{Clock, Log, Patience, Progress, Secrets, Sink, Stream, Timestamp};

use crate::trace::Trace;

pub(crate) struct Watched<'a> {
    pub(crate) sink: &'a dyn Sink,
    pub(crate) trace: &'a Trace<'a>,
    pub(crate) secrets: &'a Secrets,
    pub(crate) patience: &'a Patience,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) began: Timestamp,
    /// Connections that the tool was refused.
    pub(crate) refused: &'a AtomicU64,
}

impl Sink for Watched<'_> {
    fn chunk(&self, stream: Stream, bytes: &[u8]) {
        self.trace.chunk(stream, bytes);
        self.sink.chunk(stream, bytes);
    }

    fn progress(&self, progress: &Progress) {
        self.patience.extend(self.clock.now().since(self.began));
        match progress
            .message
            .as_deref()
            .and_then(|message| self.secrets.cleaned(message))
        {
            None => self.sink.progress(progress),
            message => self.sink.progress(&Progress {
                message,
                ..progress.clone()
            }),
        }
    }

    fn log(&self, log: &Log) {
        if self.secrets.is_empty() {
            return self.sink.log(log);
        }
        let mut log = log.clone();
        self.secrets.clean_value(&mut log.data);
        self.sink.log(&log);
    }

    fn fact(&self, name: &'static str, value: &str) {
        let value = self.secrets.clean(value);
        self.trace.fact(name, &value);
        self.sink.fact(name, &value);
    }

    fn refused(&self, connections: u64) {
        self.refused.fetch_add(connections, Ordering::Relaxed);
    }

    fn linger(&self) {
        self.sink.linger();
    }
}
