//! The servers of an import, prepared together: packages are installed and servers looked at, several
//! at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use callgate_call::chain;
use callgate_registry::config::{self, Config, ParseError};
use callgate_registry::lock::{LockedPackage, LockedServer};
use callgate_registry::servers::accept::ServersChange;
use callgate_registry::servers::edit::EditError;
use callgate_registry::setup::Parts;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ShowProgress;
use crate::listing::{ListError, look};
use crate::packages::{self, AT_A_TIME, PackageError};
use crate::plan::Planned;

/// What came of preparing servers.
#[derive(Default)]
pub struct Prepared {
    /// The servers that could be listed, by their names.
    pub listed: BTreeMap<String, LockedServer>,
    /// The entries of those that could not: their packages, if they have some.
    pub unlisted: Vec<LockedServer>,
    /// Why not: a line each.
    pub problems: Vec<String>,
}

/// Why nothing is prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A server is not added to the configuration.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The edited configuration does not parse.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Installs the packages of new servers, adds the servers to the text of the configuration, and
/// starts each once to see what it defines. A server that fails in any of this costs no other.
pub async fn prepare_all(
    parts: &Arc<Parts>,
    change: &mut ServersChange,
    planned: &[Planned],
    show: &ShowProgress,
) -> Result<Prepared, PrepareError> {
    let new = || planned.iter().filter(|planned| planned.is_new);
    let mut packages = install_packages(parts, new(), show).await;
    let mut prepared = Prepared::default();
    let mut pinned = BTreeMap::new();
    for Planned {
        server, request, ..
    } in new()
    {
        let mut server = server.clone();
        let package = match packages.remove(&server.name) {
            Some(Ok(package)) => Some(package),
            Some(Err(error)) => {
                let words = format!(
                    "{}: not installed, and stays in its client: {}",
                    server.name,
                    chain(&error)
                );
                prepared.problems.push(words);
                server.disabled = true;
                None
            }
            None => None,
        };
        let spec = request.as_ref().map(|request| request.spec.to_string());
        server.package = package
            .as_ref()
            .map(|package| package.spec.clone())
            .or(spec);
        change.config.add(&server)?;
        if !server.disabled {
            let entry = LockedServer {
                name: server.name.clone(),
                package,
                ..LockedServer::default()
            };
            pinned.insert(server.name.clone(), entry);
        }
    }
    let config = Arc::new(config::parse(&change.config.text())?);
    let mut looked = look_at_all(parts, &config, &pinned, show).await;
    for (name, entry) in pinned {
        match looked.remove(&name) {
            Some(Ok(locked)) => drop(prepared.listed.insert(name, locked)),
            Some(Err(error)) => {
                prepared.problems.push(format!(
                    "{}; it stays in its client, and is not served until `callgate servers trust \
                     {name}` works",
                    chain(&error)
                ));
                prepared.unlisted.push(entry);
            }
            None => prepared.unlisted.push(entry),
        }
    }
    Ok(prepared)
}

/// Installs the packages of servers that have one.
async fn install_packages(
    parts: &Arc<Parts>,
    planned: impl Iterator<Item = &Planned>,
    show: &ShowProgress,
) -> BTreeMap<String, Result<LockedPackage, PackageError>> {
    let mut tasks = JoinSet::new();
    let turns = Arc::new(Semaphore::new(AT_A_TIME));
    for Planned {
        server, request, ..
    } in planned
    {
        let Some(request) = request.clone().filter(|_| !server.disabled) else {
            continue;
        };
        let (parts, turns, show) = (Arc::clone(parts), Arc::clone(&turns), Arc::clone(show));
        let name = server.name.clone();
        tasks.spawn(async move {
            let _turn = turns.acquire().await;
            let installed = packages::install(&parts, &name, &request, &show).await;
            (name, installed)
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// Starts each server once, to see what it defines.
async fn look_at_all(
    parts: &Arc<Parts>,
    config: &Arc<Config>,
    pinned: &BTreeMap<String, LockedServer>,
    show: &ShowProgress,
) -> BTreeMap<String, Result<LockedServer, ListError>> {
    let mut tasks = JoinSet::new();
    let turns = Arc::new(Semaphore::new(AT_A_TIME));
    for entry in pinned.values().cloned() {
        let (parts, config) = (Arc::clone(parts), Arc::clone(config));
        let (turns, show) = (Arc::clone(&turns), Arc::clone(show));
        tasks.spawn(async move {
            let _turn = turns.acquire().await;
            let name = entry.name.clone();
            show(&name, "looking at what it defines");
            let server = config.servers.iter().find(|one| one.name == name);
            let looked = match server {
                Some(server) => look(&parts, &config, server, Some(&entry)).await,
                None => Err(ListError::Missing(name.clone())),
            };
            (name, looked)
        });
    }
    tasks.join_all().await.into_iter().collect()
}
