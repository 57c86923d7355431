//! Times as text, in UTC.

/// Milliseconds since 1970 as events have them: `2026-11-15T09:30:00.000Z`. ST-31.
#[must_use]
pub fn time_text(unix_ms: u64) -> String {
    // Beyond the year 9999 it stands still.
    const LAST_MS: u64 = 253_402_300_799_999;
    let unix_ms = unix_ms.min(LAST_MS);
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(0);
    let whole = rfc3339(seconds, 0).unwrap_or_default();
    let whole = whole.trim_end_matches('Z');
    format!("{whole}.{:03}Z", unix_ms % 1000)
}

/// Seconds since 1970 as RFC 3339, with as much of a fraction as there is; nothing for a year that
/// has not four digits.
pub(super) fn rfc3339(seconds: i64, nanos: u32) -> Option<String> {
    const DAY: i64 = 86_400;
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    if !(0..=9999).contains(&year) || nanos > 999_999_999 {
        return None;
    }
    let of_day = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if nanos > 0 {
        let fraction = format!(".{nanos:09}");
        text.push_str(fraction.trim_end_matches('0'));
    }
    text.push('Z');
    Some(text)
}

/// Year, month and day of a day counted from 1970-01-01, in years that begin in March: then
/// the leap day is the last one of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 146_097;
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year + era * 400 + i64::from(month <= 2), month, day)
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
