//! The tool protocol behind its two carriers: one request on stdin (`callgate tool`, here) and
//! HTTP (`service.rs`). Contract `docs/contracts/tool-protocol.md`, decisions P.
//!
//! A request names a tool and the code it stands for. Both must be what is registered; code
//! that is not is run only where the owner allows it, as a tool of its own that policy, leases
//! and records see by its own name.

mod asks;
mod checks;
mod numbers;
mod said;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Asker, Call, Caller, Cancel, Document, Fault, Guarantee, Held, IdempotencyKey, LeaseToken,
    Level, Needs, Outcome, Roots, Scope, Tool, Wire, host_name,
};
use callgate_gate::{Entry, FoundTool, Gate};
use callgate_wires::tool_protocol::{CapabilityContext, LocalRequest, Ours, Told, write_local};
use serde_json::{Map, Value, json};

use crate::reply::CallBody;

pub(crate) use asks::flags;
pub(crate) use said::said;

/// What either form asks for.
pub(crate) struct Asked {
    pub tool: String,
    pub entry: Option<String>,
    pub payload: Map<String, Value>,
    pub timeout: Option<Duration>,
    pub trace_id: Option<String>,
    pub context: Option<CapabilityContext>,
    pub ours: Ours,
}

/// Who asks, and by which wire.
#[derive(Clone)]
pub(crate) struct Peer {
    pub caller: Caller,
    pub scope: Option<Arc<Scope>>,
    pub wire: Wire,
}

/// A call on its way, and the tool it is for.
pub(crate) struct Taken {
    pub call: Call,
    pub found: FoundTool,
}

impl Taken {
    /// Finds the tool and makes the call. What can not be found is refused by the gate, so that
    /// it is recorded.
    pub fn new(gate: &Gate, peer: &Peer, asked: Asked, cancel: Cancel) -> Self {
        let found = find(gate, &asked, peer.scope.as_deref());
        let mut input = Value::Object(asked.payload);
        let name = match found.tool() {
            Some(tool) => {
                numbers::read(&tool.input_schema, &mut input);
                tool.name.clone()
            }
            None => asked.tool,
        };
        let (input, caller) = (Document::from_value(input), peer.caller.clone());
        let mut call = Call::new(gate.next_id(), name, input, caller, peer.wire, cancel);
        call.scope.clone_from(&peer.scope);
        call.key = asked.ours.key.as_deref().and_then(IdempotencyKey::new);
        call.lease = asked.ours.lease.as_deref().map(LeaseToken::new);
        call.trace_id = asked.trace_id;
        if let Some(timeout) = asked.timeout {
            call.answer_within(timeout);
        }
        let asks = asked.context.as_ref().map(asks::read).transpose();
        match asks {
            Ok(asks) => {
                call.asks = asks.filter(|asks| !asks.is_empty()).map(Box::new);
                Self { call, found }
            }
            Err(fault) => Self {
                call,
                found: found.with(Err(fault)),
            },
        }
    }

    /// Leaves time for the answer. The host ends its child after the timeout of the same tool, which
    /// it reads from the same files, so waiting for all of that time would lose the answer. P-7.
    fn answer_in_time(&mut self) {
        let tool = self.found.tool();
        let own = tool.and_then(|tool| tool.timeout);
        let patience = own.unwrap_or(self.call.default_timeout);
        // A run whose time begins anew with each sign of life has a host that knows of that.
        if tool.is_none_or(|tool| tool.timeout_cap.is_none()) {
            self.call.answer_within(patience);
        }
    }
}

/// The registered tool if the request means its code, else code that is allowed.
fn find(gate: &Gate, asked: &Asked, scope: Option<&Scope>) -> FoundTool {
    let found = gate.find(&asked.tool);
    let meant = meant(&found, asked, scope);
    found.with(meant)
}

fn meant(found: &FoundTool, asked: &Asked, scope: Option<&Scope>) -> Result<Arc<Entry>, Fault> {
    let visible = |entry: &&Arc<Entry>| scope.is_none_or(|scope| scope.allows(&entry.tool));
    let registered = found.entry().ok().filter(visible);
    // Not every tool has an entry, and callers of this protocol must write one: the tool's own
    // name stands for none.
    let code = asked.entry.as_deref().filter(|code| *code != asked.tool);
    let is_meant = |entry: &&Arc<Entry>| code.is_none_or(|code| is_of(code, &entry.tool));
    if let Some(entry) = registered.filter(is_meant) {
        return Ok(Arc::clone(entry));
    }
    let allowed = code.and_then(|code| found.by_code(code));
    match (allowed, registered, code) {
        (Some(allowed), _, _) => allowed,
        (None, Some(entry), Some(code)) => Err(Fault::denied(format!(
            "`{code}` is not the entry of `{}`, and service.allow_entries does not name it",
            entry.tool.name
        ))),
        (None, _, _) => Err(Fault::unknown_tool(&asked.tool)),
    }
}

/// True if `code` is what the tool runs, or another of its names.
fn is_of(code: &str, tool: &Tool) -> bool {
    tool.entry.as_deref() == Some(code)
        || [&tool.name, &tool.aid, &host_name(&tool.name)]
            .into_iter()
            .chain(&tool.aliases)
            .any(|name| name == code)
}

/// `callgate/call`, for callers that know us.
pub(crate) fn known(outcome: &Outcome, ours: &Ours) -> Option<Value> {
    if !ours.knows_us {
        return None;
    }
    Some(json!(CallBody::of(outcome)))
}

/// The owner of the process that `callgate tool` is.
pub struct Owner {
    /// Who.
    pub caller: Caller,
    /// Where the request wants the call kept, links resolved. TP-12.
    pub roots: Option<Roots>,
    /// The workspace, beyond which tools without a process of ours do not read.
    pub workspace: PathBuf,
    /// Ends the call.
    pub cancel: Cancel,
}

/// Carries out one request of the local form and gives its reply. TP-14.
pub async fn answer(gate: &Gate, owner: Owner, request: LocalRequest) -> Vec<u8> {
    let LocalRequest {
        tool,
        entry,
        payload,
        sandbox,
        trace_id,
        context,
        ours,
    } = request;
    let peer = Peer {
        caller: owner.caller,
        scope: None,
        wire: Wire::Tool,
    };
    let wants_checks = context.is_some();
    let asked = Asked {
        tool,
        entry: Some(entry),
        payload,
        timeout: None,
        trace_id,
        context,
        ours: ours.clone(),
    };
    let mut taken = Taken::new(gate, &peer, asked, owner.cancel);
    if let Ok(entry) = taken.found.entry().cloned() {
        if is_ignored(&entry, sandbox) {
            taken.call.remarks.push(SANDBOX_IGNORED);
        }
        let checked = check_roots(&entry.tool, owner.roots.as_ref(), &owner.workspace);
        let shaped = checked.and_then(|()| shaped(entry, owner.roots.as_ref(), sandbox));
        taken.found = taken.found.with(shaped);
    }
    taken.answer_in_time();
    let answer = gate.invoke_found(&taken.call, &taken.found).await;
    let outcome = gate.settled(answer).await;
    let checks = wants_checks.then(|| checks::of(&outcome, taken.call.asks.as_deref()));
    let known = known(&outcome, &ours);
    let mut out = Vec::new();
    let said = outcome.result.as_ref().map_err(said);
    let told = Told {
        result: match &said {
            Ok(output) => Ok(output.json.text()),
            Err(said) => Err(said),
        },
        checks: checks.as_deref(),
        call: known.as_ref(),
    };
    write_local(&told, &mut out);
    out
}

/// Refuses roots within which a tool can not be kept: one without a process of ours is kept to the
/// workspace as a whole. TP-12.
fn check_roots(tool: &Tool, roots: Option<&Roots>, workspace: &Path) -> Result<(), Fault> {
    let Some(roots) = roots else { return Ok(()) };
    let kind = tool.runner.kind();
    let is_apart = tool.needs.is_none() || matches!(kind, "service" | "container");
    if !is_apart || tool.runner.is_pure() || !tool.runner.is_there() {
        return Ok(());
    }
    let is_known = |path: &PathBuf| {
        path.starts_with(&roots.root) || roots.reads.iter().any(|root| path.starts_with(root))
    };
    let mut shown = tool.needs.iter().flat_map(|needs| &needs.reads);
    if workspace.starts_with(&roots.root) && (kind != "container" || shown.all(is_known)) {
        return Ok(());
    }
    let missing = |guarantee| Held {
        guarantee: Some(guarantee),
        asker: Asker::User,
        level: Level::None,
        mechanisms: Vec::new(),
        missing: format!(
            "`filesystem_root`: a tool of kind `{kind}` is kept to the workspace and what is \
             declared for it, and to no less"
        ),
    };
    let both = [Guarantee::NoFilesystemRead, Guarantee::NoFilesystemWrite];
    Err(Fault::Unenforceable {
        missing: both.map(missing).into(),
    })
}

/// The tool as this request wants it: kept within its roots, confined where it asks for that.
/// `sandbox` false does nothing unless the tool allows unsafe execution. P-14.
fn shaped(
    entry: Arc<Entry>,
    roots: Option<&Roots>,
    sandbox: Option<bool>,
) -> Result<Arc<Entry>, Fault> {
    let Some(needs) = entry.tool.needs.as_deref() else {
        return Ok(entry); // it has no child to keep
    };
    let mut wanted = roots.map_or_else(|| needs.clone(), |roots| needs.within(roots));
    wanted.unconfined = unconfined(needs, sandbox);
    if wanted == *needs {
        return Ok(entry);
    }
    let tool = Tool {
        needs: Some(Arc::new(wanted)),
        ..entry.tool.clone()
    };
    Entry::new(tool)
        .map(Arc::new)
        .map_err(|error| Fault::Internal {
            message: error.to_string(),
        })
}

fn unconfined(needs: &Needs, sandbox: Option<bool>) -> bool {
    match sandbox {
        Some(true) => false,
        Some(false) if needs.unsafe_execution => true,
        Some(false) | None => needs.unconfined,
    }
}

/// The line in the trace of a call whose `sandbox` false had no effect. P-14.
const SANDBOX_IGNORED: (&str, &str) = (
    "sandbox_request",
    "false, ignored: the tool does not allow unsafe execution",
);

/// True if the request asks for a tool without its confinement, and the tool keeps it.
fn is_ignored(entry: &Entry, sandbox: Option<bool>) -> bool {
    let needs = entry.tool.needs.as_deref();
    sandbox == Some(false) && needs.is_some_and(|needs| !unconfined(needs, sandbox))
}

/// The reply where nothing could be carried out.
#[must_use]
pub fn refuse_with(fault: &Fault) -> Vec<u8> {
    let mut out = Vec::new();
    let said = said(fault);
    let told = Told {
        result: Err(&said),
        checks: None,
        call: None,
    };
    write_local(&told, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P-14: a request tightens; it loosens only what the tool lets go of.
    #[test]
    fn sandbox_in_a_request() {
        let needs = |unconfined, unsafe_execution| Needs {
            unconfined,
            unsafe_execution,
            ..Needs::default()
        };
        for (given, allows, asked, wanted) in [
            (false, false, None, false),
            (false, false, Some(false), false),
            (false, true, Some(false), true),
            (true, false, Some(true), false),
            (true, false, None, true),
            (true, false, Some(false), true),
        ] {
            let needs = needs(given, allows);
            assert_eq!(unconfined(&needs, asked), wanted, "{needs:?} {asked:?}");
        }
    }
}
