//! What ties the thread that reads a run's stream to the call that waits for it: how the call
//! tells it to stop, whatever it waits for, and how far it has come.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const READ: u8 = 0;
const DRAIN: u8 = 1;
const STOP: u8 = 2;

/// What the reader is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Read until the end of the stream.
    Read,
    /// The executor is gone: what is in the pipe is all that counts.
    Drain,
    /// Nobody waits any more.
    Stop,
}

/// The call's end. Dropped, it stops the reader.
pub(super) struct Leash {
    order: Arc<AtomicU8>,
    /// Its end wakes the reader.
    wake: Option<OwnedFd>,
    pub strides: Arc<Strides>,
}

/// The reader's end.
pub(super) struct Collar {
    order: Arc<AtomicU8>,
    /// Readable, in that it has ended, once there is another order than to read.
    pub wake: OwnedFd,
}

/// How far a run has come, for whoever watches.
#[derive(Debug, Default)]
pub(super) struct Strides {
    pub bytes: AtomicU64,
    pub events: AtomicU64,
    pub artifacts: AtomicU64,
    pub artifact_bytes: AtomicU64,
}

pub(super) fn pair() -> io::Result<(Leash, Collar)> {
    let (near, far) = io::pipe()?;
    let order = Arc::new(AtomicU8::new(READ));
    let leash = Leash {
        order: Arc::clone(&order),
        wake: Some(far.into()),
        strides: Arc::default(),
    };
    let collar = Collar {
        order,
        wake: near.into(),
    };
    Ok((leash, collar))
}

impl Leash {
    /// Nothing more will be written by those who may.
    pub fn drain(&mut self) {
        self.tell(DRAIN);
    }

    fn tell(&mut self, order: u8) {
        self.order.fetch_max(order, Ordering::AcqRel);
        self.wake = None;
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.tell(STOP);
    }
}

impl Collar {
    pub fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            READ => Order::Read,
            DRAIN => Order::Drain,
            _ => Order::Stop,
        }
    }
}
