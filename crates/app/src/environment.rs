//! Arguments, environment and working folder: read here, once, and handed down.

#![expect(
    clippy::disallowed_methods,
    reason = "this module is the one door to them"
)]

use std::ffi::OsString;
use std::path::PathBuf;

use callgate_registry::environment::Environment;

/// The kernel's own name for the working folder: one that is gone is not found by it.
const GONE: &str = "/proc/self/cwd";

/// The words we were started with.
pub fn arguments() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// Reads the environment.
pub fn read() -> Environment {
    Environment::new(
        std::env::vars_os().collect(),
        std::env::current_dir().unwrap_or_else(|_| PathBuf::from(GONE)),
        rustix::process::geteuid().as_raw(),
    )
}
