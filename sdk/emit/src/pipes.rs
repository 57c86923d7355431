//! The two pipes of a run. Frames are written whole or the stream is broken; acknowledgements are
//! read one at a time, when one is awaited.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;

use callgate_wires::stream::{Ack, PREFIX_BYTES, REQUEST_BYTES_MAX, payload_len};
use rustix::event::{PollFd, PollFlags, poll};

/// The longest acknowledgement that is read.
const ACK_BYTES_MAX: usize = 64 * 1024;

/// Where frames go.
pub struct Output {
    file: File,
    broken: bool,
}

impl Output {
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            file: File::from(fd),
            broken: false,
        }
    }

    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Writes a frame that is in several parts, and waits as long as nobody reads. ST-77.
    pub fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe));
        }
        let written = parts.iter().try_for_each(|part| self.write_all(part));
        // Part of a frame may be out: nothing after it could be read.
        self.broken = written.is_err();
        written
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whoever gave us the pipe may have made it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut wanted = [PollFd::new(&self.file, PollFlags::OUT)];
                    match poll(&mut wanted, None) {
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Where the request and acknowledgements come from.
pub struct Input {
    reader: BufReader<File>,
    /// An acknowledgement has come, of whichever write.
    answered: bool,
}

impl Input {
    pub fn new(fd: OwnedFd) -> Self {
        let reader = BufReader::new(File::from(fd));
        Self {
            reader,
            answered: false,
        }
    }

    /// The first line; one byte more than is allowed at most.
    pub fn request_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let bound = u64::try_from(REQUEST_BYTES_MAX + 1).unwrap_or(u64::MAX);
        let mut bounded = (&mut self.reader).take(bound);
        // bound: `take` above
        bounded.read_until(b'\n', &mut line)?;
        Ok(line)
    }

    /// Waits for the answer on a write: nothing, or why it was refused. Answers on others are
    /// passed over, and so are frames that are none. A runtime that closes the pipe without one
    /// answer is one from before there were any, and keeps files all the same. S-11b.
    pub fn answer(&mut self, write_id: u32) -> io::Result<Result<(), String>> {
        loop {
            let payload = match self.frame() {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !self.answered => {
                    return Ok(Ok(()));
                }
                payload => payload?,
            };
            let Ok(ack) = Ack::parse(&payload) else {
                continue;
            };
            self.answered = true;
            if ack.write_id == write_id {
                let reason = || ack.error.unwrap_or("no reason given").to_owned();
                return Ok(if ack.ok { Ok(()) } else { Err(reason()) });
            }
        }
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        let mut prefix = [0; PREFIX_BYTES];
        self.reader.read_exact(&mut prefix)?;
        let len = payload_len(prefix).map_err(invalid)?;
        if len > ACK_BYTES_MAX {
            return Err(invalid(format!("a frame of {len} bytes")));
        }
        // bound: `ACK_BYTES_MAX`, compared above
        let mut payload = vec![0; len];
        self.reader.read_exact(&mut payload)?;
        Ok(payload)
    }
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
