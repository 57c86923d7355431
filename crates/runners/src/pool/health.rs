//! When a worker may be started again after others have crashed. No clock, no process: it
//! is told what happened and asked.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The numbers behind the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub crashes_max: usize,
    pub crash_window: Duration,
    /// How long there is no start after too many crashes.
    pub pause: Duration,
    /// After the pause one more crash is too many, until `forget`.
    pub half_open: bool,
    /// What crashes, in words: `worker`.
    pub what: &'static str,
}

/// What has been going wrong.
#[derive(Debug)]
pub(crate) struct Health {
    rules: Rules,
    /// Within the window, oldest first; never more than `crashes_max`.
    crashes: VecDeque<Instant>,
    /// Since the last call that was answered.
    in_a_row: u32,
    last: Option<Crash>,
    stopped_until: Option<Instant>,
    /// The pause is over and nothing has shown yet that the crashes are.
    on_trial: bool,
}

#[derive(Debug)]
struct Crash {
    at: Instant,
    reason: String,
}

/// Whether a worker may start.
#[derive(Debug, PartialEq)]
pub(crate) enum Start {
    Now,
    At(Instant),
    /// Not before this moment, for this reason.
    Stopped {
        until: Instant,
        reason: String,
    },
}

impl Health {
    pub fn new(rules: Rules) -> Self {
        // bound: the owner's configuration, which is checked
        let crashes = VecDeque::with_capacity(rules.crashes_max);
        Self {
            rules,
            crashes,
            in_a_row: 0,
            last: None,
            stopped_until: None,
            on_trial: false,
        }
    }

    /// A call was answered.
    pub fn answered(&mut self) {
        self.in_a_row = 0;
    }

    /// A worker died by itself.
    pub fn crashed(&mut self, now: Instant, reason: String) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.last = Some(Crash { at: now, reason });
        self.crashes.push_back(now);
        while self
            .crashes
            .front()
            .is_some_and(|&at| now - at > self.rules.crash_window)
        {
            self.crashes.pop_front();
        }
        if self.on_trial || self.crashes.len() >= self.rules.crashes_max {
            self.crashes.clear();
            self.stopped_until = Some(now + self.rules.pause);
        }
    }

    /// Starts from nothing.
    pub fn forget(&mut self) {
        *self = Self::new(self.rules);
    }

    pub fn may_start(&mut self, now: Instant) -> Start {
        if let Some(until) = self.stopped_until {
            if now < until {
                return Start::Stopped {
                    until,
                    reason: self.loop_reason(),
                };
            }
            self.forget();
            self.on_trial = self.rules.half_open;
        }
        match &self.last {
            Some(last) if self.in_a_row > 0 => {
                let at = last.at + self.backoff();
                if now < at { Start::At(at) } else { Start::Now }
            }
            _ => Start::Now,
        }
    }

    fn backoff(&self) -> Duration {
        let doubled = 2u32.saturating_pow(self.in_a_row.saturating_sub(1));
        self.rules
            .backoff_min
            .saturating_mul(doubled)
            .min(self.rules.backoff_max)
    }

    fn loop_reason(&self) -> String {
        let Rules {
            crashes_max,
            crash_window,
            what,
            ..
        } = self.rules;
        let last = self.last.as_ref().map_or("", |crash| crash.reason.as_str());
        let seconds = crash_window.as_secs_f64();
        format!(
            "stopped after {crashes_max} crashes of its {what} within {seconds} s; the last: {last}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn health() -> Health {
        Health::new(Rules {
            backoff_min: 100 * MS,
            backoff_max: 30 * SECOND,
            crashes_max: 5,
            crash_window: 60 * SECOND,
            pause: 60 * SECOND,
            half_open: false,
            what: "worker",
        })
    }

    #[test]
    fn the_wait_doubles_up_to_its_bound_and_a_success_ends_it() {
        let begin = Instant::now();
        let mut health = Health::new(Rules {
            crashes_max: 100,
            ..health().rules
        });
        assert_eq!(health.may_start(begin), Start::Now);
        for (crash, wait) in [
            100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
        ]
        .into_iter()
        .enumerate()
        {
            health.crashed(begin, String::new());
            let at = begin + wait * MS;
            assert_eq!(health.may_start(at - MS), Start::At(at), "crash {crash}");
            assert_eq!(health.may_start(at), Start::Now);
        }
        health.answered();
        assert_eq!(health.may_start(begin), Start::Now);
        health.crashed(begin, String::new());
        assert_eq!(health.may_start(begin), Start::At(begin + 100 * MS));
    }

    #[test]
    fn five_crashes_within_the_window_stop_it() {
        let begin = Instant::now();
        let mut health = health();
        for crash in 0..5 {
            health.answered();
            assert!(
                !matches!(health.may_start(begin), Start::Stopped { .. }),
                "{crash}"
            );
            health.crashed(begin + crash * 15 * SECOND, format!("crash {crash}"));
        }
        let last = begin + 60 * SECOND;
        let Start::Stopped { until, reason } = health.may_start(last) else {
            panic!("it goes on")
        };
        assert_eq!(until, last + 60 * SECOND);
        assert!(
            reason.ends_with("5 crashes of its worker within 60 s; the last: crash 4"),
            "{reason}"
        );
        assert_eq!(health.may_start(until), Start::Now);
    }

    #[test]
    fn crashes_outside_the_window_do_not_count() {
        let begin = Instant::now();
        let mut health = health();
        for crash in 0..20 {
            health.answered();
            let now = begin + crash * 16 * SECOND;
            health.crashed(now, String::new());
            assert!(
                !matches!(health.may_start(now), Start::Stopped { .. }),
                "{crash}"
            );
        }
    }

    /// Half open: after the pause a single crash begins the next one, until all is forgotten.
    #[test]
    fn one_crash_on_trial_stops_it_again() {
        let begin = Instant::now();
        let mut health = Health::new(Rules {
            pause: 300 * SECOND,
            half_open: true,
            ..health().rules
        });
        (0..5).for_each(|_| health.crashed(begin, String::new()));
        let until = begin + 300 * SECOND;
        assert!(matches!(
            health.may_start(until - MS),
            Start::Stopped { .. }
        ));
        assert_eq!(health.may_start(until), Start::Now);
        health.crashed(until, "again".to_owned());
        assert!(matches!(
            health.may_start(until + 299 * SECOND),
            Start::Stopped { .. }
        ));
        assert_eq!(health.may_start(until + 300 * SECOND), Start::Now);
        health.forget();
        health.crashed(until, String::new());
        assert_eq!(health.may_start(until + 100 * MS), Start::Now);
    }

    #[test]
    fn forgetting_starts_from_nothing() {
        let begin = Instant::now();
        let mut health = health();
        (0..5).for_each(|_| health.crashed(begin, String::new()));
        health.forget();
        assert_eq!(health.may_start(begin), Start::Now);
    }
}
