//! The clock of a session. Its microseconds, as RFC 3339, are the cursor of `terminals/read_logs`.

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
