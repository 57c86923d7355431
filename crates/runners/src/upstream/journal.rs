//! The last lines that the processes of a server printed, for `servers log`: bounded, without
//! secrets.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Bytes that are kept of all processes together.
const KEPT_BYTES: usize = 64 * 1024;

/// The end of what a server printed to its standard error, and of noise on its standard output.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<VecDeque<u8>>);

impl Journal {
    /// Adds bytes that have no secrets in them. The oldest make room.
    pub fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = (kept.len() + bytes.len()).saturating_sub(KEPT_BYTES);
        kept.drain(..spare);
        kept.extend(bytes);
    }

    /// What is kept, without a line that has lost its beginning.
    pub fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        drop(kept);
        let from = match (bytes.len() < KEPT_BYTES, memchr::memchr(b'\n', &bytes)) {
            (false, Some(at)) => at + 1,
            _ => 0,
        };
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_in_whole_lines() {
        let journal = Journal::default();
        journal.push(b"first\n");
        assert_eq!(journal.text(), "first\n");
        for number in 0..10_000 {
            journal.push(format!("line {number}\n").as_bytes());
        }
        let text = journal.text();
        assert!(text.len() <= KEPT_BYTES && text.starts_with("line "));
        assert!(text.ends_with("line 9998\nline 9999\n"));
        journal.push(&vec![b'x'; 2 * KEPT_BYTES]);
        assert_eq!(journal.text().len(), KEPT_BYTES);
    }
}
