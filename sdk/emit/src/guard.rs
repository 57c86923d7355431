//! Takes stdin and stdout for the stream, so that nobody else in the process can read or write
//! it: not a print, not a child.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio;

/// Above the descriptors that have a meaning of their own.
const LOWEST: i32 = 3;

/// The stream's two ends. Descriptor 0 now leads nowhere and 1 to stderr.
pub fn take() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = fcntl_dupfd_cloexec(stdio::stdin(), LOWEST)?;
    let output = fcntl_dupfd_cloexec(stdio::stdout(), LOWEST)?;
    stdio::dup2_stdin(File::open("/dev/null")?)?;
    stdio::dup2_stdout(stdio::stderr())?;
    Ok((input, output))
}
