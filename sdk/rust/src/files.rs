//! A parent's socket, schema file and lock. The lock is held as long as the parent lives, by
//! whatever it ends; so whoever can take it may remove what belongs to it, and take its place.
//! `callgate.bridge` of the Python SDK uses the same folder and the same rules, so that each
//! sweeps for both, and a program of one may follow a program of the other.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use callgate_wires::bridge::{ToolSchema, write_schemas};
use rustix::fs::{FlockOperation, Mode, flock};

use crate::ends;

/// Longest name of a place, so that its socket's path is one that can be bound.
const NAME_BYTES_MAX: usize = 64;

/// Why a parent does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder is not ours alone, or can not be made.
    #[error("folder {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A name that no file should have.
    #[error("name `{name}`: 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_` make one")]
    Name {
        /// Which.
        name: String,
    },
    /// Another parent lives there.
    #[error("`{name}` is taken: {} serves there", owner(*process))]
    Taken {
        /// The place's name.
        name: String,
        /// Whose it is, as far as that is known.
        process: Option<u32>,
    },
    /// A function's input schema is none, or refers to another document.
    #[error("input schema of `{tool}`: {reason}")]
    Schema {
        /// Whose.
        tool: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file, the socket or the thread could not be made.
    #[error("{what}: {source}")]
    Make {
        /// What was tried.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl StartError {
    pub(crate) fn make(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Make { what, source }
    }
}

/// The beginning of a lock file, in which a process id stands.
fn read_start(lock: &Path) -> io::Result<String> {
    let mut said = String::new();
    // bound: the 64 bytes taken
    File::open(lock)?.take(64).read_to_string(&mut said)?;
    Ok(said)
}

fn owner(process: Option<u32>) -> String {
    process.map_or_else(
        || "a living process".to_owned(),
        |process| format!("process {process}"),
    )
}

/// Where a parent's things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub socket: PathBuf,
    pub schema: PathBuf,
    lock: PathBuf,
}

impl Place {
    fn new(folder: &Path, id: &str) -> Self {
        let named = |ending: &str| folder.join(format!("{id}.{ending}"));
        Self {
            socket: named("sock"),
            schema: named("json"),
            lock: named("lock"),
        }
    }

    /// For whoever holds the lock. That goes last: as long as it is there, the rest can be
    /// found.
    pub fn remove(&self) {
        self.clear();
        let _ = std::fs::remove_file(&self.lock);
    }

    fn clear(&self) {
        for path in [&self.socket, &self.schema] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes what it names when it is dropped, unless an end of the program did so before.
#[derive(Debug)]
pub(crate) struct Files {
    place: Place,
    /// Closed, and so let go of, after the rest is gone.
    lock: File,
}

impl Drop for Files {
    fn drop(&mut self) {
        ends::remove(&self.place);
    }
}

/// Of this user, and gone with the session where there is one.
#[expect(
    clippy::disallowed_methods,
    reason = "a program that embeds us has no other place where its environment is read for us"
)]
pub(crate) fn usual_folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(runtime) => Path::new(&runtime).join("callgate-parents"),
        None => {
            let uid = rustix::process::geteuid().as_raw();
            std::env::temp_dir().join(format!("callgate-parents-{uid}"))
        }
    }
}

/// A name of 16 hex digits, for a parent that has none.
pub(crate) fn random_name() -> io::Result<String> {
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:016x}", u64::from_be_bytes(id)))
}

pub(crate) fn check_name(name: &str) -> Result<(), StartError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let name = name.to_owned();
    Err(StartError::Name { name })
}

impl Files {
    /// Sweeps `folder`, then makes lock, schema file and socket in it.
    pub fn make(
        folder: &Path,
        name: &str,
        schemas: &[ToolSchema],
    ) -> Result<(Self, UnixListener), StartError> {
        private(folder).map_err(|source| StartError::Folder {
            path: folder.to_owned(),
            source,
        })?;
        let files = {
            let _alone = Alone::new(folder).map_err(StartError::make("lock the folder"))?;
            sweep(folder);
            Self::locked(folder, name)?
        };
        let place = files.place();
        place.clear();
        write_private(&place.schema, write_schemas(schemas).as_bytes())
            .map_err(StartError::make("write the schema file"))?;
        let listener = bind(&place.socket).map_err(StartError::make("bind the socket"))?;
        Ok((files, listener))
    }

    fn locked(folder: &Path, name: &str) -> Result<Self, StartError> {
        let place = Place::new(folder, name);
        let (lock, is_ours) = loop {
            let (lock, taken) = take(&place.lock, true).map_err(StartError::make("lock"))?;
            // Its owner may have removed it before it let go of it.
            if !taken || is_there(&lock) {
                break (lock, taken);
            }
        };
        if !is_ours {
            let said = read_start(&place.lock).ok();
            return Err(StartError::Taken {
                name: name.to_owned(),
                process: said.and_then(|text| text.trim().parse().ok()),
            });
        }
        ends::add(place.clone());
        let files = Self { place, lock };
        files.sign().map_err(StartError::make("lock"))?;
        Ok(files)
    }

    /// Says whose the place is, for those who are refused.
    fn sign(&self) -> io::Result<()> {
        self.lock.set_len(0)?;
        writeln!(&self.lock, "{}", std::process::id())
    }

    pub fn place(&self) -> &Place {
        &self.place
    }
}

/// While this lives no other parent starts in the folder: a lock that can not be taken is an
/// owner's then, and never that of somebody who looks whether it can be. It is the only lock that is
/// waited for; those of owners are tried under it, and so is the table of living parents taken.
struct Alone(File);

impl Alone {
    fn new(folder: &Path) -> io::Result<Self> {
        let folder = File::open(folder)?;
        rustix::io::retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))?;
        Ok(Self(folder))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Said, because a forked child may have the same descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Opens a lock, and takes it if nobody has it.
fn take(path: &Path, make: bool) -> io::Result<(File, bool)> {
    let lock = File::options()
        .write(true)
        .create(make)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    let taken = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok((lock, taken))
}

/// Whether the file still has its name.
fn is_there(lock: &File) -> bool {
    lock.metadata().is_ok_and(|found| found.nlink() > 0)
}

/// Makes a folder that is ours alone, or makes sure that it is.
fn private(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let found = std::fs::symlink_metadata(folder)?;
    let uid = rustix::process::geteuid().as_raw();
    if found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let words = "it must be a folder of yours with mode 0700";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}

/// A socket's file takes the mode its descriptor had, so it is 0600 from the start, and the
/// umask of a program that is not ours stays as it is. B-7.
fn bind(path: &Path) -> io::Result<UnixListener> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    const WAITING_MAX: i32 = 128;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(UnixListener::from(socket))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Removes what belongs to parents that are dead, with nobody starting meanwhile. A lock that
/// can be taken is a dead one's.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|ending| ending != "lock") {
            continue;
        }
        let Some(id) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        // Held until it is removed.
        if let Ok((_lock, true)) = take(&path, false) {
            Place::new(folder, id).remove();
        }
    }
}
