//! The menu of a step: what may be picked, each under a SID. TH-136.

use std::sync::Arc;

use callgate_call::{Caller, Tool};
use callgate_gate::{Entry, Gate};
use callgate_wires::toolhost::{PROTECTED, RunRequest, TAG_META, sid};
use serde_json::{Map, Value, json};

use crate::progress::NOOP_AID;
use crate::state::sha256;

/// Tools on a menu: what four digits can name, and one more for NOOP.
const TOOLS_MAX: usize = 9998;

/// What may be picked at one step.
pub struct Menu(Vec<Arc<Entry>>);

impl Menu {
    /// The tools that the caller may know of and the request admits, by AID.
    #[must_use]
    pub fn of(gate: &Gate, caller: &Caller, request: &RunRequest) -> Self {
        let mut tools = gate.visible_tools(caller, None);
        tools.retain(|entry| {
            let tool = &entry.tool;
            request.admits(&tool.rule_names(), &tool.tags)
        });
        tools.sort_by(|a, b| a.tool.aid.cmp(&b.tool.aid));
        tools.truncate(TOOLS_MAX);
        Self(tools)
    }

    /// The tools, with their SIDs.
    pub fn tools(&self) -> impl Iterator<Item = (String, &Tool)> {
        let entries = self.0.iter().enumerate();
        entries.filter_map(|(index, entry)| Some((sid(index)?, &entry.tool)))
    }

    /// The AID of a SID; `None` if it is not on the menu.
    #[must_use]
    pub fn aid(&self, wanted: &str) -> Option<&str> {
        if sid(self.0.len()).as_deref() == Some(wanted) {
            return Some(NOOP_AID);
        }
        let mut tools = self.tools();
        tools
            .find(|(sid, _)| sid == wanted)
            .map(|(_, tool)| tool.aid.as_str())
    }

    /// As a policy program sees it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let shown = |sid: &str, aid: &str, name: &str, tags: &[String]| json!({ "sid": sid, "aid": aid, "name": name, "tags": tags });
        let mut entries: Vec<Value> = self
            .tools()
            .map(|(sid, tool)| shown(&sid, &tool.aid, &tool.name, &tool.tags))
            .collect();
        let last = sid(self.0.len()).unwrap_or_default();
        entries.push(shown(&last, NOOP_AID, "noop", &[TAG_META.to_owned()]));
        Value::Array(entries)
    }

    /// Tells two menus apart.
    #[must_use]
    pub fn digest(&self) -> String {
        sha256(&self.to_value().to_string())
    }
}

/// What a tool gets of a run's inputs: what its schema names, where it allows nothing else; never
/// what is not for tools.
#[must_use]
pub fn input_for(tool: &Tool, inputs: &Map<String, Value>) -> Value {
    let schema = &tool.input_schema;
    let closed = schema["additionalProperties"] == Value::Bool(false);
    let named = |key: &str| !closed || schema["properties"].get(key).is_some();
    let protected = |key: &str| PROTECTED.iter().any(|prefix| key.starts_with(prefix));
    let given = inputs.iter();
    given
        .filter(|(key, _)| named(key) && !protected(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect::<Map<_, _>>()
        .into()
}
