//! Secrets out of a stream of bytes, wherever it is cut. R-15.

use crate::Secrets;
use crate::secrets::{FILLER, PLACEHOLDER};

/// Replaces the known secrets in bytes that come in pieces. What may be the beginning of a
/// secret is held back until more is known, and nothing else is.
#[derive(Debug)]
pub struct Redactor {
    secrets: Secrets,
    held: Vec<u8>,
    /// A secret is replaced by as many bytes as it has.
    keeps_length: bool,
}

impl Redactor {
    /// For one stream.
    #[must_use]
    pub fn new(secrets: &Secrets) -> Self {
        Self {
            secrets: secrets.clone(),
            held: Vec::new(),
            keeps_length: false,
        }
    }

    /// For a stream whose length must not change: `*` stands for each byte of a secret.
    #[must_use]
    pub fn in_place(secrets: &Secrets) -> Self {
        Self {
            keeps_length: true,
            ..Self::new(secrets)
        }
    }

    /// The next piece: what can be told by now.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.secrets.is_empty() {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        let open = self.open();
        self.take(open)
    }

    /// The end of the stream: what was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        self.take(self.held.len())
    }

    /// Where the longest end begins that is the beginning of a secret.
    fn open(&self) -> usize {
        let held = &self.held;
        let longest = self.secrets.longest().saturating_sub(1).min(held.len());
        let begins = |at: &usize| {
            let end = &held[*at..];
            let mut values = self.secrets.values();
            values.any(|secret| secret.len() > end.len() && secret.as_bytes().starts_with(end))
        };
        (held.len() - longest..held.len())
            .find(begins)
            .unwrap_or(held.len())
    }

    /// Takes what begins before `open`, without secrets.
    fn take(&mut self, open: usize) -> Vec<u8> {
        // bound: the bytes held
        let mut out = Vec::with_capacity(open);
        let mut at = 0;
        while at < open {
            match self.next_secret(at, open) {
                None => {
                    out.extend_from_slice(&self.held[at..open]);
                    at = open;
                }
                Some((start, length)) => {
                    out.extend_from_slice(&self.held[at..start]);
                    match self.keeps_length {
                        true => out.extend(std::iter::repeat_n(FILLER, length)),
                        false => out.extend_from_slice(PLACEHOLDER.as_bytes()),
                    }
                    at = start + length;
                }
            }
        }
        self.held.drain(..at);
        out
    }

    /// The first secret that begins from `at` on and before `open`, and how long it is. Of two
    /// at one place the longer.
    fn next_secret(&self, at: usize, open: usize) -> Option<(usize, usize)> {
        let found = self.secrets.values().filter_map(|secret| {
            let start = at + memchr::memmem::find(&self.held[at..], secret.as_bytes())?;
            (start < open).then_some((start, secret.len()))
        });
        found.min_by_key(|&(start, length)| (start, usize::MAX - length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// whatever the cuts, the result is that of the whole.
    #[test]
    fn cuts_hide_nothing() {
        let values = ["s3cret", "s3cret-long", "aaab", "tail-1"].map(str::to_owned);
        let secrets = Secrets::new(values.to_vec());
        let text = b"x s3cret y s3cret-long z s3cret-lo aaaaab s3cre tail-1".as_slice();
        let wanted = "x [secret] y [secret] z [secret]-lo aa[secret] s3cre [secret]";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut redactor = Redactor::new(&secrets);
                let mut all = redactor.feed(&text[..first]);
                all.extend(redactor.feed(&text[first..second]));
                all.extend(redactor.feed(&text[second..]));
                all.extend(redactor.finish());
                assert_eq!(String::from_utf8_lossy(&all), wanted, "{first} {second}");
            }
        }
    }

    /// the same where the length stays, and no byte that is not of a secret changes.
    #[test]
    fn cuts_hide_nothing_in_place() {
        let values = ["s3cret", "s3cret-long", "\u{fffd}x\0y"].map(str::to_owned);
        let secrets = Secrets::new(values.to_vec());
        let text = b"\xffs3crets3cret-longs3cre\xef\xbf\xbdx\0ys3".as_slice();
        let wanted = secrets.filled(text).unwrap();
        assert_eq!(wanted, b"\xff*****************s3cre******s3");
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut redactor = Redactor::in_place(&secrets);
                let mut all = redactor.feed(&text[..first]);
                all.extend(redactor.feed(&text[first..second]));
                all.extend(redactor.feed(&text[second..]));
                all.extend(redactor.finish());
                assert_eq!(all, wanted, "{first} {second}");
            }
        }
    }

    #[test]
    fn nothing_else_is_held_back() {
        let secrets = Secrets::new(vec!["s3cret".to_owned()]);
        let mut redactor = Redactor::new(&secrets);
        assert_eq!(redactor.feed(b"name: "), b"name: ");
        assert_eq!(redactor.feed(b"your s3"), b"your ");
        assert_eq!(redactor.feed(b"x"), b"s3x");
        assert_eq!(Redactor::new(&Secrets::default()).feed(b"any"), b"any");
    }
}
