//! `callgate lease`: single-use permissions for one call.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use callgate_call::{Caller, Digest, Fault, Tier};
use callgate_doors::http::tool_body;
use callgate_gate::{LeaseRequest, Setup};
use callgate_registry::environment::Environment;
use callgate_store::{Lease as Granted, LeaseState};
use callgate_wires::json::{self, DEPTH_MAX};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::toolhost::{ToolhostPlace, load_plugin};
use crate::cli::{Done, Failure, Place};
use crate::compose;
use crate::error::ArgumentError;
use crate::show;

/// Grant, list and revoke single-use leases.
#[derive(Args)]
pub struct Lease {
    #[command(subcommand)]
    command: LeaseCommand,
}

#[derive(Subcommand)]
enum LeaseCommand {
    /// Grant a lease for one call; the token is printed once
    Grant {
        /// Name, AID or alias
        tool: String,
        /// The highest tier it opens; the tool's own if not given
        #[arg(long, value_name = "0-3", value_parser = tier)]
        tier: Option<Tier>,
        /// How long it lives, such as 60s or 5m; an hour at most [default: 60s]
        #[arg(long, value_name = "TIME", value_parser = super::duration)]
        ttl: Option<Duration>,
        /// Only for exactly this input (JSON), and for no call with slots or answers beside it
        #[arg(long, value_name = "JSON")]
        input: Option<String>,
        /// The tool is in this toolhost plugin (a pack's folder or manifest)
        #[arg(long, value_name = "PATH")]
        plugin: Option<PathBuf>,
        /// Only for this caller, such as uid:1000
        #[arg(long, value_name = "CALLER")]
        caller: Option<String>,
    },
    /// The leases of the last day
    List,
    /// Take a lease back, by its id or its token
    Revoke {
        /// Id or token
        lease: String,
    },
}

/// Reads a tier.
pub fn tier(text: &str) -> Result<Tier, ArgumentError> {
    let number = text.parse().ok();
    number
        .and_then(Tier::from_number)
        .ok_or(ArgumentError::Tier)
}

pub fn run(environment: &Environment, place: &Place, lease: &Lease) -> Done {
    let environment = &environment.of_no_tool();
    let (parts, setup) = match &lease.command {
        LeaseCommand::Grant {
            plugin: Some(plugin),
            ..
        } => {
            let place = ToolhostPlace {
                workspace: Some(place.workspace.clone()),
                state: place.state.clone(),
            };
            let (parts, setup, _) = load_plugin(environment, &place, plugin.as_os_str())?;
            (parts, setup)
        }
        LeaseCommand::Grant { .. } => {
            let parts = super::open(environment, place)?;
            let setup = parts.setup()?;
            (parts, setup)
        }
        // Nothing of the configuration is needed.
        LeaseCommand::List | LeaseCommand::Revoke { .. } => {
            (super::open(environment, place)?, Setup::default())
        }
    };
    let gate = compose::gate(&parts, setup);
    match &lease.command {
        LeaseCommand::Grant {
            tool,
            tier,
            ttl,
            input,
            caller,
            plugin,
        } => {
            let input = match input {
                None => None,
                Some(text) => {
                    let value = json::parse(text.as_bytes(), DEPTH_MAX)
                        .map_err(|error| format!("--input is not JSON: {error}"))?;
                    if !value.is_object() {
                        return Err(Failure::from(
                            "--input is an object, as every call's is".to_owned(),
                        ));
                    }
                    Some(Digest::of_json(&value))
                }
            };
            let request = LeaseRequest {
                tool: tool.clone(),
                tier: *tier,
                ttl: *ttl,
                caller: caller.as_deref().map(Caller::named),
                input,
            };
            let granted = gate.grant_lease(&request).map_err(|fault| {
                let tools: Vec<Value> = gate.catalog().tools().map(tool_body).collect();
                match &fault {
                    Fault::UnknownTool {
                        tool: asked,
                        why: None,
                    } => {
                        let mut words = super::tools::unknown(asked, &tools);
                        if plugin.is_none() {
                            words.push_str(
                                "; for a tool of a toolhost plugin add --plugin PATH, the pack's \
                                 folder or manifest",
                            );
                        }
                        Failure::from(fault).in_words(words)
                    }
                    _ => fault.into(),
                }
            })?;
            let token = granted.token.reveal();
            if place.json {
                show::json(&json!({
                    "id": granted.id,
                    "token": token,
                    "tool": granted.tool,
                    "tier": granted.tier.number(),
                    "ttl_ms": u64::try_from(granted.ttl.as_millis()).unwrap_or(u64::MAX),
                }));
            } else {
                show::data(&format!("{token}\n"));
                show::say(&format!(
                    "lease {} for one call of `{}`, good for {} s; the token is not shown again",
                    granted.id,
                    granted.tool,
                    granted.ttl.as_secs()
                ));
            }
        }
        LeaseCommand::List => {
            let leases = gate.leases()?;
            if place.json {
                let all: Vec<Value> = leases.iter().map(lease_json).collect();
                show::json(&json!({ "leases": all }));
            } else {
                let rows: Vec<Vec<String>> = leases.iter().map(row).collect();
                show::table_or(
                    &[
                        "ID", "TOOL", "TIER", "STATE", "GRANTED", "EXPIRES", "BOUND TO",
                    ],
                    &rows,
                    "no leases",
                );
            }
        }
        LeaseCommand::Revoke { lease } => {
            let revoked = gate.revoke_lease(lease)?;
            if place.json {
                show::json(&lease_json(&revoked));
            } else {
                show::say(&format!("lease {}: {}", revoked.id, state(&revoked)));
            }
        }
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn state(lease: &Granted) -> &'static str {
    match lease.state {
        LeaseState::Active => "active",
        LeaseState::Spent { .. } => "spent",
        LeaseState::Expired => "expired",
        LeaseState::Revoked { .. } => "revoked",
    }
}

fn lease_json(lease: &Granted) -> Value {
    let mut body = json!({
        "id": lease.id.to_string(),
        "tool": lease.tool,
        "tier": lease.tier,
        "state": state(lease),
        "granted_at_ms": lease.granted_at.0,
        "expires_at_ms": lease.expires_at.0,
        "caller": lease.caller,
        "input": lease.input.map(Digest::to_hex),
    });
    if let LeaseState::Spent { call, .. } = lease.state {
        body["call_id"] = json!(call.to_string());
    }
    body
}

fn row(lease: &Granted) -> Vec<String> {
    let input = lease
        .input
        .map(|digest| format!("input {}", &digest.to_hex()[..8]));
    let bound: Vec<String> = lease.caller.clone().into_iter().chain(input).collect();
    vec![
        lease.id.to_string(),
        lease.tool.clone(),
        lease.tier.to_string(),
        state(lease).to_owned(),
        show::time(lease.granted_at.0),
        show::time(lease.expires_at.0),
        bound.join(", "),
    ]
}
