//! Crash points: named places where a test can have the process killed, instead of hoping that
//! a sleep hits them. Without the `failpoints` feature every point is nothing at all.

/// Dies here by SIGKILL if a test armed `name`.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn failpoint(_name: &str) {}

/// True if `name` is armed, for points that do something before they die.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn armed(_name: &str) -> bool {
    false
}

/// Takes as long as `bytes` take at the pace that a test set for `name`.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn pace(_name: &str, _bytes: usize) {}

#[cfg(feature = "failpoints")]
pub use armed::{arm, arm_from, failpoint};
#[cfg(feature = "failpoints")]
pub(crate) use armed::{armed, pace};

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::Mutex;
    use std::time::Duration;

    /// A point and how many times it is passed before it acts.
    static ARMED: Mutex<Option<(String, u32)>> = Mutex::new(None);

    /// A point and the bytes a second that pass it.
    static PACED: Mutex<Option<(String, u32)>> = Mutex::new(None);

    /// The process dies at the next hit of `name`.
    pub fn arm(name: &str) {
        *ARMED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some((name.to_owned(), 0));
    }

    /// Arms from a text like `begin.after_write=kill`; `begin.after_write=kill:3` dies at the
    /// fourth hit, and `run.write=pace:1000000` passes a megabyte a second. False if the text is
    /// not of that form.
    pub fn arm_from(text: &str) -> bool {
        let Some((name, action)) = text.split_once('=') else {
            return false;
        };
        let (action, skip) = action.split_once(':').unwrap_or((action, "0"));
        let Ok(number) = skip.parse() else {
            return false;
        };
        let setting = match (action, number) {
            ("kill" | "torn", _) => &ARMED,
            ("pace", 1..) => &PACED,
            _ => return false,
        };
        *setting
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some((name.to_owned(), number));
        true
    }

    /// True at the hit of `name` that is to act.
    pub(crate) fn armed(name: &str) -> bool {
        let mut armed = ARMED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match armed.as_mut() {
            Some((point, 0)) => point == name,
            Some((point, skip)) if point == name => {
                *skip -= 1;
                false
            }
            _ => false,
        }
    }

    /// Dies here by SIGKILL if a test armed `name`.
    pub fn failpoint(name: &str) {
        if armed(name) {
            die();
        }
    }

    /// Takes as long as `bytes` take at the pace that a test set for `name`.
    pub(crate) fn pace(name: &str, bytes: usize) {
        let paced = PACED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        if let Some((_, bytes_a_second)) = paced.filter(|(point, _)| point == name) {
            let took_us = bytes as u64 * 1_000_000 / u64::from(bytes_a_second);
            std::thread::sleep(Duration::from_micros(took_us));
        }
    }

    /// SIGKILL to ourselves.
    fn die() -> ! {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
