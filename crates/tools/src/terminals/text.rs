//! From bytes to text that may be told: whole characters, known secrets replaced. R-15.

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
    pub fn feed(&mut self, bytes: &[u8]) -> String {
        let joined;
        let bytes = if self.begun.is_empty() {
            bytes
        } else {
            joined = [&self.begun, bytes].concat();
            &joined
        };
        let (whole, begun) = bytes.split_at(bytes.len() - unfinished(bytes));
        let text = String::from_utf8_lossy(whole).into_owned();
        self.begun = begun.to_vec();
        self.without_secrets(text)
    }

    fn without_secrets(&mut self, text: String) -> String {
        if self.secrets.is_empty() {
            return text;
        }
        let text = std::mem::take(&mut self.held) + &text;
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
                let told: String = parts.map(|part| decoder.feed(part)).concat();
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
            let mut told = decoder.feed(&text.as_bytes()[..cut]);
            told += &decoder.feed(&text.as_bytes()[cut..]);
            assert!(decoder.holds());
            told += &decoder.finish();
            assert_eq!(told, "is [secret], and [secret]; a hunter", "cut at {cut}");
        }
    }
}
