//! Lines out of the bytes that a server prints, in one buffer that the caller reads into. A line
//! past the bound is reported once, with its beginning, and skipped to its end.

/// The longest line of a server: what a client takes in at most for one message.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Room for one read.
const READ_BYTES: usize = 64 * 1024;

/// A buffer that has grown beyond this is given back once it is empty.
const BUFFER_KEPT_BYTES: usize = 256 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One line of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLine<'a> {
    /// A whole line, without its end, a carriage return before that, or a byte order mark.
    Whole(&'a [u8]),
    /// The beginning of a line past the bound; the rest of the line is skipped.
    TooLong(&'a [u8]),
}

/// Splits what a server prints into lines.
#[derive(Debug)]
pub struct ServerLines {
    buffer: Vec<u8>,
    /// The index at which the next line begins.
    start: usize,
    /// The index before which there is no line end that was not seen.
    searched: usize,
    line_bytes_max: usize,
    is_skipping: bool,
}

impl ServerLines {
    /// A splitter for lines of at most `line_bytes_max` bytes, the line end not counted.
    #[must_use]
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            line_bytes_max,
            is_skipping: false,
        }
    }

    /// The buffer, with room for one read behind the bytes that are no line yet. Bytes are
    /// appended to it and nothing else is changed in it; then `next_line` is called until it
    /// returns nothing.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_KEPT_BYTES {
            self.buffer = Vec::new();
        }
        let (len, capacity) = (self.buffer.len(), self.buffer.capacity());
        if capacity - len < READ_BYTES / 2 {
            let wanted = (len * 2).min(self.line_bytes_max) + READ_BYTES;
            let more = wanted.max(len + READ_BYTES) - len;
            // bound: twice what is there, and never more than a line and a read
            self.buffer.reserve_exact(more);
        }
        &mut self.buffer
    }

    /// The next line, if it is complete or past the bound.
    pub fn next_line(&mut self) -> Option<ServerLine<'_>> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            let (from, to, is_complete) = match found {
                Some(at) => (self.start, self.searched + at, true),
                None => (self.start, self.buffer.len(), false),
            };
            self.searched = if is_complete { to + 1 } else { to };
            if !is_complete && !self.is_skipping && to - from <= self.line_bytes_max {
                return None;
            }
            self.start = self.searched;
            let was_skipping = std::mem::replace(&mut self.is_skipping, !is_complete);
            match (is_complete, was_skipping) {
                (false, true) => return None,
                (true, true) => {}
                _ if to - from > self.line_bytes_max => {
                    return Some(ServerLine::TooLong(&self.buffer[from..to]));
                }
                _ => return Some(ServerLine::Whole(trimmed(&self.buffer[from..to]))),
            }
        }
    }

    /// The line that the end of the stream cut short, if there is one.
    pub fn finish(&mut self) -> Option<&[u8]> {
        let from = std::mem::replace(&mut self.start, self.buffer.len());
        self.searched = self.start;
        let rest = trimmed(&self.buffer[from..]);
        (!self.is_skipping && !rest.is_empty()).then_some(rest)
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as text; `!` and the first four bytes for one that is too long.
    fn split(chunks: &[&[u8]], max: usize) -> Vec<String> {
        let mut lines = ServerLines::new(max);
        let mut all = Vec::new();
        for chunk in chunks {
            lines.room().extend_from_slice(chunk);
            while let Some(line) = lines.next_line() {
                all.push(match line {
                    ServerLine::Whole(text) => String::from_utf8(text.to_vec()).unwrap(),
                    ServerLine::TooLong(head) => {
                        format!("!{}", String::from_utf8_lossy(&head[..4]))
                    }
                });
            }
        }
        let rest = lines.finish();
        all.extend(rest.map(|rest| String::from_utf8(rest.to_vec()).unwrap()));
        all
    }

    /// U-8, U-9: the same lines at every split of the bytes; a line at the bound is whole.
    #[test]
    fn every_split() {
        let bytes = b"\xEF\xBB\xBFone\r\n\ntoolongline\r\nexactly8\nninechars\nlast";
        let wanted = ["one", "", "!tool", "exactly8", "!nine", "last"];
        for a in 0..=bytes.len() {
            for b in a..=bytes.len() {
                let chunks = [&bytes[..a], &bytes[a..b], &bytes[b..]];
                assert_eq!(split(&chunks, 8), wanted, "cut at {a} and {b}");
            }
        }
    }

    /// U-8: memory stays at the bound however long the line is, and is given back.
    #[test]
    fn an_endless_line_does_not_grow() {
        let max = 1024 * 1024;
        let mut lines = ServerLines::new(max);
        let mut too_long = 0;
        for _ in 0..1000 {
            lines.room().extend_from_slice(&[b'x'; 32 * 1024]);
            while let Some(line) = lines.next_line() {
                assert!(matches!(line, ServerLine::TooLong(head) if head.starts_with(b"xxx")));
                too_long += 1;
            }
            assert!(lines.buffer.capacity() <= max + 2 * READ_BYTES);
        }
        assert_eq!(too_long, 1);
        lines.room().extend_from_slice(b"tail\nnext\n");
        assert_eq!(lines.next_line(), Some(ServerLine::Whole(b"next")));
        assert_eq!(lines.next_line(), None);
        assert!(lines.room().capacity() <= BUFFER_KEPT_BYTES);
        assert_eq!(lines.finish(), None);
    }
}
