//! From bytes to text that may be told: whole characters, known secrets replaced. R-15.

use std::borrow::Cow;

use callgate_call::Secrets;

/// One stream of a session on its way to its log.
pub struct Decoder {
    secrets: Secrets,
    /// The beginning of a character whose rest is still to come.
    begun: Vec<u8>,
    /// Text that may be the beginning of a secret.
    held: String,
}

impl Decoder {
    pub fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            begun: Vec::new(),
            held: String::new(),
        }
    }

    /// What may be told after `bytes` have come. What is not UTF-8 is replaced.
    pub fn feed<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, str> {
        let text = self.decode(bytes);
        // Nearly always so, and then nothing is copied.
        if self.is_clear(&text) {
            return text;
        }
        self.without_secrets(&text).into()
    }

    /// Neither is there a secret, nor may one have begun before it or in it.
    fn is_clear(&self, text: &str) -> bool {
        let secrets = &self.secrets;
        secrets.is_empty()
            || self.held.is_empty() && secrets.begun(text) == 0 && secrets.cleaned(text).is_none()
    }

    fn decode<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, str> {
        if self.begun.is_empty() {
            let (whole, begun) = bytes.split_at(bytes.len() - unfinished(bytes));
            self.begun.extend_from_slice(begun);
            // Nearly always so, and a fifth of the work to see.
            return match std::str::from_utf8(whole) {
                Ok(text) => text.into(),
                Err(_) => String::from_utf8_lossy(whole),
            };
        }
        let mut joined = std::mem::take(&mut self.begun);
        joined.extend_from_slice(bytes);
        self.begun = joined.split_off(joined.len() - unfinished(&joined));
        String::from_utf8_lossy(&joined).into_owned().into()
    }

    fn without_secrets(&mut self, text: &str) -> String {
        let text = std::mem::take(&mut self.held) + text;
        // First the whole ones: their ends may look like beginnings.
        let mut text = self.secrets.clean(&text).into_owned();
        self.held = text.split_off(text.len() - self.secrets.begun(&text));
        text
    }

    /// True if text is held back.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// What is held back, because nothing has come after it for a while.
    pub fn release(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// All that is left, because nothing more will come.
    pub fn finish(&mut self) -> String {
        let mut text = self.release();
        let begun = std::mem::take(&mut self.begun);
        text.push_str(&String::from_utf8_lossy(&begun));
        text
    }
}

/// Bytes at the end that are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    const CHARACTER_BYTES_MAX: usize = 4;
    let longest = bytes.len().min(CHARACTER_BYTES_MAX - 1);
    let is_begun = |length: &usize| {
        let end = std::str::from_utf8(&bytes[bytes.len() - length..]);
        end.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=longest).rev().find(is_begun).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However it is cut, each part is whole characters and the whole is the same.
    #[test]
    fn characters_are_not_cut() {
        let text = "aé€𝄞z";
        for cut in 0..=text.len() {
            for later in cut..=text.len() {
                let mut decoder = Decoder::new(Secrets::default());
                let parts = [
                    &text.as_bytes()[..cut],
                    &text.as_bytes()[cut..later],
                    &text.as_bytes()[later..],
                ];
                let told: String = parts.map(|part| decoder.feed(part)).into_iter().collect();
                assert_eq!(told, text, "cut at {cut} and {later}");
                assert_eq!(decoder.finish(), "");
            }
        }
        let mut decoder = Decoder::new(Secrets::default());
        assert_eq!(decoder.feed(b"a\xffb\xe2\x82"), "a\u{fffd}b");
        assert_eq!(decoder.feed(b"x"), "\u{fffd}x");
        decoder.feed(b"\xe2");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    /// wherever a secret is cut, nothing of it is told.
    #[test]
    fn secrets_are_found_across_cuts() {
        let secrets = Secrets::new(vec!["hunter-é-2".into(), "abab".into()]);
        let text = "is hunter-é-2, and abab; a hunter";
        for cut in 0..=text.len() {
            let mut decoder = Decoder::new(secrets.clone());
            let mut told = decoder.feed(&text.as_bytes()[..cut]).into_owned();
            told += &decoder.feed(&text.as_bytes()[cut..]);
            assert!(decoder.holds());
            told += &decoder.finish();
            assert_eq!(told, "is [secret], and [secret]; a hunter", "cut at {cut}");
        }
    }
}
