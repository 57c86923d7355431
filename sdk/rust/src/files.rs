//! A parent's socket, schema file and lock. The lock is held as long as the parent lives, by
//! whatever it ends; so whoever can take it may remove what belongs to it. `callgate.bridge`
//! of the Python SDK uses the same folder and the same rule, so that each sweeps for both.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use callgate_wires::bridge::{ToolSchema, write_schemas};
use rustix::fs::{FlockOperation, Mode, flock};

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

/// Where a parent's things are.
#[derive(Clone, Debug)]
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

    /// The lock goes last: as long as it is there, the rest can be found.
    fn remove(&self) {
        for path in [&self.socket, &self.schema, &self.lock] {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes what it names when it is dropped.
#[derive(Debug)]
pub(crate) struct Files {
    place: Place,
    _lock: File,
}

impl Drop for Files {
    fn drop(&mut self) {
        self.place.remove();
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

impl Files {
    /// Sweeps `folder`, then makes lock, schema file and socket in it.
    pub fn make(folder: &Path, schemas: &[ToolSchema]) -> Result<(Self, UnixListener), StartError> {
        private(folder).map_err(|source| StartError::Folder {
            path: folder.to_owned(),
            source,
        })?;
        sweep(folder);
        let files = Self::locked(folder).map_err(StartError::make("lock"))?;
        let place = files.place();
        write_private(&place.schema, write_schemas(schemas).as_bytes())
            .map_err(StartError::make("write the schema file"))?;
        let listener = bind(&place.socket).map_err(StartError::make("bind the socket"))?;
        Ok((files, listener))
    }

    fn locked(folder: &Path) -> io::Result<Self> {
        loop {
            let mut id = [0; 8];
            getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
            let place = Place::new(folder, &format!("{:016x}", u64::from_be_bytes(id)));
            let lock = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&place.lock)?;
            let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            // A sweeper may have come between the two steps and taken it for a dead one's.
            if locked && lock.metadata()?.nlink() > 0 {
                return Ok(Self { place, _lock: lock });
            }
        }
    }

    pub fn place(&self) -> &Place {
        &self.place
    }
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

/// Removes what belongs to parents that are dead. A lock that can be taken is a dead one's.
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
        let Ok(lock) = File::options().write(true).open(&path) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            Place::new(folder, id).remove();
        }
    }
}
