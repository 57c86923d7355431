//! The events of one legacy HTTP stream, kept so that a client whose connection broke can take
//! it up again where it was. Bounded, each and all together: the oldest leave first, and a client
//! that comes back for them gets what is left.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use axum::body::Bytes;
use callgate_call::Cancel;
use callgate_wires::sse;
use tokio::sync::{mpsc, watch};

use callgate_listener::web::HEARTBEAT;

/// Events and bytes of one stream that are kept.
const EVENTS_MAX: usize = 256;
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of all streams of a server that are kept.
const ALL_BYTES_MAX: usize = 64 * 1024 * 1024;
/// When a client that was hung up on should come back.
const RETRY_MS: u64 = 100;
/// How long a call goes on for a client that vanished and may come back.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// What all streams of a server keep together. At the bound those that ended are emptied, the
/// oldest first; then whichever keeps the most forgets its oldest events, but never its newest: a
/// client that lets much pile up costs others nothing.
///
/// Lock order: `ended`, then what a stream keeps. What it keeps is unlocked before room is made, and
/// `all` is a leaf: streams are taken out of it before they are looked at.
#[derive(Default)]
pub(super) struct EventLogs {
    bytes: AtomicUsize,
    all: Mutex<Vec<Weak<EventLog>>>,
    ended: Mutex<VecDeque<Weak<EventLog>>>,
}

impl EventLogs {
    fn ended(&self) -> MutexGuard<'_, VecDeque<Weak<EventLog>>> {
        lock(&self.ended)
    }

    fn are_too_much(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > ALL_BYTES_MAX
    }

    fn make_room(&self) {
        if !self.are_too_much() {
            return;
        }
        // One that is being read keeps its place, and is emptied another time.
        self.ended().retain(|log| {
            let log = log.upgrade();
            log.is_some_and(|log| !self.are_too_much() || !log.empty())
        });
        while self.are_too_much() {
            let all: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
            let shrinks = all.iter().filter(|log| log.kept().events.len() > 1);
            let Some(largest) = shrinks.max_by_key(|log| log.kept().bytes) else {
                return;
            };
            largest.forget_oldest(&mut largest.kept());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One stream.
pub(super) struct EventLog {
    name: String,
    all: Arc<EventLogs>,
    kept: Mutex<Kept>,
    /// Counts what happened, for readers that wait.
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<(u64, Bytes)>,
    bytes: usize,
    next: u64,
    ended: bool,
    hangups: u64,
    readers: usize,
    /// Somebody has begun to read, if only once.
    was_read: bool,
}

impl EventLog {
    pub(super) fn new(name: String, all: &Arc<EventLogs>) -> Arc<Self> {
        let log = Arc::new(Self {
            name,
            all: Arc::clone(all),
            kept: Mutex::new(Kept {
                next: 1,
                ..Kept::default()
            }),
            news: watch::Sender::new(0),
        });
        let mut logs = lock(&all.all);
        logs.retain(|log| log.strong_count() > 0);
        logs.push(Arc::downgrade(&log));
        drop(logs);
        log
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
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
        self.all.bytes.fetch_add(event.len(), Ordering::Relaxed);
        kept.events.push_back((number, event.into()));
        while kept.events.len() > EVENTS_MAX || (kept.bytes > BYTES_MAX && kept.events.len() > 1) {
            self.forget_oldest(&mut kept);
        }
        drop(kept);
        self.all.make_room();
        self.tell();
    }

    fn forget_oldest(&self, kept: &mut Kept) {
        if let Some((_, gone)) = kept.events.pop_front() {
            kept.bytes -= gone.len();
            self.all.bytes.fetch_sub(gone.len(), Ordering::Relaxed);
        }
    }

    /// Forgets all events, unless they are being read, or are about to be; false then.
    fn empty(&self) -> bool {
        let mut kept = self.kept();
        let may_go = kept.readers == 0 && kept.was_read;
        while may_go && !kept.events.is_empty() {
            self.forget_oldest(&mut kept);
        }
        may_go
    }

    /// No event comes after this.
    pub(super) fn end(self: &Arc<Self>) {
        self.kept().ended = true;
        let mut ended = self.all.ended();
        // Those that are gone may be behind one that is still read.
        ended.retain(|log| log.strong_count() > 0);
        ended.push_back(Arc::downgrade(self));
        drop(ended);
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

    pub(super) fn has_ended(&self) -> bool {
        self.kept().ended
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
            kept.was_read = true;
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
                (events, kept.ended || kept.hangups > hangups)
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
            // `changed` is cancel safe, and the events stay in the log: the loop looks again from
            // `seen` on.
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
                (kept.ended, kept.readers)
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
            // Both arms only wait, and the state is looked at again after either.
            tokio::select! {
                _ = news.changed() => {}
                () = tokio::time::sleep(GRACE) => {
                    let kept = self.kept();
                    if kept.readers == 0 && !kept.ended {
                        drop(kept);
                        cancel.cancel();
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        let bytes = self.kept().bytes;
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
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

    /// One that was read before.
    fn log(all: &Arc<EventLogs>) -> Arc<EventLog> {
        let log = EventLog::new("s".to_owned(), all);
        log.kept().was_read = true;
        log
    }

    #[tokio::test]
    async fn taken_up_where_it_was() {
        let log = log(&Arc::default());
        for message in [b"1", b"2", b"3"] {
            log.push(message);
        }
        log.end();
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
        let log = log(&Arc::default());
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

    /// All streams together have a bound: those that ended are emptied, the oldest first, and
    /// then the largest have fewer events, while small ones keep theirs. What is dropped is not
    /// counted.
    #[test]
    fn bounded_together() {
        let all = Arc::<EventLogs>::default();
        let bytes = || all.bytes.load(Ordering::Relaxed);
        let message = vec![b'x'; BYTES_MAX / 4];
        let of_three = || {
            let log = log(&all);
            (0..3).for_each(|_| log.push(&message));
            log
        };
        let logs: Vec<_> = (0..ALL_BYTES_MAX / BYTES_MAX).map(|_| of_three()).collect();
        let [first, second, rest @ ..] = &logs[..] else {
            panic!("more than two fit");
        };
        second.end();
        first.end();
        let mut more = Vec::new();
        while second.kept().bytes > 0 {
            assert!(bytes() <= ALL_BYTES_MAX);
            more.push(of_three());
        }
        assert!(bytes() <= ALL_BYTES_MAX);
        assert_eq!(first.kept().events.len(), 3, "it ended later");
        while first.kept().bytes > 0 {
            more.push(of_three());
        }
        assert!(rest.iter().all(|log| log.kept().events.len() == 3));
        let small = log(&all);
        small.push(b"question");
        let last = of_three();
        small.push(b"progress");
        assert_eq!(
            small.kept().events.len(),
            2,
            "it is not what takes the room"
        );
        let kept = |log: &Arc<EventLog>| log.kept().events.len();
        let all_but_small = rest.iter().chain(&more).chain([&last]);
        assert!(
            all_but_small
                .map(kept)
                .all(|events| (2..=3).contains(&events))
        );
        assert!(bytes() <= ALL_BYTES_MAX);
        drop((logs, more, last, small));
        assert_eq!(bytes(), 0);
    }

    /// One that is read is not emptied until it is not, and those that ended after it are not
    /// remembered once they are gone.
    #[test]
    fn one_that_is_read_for_long() {
        let all = Arc::<EventLogs>::default();
        let long = log(&all);
        long.push(b"x");
        long.end();
        for _ in 0..3 {
            log(&all).end();
        }
        log(&all).end();
        assert!(all.ended().len() <= 2, "it and the last");
        long.kept().readers = 1;
        let message = vec![b'x'; ALL_BYTES_MAX];
        let grows = log(&all);
        grows.push(&message);
        assert_eq!(long.kept().events.len(), 1);
        long.kept().readers = 0;
        long.kept().was_read = false;
        grows.push(&message);
        assert_eq!(long.kept().events.len(), 1, "its reader is on the way");
        long.kept().was_read = true;
        grows.push(&message);
        assert_eq!(long.kept().events.len(), 0);
    }
}
