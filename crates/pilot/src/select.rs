//! Who chooses: the fallback, which needs nobody, or the owner's policy program, which is a call
//! through the gate like any other and has the gate's breaker for its own.

use std::sync::Arc;

use callgate_call::{Call, Caller, Cancel, Document, Tool, Wire};
use callgate_gate::{Entry, Gate};
use callgate_wires::toolhost::{ControlMode, PROTECTED, Selection, SelectionKind};
use serde_json::{Map, Value, json};

use super::menu::Menu;
use super::progress::Progress;
use super::state::{ds_digest, sha256};

/// Begins the `raw` of a choice that stands in for the policy's. TH-143.
pub const POLICY_FAILURE: &str = "[policy_failure]";
/// So many of the newest calls are shown to the policy program.
const HISTORY_SHOWN: usize = 16;

/// A choice, and where it came from.
pub struct Choice {
    /// What counts.
    pub selection: Selection,
    /// What the fallback said.
    pub fallback_raw: String,
    /// What the policy program said, or why it said nothing that counts.
    pub policy: Option<Result<String, String>>,
}

/// Chooses as the request's control mode has it.
pub async fn choose(
    gate: &Gate,
    caller: &Caller,
    policy: Option<&Arc<Entry>>,
    cancel: &Arc<Cancel>,
    (menu, progress): (&Menu, &Progress),
) -> Choice {
    let mode = progress.request.control_mode;
    let fallback = fallback(menu, progress);
    let fallback_raw = fallback.raw.clone();
    let asked = match mode.asks_policy() {
        true => Some(ask(gate, caller, policy, cancel, (menu, progress)).await),
        false => None,
    };
    let selection = settle(mode, fallback, asked.as_ref());
    Choice {
        selection,
        fallback_raw,
        policy: asked,
    }
}

/// Whose choice counts. A policy that failed never leaves a run without one.
#[must_use]
pub fn settle(
    mode: ControlMode,
    fallback: Selection,
    policy: Option<&Result<String, String>>,
) -> Selection {
    match policy {
        Some(Ok(text)) if mode.takes_policy() => Selection::parse(text),
        Some(Err(why)) if mode.takes_policy() => {
            let raw = format!("{POLICY_FAILURE}{why}\n{}", fallback.raw);
            fallback.with_raw(raw)
        }
        _ => fallback,
    }
}

/// The fallback: of the tools that were not called yet and whose required inputs are there, the
/// one that takes most of what is given; the first by AID among equals. Nothing to call: NOOP.
#[must_use]
pub fn fallback(menu: &Menu, progress: &Progress) -> Selection {
    let open =
        |tool: &Tool| !progress.done.contains(&tool.aid) && !progress.refused.contains(&tool.aid);
    let mut best: Option<(usize, String)> = None;
    for (sid, tool) in menu.tools().filter(|(_, tool)| open(tool)) {
        let Some(score) = score(tool, &progress.inputs) else {
            continue;
        };
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, sid));
        }
    }
    Selection::parse(&match best {
        Some((_, sid)) => format!("<PICK><{sid}><END>"),
        None => "<NOOP><END>".to_owned(),
    })
}

/// How many of the inputs a tool takes; `None` if one that it needs is missing.
fn score(tool: &Tool, inputs: &Map<String, Value>) -> Option<usize> {
    let schema = &tool.input_schema;
    let required = schema["required"].as_array().into_iter().flatten();
    let mut required = required.filter_map(Value::as_str);
    if !required.all(|key| inputs.contains_key(key)) {
        return None;
    }
    let protected = |key: &str| PROTECTED.iter().any(|prefix| key.starts_with(prefix));
    let named = |key: &&String| !protected(key) && schema["properties"].get(*key).is_some();
    Some(inputs.keys().filter(named).count())
}

/// The policy program's text, which is of the grammar and on the menu; or why there is none.
async fn ask(
    gate: &Gate,
    caller: &Caller,
    policy: Option<&Arc<Entry>>,
    cancel: &Arc<Cancel>,
    (menu, progress): (&Menu, &Progress),
) -> Result<String, String> {
    let policy = policy.ok_or("no policy program is configured")?;
    let input = Document::from_value(policy_input(menu, progress));
    let (id, name) = (gate.next_id(), policy.tool.name.clone());
    let call = Call::new(
        id,
        name,
        input,
        caller.clone(),
        Wire::Pilot,
        Arc::clone(cancel),
    );
    let found = gate.found(Ok(Arc::clone(policy)));
    let answer = gate.invoke_found(&call, &found).await;
    gate.settle(answer.ticket)
        .await
        .map_err(|fault| fault.to_string())?;
    let output = answer
        .outcome
        .result
        .map_err(|fault| one_line(&fault.to_string()))?;
    let text = output.json.value()["text"].as_str();
    Ok(text.unwrap_or_default().to_owned())
}

/// The contents of the file that the policy program is given. TH-144.
fn policy_input(menu: &Menu, progress: &Progress) -> Value {
    let shown = progress.history.iter().rev().take(HISTORY_SHOWN).rev();
    let history: Vec<Value> = shown
        .map(|(aid, status)| json!({ "aid": aid, "status": status }))
        .collect();
    json!({
        "goal_digest": sha256(&progress.request.goal_id),
        "state_digest": ds_digest(&progress.slots),
        "control_mode": progress.request.control_mode.as_str(),
        "inputs": progress.inputs,
        "menu": menu.to_value(),
        "step": progress.step + 1,
        "history": history,
    })
}

/// Whether a policy program's text is an answer to `input`: of the grammar, and on the menu it was
/// shown. Its runner asks, so that what is none counts against the program as a crash does.
pub fn judge(text: &str, input: &Value) -> Result<(), String> {
    let selection = Selection::parse(text);
    if selection.kind == SelectionKind::Invalid {
        return Err("its answer is none of the grammar".to_owned());
    }
    let Some(sid) = &selection.sid else {
        return Ok(());
    };
    let mut entries = input["menu"].as_array().into_iter().flatten();
    match entries.any(|entry| entry["sid"] == sid.as_str()) {
        true => Ok(()),
        false => Err(format!("{sid} is not on the menu")),
    }
}

/// So that what stands after it can be told apart.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TH-143: whose choice counts in each mode, and what stands in for a policy that failed.
    #[test]
    fn modes() {
        let fallback = || Selection::parse("<NOOP><END>");
        let said = Ok("<ASK_SUP><END>".to_owned());
        let failed = Err("timed out".to_owned());
        for (mode, wanted) in [
            (ControlMode::FallbackOnly, SelectionKind::Noop),
            (ControlMode::ShadowPolicy, SelectionKind::Noop),
            (ControlMode::Blended, SelectionKind::AskSup),
            (ControlMode::PolicyOnly, SelectionKind::AskSup),
        ] {
            assert_eq!(
                settle(mode, fallback(), Some(&said)).kind,
                wanted,
                "{mode:?}"
            );
            let stands_in = settle(mode, fallback(), Some(&failed));
            assert_eq!(stands_in.kind, SelectionKind::Noop);
            let raw = match mode.takes_policy() {
                true => "[policy_failure]timed out\n<NOOP><END>",
                false => "<NOOP><END>",
            };
            assert_eq!(stands_in.raw, raw);
        }
    }

    /// TH-144: what is no answer.
    #[test]
    fn answers() {
        let menu = json!({ "menu": [{ "sid": "SID0001" }, { "sid": "SID0002" }] });
        assert_eq!(judge("<NOOP><END>", &menu), Ok(()));
        assert_eq!(judge("<PICK><SID0002><END>", &menu), Ok(()));
        assert!(
            judge("<PICK><SID0003><END>", &menu)
                .unwrap_err()
                .contains("menu")
        );
        assert!(judge("", &menu).unwrap_err().contains("grammar"));
    }
}
