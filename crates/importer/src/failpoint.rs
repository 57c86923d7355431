//! Crash points: named places where a test has the process killed, in order of the writes. Without
//! the `failpoints` feature they do nothing.

/// Kills this process with SIGKILL if a test armed `name`.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn failpoint(_name: &str) {}

#[cfg(feature = "failpoints")]
pub use armed::arm_from;
#[cfg(feature = "failpoints")]
pub(crate) use armed::failpoint;

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::{Mutex, PoisonError};

    /// A point, or `*` for all of them, and how many times it is passed before it acts.
    static ARMED: Mutex<Option<(String, u32)>> = Mutex::new(None);

    /// Arms a point from a text like `replace.before_rename=kill` or `*=kill:3`, which acts at the
    /// fourth point that is passed. Returns false if the text is not of that form.
    pub fn arm_from(text: &str) -> bool {
        let Some((name, action)) = text.split_once('=') else {
            return false;
        };
        let (action, skip) = action.split_once(':').unwrap_or((action, "0"));
        let (Ok(skip), "kill") = (skip.parse(), action) else {
            return false;
        };
        *ARMED.lock().unwrap_or_else(PoisonError::into_inner) = Some((name.to_owned(), skip));
        true
    }

    /// Kills this process with SIGKILL if a test armed `name`.
    pub(crate) fn failpoint(name: &str) {
        let mut armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
        match armed.as_mut() {
            Some((point, left)) if point == name || point == "*" => {
                if *left > 0 {
                    *left -= 1;
                    return;
                }
            }
            _ => return,
        }
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
