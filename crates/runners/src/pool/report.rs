//! What a worker says of its call before it answers it: how far it is, and words for whoever
//! watches. Bounded: what comes too often or does not grow is dropped, and buys no time.

use std::borrow::Cow;
use std::time::Duration;

use callgate_call::{Job, Log, LogLevel, Progress};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::answer;

/// The longest report. A longer line is no report, and no answer either.
const REPORT_BYTES_MAX: usize = 64 * 1024;

/// Reports passed on at once; after these, one each `REPORT_PAUSE`.
const REPORTS_FREE: u32 = 100;
const REPORT_PAUSE: Duration = Duration::from_millis(20);

/// A report as a worker writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Report<'a> {
    #[serde(borrow)]
    call: Cow<'a, str>,
    #[serde(default)]
    progress: Option<ProgressReport>,
    #[serde(borrow, default)]
    log: Option<LogReport<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgressReport {
    progress: f64,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogReport<'a> {
    #[serde(borrow)]
    level: Cow<'a, str>,
    #[serde(default)]
    logger: Option<String>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The reports of one call.
pub(super) struct Reports<'a> {
    job: Job<'a>,
    call: &'a [u8],
    done: Option<f64>,
    rate: Rate,
}

impl<'a> Reports<'a> {
    pub fn new(job: Job<'a>, call: &'a [u8]) -> Self {
        Self {
            job,
            call,
            done: None,
            rate: Rate::default(),
        }
    }

    /// Passes a report on; false if the line is none.
    pub fn take(&mut self, line: &[u8]) -> bool {
        if line.len() > REPORT_BYTES_MAX {
            return false;
        }
        let Ok(report) = serde_json::from_slice::<Report<'_>>(line) else {
            return false;
        };
        if report.call.as_bytes() != self.call {
            return false;
        }
        match (report.progress, report.log) {
            (Some(progress), None) => self.progress(progress),
            (None, Some(log)) => return self.log(log),
            _ => return false,
        }
        true
    }

    fn progress(&mut self, report: ProgressReport) {
        let grows = self.done.is_none_or(|done| report.progress > done);
        if grows && self.rate.allows(Instant::now()) {
            self.done = Some(report.progress);
            self.job.sink.progress(&Progress {
                done: report.progress,
                total: report.total,
                message: report.message,
            });
        }
    }

    fn log(&mut self, report: LogReport<'_>) -> bool {
        let Some(level) = LogLevel::parse(&report.level) else {
            return false;
        };
        // What is dropped is not read either.
        if !self.rate.allows(Instant::now()) {
            return true;
        }
        let Ok(data) = answer::strict(report.data) else {
            return false;
        };
        self.job.sink.log(&Log {
            level,
            logger: report.logger,
            data,
        });
        true
    }
}

/// Some at once, and then one now and then.
#[derive(Default)]
struct Rate {
    passed: u32,
    last: Option<Instant>,
}

impl Rate {
    fn allows(&mut self, now: Instant) -> bool {
        let is_late = self.last.is_none_or(|last| now >= last + REPORT_PAUSE);
        if self.passed >= REPORTS_FREE && !is_late {
            return false;
        }
        self.passed = self.passed.saturating_add(1);
        self.last = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_thinned() {
        let start = Instant::now();
        let mut rate = Rate::default();
        let passed = (0..1000).filter(|_| rate.allows(start)).count();
        assert_eq!(passed, 100);
        assert!(!rate.allows(start + REPORT_PAUSE - Duration::from_nanos(1)));
        assert!(rate.allows(start + REPORT_PAUSE));
        assert!(!rate.allows(start + REPORT_PAUSE));
        assert!(rate.allows(start + 2 * REPORT_PAUSE));
    }
}
