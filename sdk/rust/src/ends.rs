//! Ends of a program that run no `Drop`: signals, and `std::process::exit`. What living parents
//! have made is known here, so that whatever ends the program can remove all of it.
//!
//! Not here: SIGKILL, `abort`, and an exit on another thread than the main one. Nothing of ours
//! runs then, and the next parent sweeps.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::files::Place;

/// As many as there are parents. Who takes a place out of it removes what is there, and nobody
/// does so twice: it may be another process's by then.
static LIVING: Mutex<Vec<Place>> = Mutex::new(Vec::new());

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done where one could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place that is to be removed, however the program ends.
pub(crate) fn add(place: Place) {
    held(&LIVING).push(place);
    let this_thread = rustix::thread::gettid();
    if this_thread == rustix::process::getpid() {
        let _ = AT_EXIT.try_with(|_| ());
    }
}

/// Removes what is there, if that was not done before.
pub(crate) fn remove(place: &Place) {
    let mut living = held(&LIVING);
    if let Some(index) = living.iter().position(|other| other == place) {
        living.swap_remove(index).remove();
    }
}

fn remove_all() {
    for place in held(&LIVING).drain(..) {
        place.remove();
    }
}

/// A value of the main thread. `exit` drops the values of the thread that calls it, as the return
/// of `main` does; it is all that safe code can do there.
struct AtExit {
    process: u32,
}

thread_local! {
    static AT_EXIT: AtExit = AtExit {
        process: std::process::id(),
    };
}

impl Drop for AtExit {
    fn drop(&mut self) {
        // The files are not those of a forked child.
        if self.process == std::process::id() {
            remove_all();
        }
    }
}

/// Ends the program on SIGTERM, SIGINT and SIGHUP, those that it neither handles nor ignores
/// now, for as long as it lives: a handler of a signal can not be taken back.
pub(crate) fn exit_on_signals() -> io::Result<()> {
    static IS_WATCHED: Mutex<bool> = Mutex::new(false);
    let mut is_watched = held(&IS_WATCHED);
    if !*is_watched {
        watch()?;
        *is_watched = true;
    }
    Ok(())
}

fn watch() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let handled = handled();
    let signals: io::Result<Vec<(i32, Signal)>> = {
        let _inside = runtime.enter();
        [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ]
        .into_iter()
        .filter(|kind| handled & bit(*kind) == 0)
        .map(|kind| Ok((kind.as_raw_value(), signal(kind)?)))
        .collect()
    };
    let mut signals = signals?;
    let exit = move || {
        let number = runtime.block_on(std::future::poll_fn(|context| {
            let came = signals.iter_mut().find_map(|(number, signal)| {
                signal.poll_recv(context).is_ready().then_some(*number)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        }));
        remove_all();
        // As a shell tells such an end.
        std::process::exit(128 + number);
    };
    let thread = std::thread::Builder::new().name("callgate-signals".to_owned());
    thread.spawn(exit)?;
    Ok(())
}

fn bit(kind: SignalKind) -> u64 {
    1 << (kind.as_raw_value() - 1)
}

/// Signals that the program handles or ignores, as the kernel tells it; none where it does not.
fn handled() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let masks = ["SigIgn:", "SigCgt:"].into_iter().filter_map(|name| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask)
}
