//! `callgate approvals`: calls that wait for a person's word.

use std::process::ExitCode;

use callgate_gate::{Approval, ApprovalState};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{Done, Place};
use crate::compose::chain;
use crate::environment::Environment;
use crate::show;

/// List calls that wait for a person, and decide.
#[derive(Args)]
pub struct Approvals {
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
}

#[derive(Subcommand)]
enum ApprovalsCommand {
    /// The approvals of the last day
    List,
    /// Let the call pass, once, when it is repeated
    Grant {
        /// The approval's id
        id: String,
    },
    /// Refuse the call
    Deny {
        /// The approval's id
        id: String,
    },
}

pub fn run(environment: &Environment, place: &Place, approvals: &Approvals) -> Done {
    let parts = super::open(environment, place)?;
    let setup = parts.setup().map_err(|error| chain(&error))?;
    let gate = parts.gate(setup);
    let by = format!("uid:{}", environment.uid);
    let decide = |id: &str, granted| gate.decide(id, granted, &by);
    let shown = match &approvals.command {
        None | Some(ApprovalsCommand::List) => gate.approvals()?,
        Some(ApprovalsCommand::Grant { id }) => vec![decide(id, true)?],
        Some(ApprovalsCommand::Deny { id }) => vec![decide(id, false)?],
    };
    if place.json {
        let all: Vec<Value> = shown.iter().map(approval_json).collect();
        show::json(&json!({ "approvals": all }));
    } else {
        let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
        show::table_or(
            &["ID", "STATE", "TOOL", "TIER", "CALLER", "ASKED", "INPUT"],
            &rows,
            "nothing waits for approval",
        );
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn state(approval: &Approval) -> &'static str {
    match approval.state {
        ApprovalState::Pending => "pending",
        ApprovalState::Granted { .. } => "granted",
        ApprovalState::Denied { .. } => "denied",
        ApprovalState::Spent { .. } => "spent",
        ApprovalState::Expired => "expired",
    }
}

fn approval_json(approval: &Approval) -> Value {
    json!({
        "id": approval.id.to_string(),
        "state": state(approval),
        "tool": approval.tool,
        "tier": approval.tier,
        "caller": approval.caller,
        "input": approval.input.to_hex(),
        "input_begins": approval.shown,
        "asked_at_ms": approval.asked_at.0,
    })
}

fn row(approval: &Approval) -> Vec<String> {
    vec![
        approval.id.to_string(),
        state(approval).to_owned(),
        approval.tool.clone(),
        approval.tier.to_string(),
        approval.caller.clone(),
        show::time(approval.asked_at.0),
        approval.shown.chars().take(80).collect(),
    ]
}
