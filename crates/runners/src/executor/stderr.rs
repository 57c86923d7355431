//! What an executor says on its stderr: always read, whoever does not read the rest, and kept
//! in part: how it begins and how it ends. S-12.

use std::io;
use std::os::fd::OwnedFd;

use callgate_call::{Redactor, Secrets, Sink, Stream};

use crate::flood::Flood;

/// What is kept of the beginning, and of the end.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const TAIL_BYTES_MAX: usize = 16 * 1024;

/// One run's stderr.
pub(super) struct Stderr {
    flood: Flood,
    words: Words,
}

/// What is known of it, without secrets.
struct Words {
    redactor: Redactor,
    kept: Excerpt,
}

impl Stderr {
    /// The reading end, and the writing end for the executor.
    pub fn new(secrets: &Secrets) -> io::Result<(Self, OwnedFd)> {
        let (flood, far) = Flood::new()?;
        let words = Words {
            redactor: Redactor::new(secrets),
            kept: Excerpt::default(),
        };
        Ok((Self { flood, words }, far))
    }

    /// Reads for as long as it is polled. Cancel safe.
    pub async fn pump(&mut self, sink: &dyn Sink) {
        let Self { flood, words } = self;
        flood.pump(|bytes| words.pass(bytes, sink)).await;
    }

    /// The executor is gone: what is still there, and then all that is kept.
    pub fn finish(&mut self, sink: &dyn Sink) -> String {
        let Self { flood, words } = self;
        flood.pass_rest(|bytes| words.pass(bytes, sink));
        let held = words.redactor.finish();
        words.keep(&held, sink);
        words.kept.text()
    }
}

impl Words {
    fn pass(&mut self, bytes: &[u8], sink: &dyn Sink) {
        let clean = self.redactor.feed(bytes);
        self.keep(&clean, sink);
    }

    fn keep(&mut self, bytes: &[u8], sink: &dyn Sink) {
        if !bytes.is_empty() {
            self.kept.push(bytes);
            sink.chunk(Stream::Stderr, bytes);
        }
    }
}

/// The beginning and the end of something long.
#[derive(Default)]
struct Excerpt {
    said: u64,
    head: Vec<u8>,
    /// At most twice as long as what is kept of it.
    tail: Vec<u8>,
}

impl Excerpt {
    fn push(&mut self, bytes: &[u8]) {
        self.said += bytes.len() as u64;
        let room = HEAD_BYTES_MAX - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(TAIL_BYTES_MAX)..];
        if self.tail.len() + rest.len() > 2 * TAIL_BYTES_MAX {
            self.tail
                .drain(..self.tail.len() - TAIL_BYTES_MAX.min(self.tail.len()));
        }
        self.tail.extend_from_slice(rest);
    }

    fn text(&self) -> String {
        let tail = &self.tail[self.tail.len().saturating_sub(TAIL_BYTES_MAX)..];
        let left_out = self.said - (self.head.len() + tail.len()) as u64;
        let (head, tail) = (
            String::from_utf8_lossy(&self.head),
            String::from_utf8_lossy(tail),
        );
        match left_out {
            0 => format!("{head}{tail}"),
            bytes => format!("{head}\n[{bytes} bytes left out]\n{tail}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-12: all of what is short, both ends of what is not.
    #[test]
    fn both_ends_are_kept() {
        let all = |bytes: usize| -> Vec<u8> { (0..bytes).map(|n| b'a' + (n % 26) as u8).collect() };
        for bytes in [0, 10, HEAD_BYTES_MAX, HEAD_BYTES_MAX + TAIL_BYTES_MAX] {
            for piece in [1000, bytes.max(1)] {
                let (mut excerpt, text) = (Excerpt::default(), all(bytes));
                text.chunks(piece).for_each(|piece| excerpt.push(piece));
                assert_eq!(excerpt.text().as_bytes(), text, "{bytes} {piece}");
            }
        }
        for piece in [1, 1000, 100_000, 1 << 20] {
            let (mut excerpt, text) = (Excerpt::default(), all(1 << 20));
            text.chunks(piece).for_each(|piece| excerpt.push(piece));
            let kept = excerpt.text();
            let left_out = text.len() - HEAD_BYTES_MAX - TAIL_BYTES_MAX;
            assert!(kept.as_bytes().starts_with(&text[..HEAD_BYTES_MAX]));
            assert!(
                kept.as_bytes()
                    .ends_with(&text[text.len() - TAIL_BYTES_MAX..])
            );
            assert!(
                kept.contains(&format!("\n[{left_out} bytes left out]\n")),
                "{piece}"
            );
            assert!(excerpt.tail.len() <= 2 * TAIL_BYTES_MAX);
        }
    }
}
