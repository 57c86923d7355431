//! Timestamps of RFC 3339, in UTC and the proleptic Gregorian calendar.

use std::fmt::Write as _;

const DAY_SECONDS: i64 = 86_400;
/// The days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// From 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// The longest text of a year with four digits.
const TEXT_BYTES: usize = "2026-10-26T07:33:20.123456789Z".len();

/// Milliseconds since 1970 as `2026-10-26T07:33:20.123Z`.
#[must_use]
pub fn rfc3339_millis(unix_ms: u64) -> String {
    let mut text = date_and_time((unix_ms / 1000).cast_signed());
    let _ = write!(text, ".{:03}Z", unix_ms % 1000); // a String takes everything
    text
}

/// Microseconds since 1970 as `2026-10-26T07:33:20.123456Z`. Up to the year 9999 all are of one
/// length, so that they sort as text too.
#[must_use]
pub fn rfc3339_micros(unix_us: u64) -> String {
    let mut text = date_and_time((unix_us / 1_000_000).cast_signed());
    let _ = write!(text, ".{:06}Z", unix_us % 1_000_000); // a String takes everything
    text
}

/// Seconds and nanoseconds since 1970, with as many digits of a fraction as are needed. `None`
/// for a year that has not four digits, and for `nanos` of a second or more.
#[must_use]
pub fn rfc3339(seconds: i64, nanos: u32) -> Option<String> {
    let (year, ..) = civil(seconds.div_euclid(DAY_SECONDS));
    if !(0..=9999).contains(&year) || nanos > 999_999_999 {
        return None;
    }
    let mut text = date_and_time(seconds);
    if nanos > 0 {
        let _ = write!(text, ".{nanos:09}"); // a String takes everything
        text.truncate(text.trim_end_matches('0').len());
    }
    text.push('Z');
    Some(text)
}

/// Reads a moment with a date, a time in seconds and a zone, from the years 1970 to 9999, as
/// microseconds since 1970; further digits are cut off. As in ISO 8601 a space may stand for the
/// `T`, and the day and the second may be one that its month or minute has not: it is in the next.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (time, zone_seconds) = zone(rest)?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range || fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let micros: i64 = digits.parse().ok()?;
    let seconds = day_number(year, month, day) * DAY_SECONDS + hour * 3600 + minute * 60 + second;
    u64::try_from((seconds - zone_seconds) * 1_000_000 + micros).ok()
}

fn date_and_time(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut text = String::with_capacity(TEXT_BYTES);
    let _ = write!(
        text, // a String takes everything
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
    );
    text
}

/// Year, month and day of a day counted from 1970-01-01. Howard Hinnant's algorithm: years begin
/// in March, so that the leap day is the last of its year.
/// <https://howardhinnant.github.io/date_algorithms.html>
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    era * ERA_DAYS + days - EPOCH_DAYS
}

/// The time without its zone, and the zone's seconds east of Greenwich.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let [hours, minutes] = numbers(&text[at + 1..], ':', [2, 2])?;
    let seconds = hours * 3600 + minutes * 60;
    let sign = if text[at..].starts_with('-') { -1 } else { 1 };
    Some((&text[..at], sign * seconds))
}

/// Numbers of these widths with `mark` between them.
fn numbers<const N: usize>(text: &str, mark: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(mark);
    for (number, width) in found.iter_mut().zip(widths) {
        let part = parts.next()?;
        let is_number = part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use callgate_testing::{Random, mutant};

    use super::*;

    #[test]
    fn days_and_dates_are_inverse() {
        for days in (-1_000_000..5_000_000).step_by(31).chain(-800..800) {
            let (year, month, day) = civil(days);
            assert_eq!(day_number(year, month, day), days);
            assert!((1..=12).contains(&month) && (1..=31).contains(&day));
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(-25_509), (1900, 2, 28));
        assert_eq!(civil(-25_508), (1900, 3, 1));
    }

    #[test]
    fn millis() {
        for (ms, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_763_199_000_007, "2025-11-15T09:30:00.007Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "10000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339_millis(ms), wanted);
        }
        assert!(rfc3339_millis(u64::MAX).ends_with("Z"));
    }

    /// The edges of what RFC 3339 can represent.
    #[test]
    fn shortest_fractions() {
        let is = |seconds, nanos, wanted: &str| {
            assert_eq!(rfc3339(seconds, nanos).as_deref(), Some(wanted));
        };
        is(951_782_400, 0, "2000-02-29T00:00:00Z");
        is(-1, 120_000_000, "1969-12-31T23:59:59.12Z");
        is(-62_167_219_200, 0, "0000-01-01T00:00:00Z");
        is(253_402_300_799, 1, "9999-12-31T23:59:59.000000001Z");
        for (seconds, nanos) in [
            (253_402_300_800, 0),
            (-62_167_219_201, 0),
            (i64::MIN, 0),
            (i64::MAX, 0),
            (0, 1_000_000_000),
        ] {
            assert_eq!(rfc3339(seconds, nanos), None);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut us = 1;
        while us < 4_000_000_000_000_000 {
            let text = rfc3339_micros(us);
            assert_eq!(parse_rfc3339(&text), Some(us), "{text}");
            let millis = parse_rfc3339(&rfc3339_millis(us / 1000));
            assert_eq!(millis, Some(us / 1000 * 1000));
            us = us * 3 + 1_234_567;
        }
        let text = rfc3339_micros(1_793_000_000_123_456);
        assert_eq!(text, "2026-10-26T07:33:20.123456Z");
    }

    #[test]
    fn other_forms_are_read() {
        let whole = Some(1_793_000_000_000_000);
        for same in [
            "2026-10-26T07:33:20Z",
            "2026-10-26T07:33:20.0000001z",
            "2026-10-26 09:33:20+02:00",
            "2026-10-26T05:03:20-02:30",
        ] {
            assert_eq!(parse_rfc3339(same), whole, "{same}");
        }
        for wrong in [
            "",
            "yesterday",
            "2026-10-26",
            "2026-10-26T07:33:20",
            "2026-13-26T07:33:20Z",
            "2026-10-26T07:33:20.Z",
            "2026-10-26T07:33Z",
            "-026-10-26T07:33:20Z",
            "2026-10-26T+7:33:20Z",
        ] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
    }

    /// 100,000 changed texts: one that is read is the moment that is written.
    #[test]
    fn mutated_moments() {
        const SEEDS: [&[u8]; 4] = [
            b"2026-10-26T07:33:20.123456Z",
            b"2026-10-26 09:33:20+02:00",
            b"9999-12-31T23:59:60-23:59",
            b"1970-01-01T00:00:00.0Z",
        ];
        const WORDS: [&[u8]; 10] = [
            b":",
            b"-",
            b"+",
            b".",
            b"T",
            b"Z",
            b"99",
            b"9999",
            b"\xc3\xa9",
            b"\xff",
        ];
        /// The end of the year 9999.
        const END_US: u64 = 253_402_300_800_000_000;
        let mut random = Random::new("mutated moments");
        let mut taken = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &SEEDS, &WORDS);
            let moment = String::from_utf8_lossy(&bytes);
            if let Some(us) = parse_rfc3339(&moment).filter(|us| *us < END_US) {
                assert_eq!(parse_rfc3339(&rfc3339_micros(us)), Some(us), "{moment}");
                taken += 1;
            }
        }
        assert!(taken > 0);
    }
}
