//! When events are written, and what may be dropped. S-15. Sizes are real ones: a line and its
//! end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use callgate_call::{KeepError, RunEvent, RunPolicy};

/// What `strict` takes ahead of the disk.
pub const STRICT_EVENTS_MAX: u64 = 1024;
/// And in bytes; a larger event is a batch of its own.
pub const STRICT_BYTES_MAX: usize = 1024 * 1024;
/// What `streaming` holds at most.
pub const STREAMING_EVENTS_MAX: u64 = 50_000;
/// And in bytes. `buffered` holds as much where its owner gave it no bound in bytes.
pub const STREAMING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Memory that a batch keeps for the next one.
const SPARE_BYTES: usize = 4 * 1024 * 1024;

/// What waits to be written.
pub(super) enum Waiting {
    Batch(Batch),
    Held(Held),
}

impl Waiting {
    pub(super) fn new(policy: &RunPolicy) -> Result<Self, KeepError> {
        let needs = |what: &str| KeepError::Failed(what.to_owned());
        Ok(match policy {
            RunPolicy::Strict => Self::Batch(Batch::new(Limits {
                count: Some(STRICT_EVENTS_MAX),
                interval: None,
                bytes_max: STRICT_BYTES_MAX,
                is_durable: true,
            })),
            RunPolicy::Streaming { count, interval } => {
                if count.is_none() && interval.is_none() || *count == Some(0) {
                    return Err(needs(
                        "streaming needs a count of 1 or more, or an interval",
                    ));
                }
                Self::Batch(Batch::new(Limits {
                    count: *count,
                    interval: *interval,
                    bytes_max: STREAMING_BYTES_MAX,
                    is_durable: false,
                }))
            }
            RunPolicy::Buffered { events, bytes } => {
                if events.is_none() && bytes.is_none() {
                    return Err(needs("buffered needs a bound in events or in bytes"));
                }
                Self::Held(Held {
                    events_max: events.unwrap_or(u64::MAX),
                    bytes_max: bytes.unwrap_or(STREAMING_BYTES_MAX as u64),
                    ..Held::default()
                })
            }
        })
    }
}

struct Limits {
    /// Events of a batch.
    count: Option<u64>,
    /// The longest an event waits.
    interval: Option<Duration>,
    bytes_max: usize,
    /// A batch is on the disk before the next is taken.
    is_durable: bool,
}

/// Lines, ready to be written as they are.
pub(super) struct Batch {
    limits: Limits,
    pub(super) lines: Vec<u8>,
    pub(super) events: u64,
    /// When the oldest of them came, in the clock's microseconds.
    since: u64,
}

impl Batch {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            lines: Vec::new(),
            events: 0,
            since: 0,
        }
    }

    pub(super) fn is_durable(&self) -> bool {
        self.limits.is_durable
    }

    /// The clock is not asked where nobody waits for it.
    pub(super) fn is_timed(&self) -> bool {
        self.limits.interval.is_some()
    }

    /// True if what is there must be written before this line is taken.
    pub(super) fn is_full_for(&self, line: &[u8]) -> bool {
        self.events > 0 && self.lines.len() + line.len() >= self.limits.bytes_max
    }

    pub(super) fn add(&mut self, line: &[u8], now: u64) {
        if self.events == 0 {
            self.since = now;
        }
        self.lines.reserve(line.len() + 1);
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
        self.events += 1;
    }

    /// What makes it due to be written, if anything does.
    pub(super) fn due(&self, now: u64) -> Option<&'static str> {
        if self.events == 0 {
            None
        } else if self.limits.count.is_some_and(|count| self.events >= count) {
            Some("count")
        } else if self.events >= STREAMING_EVENTS_MAX || self.lines.len() >= self.limits.bytes_max {
            Some("capacity")
        } else if self.left(now) == Some(Duration::ZERO) {
            Some("interval")
        } else {
            None
        }
    }

    /// How long it may wait yet.
    pub(super) fn left(&self, now: u64) -> Option<Duration> {
        let interval = self.limits.interval.filter(|_| self.events > 0)?;
        let waited = Duration::from_micros(now.saturating_sub(self.since));
        Some(interval.saturating_sub(waited))
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.lines.shrink_to(SPARE_BYTES);
        self.events = 0;
    }
}

/// Events of `buffered`, until the end.
#[derive(Default)]
pub(super) struct Held {
    events_max: u64,
    bytes_max: u64,
    /// By number, so that they are written in order whatever was dropped.
    pub(super) events: BTreeMap<u64, HeldEvent>,
    bytes: u64,
    /// Numbers of those that may be dropped, the oldest first, and their bytes.
    droppable: VecDeque<u64>,
    droppable_bytes: u64,
}

pub(super) struct HeldEvent {
    /// The number of its type.
    pub(super) kind: usize,
    /// With its end.
    pub(super) line: Box<[u8]>,
}

/// What became of an event that was handed over.
pub(super) enum Taken {
    /// It is held, and events of these types had to go for it.
    Held { dropped: Vec<usize> },
    /// It was left out.
    Dropped,
}

impl Held {
    /// ST-84: a full buffer drops what may be dropped, the incoming one first.
    pub(super) fn add(&mut self, event: &RunEvent<'_>, kind: usize) -> Result<Taken, KeepError> {
        let bytes = event.line.len() as u64 + 1;
        let may_drop = may_drop(event.kind);
        if may_drop && !self.fits(bytes, 0, 0) {
            return Ok(Taken::Dropped);
        }
        let count = self.droppable.len() as u64;
        if !self.fits(bytes, count, self.droppable_bytes) {
            return Err(KeepError::BufferFull);
        }
        let mut dropped = Vec::new();
        while !self.fits(bytes, 0, 0) {
            dropped.extend(self.drop_oldest());
        }
        let mut line = Vec::with_capacity(event.line.len() + 1);
        line.extend_from_slice(event.line);
        line.push(b'\n');
        let line = line.into_boxed_slice();
        self.bytes += bytes;
        if may_drop {
            self.droppable.push_back(event.seq);
            self.droppable_bytes += bytes;
        }
        self.events.insert(event.seq, HeldEvent { kind, line });
        Ok(Taken::Held { dropped })
    }

    /// True if so many more bytes fit, were so much else gone.
    fn fits(&self, bytes: u64, gone: u64, gone_bytes: u64) -> bool {
        (self.events.len() as u64 - gone) < self.events_max
            && (self.bytes - gone_bytes).saturating_add(bytes) <= self.bytes_max
    }

    fn drop_oldest(&mut self) -> Option<usize> {
        let oldest = self.events.remove(&self.droppable.pop_front()?)?;
        self.bytes -= oldest.line.len() as u64;
        self.droppable_bytes -= oldest.line.len() as u64;
        Some(oldest.kind)
    }

    /// Those up to this number are written.
    pub(super) fn forget(&mut self, through: u64) {
        while let Some(first) = self.events.first_entry().filter(|e| *e.key() <= through) {
            let (seq, event) = first.remove_entry();
            let bytes = event.line.len() as u64;
            self.bytes -= bytes;
            if self.droppable.front() == Some(&seq) {
                self.droppable.pop_front();
                self.droppable_bytes -= bytes;
            }
        }
    }
}

/// ST-84.
fn may_drop(kind: &str) -> bool {
    matches!(kind, "log" | "enqueue" | "rotate_proxy")
}
