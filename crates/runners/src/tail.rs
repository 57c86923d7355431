//! The last words of a process, kept for messages.

use std::borrow::Cow;

/// The most that is kept.
const TAIL_BYTES_MAX: usize = 4 * 1024;

/// The longest line that goes into a message.
const LINE_CHARS_MAX: usize = 400;

/// The end of what was written so far.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(TAIL_BYTES_MAX);
        let bytes = &bytes[bytes.len() - kept..];
        let spare = (self.bytes.len() + bytes.len()).saturating_sub(TAIL_BYTES_MAX);
        self.bytes.drain(..spare);
        self.bytes.extend_from_slice(bytes);
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// All that is kept, as text.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// The last lines that say something, in their order.
    pub fn last_lines(&self, max: usize) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut lines: Vec<String> = text
            .lines()
            .rev()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .take(max)
            .map(printable)
            .collect();
        lines.reverse();
        lines
    }
}

/// A line as a message may show it: bounded, without control characters.
fn printable(line: &str) -> String {
    line.chars()
        .take(LINE_CHARS_MAX)
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let mut tail = Tail::default();
        assert_eq!(tail.last_lines(1), [""; 0]);
        for number in 0..10_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        assert!(tail.bytes.len() <= TAIL_BYTES_MAX);
        assert_eq!(tail.last_lines(2), ["line 9998", "line 9999"]);
        tail.push(&[b'x'; TAIL_BYTES_MAX + 1]);
        assert_eq!(tail.bytes.len(), TAIL_BYTES_MAX);
        assert_eq!(tail.last_lines(1), ["x".repeat(LINE_CHARS_MAX)]);
        tail.push(b"\n\x1b[31mred\xFF\n\n");
        assert_eq!(tail.last_lines(1), ["\u{FFFD}[31mred\u{FFFD}"]);
    }
}
