//! Pseudo-terminals: the child's end, which becomes its standard streams and controls it, and
//! ours.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Gid, OFlags, Uid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::confine::Identity;

/// How large a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Characters of a line.
    pub cols: u16,
    /// Lines.
    pub rows: u16,
}

/// The child's end of a terminal.
#[derive(Debug)]
pub struct Terminal {
    end: OwnedFd,
    name: CString,
}

impl Terminal {
    /// A new terminal and our end of it, which does not block: what the child prints is read from
    /// it, what is written to it is typed.
    pub fn open(size: TerminalSize) -> io::Result<(OwnedFd, Self)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        // Not by its name, which may mean another one where /dev is not what it was.
        let end = ioctl_tiocgptpeer(&master, flags)?;
        let name = ptsname(&master, Vec::new())?;
        rustix::fs::fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK)?;
        Self::resize(&master, size)?;
        Ok((master, Self { end, name }))
    }

    /// Tells the terminal of our end `master`, and by a signal whoever is in its foreground, its
    /// new size.
    pub fn resize(master: impl AsFd, size: TerminalSize) -> io::Result<()> {
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Ok(tcsetwinsize(master, size)?)
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// A child that becomes somebody else opens it by its name as that user.
    pub(crate) fn give_to(&self, owner: Identity) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        Ok(rustix::fs::fchown(&self.end, Some(uid), Some(gid))?)
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
