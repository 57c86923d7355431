//! Chain bodies, written by hand: compact JSON with sorted keys. Arguments, outputs, keys and
//! tokens never get here, only their digests. A body waits without its `seq`, which is known
//! only under the commit lock.

use callgate_call::{CallId, Digest};
use callgate_text::{write_decimal, write_hex, write_json_text};

use crate::KeyId;

/// Longest text in a body; longer ones are cut, since a caller may send anything as a trace id.
const TEXT_BYTES_MAX: usize = 1024;

/// `,"name":`, ready to be copied.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}
pub(crate) use key;

/// Writes one body at the end of a buffer.
pub(crate) struct BodyWriter<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    seq_at: usize,
}

impl<'a> BodyWriter<'a> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        let start = bytes.len();
        Self {
            bytes,
            start,
            seq_at: 0,
        }
    }

    fn key(&mut self, key: &'static str) {
        let from = usize::from(self.bytes.len() == self.start);
        if from == 1 {
            self.bytes.push(b'{');
        }
        self.bytes.extend_from_slice(&key.as_bytes()[from..]);
    }

    pub(crate) fn text(&mut self, key: &'static str, text: &str) -> &mut Self {
        self.key(key);
        write_json_text(cut(text, TEXT_BYTES_MAX), self.bytes);
        self
    }

    /// Nothing for `None`.
    pub(crate) fn maybe(&mut self, key: &'static str, text: Option<&str>) -> &mut Self {
        if let Some(text) = text {
            self.text(key, text);
        }
        self
    }

    pub(crate) fn number(&mut self, key: &'static str, number: u64) -> &mut Self {
        self.key(key);
        write_decimal(number, self.bytes);
        self
    }

    /// A number that is told only where there is something to tell.
    pub(crate) fn some(&mut self, key: &'static str, number: u64) -> &mut Self {
        if number > 0 {
            self.number(key, number);
        }
        self
    }

    pub(crate) fn yes(&mut self, key: &'static str, yes: bool) -> &mut Self {
        self.key(key);
        self.bytes
            .extend_from_slice(if yes { b"true" } else { b"false" });
        self
    }

    /// Nothing at all where it is not so.
    pub(crate) fn only_yes(&mut self, key: &'static str, yes: bool) -> &mut Self {
        if yes {
            self.yes(key, true);
        }
        self
    }

    pub(crate) fn digest(&mut self, key: &'static str, digest: &Digest) -> &mut Self {
        self.hex(key, &digest.0)
    }

    pub(crate) fn call(&mut self, key: &'static str, call: CallId) -> &mut Self {
        self.hex(key, &call.0.to_be_bytes())
    }

    pub(crate) fn key_id(&mut self, key: Option<KeyId>) -> &mut Self {
        match key {
            Some(id) => self.hex(key!("key"), &id.0),
            None => self,
        }
    }

    pub(crate) fn hex(&mut self, key: &'static str, raw: &[u8]) -> &mut Self {
        self.key(key);
        self.bytes.push(b'"');
        write_hex(raw, self.bytes);
        self.bytes.push(b'"');
        self
    }

    /// The place of `kind` and `seq`, which follow each other in every body but a few.
    pub(crate) fn kind_and_seq(&mut self, kind: &str) -> &mut Self {
        self.kind(kind).seq()
    }

    pub(crate) fn kind(&mut self, kind: &str) -> &mut Self {
        self.text(key!("kind"), kind)
    }

    pub(crate) fn seq(&mut self) -> &mut Self {
        self.key(key!("seq"));
        self.seq_at = self.bytes.len();
        self
    }

    /// Closes the body; returns where its `seq` belongs.
    pub(crate) fn finish(self) -> usize {
        self.bytes.push(b'}');
        debug_assert!(self.seq_at > 0, "every body has a seq");
        self.seq_at
    }
}

/// The longest beginning of `text` of at most `bytes_max` bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let end = (0..=bytes_max)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json() {
        let mut bytes = b"before".to_vec();
        let mut body = BodyWriter::new(&mut bytes);
        body.number(key!("at"), 1_700_000_000_000)
            .call(key!("call"), CallId(0xAB))
            .text(key!("caller"), "a\"\\\n\u{1}\u{8}\u{c}é")
            .digest(key!("input"), &Digest([0x0F; 32]))
            .kind_and_seq("start")
            .maybe(key!("trace"), None)
            .text(key!("wire"), &"é".repeat(600))
            .yes(key!("x"), true);
        let seq_at = body.finish();
        let mut whole = bytes[6..seq_at].to_vec();
        write_decimal(u64::MAX, &mut whole);
        whole.extend_from_slice(&bytes[seq_at..]);
        let value: serde_json::Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(value["caller"], "a\"\\\n\u{1}\u{8}\u{c}é");
        assert_eq!(value["seq"], u64::MAX);
        assert_eq!(value["call"], "000000000000000000000000000000ab");
        assert_eq!(value["wire"].as_str().unwrap(), "é".repeat(512));
        assert_eq!(value.to_string().as_bytes(), whole, "compact and sorted");
    }
}
