//! Times of events as text, in UTC.

use callgate_text::rfc3339_millis;

/// Milliseconds since 1970 as events have them: `2026-11-15T09:30:00.000Z`. ST-31.
#[must_use]
pub fn time_text(unix_ms: u64) -> String {
    /// The end of the year 9999: RFC 3339 has four digits for a year.
    const LAST_MS: u64 = 253_402_300_799_999;
    rfc3339_millis(unix_ms.min(LAST_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-31: three digits of a fraction, always.
    #[test]
    fn times_of_events() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time_text(1_763_199_000_007), "2025-11-15T09:30:00.007Z");
        assert_eq!(time_text(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(time_text(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
