//! Refuse early and say when to come back: rate per tool and caller, rate per token, and how
//! many calls of a tool run at once. The breaker is kept in the store, so that all processes share it (G-7).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use callgate_call::{Call, Caller, Fault, Output, RateLimit, Timestamp, Tool};
use callgate_store::Health;

/// When the breaker opens and for how long. Decision G-7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Consecutive failures that open it; 0 turns it off.
    pub failures_max: u32,
    /// How long it stays open before one call may probe.
    pub open: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            failures_max: 5,
            open: Duration::from_secs(30),
        }
    }
}

/// Whether a call may pass the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// As any other.
    Closed,
    /// As the one probe after the breaker has been open.
    Probe,
}

impl BreakerPolicy {
    /// Lets a call through, or says how long the breaker stays open. `failed_at` is when the
    /// newest of `failures` consecutive failures was recorded.
    pub fn check(
        self,
        failures: u32,
        failed_at: Timestamp,
        now: Timestamp,
    ) -> Result<Breaker, Fault> {
        if self.failures_max == 0 || failures < self.failures_max {
            return Ok(Breaker::Closed);
        }
        match self.open.checked_sub(now.since(failed_at)) {
            Some(left) if !left.is_zero() => Err(Fault::BreakerOpen { retry_after: left }),
            _ => Ok(Breaker::Probe),
        }
    }
}

/// Callers whose buckets are remembered; a full bucket is forgotten first.
const CALLERS_MAX: usize = 1024;

/// What is under way for one tool.
pub struct Traffic {
    rate: Option<RateLimit>,
    buckets: Buckets,
    running_max: usize,
    running: AtomicUsize,
    /// Of this process: another one that shares the workspace has its own try (G-7).
    probing: AtomicUsize,
}

/// A bucket for each caller.
#[derive(Default)]
pub struct Buckets(Mutex<HashMap<Caller, Bucket>>);

#[derive(Clone, Copy)]
struct Bucket {
    rate: RateLimit,
    tokens: f64,
    at: Timestamp,
}

impl Buckets {
    /// Takes one token of the caller's bucket, which fills as `rate` says.
    pub fn take(&self, caller: &Caller, rate: RateLimit, now: Timestamp) -> Result<(), Fault> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CALLERS_MAX && !buckets.contains_key(caller) {
            buckets.retain(|_, bucket| bucket.refilled(now) < f64::from(bucket.rate.burst));
            if buckets.len() >= CALLERS_MAX {
                return Err(Fault::rate_limited(Duration::from_secs(1)));
            }
        }
        let full = Bucket {
            rate,
            tokens: f64::from(rate.burst),
            at: now,
        };
        let bucket = buckets.entry(caller.clone()).or_insert(full);
        bucket.rate = rate;
        let tokens = bucket.refilled(now);
        *bucket = Bucket {
            rate,
            tokens,
            at: now,
        };
        if tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let seconds = (1.0 - tokens) / rate.per_second;
        Err(Fault::rate_limited(Duration::from_secs_f64(
            seconds.min(3600.0),
        )))
    }
}

impl Traffic {
    /// Nothing is under way yet.
    #[must_use]
    pub fn new(tool: &Tool) -> Self {
        Self {
            rate: tool.rate_limit,
            buckets: Buckets::default(),
            running_max: tool.concurrency_max,
            running: AtomicUsize::new(0),
            probing: AtomicUsize::new(0),
        }
    }

    /// True if there is a rate to keep to.
    pub fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Takes one token of the caller's bucket.
    pub fn check_rate(&self, caller: &Caller, now: Timestamp) -> Result<(), Fault> {
        match self.rate {
            None => Ok(()),
            Some(rate) => self.buckets.take(caller, rate, now),
        }
    }

    /// Takes a place among the running calls; it is given back when the permit goes.
    pub fn enter(&self) -> Result<Permit<'_>, Fault> {
        let busy = || Fault::Unavailable {
            reason: format!(
                "{} calls of this tool are running; try again shortly",
                self.running_max
            ),
        };
        take(&self.running, self.running_max).ok_or_else(busy)
    }

    /// Takes the one place of a probe, after the breaker has been open.
    pub fn probe(&self, policy: BreakerPolicy) -> Result<Permit<'_>, Fault> {
        take(&self.probing, 1).ok_or(Fault::BreakerOpen {
            retry_after: policy.open,
        })
    }
}

fn take(count: &AtomicUsize, max: usize) -> Option<Permit<'_>> {
    count
        .try_update(Ordering::AcqRel, Ordering::Acquire, |n| {
            (n < max).then_some(n + 1)
        })
        .ok()
        .map(|_| Permit(count))
}

impl Bucket {
    fn refilled(self, now: Timestamp) -> f64 {
        let gained = now.since(self.at).as_secs_f64() * self.rate.per_second;
        (self.tokens + gained).min(f64::from(self.rate.burst))
    }
}

/// A place among the running calls.
pub struct Permit<'a>(&'a AtomicUsize);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What the end of a call says of its tool's health.
pub(crate) fn health_of(call: &Call, tool: &Tool, result: &Result<Output, Fault>) -> Health {
    use Fault::{Cancelled, Internal, Timeout, Unavailable};
    match result {
        _ if call.is_rerun => Health::Silent,
        Ok(_) => Health::Works,
        Err(_) if tool.runs_callers_code => Health::Silent,
        // Who waits for less than the tool may take has learnt nothing of it.
        Err(Timeout { .. }) if call.is_impatient(tool.timeout) => Health::Silent,
        Err(fault) if fault.is_tool_trouble() => Health::Trouble,
        Err(Cancelled | Internal { .. } | Unavailable { .. }) => Health::Silent,
        Err(_) => Health::Works,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(rate: Option<RateLimit>, running_max: usize) -> Traffic {
        Traffic {
            rate,
            buckets: Buckets::default(),
            running_max,
            running: AtomicUsize::new(0),
            probing: AtomicUsize::new(0),
        }
    }

    /// G-7: open just before, at and past the edge of its time.
    #[test]
    fn the_breaker_opens_and_lets_one_probe() {
        let policy = BreakerPolicy::default();
        let at = |ms| policy.check(5, Timestamp(1000), Timestamp(ms));
        assert_eq!(
            policy.check(4, Timestamp(1000), Timestamp(1000)),
            Ok(Breaker::Closed)
        );
        let left = Duration::from_secs(30);
        assert_eq!(at(1000), Err(Fault::BreakerOpen { retry_after: left }));
        assert_eq!(
            at(30_999),
            Err(Fault::BreakerOpen {
                retry_after: Duration::from_millis(1)
            })
        );
        assert_eq!(at(31_000), Ok(Breaker::Probe));
        let off = BreakerPolicy {
            failures_max: 0,
            ..policy
        };
        assert_eq!(
            off.check(99, Timestamp(1000), Timestamp(1000)),
            Ok(Breaker::Closed)
        );
        let traffic = traffic(None, 1);
        let probe = traffic.probe(policy).ok().unwrap();
        assert!(traffic.probe(policy).is_err());
        drop(probe);
        assert!(traffic.probe(policy).is_ok());
    }

    /// F-12: a burst passes, the next is told when to come back, and each caller has its own.
    #[test]
    fn rates_are_per_caller() {
        let traffic = traffic(
            Some(RateLimit {
                per_second: 5.0,
                burst: 2,
            }),
            1,
        );
        let (a, b) = (Caller::uid(1), Caller::uid(2));
        let check = |caller: &Caller, ms| traffic.check_rate(caller, Timestamp(ms));
        assert!(check(&a, 0).is_ok() && check(&a, 0).is_ok());
        let wait = Duration::from_millis(200);
        assert_eq!(check(&a, 0), Err(Fault::rate_limited(wait)));
        assert!(check(&b, 0).is_ok());
        assert!(check(&a, 199).is_err());
        assert!(check(&a, 200).is_ok());
    }

    #[test]
    fn callers_are_bounded() {
        let traffic = traffic(
            Some(RateLimit {
                per_second: 0.001,
                burst: 1,
            }),
            1,
        );
        for uid in 0..2000 {
            let _ = traffic.check_rate(&Caller::uid(uid), Timestamp(0));
        }
        assert!(traffic.buckets.0.lock().unwrap().len() <= CALLERS_MAX);
    }

    #[test]
    fn places_are_given_back() {
        let traffic = traffic(None, 2);
        let (one, two) = (traffic.enter(), traffic.enter());
        assert!(one.is_ok() && two.is_ok() && traffic.enter().is_err());
        drop(one);
        assert!(traffic.enter().is_ok());
    }
}
