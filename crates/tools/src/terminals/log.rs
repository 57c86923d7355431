//! What a session has printed, in lines with a time each. R-11.
//!
//! Kept as it came and cut into lines when it is read: printing is frequent, reading is not. Each
//! line takes a microsecond of its own, so that its time says where to read on.

use std::collections::VecDeque;
use std::sync::Arc;

use callgate_call::Stream;

/// Bytes of one session's log; the oldest leave first.
pub const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

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

/// The lines of one session.
#[derive(Debug, Default)]
pub struct Log {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// The time of the last line.
    last_us: u64,
}

impl Log {
    /// Adds what was printed. Gives the time of its last line.
    pub fn push(&mut self, now_us: u64, stream: Stream, text: &str) -> u64 {
        if text.is_empty() {
            return self.last_us;
        }
        let lines = count(text) as u64;
        let first_us = now_us.max(self.last_us + 1);
        self.last_us = first_us + lines - 1;
        self.bytes += text.len() + PIECE_BYTES;
        self.pieces.push_back(Piece {
            first_us,
            stream,
            text: text.into(),
        });
        while self.bytes > LOG_BYTES_MAX {
            let Some(old) = self.pieces.pop_front() else {
                break;
            };
            self.bytes -= old.text.len() + PIECE_BYTES;
        }
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
        }
    }

    /// What came after `since_us`, of that the last `lines_max` lines.
    pub fn read(&self, since_us: u64, lines_max: Option<usize>) -> Vec<Line<'_>> {
        let mut found: Vec<Line<'_>> = self
            .pieces
            .iter()
            .flat_map(Piece::lines)
            .filter(|line| line.at_us > since_us)
            .collect();
        if let Some(max) = lines_max {
            let cut = found.len() - last_lines(&found, max);
            found.drain(..cut);
        }
        found
    }
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
    let ends = text.bytes().filter(|byte| *byte == b'\n').count();
    ends + usize::from(!text.ends_with('\n'))
}

/// How many of `found`, from its end, make up so many lines. A line that was printed in parts is
/// one.
fn last_lines(found: &[Line<'_>], max: usize) -> usize {
    let mut lines = 0;
    let mut is_new = true;
    for (taken, line) in found.iter().rev().enumerate() {
        if is_new || line.text.ends_with('\n') {
            if lines == max {
                return taken;
            }
            lines += 1;
        }
        is_new = false;
    }
    found.len()
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

    /// at the bound the oldest leave, and times go on.
    #[test]
    fn the_oldest_leave() {
        let mut log = Log::default();
        let line = format!("{}\n", "x".repeat(1023));
        for _ in 0..5000 {
            log.push(0, Stream::Stdout, &line);
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
