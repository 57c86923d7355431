//! A server is started once, confined, to see what it defines.

use callgate_call::Fault;
use callgate_registry::config::{Config, ServerConfig};
use callgate_registry::lock::{LockedDefinition, LockedResource, LockedServer, RESOURCES_MAX};
use callgate_registry::servers::{ServerError, unpinned};
use callgate_registry::setup::Parts;
use callgate_runners::Listing;
use callgate_wires::json;
use callgate_wires::mcp::RawJson;
use serde_json::Value;

/// Why a server is not listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Its settings do not hold.
    #[error("server `{server}`")]
    Settings {
        /// The server.
        server: String,
        /// What is wrong with them.
        source: ServerError,
    },
    /// It does not start, or lists nothing that can be read.
    #[error("{reason}")]
    Start {
        /// Why, without secrets.
        reason: String,
    },
    /// The configuration has no such server.
    #[error("there is no server `{0}`")]
    Missing(String),
}

/// Starts a server and lists what it defines. Its package stays the pinned one.
pub async fn look(
    parts: &Parts,
    config: &Config,
    server: &ServerConfig,
    pinned: Option<&LockedServer>,
) -> Result<LockedServer, ListError> {
    let made = unpinned(parts, config, server, pinned);
    let (upstream, needs, secrets) = made.map_err(|source| ListError::Settings {
        server: server.name.clone(),
        source,
    })?;
    let listed = upstream.list(Some(needs)).await;
    let listing = listed.map_err(|fault: Fault| ListError::Start {
        reason: secrets.clean(&fault.to_string()).into_owned(),
    })?;
    Ok(LockedServer {
        package: pinned.and_then(|pinned| pinned.package.clone()),
        ..locked(&server.name, &listing)
    })
}

/// The entry of a listing in the lock. Of two definitions of one name the first is taken: a call of
/// that tool fits no pin while both are listed.
fn locked(name: &str, listing: &Listing) -> LockedServer {
    let text = |name: &str| {
        let value = listing.server_info.get(name);
        value.and_then(Value::as_str).unwrap_or_default()
    };
    let program = format!("{} {}", text("name"), text("version"));
    let mut server = LockedServer {
        name: name.to_owned(),
        program: program.trim().to_owned(),
        protocol: listing.protocol_version.clone(),
        instructions: listing.instructions.clone(),
        package: None,
        tools: definitions(&listing.tools),
        prompts: definitions(&listing.prompts),
        resources: resources(&listing.resources),
        templates: resources(&listing.resource_templates),
    };
    for list in [&mut server.tools, &mut server.prompts] {
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list.dedup_by(|a, b| a.name == b.name);
    }
    server
}

fn definitions(list: &[RawJson]) -> Vec<LockedDefinition> {
    values(list).filter_map(LockedDefinition::of).collect()
}

/// The first of a list of resources, sorted and each once.
fn resources(list: &[RawJson]) -> Vec<LockedResource> {
    let all = values(list).filter_map(LockedResource::of);
    let mut first: Vec<_> = all.take(RESOURCES_MAX).collect();
    first.sort_by(|a, b| a.uri.cmp(&b.uri));
    first.dedup_by(|a, b| a.uri == b.uri);
    first
}

fn values(list: &[RawJson]) -> impl Iterator<Item = Value> {
    let read = |raw: &RawJson| json::parse(raw.get().as_bytes(), json::DEPTH_MAX).ok();
    list.iter().filter_map(read)
}
