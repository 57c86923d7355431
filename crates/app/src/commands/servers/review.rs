//! Starts a server once to see what it defines, and shows that to its owner: hidden characters are
//! visible, and nothing is left out.

use std::fmt::Write as _;

use callgate_call::visible_lines;
use callgate_registry::config::{Config, ServerConfig};
use callgate_registry::lock::{LockedDefinition, LockedResource, LockedServer, RESOURCES_MAX};
use callgate_registry::servers::review::{DefinitionChange, MemberChange};
use callgate_registry::servers::unpinned;
use callgate_registry::setup::Parts;
use callgate_runners::Listing;
use callgate_wires::json;
use callgate_wires::mcp::RawJson;
use serde_json::{Value, json};

use crate::error::CommandError;
use crate::show;

/// Starts a server and lists what it defines. Its package stays the pinned one.
pub async fn look(
    parts: &Parts,
    config: &Config,
    server: &ServerConfig,
    pinned: Option<&LockedServer>,
) -> Result<LockedServer, CommandError> {
    let (upstream, needs, secrets) = unpinned(parts, config, server, pinned)?;
    let listed = upstream.list(Some(needs)).await;
    let listing = listed.map_err(|fault| CommandError::ServerStart {
        server: server.name.clone(),
        reason: secrets.clean(&fault.to_string()).into_owned(),
    })?;
    Ok(LockedServer {
        package: pinned.and_then(|pinned| pinned.package.clone()),
        ..locked(&server.name, listing)
    })
}

/// The entry of a listing in the lock.
pub fn locked(name: &str, listing: Listing) -> LockedServer {
    let text = |name: &str| {
        listing
            .server_info
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
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
    list.iter()
        .filter_map(|raw| json::parse(raw.get().as_bytes(), json::DEPTH_MAX).ok())
}

/// Shows what a server defines that is not pinned.
pub fn show(name: &str, listed: &LockedServer, differences: &[DefinitionChange], as_json: bool) {
    if as_json {
        let list: Vec<Value> = differences.iter().map(json_of).collect();
        show::json(&json!({ "server": name, "program": listed.program, "changes": list }));
        return;
    }
    let count = listed.tools.len();
    let mut text = format!("{name} ({}): {count} tools", listed.program);
    if differences.is_empty() {
        text.push_str(", all as they are pinned\n");
    } else {
        text.push('\n');
        differences
            .iter()
            .for_each(|change| write_change(change, &mut text));
    }
    show::data(&visible_lines(&text));
}

fn write_change(change: &DefinitionChange, out: &mut String) {
    // Writing to a String succeeds.
    let _ = match change {
        DefinitionChange::Instructions { before, after } => {
            let words = |text: &Option<String>| text.clone().map_or(Value::Null, Value::String);
            let (before, after) = (words(before), words(after));
            writeln!(out, "  instructions\n    - {before}\n    + {after}")
        }
        DefinitionChange::Added {
            kind,
            name,
            definition,
        } => {
            let is_shown = |(member, _): &(&String, &Value)| *member != "name";
            let members = definition.as_object().into_iter().flatten();
            let _ = writeln!(out, "  + {} {name}", kind.as_str());
            members
                .filter(is_shown)
                .try_for_each(|(member, value)| writeln!(out, "      {member}: {value}"))
        }
        DefinitionChange::Removed { kind, name } => {
            writeln!(out, "  - {} {name}: not listed any more", kind.as_str())
        }
        DefinitionChange::Changed {
            kind,
            name,
            members,
        } => {
            let _ = writeln!(out, "  ~ {} {name}", kind.as_str());
            members
                .iter()
                .try_for_each(|change| write_member(change, out))
        }
    };
}

fn write_member(change: &MemberChange, out: &mut String) -> std::fmt::Result {
    writeln!(out, "      {}", change.member)?;
    for (sign, value) in [('-', &change.before), ('+', &change.after)] {
        if let Some(value) = value {
            writeln!(out, "        {sign} {value}")?;
        }
    }
    Ok(())
}

fn json_of(change: &DefinitionChange) -> Value {
    match change {
        DefinitionChange::Instructions { before, after } => {
            json!({ "change": "instructions", "before": before, "after": after })
        }
        DefinitionChange::Added {
            kind,
            name,
            definition,
        } => {
            json!({ "change": "added", "kind": kind.as_str(), "name": name, "definition": definition })
        }
        DefinitionChange::Removed { kind, name } => {
            json!({ "change": "removed", "kind": kind.as_str(), "name": name })
        }
        DefinitionChange::Changed {
            kind,
            name,
            members,
        } => {
            let members = members.iter().map(|change| {
                json!({ "member": change.member, "before": change.before, "after": change.after })
            });
            json!({
                "change": "changed", "kind": kind.as_str(), "name": name,
                "members": members.collect::<Vec<_>>(),
            })
        }
    }
}
