//! What a session has printed, in lines with a time each. R-11.
//!
//! Kept as it came and cut into lines when it is read: printing is frequent, reading is not. Each
//! line takes a microsecond of its own, so that its time says where to read on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callgate_call::Stream;

/// Bytes of one session's log; the oldest leave first.
pub const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of all logs together. At this bound those of sessions that have ended give way, the one
/// that ended first before all others, and then the longest of those that run.
pub const LOGS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What a piece takes beside its text: many small ones are bounded too.
const PIECE_BYTES: usize = 64;

/// Something that was printed at once.
#[derive(Clone, Debug)]
struct Piece {
    /// The time of its first line; each further one is a microsecond later.
    first_us: u64,
    stream: Stream,
    text: Arc<str>,
}

/// One line, or as much of it as was printed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    pub at_us: u64,
    pub stream: Stream,
    pub text: &'a str,
}

/// What all logs take.
#[derive(Debug, Default)]
pub struct Space {
    bytes: AtomicUsize,
    max: usize,
}

impl Space {
    pub fn new(max: usize) -> Self {
        let bytes = AtomicUsize::new(0);
        Self { bytes, max }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.bytes() > self.max
    }

    /// What they are brought down to, so that this is not done again for every line.
    pub fn kept(&self) -> usize {
        self.max / 16 * 15
    }

    /// What they have beyond that.
    pub fn excess(&self) -> usize {
        self.bytes().saturating_sub(self.kept())
    }
}

/// The lines of one session.
#[derive(Debug, Default)]
pub struct Log {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// The time of the last line.
    last_us: u64,
    /// Where `bytes` are counted.
    space: Arc<Space>,
}

impl Log {
    /// One that counts in `space`.
    pub fn new(space: Arc<Space>) -> Self {
        Self {
            pieces: VecDeque::new(),
            bytes: 0,
            last_us: 0,
            space,
        }
    }

    /// What it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the oldest until no more than `bytes` are left.
    pub fn shrink(&mut self, bytes: usize) {
        while self.bytes > bytes
            && let Some(old) = self.pieces.pop_front()
        {
            let freed = old.text.len() + PIECE_BYTES;
            self.bytes -= freed;
            self.space.bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }

    /// Adds what was printed. Gives the time of its last line.
    pub fn push(&mut self, now_us: u64, stream: Stream, text: impl Into<Arc<str>>) -> u64 {
        let text = text.into();
        if text.is_empty() {
            return self.last_us;
        }
        let lines = count(&text) as u64;
        let first_us = now_us.max(self.last_us + 1);
        self.last_us = first_us + lines - 1;
        self.bytes += text.len() + PIECE_BYTES;
        self.space
            .bytes
            .fetch_add(text.len() + PIECE_BYTES, Ordering::Relaxed);
        self.pieces.push_back(Piece {
            first_us,
            stream,
            text,
        });
        self.shrink(LOG_BYTES_MAX);
        self.last_us
    }

    /// The time of the last line; 0 if there is none.
    pub fn last_us(&self) -> u64 {
        self.last_us
    }

    /// All that has lines after `since_us`. No text is copied: whoever looks at it needs not hold
    /// up whoever prints.
    pub fn excerpt(&self, since_us: u64) -> Self {
        let from = self
            .pieces
            .partition_point(|piece| piece.last_us() <= since_us);
        Self {
            pieces: self.pieces.range(from..).cloned().collect(),
            bytes: 0,
            last_us: self.last_us,
            space: Arc::default(),
        }
    }

    /// What came after `since_us`, of that the last `lines_max` lines.
    pub fn read(&self, since_us: u64, lines_max: Option<usize>) -> Vec<Line<'_>> {
        self.page(since_us, lines_max, usize::MAX).0
    }

    /// The first `page_max` of those, and how many come behind them. No more than a page is ever
    /// there at once: lines can be as many as bytes.
    pub fn page(
        &self,
        since_us: u64,
        lines_max: Option<usize>,
        page_max: usize,
    ) -> (Vec<Line<'_>>, usize) {
        let all = || {
            let lines = self.pieces.iter().flat_map(Piece::lines);
            lines.filter(|line| line.at_us > since_us)
        };
        let count = all().count();
        let texts = self.pieces.iter().rev();
        let texts = texts.flat_map(|piece| piece.text.split_inclusive('\n').rev());
        let wanted = match lines_max {
            Some(max) => last_lines(texts.take(count), max),
            None => count,
        };
        let page: Vec<Line<'_>> = all().skip(count - wanted).take(page_max).collect();
        let more = wanted - page.len();
        (page, more)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.space.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What each of some logs may keep, the shortest first, so that they have `bytes` together: only
/// the longest give way.
pub fn level(shortest_first: &[usize], bytes: usize) -> usize {
    let mut left = bytes;
    for (index, size) in shortest_first.iter().enumerate() {
        let share = left / (shortest_first.len() - index);
        if *size > share {
            return share;
        }
        left -= size;
    }
    usize::MAX
}

impl Piece {
    fn last_us(&self) -> u64 {
        self.first_us + count(&self.text) as u64 - 1
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let times = self.first_us..;
        let texts = self.text.split_inclusive('\n');
        times.zip(texts).map(|(at_us, text)| Line {
            at_us,
            stream: self.stream,
            text,
        })
    }
}

/// Lines of a text, a last one without its end included.
fn count(text: &str) -> usize {
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).count();
    ends + usize::from(!text.ends_with('\n'))
}

/// How many of these, which begin with the last, make up so many lines. A line that was printed in
/// parts is one.
fn last_lines<'a>(last_first: impl Iterator<Item = &'a str>, max: usize) -> usize {
    let (mut lines, mut taken) = (0, 0);
    for text in last_first {
        if taken == 0 || text.ends_with('\n') {
            if lines == max {
                break;
            }
            lines += 1;
        }
        taken += 1;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<'a>(lines: &[Line<'a>]) -> Vec<&'a str> {
        lines.iter().map(|line| line.text).collect()
    }

    /// times rise from line to line, whatever the clock does, and say where to read on.
    #[test]
    fn times_only_rise() {
        let mut log = Log::default();
        assert_eq!(log.push(100, Stream::Stdout, "a\nb\nc"), 102);
        assert_eq!(log.push(50, Stream::Stderr, "d\n"), 103);
        assert_eq!(log.push(50, Stream::Stdout, ""), 103);
        assert_eq!(log.push(500, Stream::Stdout, "e\n"), 500);
        let all = log.read(0, None);
        let times: Vec<u64> = all.iter().map(|line| line.at_us).collect();
        assert_eq!(times, [100, 101, 102, 103, 500]);
        assert_eq!(texts(&all), ["a\n", "b\n", "c", "d\n", "e\n"]);
        assert_eq!(all[3].stream, Stream::Stderr);
        for (at, _) in times.iter().enumerate() {
            let excerpt = log.excerpt(times[at]);
            assert_eq!(texts(&excerpt.read(times[at], None)), texts(&all[at + 1..]));
        }
    }

    /// the last lines, and one that came in parts is one.
    #[test]
    fn the_last_lines() {
        let mut log = Log::default();
        for part in ["one\ntw", "o", "\nthree\nfo", "ur"] {
            log.push(1, Stream::Stdout, part);
        }
        for (max, wanted) in [
            (1, "four"),
            (2, "three\nfour"),
            (3, "two\nthree\nfour"),
            (4, "one\ntwo\nthree\nfour"),
            (9, "one\ntwo\nthree\nfour"),
        ] {
            assert_eq!(texts(&log.read(0, Some(max))).concat(), wanted, "{max}");
        }
    }

    /// page by page nothing is lost, and each says how much there is behind it.
    #[test]
    fn pages() {
        let mut log = Log::default();
        for part in ["1\n2\n3", "\n4\n", "5\n6\n7\n"] {
            log.push(1, Stream::Stdout, part);
        }
        let all = log.read(0, None);
        for page_max in 1..=all.len() + 1 {
            let (mut since_us, mut seen) = (0, Vec::new());
            loop {
                let (page, more) = log.page(since_us, None, page_max);
                assert!(page.len() <= page_max);
                seen.extend(page);
                assert_eq!(seen.len() + more, all.len());
                since_us = seen[seen.len() - 1].at_us;
                if more == 0 {
                    break;
                }
            }
            assert_eq!(seen, all);
        }
        let (page, more) = log.page(0, Some(4), 3);
        assert_eq!((texts(&page), more), (vec!["4\n", "5\n", "6\n"], 1));
    }

    #[test]
    fn the_longest_give_way() {
        assert_eq!(level(&[], 10), usize::MAX);
        assert_eq!(level(&[1, 2, 7], 10), usize::MAX);
        assert_eq!(level(&[1, 2, 8], 10), 7);
        assert_eq!(level(&[1, 6, 6, 6], 10), 3);
        assert_eq!(level(&[5, 5], 0), 0);
    }

    /// What is dropped is not counted any more, whoever drops it.
    #[test]
    fn the_space_of_all() {
        let space = Arc::new(Space::default());
        let mut logs = [0, 1].map(|_| Log::new(Arc::clone(&space)));
        for log in &mut logs {
            log.push(0, Stream::Stdout, "one\n");
            log.push(0, Stream::Stdout, "three\n");
        }
        assert_eq!(space.bytes(), 2 * (10 + 2 * PIECE_BYTES));
        drop(logs[0].excerpt(0));
        logs[0].shrink(6 + PIECE_BYTES);
        assert_eq!(texts(&logs[0].read(0, None)), ["three\n"]);
        assert_eq!(space.bytes(), 16 + 3 * PIECE_BYTES);
        drop(logs);
        assert_eq!(space.bytes(), 0);
    }

    /// at the bound the oldest leave, and times go on.
    #[test]
    fn the_oldest_leave() {
        let mut log = Log::default();
        let line = format!("{}\n", "x".repeat(1023));
        for _ in 0..5000 {
            log.push(0, Stream::Stdout, &*line);
        }
        let held = log.read(0, None);
        assert_eq!(held.len(), LOG_BYTES_MAX / (1024 + PIECE_BYTES));
        assert_eq!(held.last().map(|line| line.at_us), Some(5000));
        let mut log = Log::default();
        for _ in 0..100_000 {
            log.push(0, Stream::Stdout, "k");
        }
        assert!(log.pieces.len() <= LOG_BYTES_MAX / PIECE_BYTES);
    }
}
