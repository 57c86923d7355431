//! Approvals: a call that policy wants a person to see first becomes a pending ask; once it
//! is granted the same call passes, once. A decision is on two digests: of the input, and of what
//! was displayed of it. Decision G-6.

use std::time::Duration;

use callgate_call::{Call, Digest, Fault, Tool};
use callgate_store::{Approval, ApprovalId, ApprovalState, DISPLAYED_BYTES_MAX, Start, StoreError};
use serde_json::Value;

use crate::beside::{BESIDE_INPUT, beside};
use crate::clean::secrets_of;
use crate::errors::{internal, not_found};
use crate::invoke::Gate;
use crate::policy::Decision;
use crate::setup::Setup;

/// When a caller may try again for whom too many approvals wait: it takes a person.
const ROOM_AFTER: Duration = Duration::from_secs(60);

/// Returns the digest of what a person would see of this call, if one must approve it.
pub(crate) fn digest_displayed(
    setup: &Setup,
    decision: Decision,
    call: &Call,
    tool: &Tool,
) -> Result<Option<Digest>, Fault> {
    match decision {
        Decision::Allow | Decision::Deny => Ok(None),
        Decision::Ask => {
            let text = displayed(setup, call, tool)?;
            Ok(Some(Digest::of_bytes(text.as_bytes())))
        }
    }
}

/// Returns the text that a person decides on: the whole input as JSON without secrets, and what the
/// tool receives beside it. One that is longer than a person is shown is refused.
fn displayed(setup: &Setup, call: &Call, tool: &Tool) -> Result<String, Fault> {
    // By value, not by text: an escape must not hide a secret.
    let mut value = call.input.value().clone();
    let secrets = secrets_of(&setup.secrets, call, Some(tool));
    secrets.clean_value(&mut value);
    hide(&tool.input_schema, &mut value);
    let mut text = value.to_string();
    if let Some(more) = beside(call, tool, &secrets) {
        text.push_str(BESIDE_INPUT);
        text.push_str(&more.to_string());
    }
    if text.len() > DISPLAYED_BYTES_MAX {
        let max = u64::try_from(DISPLAYED_BYTES_MAX).unwrap_or(u64::MAX);
        return Err(Fault::too_large(
            "the input that a person must approve",
            max,
        ));
    }
    Ok(text)
}

/// An approval that waits for a person's decision, as a client may show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingApproval {
    /// The canonical name of the tool.
    pub tool: String,
    /// The text that the person decides on.
    pub shown: String,
    /// The digest of that text, which the decision must name.
    pub displayed: Digest,
}

impl Gate {
    /// The fault of a call that was not approved, after seeing to it that somebody is asked.
    pub(crate) fn ask(
        &self,
        setup: &Setup,
        call: &Call,
        tool: &Tool,
        start: &Start<'_>,
        latest: Option<Approval>,
    ) -> Fault {
        let needs = |asked: &Approval| Fault::NeedsApproval {
            approval: asked.id.to_string(),
        };
        match &latest {
            Some(Approval {
                state: ApprovalState::Denied { by, .. },
                ..
            }) => return Fault::denied(format!("{by} denied approval for this input")),
            Some(
                asked @ Approval {
                    state: ApprovalState::Pending,
                    is_whole: true,
                    ..
                },
            ) => return needs(asked),
            None | Some(_) => {}
        }
        let asked = displayed(setup, call, tool).map(|shown| {
            let (caller, tool, input) = (start.caller, start.tool, start.input);
            self.store.ask(caller, tool, input, start.tier, &shown)
        });
        match asked {
            Ok(Ok(asked)) => needs(&asked),
            Ok(Err(error @ StoreError::ManyApprovals { .. })) => Fault::RateLimited {
                retry_after: ROOM_AFTER,
                reason: format!("{error} (`callgate approvals`); "),
            },
            Ok(Err(error)) => internal(&error),
            Err(fault) => fault,
        }
    }

    /// The approvals of the last day.
    pub fn approvals(&self) -> Result<Vec<Approval>, Fault> {
        self.store.approvals().map_err(|error| internal(&error))
    }

    /// One approval by its name.
    pub fn approval(&self, id: &str) -> Result<Option<Approval>, Fault> {
        let found = self.store.approval(&ApprovalId(id.to_owned()));
        found.map_err(|error| internal(&error))
    }

    /// The approval with this id, if it is pending and its displayed text is known whole.
    pub fn pending_approval(&self, id: &str) -> Result<Option<PendingApproval>, Fault> {
        let found = self.approval(id)?;
        let pending = found.filter(|approval| approval.state == ApprovalState::Pending);
        Ok(pending.and_then(|approval| {
            Some(PendingApproval {
                displayed: approval.displayed?,
                tool: approval.tool,
                shown: approval.shown,
            })
        }))
    }

    /// A person's decision on a pending approval. `displayed` is the digest of the text that the
    /// person saw, where that is known; a decision on another text is refused.
    pub fn decide(
        &self,
        id: &str,
        granted: bool,
        by: &str,
        displayed: Option<&Digest>,
    ) -> Result<Approval, Fault> {
        let id = ApprovalId(id.to_owned());
        self.store
            .decide(&id, granted, by, displayed)
            .map_err(|error| not_found(&error))
    }
}

/// Takes out what its schema calls `writeOnly`: it is for the tool alone.
fn hide(schema: &Value, value: &mut Value) {
    if schema.get("writeOnly") == Some(&Value::Bool(true)) {
        *value = "[secret]".into();
        return;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, inner) in properties.into_iter().flatten() {
        if let Some(member) = value.get_mut(name) {
            hide(inner, member);
        }
    }
}
