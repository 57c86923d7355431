//! What a run does to the disk, one operation at a time. Folders are entered by descriptor, step
//! by step, and no link is followed. Each operation is a crash point (`run.io`), each write
//! another that leaves half of it (`run.torn`), so that a test can walk them all; writes can be
//! made as slow as a test wants them (`run.write`).

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::num::NonZeroU64;
use std::path::Path;

use rustix::fs::{
    Advice, AtFlags, Mode, OFlags, RenameFlags, fadvise, mkdirat, openat, renameat, renameat_with,
    unlinkat,
};

use crate::failpoint::{armed, failpoint, pace};

/// Where a file is made before it gets its name. One run has one writer.
const NEW: &str = ".new";

/// One operation.
pub(super) fn step<T>(operation: impl FnOnce() -> T) -> T {
    failpoint("run.io");
    operation()
}

/// All of `bytes` at the end of a file.
pub(super) fn write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    if armed("run.torn") {
        file.write_all(&bytes[..bytes.len() / 2])?;
        failpoint("run.torn");
    }
    pace("run.write", bytes.len());
    step(|| file.write_all(bytes))
}

/// So much of a file sets out for the disk at a time.
const SET_OUT_BYTES: u64 = 8 * 1024 * 1024;

/// A large file of now `bytes` does not wait for its sync to be written, nor does it take the
/// memory of the machine: what is on the disk is let go of. `through` is how far this has come.
pub(super) fn set_out(file: &File, bytes: u64, through: &mut u64) {
    if bytes - *through < SET_OUT_BYTES {
        return;
    }
    let from = through.saturating_sub(SET_OUT_BYTES);
    // Should it fail, it only takes longer.
    let _ = fadvise(file, from, NonZeroU64::new(bytes - from), Advice::DontNeed);
    *through = bytes;
}

/// A folder, held open.
#[derive(Debug)]
pub(super) struct Folder(pub(super) File);

impl Folder {
    /// The state folder, by whatever way it is reached.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// A folder in this one, made if it is missing.
    pub(super) fn make(&self, name: &str) -> io::Result<Self> {
        match step(|| mkdirat(&self.0, name, Mode::RWXU)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => self.enter(name),
            Err(error) => Err(error.into()),
        }
    }

    /// A folder in this one.
    pub(super) fn enter(&self, name: &str) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&self.0, name, flags, Mode::empty())?;
        Ok(Self(folder.into()))
    }

    /// A file to add to; a new one where there must be none yet.
    pub(super) fn append(&self, name: &str, new: bool) -> io::Result<File> {
        let mut flags = OFlags::WRONLY | OFlags::APPEND;
        if new {
            flags |= OFlags::CREATE | OFlags::EXCL;
        }
        step(|| self.file(name, flags))
    }

    /// A file to read; nothing where there is none.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<File>> {
        match self.file(name, OFlags::RDONLY) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(file.into())
    }

    /// Makes `to/name` of these bytes, whole or not at all. With `replace` another
    /// of that name leaves in the same moment, else it stays and that is an error.
    pub(super) fn put(&self, to: &Self, name: &str, bytes: &[u8], replace: bool) -> io::Result<()> {
        let made = self.put_at(to, name, bytes, replace);
        if made.is_err() {
            let _ = self.remove(NEW);
        }
        made
    }

    fn put_at(&self, to: &Self, name: &str, bytes: &[u8], replace: bool) -> io::Result<()> {
        // One that a failed try left is written over.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let file = step(|| self.file(NEW, flags))?;
        write(&file, bytes)?;
        // Bytes before the name. Killed in between, the file stays under `NEW` and is written over
        // by the next try. The caller syncs the name where it must outlive a loss of power.
        step(|| file.sync_data())?;
        let flags = match replace {
            true => RenameFlags::empty(),
            false => RenameFlags::NOREPLACE,
        };
        Ok(step(|| renameat_with(&self.0, NEW, &to.0, name, flags))?)
    }

    /// Moves a file, over any other of that name.
    pub(super) fn rename(&self, name: &str, to: &Self, as_name: &str) -> io::Result<()> {
        Ok(step(|| renameat(&self.0, name, &to.0, as_name))?)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(step(|| unlinkat(&self.0, name, AtFlags::empty()))?)
    }

    /// The names in it are on the disk on return.
    pub(super) fn sync(&self) -> io::Result<()> {
        step(|| self.0.sync_all())
    }
}
