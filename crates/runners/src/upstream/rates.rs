//! How often a server may say what nobody asked for. No clock: times are handed in.

use std::time::Duration;

use tokio::time::Instant;

/// Notifications that are passed on a second, and at once. U-10.
const NOTIFICATIONS_PER_SECOND: u32 = 200;

/// Answers that nobody asked for within `STRAYS_WINDOW` before a server is restarted. U-7.
const STRAYS_MAX: u32 = 100;
const STRAYS_WINDOW: Duration = Duration::from_secs(60);

/// Passes on so many events a second.
#[derive(Debug)]
pub(super) struct EventBudget {
    left: f64,
    filled: Instant,
}

impl EventBudget {
    pub fn new(now: Instant) -> Self {
        Self {
            left: f64::from(NOTIFICATIONS_PER_SECOND),
            filled: now,
        }
    }

    /// Returns whether one more event is passed on.
    pub fn takes(&mut self, now: Instant) -> bool {
        let rate = f64::from(NOTIFICATIONS_PER_SECOND);
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + since * rate).min(rate);
        self.filled = now;
        let takes = self.left >= 1.0;
        if takes {
            self.left -= 1.0;
        }
        takes
    }
}

/// Counts answers that nobody asked for.
#[derive(Debug, Default)]
pub(super) struct StrayCount {
    began: Option<Instant>,
    count: u32,
}

impl StrayCount {
    /// Adds one. Returns whether there are too many within a minute.
    pub fn add(&mut self, now: Instant) -> bool {
        let is_old = |began: Instant| now.saturating_duration_since(began) > STRAYS_WINDOW;
        if self.began.is_none_or(is_old) {
            (self.began, self.count) = (Some(now), 0);
        }
        self.count += 1;
        self.count >= STRAYS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U-10: at, below and past the rate.
    #[test]
    fn events_are_thinned() {
        let begin = Instant::now();
        let mut budget = EventBudget::new(begin);
        let passed = (0..1000).filter(|_| budget.takes(begin)).count();
        assert_eq!(passed, 200);
        assert!(!budget.takes(begin + Duration::from_millis(4)));
        assert!(budget.takes(begin + Duration::from_millis(6)));
        let later = begin + Duration::from_secs(10);
        assert_eq!((0..1000).filter(|_| budget.takes(later)).count(), 200);
    }

    /// U-7.
    #[test]
    fn a_hundred_strays_in_a_minute_are_too_many() {
        let begin = Instant::now();
        let mut strays = StrayCount::default();
        assert!((0..99).all(|_| !strays.add(begin)));
        assert!(strays.add(begin + STRAYS_WINDOW));
        let mut strays = StrayCount::default();
        assert!((0..99).all(|_| !strays.add(begin)));
        assert!(!strays.add(begin + STRAYS_WINDOW + Duration::from_millis(1)));
    }
}
