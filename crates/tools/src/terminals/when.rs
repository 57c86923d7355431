//! Moments as text, in microseconds: the cursor of `terminals/read_logs`.

use callgate_call::{Clock, Timestamp};

/// The clock of one session: the wall's time at its start, and what has passed since.
#[derive(Clone, Copy, Debug)]
pub struct SessionClock {
    pub started: Timestamp,
    began_us: u64,
}

impl SessionClock {
    pub fn now(clock: &dyn Clock) -> Self {
        Self {
            started: clock.now(),
            began_us: clock.micros(),
        }
    }

    /// Microseconds since the session began.
    pub fn elapsed_us(&self, clock: &dyn Clock) -> u64 {
        clock.micros().saturating_sub(self.began_us)
    }

    /// Microseconds since the Unix epoch.
    pub fn now_us(&self, clock: &dyn Clock) -> u64 {
        self.started.0.saturating_mul(1000) + self.elapsed_us(clock)
    }
}

/// `2026-10-26T07:33:20.123456Z`. All are of one length, so that they compare as text too.
pub fn text(us: u64) -> String {
    let mut text = Timestamp(us / 1000).rfc3339();
    text.truncate(text.len() - 1);
    text + &format!("{:03}Z", us % 1000)
}

/// Reads what [`text`] writes, and other moments in ISO 8601 with a date, a time and a zone.
pub fn parse(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let (time, zone_seconds) = zone(rest)?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', &[4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', &[2, 2, 2])?;
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
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    u64::try_from((seconds - zone_seconds) * 1_000_000 + micros).ok()
}

/// The time without its zone, and that in seconds.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let at = text.rfind(['+', '-'])?;
    let [hours, minutes] = numbers(&text[at + 1..], ':', &[2, 2])?;
    let seconds = hours * 3600 + minutes * 60;
    let sign = if text[at..].starts_with('-') { -1 } else { 1 };
    Some((&text[..at], sign * seconds))
}

fn numbers<const N: usize>(text: &str, mark: char, widths: &[usize; N]) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(mark);
    for (number, width) in found.iter_mut().zip(widths) {
        let part = parts.next()?;
        let is_number = part.len() == *width && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

/// Days since the epoch, after Howard Hinnant.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, yoe) = (year / 400, year % 400);
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    #[test]
    fn moments_survive_the_way() {
        let mut us = 1;
        while us < 4_000_000_000_000_000 {
            assert_eq!(parse(&text(us)), Some(us), "{}", text(us));
            us = us * 3 + 1_234_567;
        }
        assert_eq!(text(1_793_000_000_123_456), "2026-10-26T07:33:20.123456Z");
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
            assert_eq!(parse(same), whole, "{same}");
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
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    /// 100,000 changed texts: what is taken as a moment is that moment.
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
            if let Some(us) = parse(&moment).filter(|us| *us < END_US) {
                assert_eq!(parse(&text(us)), Some(us), "{moment}");
                taken += 1;
            }
        }
        assert!(taken > 0);
    }
}
