//! The system's clock, the one place that reads it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use callgate_call::{Clock, Timestamp};
use callgate_registry::environment::Environment;

/// The wall clock.
#[derive(Debug)]
pub struct SystemClock {
    began: Instant,
    /// Tests of old records move the clock instead of waiting.
    ahead_ms: u64,
}

impl SystemClock {
    /// The clock of this process.
    #[cfg_attr(not(feature = "failpoints"), expect(unused_variables))]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new(environment: &Environment) -> Self {
        #[cfg(feature = "failpoints")]
        let ahead_ms = environment
            .text("CALLGATE_CLOCK_AHEAD_MS")
            .and_then(|ms| ms.parse().ok())
            .unwrap_or_default();
        #[cfg(not(feature = "failpoints"))]
        let ahead_ms = 0;
        Self {
            began: Instant::now(),
            ahead_ms,
        }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX) + self.ahead_ms)
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
