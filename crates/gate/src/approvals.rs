//! Approvals: a call that policy wants a person to see first becomes a pending ask; once it
//! is granted the same call passes, once. Decision G-6.

use callgate_call::{Call, Fault};
use callgate_store::{Approval, ApprovalId, ApprovalState, Start};
use serde_json::Value;

use crate::clean::secrets_of;
use crate::invoke::{Gate, Setup, internal};
use crate::leases::not_found;

impl Gate {
    /// The fault of a call that was not approved, after seeing to it that somebody is asked.
    pub(crate) fn ask(
        &self,
        setup: &Setup,
        call: &Call,
        start: &Start<'_>,
        latest: Option<Approval>,
    ) -> Fault {
        match latest.as_ref().map(|approval| &approval.state) {
            Some(ApprovalState::Denied { by, .. }) => {
                return Fault::denied(format!("{by} denied approval for this input"));
            }
            Some(ApprovalState::Pending) => {}
            None | Some(_) => {
                // By value, not by text: an escape must not hide a secret.
                let mut value = call.input.value().clone();
                let tool = setup.catalog.find(&call.tool).ok().map(|entry| &entry.tool);
                secrets_of(&setup.secrets, call, tool).clean_value(&mut value);
                if let Some(tool) = tool {
                    hide(&tool.input_schema, &mut value);
                }
                let shown = value.to_string();
                let (caller, tool, input) = (start.caller, start.tool, start.input);
                return match self.store.ask(caller, tool, input, start.tier, &shown) {
                    Ok(asked) => Fault::NeedsApproval {
                        approval: asked.id.to_string(),
                    },
                    Err(error) => internal(&error),
                };
            }
        }
        Fault::NeedsApproval {
            approval: latest.map(|a| a.id.to_string()).unwrap_or_default(),
        }
    }

    /// The approvals of the last day.
    pub fn approvals(&self) -> Result<Vec<Approval>, Fault> {
        self.store.approvals().map_err(|error| internal(&error))
    }

    /// A person's word on a pending approval.
    pub fn decide(&self, id: &str, granted: bool, by: &str) -> Result<Approval, Fault> {
        let id = ApprovalId(id.to_owned());
        self.store
            .decide(&id, granted, by)
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
