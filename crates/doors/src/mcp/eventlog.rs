//! The events of one legacy HTTP stream, kept so that a client whose connection broke can take
//! it up again where it was. Bounded: the oldest leave first, and a client that comes back for
//! them gets what is left.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use axum::body::Bytes;
use callgate_call::{Cancel, Timestamp};
use callgate_wires::sse;
use tokio::sync::{mpsc, watch};

use crate::web::HEARTBEAT;

/// Events and bytes of one stream that are kept.
const EVENTS_MAX: usize = 256;
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// When a client that was hung up on should come back.
const RETRY_MS: u64 = 100;
/// How long a call goes on for a client that vanished and may come back.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// One stream.
pub(super) struct EventLog {
    name: String,
    kept: Mutex<Kept>,
    /// Counts what happened, for readers that wait.
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
    next: u64,
    ended: Option<Timestamp>,
    hangups: u64,
    readers: usize,
}

impl EventLog {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            kept: Mutex::new(Kept {
                next: 1,
                ..Kept::default()
            }),
            news: watch::Sender::new(0),
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }

    pub(super) fn push(&self, message: &[u8]) {
        let mut kept = self.kept();
        let mut event = Vec::with_capacity(message.len() + 64);
        let id = format!("{}-{}", self.name, kept.next);
        sse::write_event(Some(&id), message, &mut event);
        let number = kept.next;
        kept.next += 1;
        kept.bytes += event.len();
        kept.events.push_back((number, event.into()));
        while kept.events.len() > EVENTS_MAX || (kept.bytes > BYTES_MAX && kept.events.len() > 1) {
            if let Some((_, gone)) = kept.events.pop_front() {
                kept.bytes -= gone.len();
            }
        }
        drop(kept);
        self.tell();
    }

    /// No event comes after this.
    pub(super) fn end(&self, now: Timestamp) {
        self.kept().ended = Some(now);
        self.tell();
    }

    /// Readers that are there now leave, and come back later.
    pub(super) fn hang_up(&self) {
        self.kept().hangups += 1;
        self.tell();
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    /// True if it ended long ago: whoever wanted to come back for it has.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.kept().ended.is_some_and(|at| now.since(at) >= GRACE)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.kept().ended.is_some()
    }

    /// The event a client begins a stream with, so that it can come back to it.
    pub(super) fn priming(&self) -> Bytes {
        let mut event = Vec::new();
        sse::write_priming(&format!("{}-0", self.name), RETRY_MS, &mut event);
        event.into()
    }

    /// Passes on events after number `after` until there are no more to come, the reader is
    /// gone, or it is hung up on.
    pub(super) async fn feed(&self, after: u64, to: &mpsc::Sender<Bytes>) {
        let mut news = self.news.subscribe();
        let mut seen = after;
        let hangups = {
            let mut kept = self.kept();
            kept.readers += 1;
            kept.hangups
        };
        let _reader = Reader(self);
        loop {
            news.mark_unchanged();
            let (events, over) = {
                let kept = self.kept();
                let events: Vec<(u64, Bytes)> = kept
                    .events
                    .iter()
                    .filter(|(number, _)| *number > seen)
                    .cloned()
                    .collect();
                (events, kept.ended.is_some() || kept.hangups > hangups)
            };
            for (number, event) in events {
                seen = number;
                if to.send(event).await.is_err() {
                    return;
                }
            }
            if over {
                return;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                () = to.closed() => return,
                () = tokio::time::sleep(HEARTBEAT) => {
                    if to.send(Bytes::from_static(sse::HEARTBEAT)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Ends the call behind a stream that nobody reads and nobody comes back to.
    pub(super) async fn guard(&self, cancel: &Cancel) {
        let mut news = self.news.subscribe();
        loop {
            news.mark_unchanged();
            let (ended, readers) = {
                let kept = self.kept();
                (kept.ended.is_some(), kept.readers)
            };
            if ended {
                return;
            }
            if readers > 0 {
                if news.changed().await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                _ = news.changed() => {}
                () = tokio::time::sleep(GRACE) => {
                    let kept = self.kept();
                    if kept.readers == 0 && kept.ended.is_none() {
                        drop(kept);
                        cancel.cancel();
                        return;
                    }
                }
            }
        }
    }
}

struct Reader<'a>(&'a EventLog);

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.kept().readers -= 1;
        self.0.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn taken_up_where_it_was() {
        let log = EventLog::new("s".to_owned());
        for message in [b"1", b"2", b"3"] {
            log.push(message);
        }
        log.end(Timestamp(1));
        for after in 0..=3u64 {
            let (to, mut from) = mpsc::channel(8);
            log.feed(after, &to).await;
            drop(to);
            let mut seen = Vec::new();
            while let Some(event) = from.recv().await {
                seen.extend_from_slice(&event);
            }
            let wanted: String = (after + 1..=3)
                .map(|n| format!("id: s-{n}\nevent: message\ndata: {n}\n\n"))
                .collect();
            assert_eq!(String::from_utf8(seen).unwrap(), wanted);
        }
    }

    #[test]
    fn bounded_in_events_and_bytes() {
        let log = EventLog::new("s".to_owned());
        for _ in 0..3 * EVENTS_MAX {
            log.push(b"x");
        }
        assert_eq!(log.kept().events.len(), EVENTS_MAX);
        log.push(&vec![b'x'; 2 * BYTES_MAX]);
        assert_eq!(log.kept().events.len(), 1);
        log.push(b"y");
        assert_eq!(log.kept().events.len(), 1);
        assert!(log.kept().bytes < 100);
    }
}
