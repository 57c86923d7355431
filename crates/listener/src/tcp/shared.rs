//! What the connections of a port share: the date, and how many requests are under way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use callgate_call::Clock;

/// Fewer requests than these under way are few.
const FEW: usize = 8;

/// The date as answers tell it, made once a second.
pub(super) struct Dates {
    clock: Arc<dyn Clock>,
    last: Mutex<(u64, String)>,
}

impl Dates {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let last = Mutex::new((u64::MAX, String::new()));
        Self { clock, last }
    }

    /// Appends it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let second = self.clock.now().0 / 1000;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != second {
            let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            *last = (second, httpdate::fmt_http_date(moment));
        }
        out.extend_from_slice(last.1.as_bytes());
    }
}

/// What the connections of a port share.
pub(super) struct Shared {
    pub(super) dates: Dates,
    /// Requests that are being answered.
    under_way: AtomicUsize,
}

impl Shared {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            dates: Dates::new(clock),
            under_way: AtomicUsize::new(0),
        }
    }

    pub(super) fn begins(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }

    /// Lets whoever sends get done with it. At the first word of a request their kernel still has
    /// the socket, and to wait for that costs both sides more than a look at the others does,
    /// on virtual machines several times an answer. Where many are under way it is long done.
    pub(super) async fn breathe(&self) {
        if self.under_way.load(Ordering::Relaxed) < FEW {
            tokio::task::yield_now().await;
        }
    }
}

/// A request that is being answered.
pub(super) struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
