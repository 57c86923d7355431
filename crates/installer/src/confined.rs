//! One run of a package manager: confined, bounded, ended with its time.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Ipc, Level, Needs, Network, NoSink, Roots};
use callgate_runners::Served;
use callgate_sandbox::{Child, Ending, Spec, hosts_held, outlook};
use tokio::net::unix::pipe;

use crate::error::InstallError;
use crate::folder::Usage;
use crate::settings::InstallerSettings;

/// Bytes of standard output that are read.
const STDOUT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Last bytes of standard error that are kept.
const STDERR_BYTES_KEPT: usize = 8 * 1024;
/// Lines of standard error that an error message has.
const STDERR_LINES_SHOWN: usize = 12;
/// The interval between two looks at the size of an installation.
const USAGE_INTERVAL: Duration = Duration::from_secs(3);
/// The time that a killed tree may take to end.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// A command of a package manager.
pub(crate) struct Command {
    /// The program's name in error messages.
    pub name: &'static str,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The working folder.
    pub cwd: PathBuf,
    /// Hosts that it may reach.
    pub hosts: Vec<String>,
    /// Folders that it may read, beside those of the system.
    pub reads: Vec<PathBuf>,
    /// Folders that it may write.
    pub writes: Vec<PathBuf>,
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Printed {
    pub stdout: Vec<u8>,
    /// The first host that was refused.
    pub refused: Option<String>,
    /// The end of standard error.
    pub stderr: Vec<u8>,
    pub ending: Ending,
}

impl Command {
    fn needs(&self, settings: &InstallerSettings) -> Needs {
        Needs {
            reads: [&self.reads[..], settings.ca_file.as_slice()].concat(),
            writes: self.writes.clone(),
            hidden: settings.hidden.clone(),
            // Of the system only interpreters and what they need: no settings of other users.
            roots: Some(Roots {
                root: self.cwd.clone(),
                reads: Vec::new(),
            }),
            network: match self.hosts.is_empty() {
                true => Network::None,
                false => Network::Hosts(self.hosts.clone()),
            },
            ipc: Ipc::Private,
            ..Needs::default()
        }
    }

    /// Runs the command to its end, whatever that is. `tree` is the folder whose size is bounded.
    pub async fn run(
        self,
        settings: &InstallerSettings,
        tree: &Path,
    ) -> Result<Printed, InstallError> {
        let needs = Arc::new(self.needs(settings));
        check_confinement(&needs, settings)?;
        let failed = |source| InstallError::File {
            step: "make pipes for",
            path: self.cwd.clone(),
            source,
        };
        let (mut stdout, stdout_far) = Capture::new(STDOUT_BYTES_MAX, true).map_err(failed)?;
        let (mut stderr, stderr_far) = Capture::new(STDERR_BYTES_KEPT, false).map_err(failed)?;
        let mut spec = Spec::new(self.argv, self.cwd);
        spec.env = self.env;
        spec.search = Some(settings.search.clone());
        spec.confine = Some(Arc::clone(&needs));
        spec.limits.file_size_bytes = Some(settings.bytes_max);
        spec.stdout = stdout_far.into();
        spec.stderr = stderr_far.into();
        let name = self.name;
        let mut child = settings
            .spawner
            .spawn(spec)
            .await
            .map_err(InstallError::Start)?;
        let served = Served::begin(&mut child, &needs).await;
        let served = served.map_err(|fault| InstallError::Unconfined {
            missing: format!("a way to the registry: {fault:?}"),
        })?;
        let run = attend(&mut child, [&mut stdout, &mut stderr], settings, tree);
        let ended = tokio::time::timeout(settings.timeout, run).await;
        let ended = ended.unwrap_or_else(|_| {
            Err(InstallError::Timeout {
                program: name.to_owned(),
                after: settings.timeout,
            })
        });
        if ended.is_err() {
            child.kill();
            let _ = tokio::time::timeout(KILL_GRACE, child.wait()).await;
        }
        let ending = match ended? {
            Some(ending) => ending,
            None => {
                return Err(InstallError::TooMuchOutput {
                    program: name.to_owned(),
                    bytes_max: STDOUT_BYTES_MAX,
                });
            }
        };
        let refused = match served {
            Some(served) => served.tell(&NoSink).await,
            None => None,
        };
        Ok(Printed {
            stdout: stdout.bytes,
            stderr: stderr.bytes,
            refused,
            ending,
        })
    }

    /// Runs the command to its end, which must be a success, and returns what it printed.
    pub async fn succeed(
        self,
        settings: &InstallerSettings,
        tree: &Path,
    ) -> Result<Vec<u8>, InstallError> {
        let program = self.name;
        let printed = self.run(settings, tree).await?;
        match printed.ending {
            Ending::Code(0) => Ok(printed.stdout),
            _ => Err(printed.into_error(program)),
        }
    }
}

impl Printed {
    /// The error of a command that did not succeed.
    pub fn into_error(self, program: &str) -> InstallError {
        let text = match self.stderr.trim_ascii() {
            [] => String::from_utf8_lossy(&self.stdout),
            stderr => String::from_utf8_lossy(stderr),
        };
        let lines: Vec<String> = text.lines().map(plain).filter(|l| !l.is_empty()).collect();
        let shown = &lines[lines.len().saturating_sub(STDERR_LINES_SHOWN)..];
        let words = match (shown.is_empty(), self.ending) {
            (false, _) => shown.join("\n"),
            (true, ending) => format!("{ending:?}"),
        };
        InstallError::Failed {
            program: program.to_owned(),
            words,
            refused: self.refused,
        }
    }
}

/// A line without control characters: package managers color what they print.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            // A sequence that sets a color ends with its letter.
            '\u{1b}' => {
                let _ = chars.by_ref().skip(1).find(char::is_ascii_alphabetic);
            }
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain.trim().to_owned()
}

/// Refuses to run a package manager that would not be held to its hosts and folders.
fn check_confinement(needs: &Needs, settings: &InstallerSettings) -> Result<(), InstallError> {
    use callgate_call::Guarantee::{NoFilesystemRead, NoFilesystemWrite};
    let facts = settings.spawner.facts();
    let files = outlook(needs, &facts).into_iter().find(|held| {
        [Some(NoFilesystemRead), Some(NoFilesystemWrite)].contains(&held.guarantee)
            && held.level == Level::None
    });
    let hosts = hosts_held(&facts);
    let hosts = (hosts.level < Level::Enforced && needs.network != Network::None).then_some(hosts);
    match files.or(hosts) {
        Some(held) => Err(InstallError::Unconfined {
            missing: held.missing,
        }),
        None => Ok(()),
    }
}

/// Stays with a command to its end. `None` if it printed too much.
async fn attend(
    child: &mut Child,
    [stdout, stderr]: [&mut Capture; 2],
    settings: &InstallerSettings,
    tree: &Path,
) -> Result<Option<Ending>, InstallError> {
    // The child is gone when one of the other arms has won, and what the captures have read stays
    // in them. Biased: an exit outranks the bounds.
    let ending = tokio::select! {
        biased;
        exit = child.wait() => exit.ending,
        () = stdout.pump() => return Ok(None),
        () = stderr.pump() => return Ok(None),
        error = watch_size(settings, tree) => return Err(error),
    };
    let fits = stdout.finish() && stderr.finish();
    Ok(fits.then_some(ending))
}

/// Ready when the installation is too large.
async fn watch_size(settings: &InstallerSettings, tree: &Path) -> InstallError {
    loop {
        tokio::time::sleep(USAGE_INTERVAL).await;
        let (tree, bounds) = (tree.to_owned(), (settings.bytes_max, settings.files_max));
        let usage = tokio::task::spawn_blocking(move || Usage::check(&tree, bounds));
        if let Ok(Err(error @ InstallError::TooLarge { .. })) = usage.await {
            return error;
        }
    }
}

/// One output stream of a command.
struct Capture {
    pipe: Option<pipe::Receiver>,
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Whether more than `bytes_max` is an error; otherwise the last bytes are kept.
    is_whole: bool,
}

impl Capture {
    /// The stream, and the end that the command gets.
    fn new(bytes_max: usize, is_whole: bool) -> io::Result<(Self, OwnedFd)> {
        let (near, far) = io::pipe()?;
        let capture = Self {
            pipe: Some(pipe::Receiver::from_owned_fd(near.into())?),
            bytes: Vec::new(),
            bytes_max,
            is_whole,
        };
        Ok((capture, far.into()))
    }

    /// Reads for as long as it is polled; ready only when there is too much.
    async fn pump(&mut self) {
        // bound: one buffer for all reads
        let mut buffer = vec![0; 16 * 1024];
        while let Some(pipe) = &self.pipe {
            if pipe.readable().await.is_err() {
                break;
            }
            match pipe.try_read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) if self.take(&buffer[..read]) => {}
                Ok(_) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.pipe = None,
            }
        }
        std::future::pending().await
    }

    /// Reads what is in the pipe of a command that has ended. False if there is too much.
    fn finish(&mut self) -> bool {
        // bound: one buffer for all reads
        let mut buffer = vec![0; 16 * 1024];
        while let Some(pipe) = &self.pipe {
            // Not by the runtime, which may not know yet that there is something to read.
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) if self.take(&buffer[..read]) => {}
                Ok(_) => return false,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.pipe = None,
            }
        }
        true
    }

    /// Keeps bytes. False if there are too many.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        let over = self.bytes.len().saturating_sub(self.bytes_max);
        if over > 0 && self.is_whole {
            return false;
        }
        self.bytes.drain(..over);
        true
    }
}
