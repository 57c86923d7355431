//! The containers of one gate: how they are named, and how they are removed, on every path.
//!
//! A name says whose it is: the workspace, the process and when that was started. Removing
//! takes a client of the runtime and some time, so a thread of its own does it: it goes on
//! while a gate that ends is waiting for it. A gate that is killed leaves no running
//! container of podman's, whose processes are the client's tree, but a record of it; the next
//! gate of the workspace removes what belongs to processes that are gone.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_sandbox::{Spawner, Trees};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client::{Client, Removed, Runtime};

/// Removals that wait for their turn, and as many that are tried again; those beyond are left to
/// the next gate.
const ERRANDS_MAX: usize = 256;

/// A removal that failed is tried again after this, then after twice as long each time: a service
/// that is about to start a container can refuse to remove it.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// So often, which is four minutes. Then it is left to the next gate.
const RETRIES_MAX: u32 = 8;

/// How long an ending gate waits for the last removals.
const FAREWELL: Duration = Duration::from_secs(30);

/// All containers of one gate.
///
/// Lock order: `clients`, then `undertaker`. Errands are handed over without waiting, so both locks
/// are short; the undertaker's own thread takes neither.
#[derive(Debug)]
pub struct Containers {
    spawner: Arc<Spawner>,
    /// `callgate-<workspace>-`.
    ours: String,
    owner: Owner,
    next: AtomicU64,
    clients: Mutex<Vec<Arc<Client>>>,
    undertaker: Mutex<Option<Undertaker>>,
}

#[derive(Debug)]
struct Undertaker {
    errands: SyncSender<Errand>,
    /// Hangs up when the thread ends.
    ended: Receiver<()>,
}

/// What the thread is sent for.
enum Errand {
    Sweep { client: Arc<Client>, ours: String },
    Remove(Removal),
}

/// A container on its way out.
pub(super) struct Removal {
    pub client: Arc<Client>,
    pub name: String,
    /// It was seen running. If not, its client may be about to make it.
    pub was_seen: bool,
    /// Folders of the runtime's cgroups, which it forgets where its monitor was killed.
    pub cgroups: Vec<PathBuf>,
    /// The client's end, let go of once the container is gone.
    pub belongings: Option<Box<dyn Send>>,
    /// Told once it was tried.
    pub done: Option<oneshot::Sender<()>>,
}

impl Containers {
    /// `program` knows [`callgate_sandbox::SPAWNER_ARG`]; `workspace` is the workspace's id.
    #[must_use]
    pub fn new(program: PathBuf, workspace: &str) -> Arc<Self> {
        Arc::new(Self {
            // No pid namespace: see `client.rs`.
            spawner: Spawner::with_trees(program, Trees::Subreaper),
            ours: format!("callgate-{workspace}-"),
            owner: Owner::of(std::process::id()).unwrap_or_default(),
            next: AtomicU64::new(1),
            clients: Mutex::new(Vec::new()),
            undertaker: Mutex::new(None),
        })
    }

    /// The client of a runtime with these options of its own.
    pub fn client(
        &self,
        runtime: Runtime,
        options: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: PathBuf,
    ) -> Arc<Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.iter().find(|known| known.is(runtime, &options)) {
            return Arc::clone(known);
        }
        let spawner = Arc::clone(&self.spawner);
        let client = Arc::new(Client::new(spawner, runtime, options, env, cwd));
        clients.push(Arc::clone(&client));
        client
    }

    pub(super) fn next_name(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Owner { pid, started } = self.owner;
        format!("{}{pid}-{started}-{number}", self.ours)
    }

    /// Has removed what gates left behind that are no longer there. For one that stays: the
    /// others do it with their first container.
    pub fn begin_sweep(&self) {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        for client in clients.iter() {
            self.send(Errand::Sweep {
                client: Arc::clone(client),
                ours: self.ours.clone(),
            });
        }
    }

    pub(super) async fn sweep(&self, client: &Client) {
        sweep(client, &self.ours).await;
    }

    /// Has a container removed, after all that were handed in before.
    pub(super) fn bury(&self, removal: Removal) {
        self.send(Errand::Remove(removal));
    }

    fn send(&self, errand: Errand) {
        let mut undertaker = self.undertaker();
        let started = match &*undertaker {
            Some(_) => true,
            None => {
                *undertaker = Undertaker::start();
                undertaker.is_some()
            }
        };
        if let (true, Some(undertaker)) = (started, &*undertaker) {
            // What does not fit is dropped: its processes end, its record is swept later.
            let _ = undertaker.errands.try_send(errand);
        }
    }

    fn undertaker(&self) -> MutexGuard<'_, Option<Undertaker>> {
        self.undertaker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        if let Some(Undertaker { errands, ended }) = self.undertaker().take() {
            drop(errands);
            let _ = ended.recv_timeout(FAREWELL);
        }
    }
}

impl Undertaker {
    fn start() -> Option<Self> {
        let (errands, received) = sync_channel(ERRANDS_MAX);
        let (living, ended) = sync_channel(0);
        let thread = std::thread::Builder::new().name("callgate-undertaker".to_owned());
        let work = move || {
            let _living: SyncSender<()> = living;
            undertake(&received);
        };
        // Owned by the `Containers` that wait for its end.
        thread.spawn(work).ok()?;
        Some(Self { errands, ended })
    }
}

fn undertake(errands: &Receiver<Errand>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return };
    let mut later: Vec<Attempt> = Vec::new();
    loop {
        let due = later.iter().map(|attempt| attempt.due).min();
        let next = match due {
            None => errands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            // What is new comes first, and then one of those that failed: a runtime that hangs
            // holds up the other one no longer than that.
            Some(due) => errands.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        let attempt = match next {
            Ok(Errand::Remove(removal)) => Some(Attempt::first(removal)),
            Ok(Errand::Sweep { client, ours }) => {
                runtime.block_on(sweep(&client, &ours));
                None
            }
            Err(RecvTimeoutError::Timeout) => {
                let at = later.iter().position(|attempt| Some(attempt.due) == due);
                at.map(|at| later.swap_remove(at))
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if let Some(attempt) = attempt {
            let next = runtime.block_on(attempt.make());
            later.extend(next.filter(|_| later.len() < ERRANDS_MAX));
        }
    }
    // Nobody sends us any more, and somebody waits for our end: once more, and no more. Of a
    // runtime that says nothing nothing is to be had.
    later.retain(|attempt| attempt.came != Removed::Unknown);
    later.sort_by_key(|attempt| attempt.due);
    for attempt in later {
        let soon = Instant::now() + RETRY_MIN;
        runtime.block_on(async {
            tokio::time::sleep_until(attempt.due.min(soon)).await;
            attempt.make().await
        });
    }
}

/// A removal that is tried, for the first time or again.
struct Attempt {
    removal: Removal,
    /// Those before.
    tries: u32,
    /// What came of the last of them.
    came: Removed,
    due: Instant,
}

impl Attempt {
    fn first(removal: Removal) -> Self {
        Self {
            removal,
            tries: 0,
            came: Removed::Stays,
            due: Instant::now(),
        }
    }

    /// Tries to remove it. What is left to try, if it is there, or may come to be.
    async fn make(mut self) -> Option<Self> {
        let removal = &mut self.removal;
        self.came = removal.client.remove(&removal.name).await;
        drop(removal.belongings.take());
        for folder in &removal.cgroups {
            // Most are gone; one that is not empty stays.
            let _ = std::fs::remove_dir(folder);
        }
        if let Some(done) = removal.done.take() {
            let _ = done.send(());
        }
        let settled = removal.was_seen || self.tries > 0;
        if (self.came == Removed::Gone && settled) || self.tries == RETRIES_MAX {
            return None;
        }
        self.due = Instant::now() + RETRY_MIN * 2_u32.pow(self.tries);
        self.tries += 1;
        Some(self)
    }
}

/// Removes, once for each runtime, what belongs to processes that are gone.
async fn sweep(client: &Client, ours: &str) {
    let sweeping = async {
        for name in client.names(ours).await.unwrap_or_default() {
            let owner = name.strip_prefix(ours).and_then(Owner::in_name);
            if owner.is_some_and(|owner| !owner.is_alive()) {
                client.remove(&name).await;
            }
        }
    };
    client.swept.get_or_init(|| sweeping).await;
}

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// In the kernel's ticks since its start.
    started: u64,
}

impl Owner {
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may contain anything; the start is the 20th field after it.
        let (_, rest) = stat.rsplit_once(')')?;
        let started = rest.split_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, started })
    }

    /// Of `<pid>-<started>-<number>`.
    fn in_name(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let pid = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        Some(Self { pid, started })
    }

    fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_told_apart() {
        let own = Owner::of(std::process::id()).unwrap();
        assert!(own.is_alive());
        let earlier = Owner {
            started: own.started + 1,
            ..own
        };
        assert!(!earlier.is_alive());
        let name = format!("{}-{}-7", own.pid, own.started);
        assert_eq!(Owner::in_name(&name), Some(own));
        assert_eq!(Owner::in_name("x-1-2"), None);
        assert_eq!(Owner::in_name("1"), None);
    }
}
