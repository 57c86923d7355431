//! The sockets of `serve`: one gate for each, open to its own user alone, and made again where
//! somebody removes one, because whoever comes then would do without the gate that runs.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callgate_doors::http::SameUid;
use callgate_registry::paths::Paths;
use callgate_store::{GateLock, running_gate};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::compose::chain;
use crate::error::{CommandError, GateTaken};
use crate::show;

/// How often, and how long apart, a lock that nobody answers for is tried.
const LOCK_TRIES: usize = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether a socket is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One gate per state: takes the lock that says so. A gate whose socket was named may serve beside
/// the first one, which stays the one that commands find; nothing is held then.
pub fn hold(paths: &Paths, is_named: bool) -> Result<Option<GateLock>, GateTaken> {
    for _ in 0..LOCK_TRIES {
        match GateLock::take(&paths.state) {
            Ok(Some(held)) => return Ok(Some(held)),
            Ok(None) if is_named => return Ok(None),
            Ok(None) => {}
            // Where nothing can be written there may still be a gate for what needs no record.
            Err(error) => {
                show::warn(&format!(
                    "other environments may not find this gate: {}",
                    chain(&error)
                ));
                return Ok(None);
            }
        }
        if let Some(gate) = running_gate(&paths.state)
            && let Some(socket) = gate.socket
            && UnixStream::connect(&socket).is_ok()
        {
            return Err(GateTaken::Serves {
                pid: gate.pid,
                socket,
            });
        }
        // A gate that is only starting, or the half-born child of one that was killed.
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(match running_gate(&paths.state) {
        Some(gate) => GateTaken::Silent(gate.pid),
        None => GateTaken::Starting,
    })
}

/// One gate per socket: the lock lives and dies with its process.
pub fn lock(socket: &Path) -> Result<OwnedFd, CommandError> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let failed = |error: Errno| CommandError::file("lock", socket)(error.into());
    make_private_folder(folder).map_err(CommandError::file("make the socket's folder", folder))?;
    // The whole name, so that sockets which differ in their endings only have one each.
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    for _ in 0..LOCK_TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(failed(error)),
        }
        if UnixStream::connect(socket).is_ok() {
            break;
        }
        // Nobody answers there: a gate that is only starting, or the half-born child of one
        // that was killed, which has the lock until it turns into its own program.
        std::thread::sleep(LOCK_PAUSE);
    }
    Err(GateTaken::Socket(socket.to_owned()).into())
}

fn make_private_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

/// Removes a socket, and nothing that is none.
pub fn remove_socket(socket: &Path) -> Result<(), CommandError> {
    use std::os::unix::fs::FileTypeExt as _;
    let failed = CommandError::file("remove", socket);
    match std::fs::symlink_metadata(socket) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(socket).map_err(failed),
        Ok(_) => Err(CommandError::NoSocket(socket.to_owned())),
    }
}

/// Binds the socket. We hold the lock, so what is there is stale.
fn bind(socket: &Path) -> Result<UnixListener, CommandError> {
    remove_socket(socket)?;
    private_listener(socket).map_err(CommandError::file("bind", socket))
}

/// A socket's file takes the mode its descriptor had, so it is 0600 from the start; the umask is
/// that of whoever makes files meanwhile, too.
fn private_listener(path: &Path) -> std::io::Result<UnixListener> {
    const WAITING_MAX: i32 = 1024;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    UnixListener::from_std(socket.into())
}

/// A socket that is made again where it was removed.
pub struct Kept {
    listener: SameUid,
    anew: mpsc::Sender<UnixListener>,
    socket: PathBuf,
}

impl Kept {
    /// Binds it, for peers whose uid is `uid`.
    pub fn bind(socket: &Path, uid: u32) -> Result<Self, CommandError> {
        let (anew, come) = mpsc::channel(1);
        let listener = SameUid::new(bind(socket)?, uid).renewed(come);
        let socket = socket.to_owned();
        Ok(Self {
            listener,
            anew,
            socket,
        })
    }

    /// What is served, and what keeps it, which never ends.
    pub fn split(self) -> (SameUid, impl Future<Output = Infallible>) {
        let (socket, anew) = (self.socket, self.anew);
        (self.listener, keep(socket, anew))
    }
}

/// What is there by then under its name, and is not ours, is left to its owner.
async fn keep(socket: PathBuf, anew: mpsc::Sender<UnixListener>) -> Infallible {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complained = false;
    loop {
        tick.tick().await;
        match std::fs::symlink_metadata(&socket) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            _ => continue,
        }
        let folder = socket.parent().unwrap_or(Path::new("/"));
        let made = make_private_folder(folder).map_err(CommandError::Io);
        match made.and_then(|()| bind(&socket)) {
            Ok(listener) => {
                complained = false;
                show::say(&format!("{} was removed: made again", socket.display()));
                // Nobody takes it any more once we stop.
                let _ = anew.send(listener).await;
            }
            Err(error) if !complained => {
                complained = true;
                let why = chain(&error);
                show::warn(&format!("{} was removed: {why}", socket.display()));
            }
            Err(_) => {}
        }
    }
}
