//! Timestamps of cursors.

use callgate_text::{parse_rfc3339, rfc3339_micros, rfc3339_millis};

/// The end of the year 9999, in microseconds since 1970.
const END_US: u64 = 253_402_300_800_000_000;

/// A moment that is read is the moment that is written.
pub fn timestamps(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Some(micros) = parse_rfc3339(&text).filter(|micros| *micros < END_US) {
        assert_eq!(parse_rfc3339(&rfc3339_micros(micros)), Some(micros));
        let millis = micros / 1000;
        assert_eq!(parse_rfc3339(&rfc3339_millis(millis)), Some(millis * 1000));
    }
}
