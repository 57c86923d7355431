//! `callgate approvals`: calls that wait for a person's decision.

use std::process::ExitCode;

use callgate_call::{Digest, visible, visible_lines};
use callgate_gate::{BESIDE_INPUT, Gate, Setup};
use callgate_registry::environment::Environment;
use callgate_store::{Approval, ApprovalState};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{Done, Failure, Place};
use crate::compose;
use crate::error::ArgumentError;
use crate::show;

/// List calls that wait for a person, and decide.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Approvals {
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
}

const AFTER_HELP: &str = "\
What is shown:
  The whole input is kept, without secrets, up to 64 KiB; a call with a larger one is refused. What
  the tool receives beside it follows it: slots, answers of the caller's user, guarantees. The list
  shows its beginning and says where it is cut, `show` shows all of it. Characters that are
  invisible or change the order of text are written as JSON escapes (\\u202e).

  A decision is on two digests, of the input and of what was displayed; both are in the chain. A
  call that would be displayed otherwise needs an approval of its own.";

#[derive(Subcommand)]
enum ApprovalsCommand {
    /// The approvals of the last day
    List,
    /// One approval with the whole input of its call
    Show {
        /// The approval's id
        id: String,
    },
    /// Let the call pass, once, when it is repeated
    Grant(Decision),
    /// Refuse the call
    Deny(Decision),
}

#[derive(Args)]
struct Decision {
    /// The approval's id
    id: String,
    /// Only if this is the digest of what is displayed, as `show` prints it
    #[arg(long, value_name = "DIGEST", value_parser = digest)]
    displayed: Option<Digest>,
}

fn digest(text: &str) -> Result<Digest, ArgumentError> {
    Digest::from_hex(text).ok_or(ArgumentError::Digest)
}

pub fn run(environment: &Environment, place: &Place, approvals: &Approvals) -> Done {
    let parts = super::open(environment, place)?;
    // Nothing of the configuration is needed: what is decided on is in the state.
    let gate = compose::gate(&parts, Setup::default());
    let by = format!("uid:{}", environment.uid);
    let decide = |decision: &Decision, granted| {
        gate.decide(&decision.id, granted, &by, decision.displayed.as_ref())
    };
    match &approvals.command {
        None | Some(ApprovalsCommand::List) => list(place, &gate.approvals()?),
        Some(ApprovalsCommand::Grant(decision)) => list(place, &[decide(decision, true)?]),
        Some(ApprovalsCommand::Deny(decision)) => list(place, &[decide(decision, false)?]),
        Some(ApprovalsCommand::Show { id }) => show_one(place, &find(&gate, id)?),
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn find(gate: &Gate, id: &str) -> Result<Approval, Failure> {
    let found = gate.approval(id)?;
    found.ok_or_else(|| {
        let message = format!("approval {id} not found: `callgate approvals` lists them");
        callgate_call::Fault::NotFound { message }.into()
    })
}

fn list(place: &Place, approvals: &[Approval]) {
    if place.json {
        let all: Vec<Value> = approvals.iter().map(approval_json).collect();
        show::json(&json!({ "approvals": all }));
    } else {
        let rows: Vec<Vec<String>> = approvals.iter().map(row).collect();
        show::table_or(
            &["ID", "STATE", "TOOL", "TIER", "CALLER", "ASKED", "INPUT"],
            &rows,
            "nothing waits for approval",
        );
    }
}

fn show_one(place: &Place, approval: &Approval) {
    if place.json {
        return show::json(&approval_json(approval));
    }
    let displayed = approval
        .displayed
        .map_or_else(|| "-".to_owned(), Digest::to_hex);
    let mut text = String::new();
    for (name, value) in [
        ("approval", approval.id.to_string()),
        ("state", state(approval).to_owned()),
        ("tool", visible(&approval.tool).into_owned()),
        ("tier", approval.tier.to_string()),
        ("caller", visible(&approval.caller).into_owned()),
        ("asked", show::time(approval.asked_at.0)),
        ("input", approval.input.to_hex()),
        ("displayed", displayed),
    ] {
        text.push_str(&format!("{name:<10}{value}\n"));
    }
    text.push_str(&format!(
        "\n{}\n",
        visible_lines(&in_lines(&approval.shown))
    ));
    if !approval.is_whole {
        text.push_str(
            "… cut here by an earlier release: repeat the call to see all of its input\n",
        );
    }
    show::data(&text);
}

/// Returns a displayed text with its JSON in lines: the input, and what the call brings beside it.
fn in_lines(shown: &str) -> String {
    let mut values = serde_json::Deserializer::from_str(shown).into_iter::<Value>();
    let Some(Ok(input)) = values.next() else {
        return shown.to_owned();
    };
    let rest = &shown[values.byte_offset()..];
    if rest.is_empty() {
        return format!("{input:#}");
    }
    let beside = rest.strip_prefix(BESIDE_INPUT);
    match beside.map(serde_json::from_str::<Value>) {
        Some(Ok(beside)) => format!("{input:#}\n\nand beside it:\n{beside:#}"),
        None | Some(Err(_)) => shown.to_owned(),
    }
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
    const BEGINS_BYTES: usize = 2048;
    let begins = approval.shown.floor_char_boundary(BEGINS_BYTES);
    json!({
        "id": approval.id.to_string(),
        "state": state(approval),
        "tool": approval.tool,
        "tier": approval.tier,
        "caller": approval.caller,
        "input": approval.input.to_hex(),
        "input_begins": &approval.shown[..begins],
        "shown": approval.shown,
        "whole": approval.is_whole,
        "displayed": approval.displayed.map(Digest::to_hex),
        "asked_at_ms": approval.asked_at.0,
    })
}

fn row(approval: &Approval) -> Vec<String> {
    vec![
        approval.id.to_string(),
        state(approval).to_owned(),
        visible(&approval.tool).into_owned(),
        approval.tier.to_string(),
        visible(&approval.caller).into_owned(),
        show::time(approval.asked_at.0),
        beginning(approval),
    ]
}

/// The beginning of the input, and a mark where it is cut.
fn beginning(approval: &Approval) -> String {
    const SHOWN_CHARS: usize = 80;
    let text = visible(&approval.shown);
    let more = text.chars().count().saturating_sub(SHOWN_CHARS);
    if more == 0 && approval.is_whole {
        return text.into_owned();
    }
    let begins: String = text.chars().take(SHOWN_CHARS).collect();
    let id = &approval.id;
    format!("{begins} …cut, {more} characters more: callgate approvals show {id}")
}
