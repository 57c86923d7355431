//! Events: the envelope, and a look into its payload without decoding the rest of it.

use callgate_text::write_decimal;

use super::json::{self, Masked};
use super::msgpack::{Reader, Token};

/// One event, borrowed from the bytes it came in. ST-26 to ST-35.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The version of the contract its sender speaks.
    pub contract_version: &'a str,
    /// Names the event.
    pub event_id: &'a str,
    /// The run it says it is of.
    pub run_id: &'a str,
    /// Its place in the run, as it says.
    pub seq: u64,
    /// Its `type`.
    pub kind: &'a str,
    /// When it was emitted, as its sender puts it.
    pub ts: &'a str,
    /// The try it says it is of.
    pub attempt: u32,
    /// The job, if it names one.
    pub job_id: Option<&'a str>,
    /// The try before this one, if it names one.
    pub parent_run_id: Option<&'a str>,
    /// A msgpack map, walked to its end.
    pub(super) payload: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// The payload as it came: one msgpack map without flaw.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Appends the whole event as one JSON object, in the order of the contract's table.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.write_masked_json(None, out);
    }

    /// The same without what `mask` knows, in values and keys of every kind.
    pub fn write_masked_json(&self, mask: Masked<'_>, out: &mut Vec<u8>) {
        // Msgpack is a little shorter than JSON; bytes in it grow by a third.
        out.reserve(256 + self.payload.len() + self.payload.len() / 2);
        out.extend_from_slice(b"{\"contract_version\":");
        json::write_masked(self.contract_version, mask, out);
        out.extend_from_slice(b",\"event_id\":");
        json::write_masked(self.event_id, mask, out);
        out.extend_from_slice(b",\"run_id\":");
        json::write_masked(self.run_id, mask, out);
        out.extend_from_slice(b",\"seq\":");
        write_decimal(self.seq, out);
        out.extend_from_slice(b",\"type\":");
        json::write_masked(self.kind, mask, out);
        out.extend_from_slice(b",\"ts\":");
        json::write_masked(self.ts, mask, out);
        out.extend_from_slice(b",\"payload\":");
        json::write_value(&mut Reader::new(self.payload, 0), mask, out);
        out.extend_from_slice(b",\"attempt\":");
        write_decimal(u64::from(self.attempt), out);
        if let Some(job_id) = self.job_id {
            out.extend_from_slice(b",\"job_id\":");
            json::write_masked(job_id, mask, out);
        }
        if let Some(parent_run_id) = self.parent_run_id {
            out.extend_from_slice(b",\"parent_run_id\":");
            json::write_masked(parent_run_id, mask, out);
        }
        out.push(b'}');
    }

    /// Appends the payload as one JSON object.
    pub fn payload_json(&self, out: &mut Vec<u8>) {
        json::write_value(&mut Reader::new(self.payload, 0), None, out);
    }

    /// Appends one field of the payload as JSON; false if there is none.
    pub fn payload_field_json(&self, key: &str, out: &mut Vec<u8>) -> bool {
        match self.find(key) {
            Some(mut reader) => {
                json::write_value(&mut reader, None, out);
                true
            }
            None => false,
        }
    }

    /// A text of the payload.
    #[must_use]
    pub fn payload_str(&self, key: &str) -> Option<&'a str> {
        self.token(key)?.text()
    }

    /// A number of the payload that counts something. Some languages have no other numbers than
    /// floats, so one without a fraction will do as far as floats are exact. ST-70.
    #[must_use]
    pub fn payload_u64(&self, key: &str) -> Option<u64> {
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        match self.token(key)? {
            Token::Uint(value) => Some(value),
            Token::Float(value) if value.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&value) => {
                // Whole, and not beyond a u64.
                Some(value as u64)
            }
            _ => None,
        }
    }

    fn token(&self, key: &str) -> Option<Token<'a>> {
        self.find(key)?.token().ok()
    }

    /// Where the value of a field begins.
    fn find(&self, key: &str) -> Option<Reader<'a>> {
        let mut reader = Reader::new(self.payload, 0);
        let Ok(Token::Map(count)) = reader.token() else {
            return None;
        };
        for _ in 0..count {
            let is_it = reader.token().ok()?.bytes() == Some(key.as_bytes());
            if is_it {
                return Some(reader);
            }
            reader.pass().ok()?;
        }
        None
    }
}
