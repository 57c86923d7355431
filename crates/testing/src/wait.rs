//! Waiting for states.

/// Waits until `found` finds something. Gives up after a minute, which no state takes.
pub fn wait_for<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    wait_minutes(1, what, found)
}

/// The same for what is a lot of work.
pub fn wait_minutes<T>(minutes: usize, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..minutes * 6000 {
        if let Some(value) = found() {
            return value;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("waited {minutes} min for {what}");
}
