//! Lines out of bytes, bounded: a line over the limit is reported once and skipped to its
//! end, and the lines after it are whole.

/// What the splitter found.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// One line without its newline.
    Text(&'a [u8]),
    /// A line went over the limit; the rest of it is being dropped.
    TooLong,
}

/// Splits a byte stream at newlines.
#[derive(Debug)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    /// Where the next unread line begins.
    start: usize,
    /// Bytes before this were searched for a newline already.
    searched: usize,
    line_bytes_max: usize,
    skipping: bool,
}

impl LineSplitter {
    /// A splitter for lines of at most `line_bytes_max` bytes, the newline not counted.
    #[must_use]
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            line_bytes_max,
            skipping: false,
        }
    }

    /// Takes in some bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        // A line that once was huge must not keep its memory for ever.
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete line, if there is one.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            let Some(at) = found else {
                self.searched = self.buffer.len();
                if self.skipping {
                    self.start = self.searched;
                } else if self.searched - self.start > self.line_bytes_max {
                    self.skipping = true;
                    self.start = self.searched;
                    return Some(Line::TooLong);
                }
                return None;
            };
            let (from, to) = (self.start, self.searched + at);
            self.start = to + 1;
            self.searched = self.start;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if to - from > self.line_bytes_max {
                return Some(Line::TooLong);
            }
            return Some(Line::Text(&self.buffer[from..to]));
        }
    }

    /// The bytes after the last newline, once the stream has ended; `None` if there are none.
    pub fn finish(&mut self) -> Option<&[u8]> {
        let from = std::mem::replace(&mut self.start, self.buffer.len());
        self.searched = self.start;
        (!self.skipping && from < self.start).then(|| &self.buffer[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]], max: usize) -> Vec<Option<Vec<u8>>> {
        let mut splitter = LineSplitter::new(max);
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.feed(chunk);
            while let Some(line) = splitter.next_line() {
                lines.push(match line {
                    Line::Text(text) => Some(text.to_vec()),
                    Line::TooLong => None,
                });
            }
        }
        lines.extend(splitter.finish().map(|rest| Some(rest.to_vec())));
        lines
    }

    /// T-8, T-10: the same lines at every split of the bytes.
    #[test]
    fn every_split() {
        let bytes = b"one\n\ntoolongline\nexactly8\nninechars\nlast";
        let wanted = split(&[bytes], 8);
        let expected: Vec<Option<Vec<u8>>> = vec![
            Some(b"one".to_vec()),
            Some(vec![]),
            None,
            Some(b"exactly8".to_vec()),
            None,
            Some(b"last".to_vec()),
        ];
        assert_eq!(wanted, expected);
        for a in 0..=bytes.len() {
            for b in a..=bytes.len() {
                let chunks = [&bytes[..a], &bytes[a..b], &bytes[b..]];
                assert_eq!(split(&chunks, 8), expected, "cut at {a} and {b}");
            }
        }
    }

    /// T-8: memory stays at the limit however long the line.
    #[test]
    fn an_endless_line_does_not_grow() {
        let mut splitter = LineSplitter::new(1000);
        let mut too_long = 0;
        for _ in 0..10_000 {
            splitter.feed(&[b'x'; 500]);
            while let Some(line) = splitter.next_line() {
                assert_eq!(line, Line::TooLong);
                too_long += 1;
            }
        }
        assert_eq!(too_long, 1);
        assert!(splitter.buffer.capacity() < 4096);
        splitter.feed(b"tail\nnext\n");
        assert_eq!(splitter.next_line(), Some(Line::Text(b"next")));
        assert_eq!(splitter.finish(), None);
    }
}
