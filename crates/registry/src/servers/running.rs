//! Servers that outlive a configuration: one that the next configuration describes in the same way
//! keeps its processes, also where other definitions are pinned.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use callgate_call::Needs;
use callgate_runners::{Share, Upstream, UpstreamSettings};
use callgate_sandbox::{Limits, Spawner};

use crate::lock::{LockedPackage, LockedServer};

/// The servers of one process, by what they are made of.
#[derive(Default)]
pub struct RunningServers {
    known: Mutex<Vec<(ServerKey, Weak<Upstream>)>>,
}

/// Everything that decides what a server's processes are.
#[derive(Clone, Debug, PartialEq)]
struct ServerKey {
    name: String,
    command: Vec<std::ffi::OsString>,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    cwd: Option<PathBuf>,
    limits: Limits,
    share: Share,
    /// Places, output bytes, and the times of start and idleness in milliseconds.
    numbers: [u128; 4],
    needs: Needs,
    package: Option<LockedPackage>,
}

impl RunningServers {
    /// The server of these settings: the one there is, held to the new pins, or a new one, which
    /// starts nothing yet.
    pub fn get(
        &self,
        spawner: &Arc<Spawner>,
        settings: UpstreamSettings,
        needs: &Needs,
        locked: &LockedServer,
    ) -> Arc<Upstream> {
        let key = ServerKey {
            name: settings.name.clone(),
            command: settings.command.clone(),
            env: settings.env.clone(),
            cwd: settings.cwd.clone(),
            limits: settings.limits.clone(),
            share: settings.share,
            numbers: [
                settings.calls_max as u128,
                settings.output_bytes_max as u128,
                settings.start_timeout.as_millis(),
                settings.idle_max.as_millis(),
            ],
            needs: needs.clone(),
            package: locked.package.clone(),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // bound: one entry for each server of the configurations in use
        known.retain(|(_, server)| server.strong_count() > 0);
        let same = known.iter().find(|(other, _)| *other == key);
        if let Some(server) = same.and_then(|(_, server)| server.upgrade()) {
            server.set_pins(settings.pins);
            return server;
        }
        let server = Upstream::new(Arc::clone(spawner), settings);
        known.push((key, Arc::downgrade(&server)));
        server
    }
}
