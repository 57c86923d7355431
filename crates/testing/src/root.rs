//! Tests that only root can carry out.

use std::io::Write as _;

/// Returns whether the calling test must end because it needs root and does not have it. The line
/// that says so passes by the capture of test output, so that `cargo xtask test` counts it.
#[must_use]
pub fn is_skipped_without_root(reason: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("?");
    // A reader that is gone sees no result of the test either.
    let _ = writeln!(
        std::io::stdout().lock(),
        "skipped: needs root: {name} ({reason})"
    );
    true
}
