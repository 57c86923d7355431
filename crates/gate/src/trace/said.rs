//! The end of what a tool said on one stream.

use callgate_call::Secrets;

/// What a trace shows of a stream.
const SHOWN_BYTES_MAX: usize = 4 * 1024;

/// The last bytes of a stream: what is shown, and before it as much as a secret is long, so that
/// one that begins before the cut is still found whole.
pub(super) struct Said {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Said {
    pub(super) fn new(longest_secret: usize) -> Self {
        Self {
            bytes: Vec::new(),
            bytes_max: SHOWN_BYTES_MAX + longest_secret,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        let spare = (self.bytes.len() + bytes.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..spare);
        self.bytes.extend_from_slice(bytes);
    }

    /// The end as text without secrets and control characters; nothing if nothing was said.
    pub(super) fn shown(&self, secrets: &Secrets) -> Option<String> {
        if self.bytes.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&self.bytes);
        let clean = secrets.clean(&text);
        let mut start = clean.len().saturating_sub(SHOWN_BYTES_MAX);
        while !clean.is_char_boundary(start) {
            start += 1;
        }
        let plain = |c: char| match c.is_control() && !matches!(c, '\n' | '\t') {
            true => char::REPLACEMENT_CHARACTER,
            false => c,
        };
        Some(clean[start..].chars().map(plain).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a secret across the cut is found whole, wherever the cut falls.
    #[test]
    fn secrets_at_the_cut() {
        let secret = "s3cret-value-42";
        let secrets = Secrets::new(vec![secret.to_owned()]);
        for after in SHOWN_BYTES_MAX - 40..SHOWN_BYTES_MAX + 40 {
            let mut said = Said::new(secrets.longest());
            said.push(b"begin ");
            said.push(secret.as_bytes());
            said.push("x".repeat(after).as_bytes());
            let shown = said.shown(&secrets).unwrap();
            assert!(shown.len() <= SHOWN_BYTES_MAX && shown.ends_with('x'));
            for cut in 0..=secret.len() - 4 {
                assert!(!shown.contains(&secret[cut..]), "{after}: {}", &shown[..40]);
            }
        }
    }

    #[test]
    fn bounded_and_plain() {
        let mut said = Said::new(0);
        assert_eq!(said.shown(&Secrets::default()), None);
        said.push(&[0xFF; 10_000]);
        said.push(b"\x1b[31mred\n\tend");
        let shown = said.shown(&Secrets::default()).unwrap();
        assert!(shown.ends_with("\u{FFFD}[31mred\n\tend"));
        assert_eq!(said.bytes.len(), SHOWN_BYTES_MAX);
    }
}
