//! A user namespace in which a process stays who it is.

use std::fs;
use std::io;

/// Who a process is outside, as seen before it got a user namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside {
    uid: u32,
    gid: u32,
}

impl Outside {
    /// Ourselves.
    pub fn now() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// Gives the process, first in its user namespace, its own name there.
pub(crate) fn stay(outside: Outside) -> io::Result<()> {
    let Outside { uid, gid } = outside;
    // Without this nobody but root may name a group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))
}
