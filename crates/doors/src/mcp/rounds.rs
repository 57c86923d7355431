//! Questions to the caller's user. A tool asks by `NeedsInput`, policy by `NeedsApproval`; a
//! modern client gets an `input_required` result and calls again with the answers, a legacy
//! client gets requests of ours. What the client keeps for us in between is sealed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Answers, Call, Digest, Fault, Tool, visible, visible_lines};
use callgate_gate::{Gate, PendingApproval};
use serde_json::{Map, Value, json};

use super::dispatch::{Given, Refusal};
use super::tools::{Told, told_fault_as_result};
use super::{Era, Request, Server};

/// How long a person may think.
const STATE_LIFE: Duration = Duration::from_secs(3600);

/// The name of our own question.
const APPROVAL: &str = "callgate_approval";

/// The member of sealed state that has what was answered to the tool's questions.
const ANSWERED: &str = "answered";

impl Server {
    /// The answers a modern request brings along. State that is not ours, or was not given for
    /// this call, is refused; an answer to our own question is taken here.
    pub(super) fn answers(
        &self,
        gate: &Gate,
        request: &Request,
        call: &Call,
    ) -> Result<Option<Answers>, Refusal> {
        let responses = request.object("inputResponses")?;
        let state = match request.params.get("requestState") {
            None | Some(Value::Null) => None,
            Some(Value::String(sealed)) => {
                let opened = self.seal.open(&whom(call), sealed);
                Some(opened.map_err(|_| {
                    Refusal::invalid("`requestState` is not ours, not of this call, or too old")
                })?)
            }
            Some(_) => return Err(Refusal::invalid("`requestState` must be a string")),
        };
        let mut state = state.unwrap_or(Value::Null);
        // What was answered before a person was asked.
        let mut all = match state.get_mut(ANSWERED).map(Value::take) {
            Some(Value::Object(earlier)) => earlier,
            _ => Map::new(),
        };
        let Some(responses) = responses else {
            let state = state.get_mut("tool").map(Value::take);
            let says_nothing = state.is_none() && all.is_empty();
            return Ok((!says_nothing).then_some(Answers {
                responses: all,
                state,
            }));
        };
        all.extend(responses.clone());
        let mut responses = all;
        let text = |name: &str| state.get(name).and_then(Value::as_str);
        if let (Some(id), Some(displayed), Some(answer)) = (
            text("approval"),
            text("displayed").and_then(Digest::from_hex),
            responses.remove(APPROVAL),
        ) {
            // Asked again, since what may be asked can have changed meanwhile.
            let tool = gate.catalog().find(&call.tool).cloned();
            if tool.is_ok_and(|entry| self.may_approve(call, &entry.tool)) {
                self.decide(gate, request, (id, &displayed), &answer)?;
            }
        }
        Ok(Some(Answers {
            responses,
            state: state.get_mut("tool").map(Value::take),
        }))
    }

    /// What a call came to, for its client.
    pub(super) fn finish(
        &self,
        request: &Request,
        call: &Call,
        end: Told,
    ) -> Result<Given, Refusal> {
        match end {
            Told::Result(result) => Ok(Given::Written(result)),
            Told::Error(error) => Err(error.into()),
            Told::Nothing => Ok(Given::Nothing),
            Told::Ask { requests, state } => {
                if !request.era.is_modern() {
                    let fault = Fault::NeedsInput { requests, state };
                    let result = told_fault_as_result(&fault, call, false);
                    return Ok(Given::Written(result));
                }
                let (asked, missing) = self.askable(request, requests);
                if asked.is_empty() && !missing.is_empty() {
                    return Err(Refusal::missing_capability(Value::Object(missing)));
                }
                let state = state.map(|state| json!({ "tool": state }));
                Ok(self.input_required(call, asked, state.as_ref()))
            }
            Told::Approve(id) => {
                let tool = self
                    .gate()
                    .and_then(|gate| gate.catalog().find(&call.tool).ok().cloned());
                let may = tool.is_some_and(|entry| self.may_approve(call, &entry.tool));
                let may = may && request.era.has("elicitation") && !was_left_open(request);
                let question = match (self.gate(), request.era.is_modern() && may) {
                    (Some(gate), true) => question(gate.pending_approval(&id)),
                    _ => None,
                };
                let Some((question, displayed)) = question else {
                    let fault = Fault::NeedsApproval { approval: id };
                    let result = told_fault_as_result(&fault, call, request.era.is_modern());
                    return Ok(Given::Written(result));
                };
                let asked = Map::from_iter([(APPROVAL.to_owned(), question)]);
                let mut state = json!({ "approval": id, "displayed": displayed.to_hex() });
                if let Some(answers) = &call.answers {
                    state[ANSWERED] = Value::Object(answers.responses.clone());
                    if let Some(tool) = &answers.state {
                        state["tool"] = tool.clone();
                    }
                }
                Ok(self.input_required(call, asked, Some(&state)))
            }
        }
    }

    fn input_required(
        &self,
        call: &Call,
        asked: Map<String, Value>,
        state: Option<&Value>,
    ) -> Given {
        let mut result = json!({ "resultType": "input_required", "inputRequests": asked });
        if let Some(state) = state {
            result["requestState"] = self.seal.close(&whom(call), state, STATE_LIFE).into();
        }
        result.into()
    }

    /// The questions a client can answer, and the capabilities the others would need.
    pub(super) fn askable(
        &self,
        request: &Request,
        requests: Map<String, Value>,
    ) -> (Map<String, Value>, Map<String, Value>) {
        let (mut asked, mut missing) = (Map::new(), Map::new());
        for (key, mut question) in requests {
            make_visible(&mut question);
            let needed = question
                .get("method")
                .and_then(Value::as_str)
                .map_or("", |method| method.split('/').next().unwrap_or_default());
            if request.era.has(needed) {
                asked.insert(key, question);
            } else {
                missing.insert(needed.to_owned(), json!({}));
            }
        }
        (asked, missing)
    }

    /// G-6: up to tier 1 a client's user may answer; above only where configuration says so.
    fn may_approve(&self, call: &Call, tool: &Tool) -> bool {
        self.gate()
            .is_some_and(|gate| gate.may_client_approve(&call.caller, tool))
    }

    /// Takes an answer to our question; false if it decides nothing.
    fn decide(
        &self,
        gate: &Gate,
        request: &Request,
        (id, displayed): (&str, &Digest),
        answer: &Value,
    ) -> Result<bool, Refusal> {
        let Some(granted) = decision(answer) else {
            return Ok(false);
        };
        let by = format!("{} by its MCP client", request.peer.caller);
        match gate.decide(id, granted, &by, Some(displayed)) {
            Ok(_) => Ok(true),
            // Somebody else was quicker; the call will find what they said.
            Err(Fault::Conflict { .. }) => Ok(true),
            Err(fault) => Err(super::dispatch::refusal_of(&fault)),
        }
    }

    /// Asks a legacy client's user whether a call may go on. False if nobody may or can say.
    pub(super) async fn approve_legacy(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        call: &Call,
        tool: &Tool,
        id: &str,
    ) -> Result<bool, Refusal> {
        if !self.may_approve(call, tool) || !request.era.has("elicitation") {
            return Ok(false);
        }
        let Era::Legacy(session) = &request.era else {
            return Ok(false);
        };
        let Some((question, displayed)) = question(gate.pending_approval(id)) else {
            return Ok(false);
        };
        let params = question.get("params").cloned().unwrap_or_default();
        let asked = session
            .ask(&request.out, &request.cancel, "elicitation/create", &params)
            .await;
        match asked {
            Some(answer) => self.decide(gate, request, (id, &displayed), &answer),
            None => Ok(false),
        }
    }

    /// Asks a legacy client all that a tool wants to know; `None` if it can not, or will not, say.
    pub(super) async fn ask_legacy(
        &self,
        request: &Request,
        requests: &Map<String, Value>,
    ) -> Option<Map<String, Value>> {
        let Era::Legacy(session) = &request.era else {
            return None;
        };
        let mut responses = Map::new();
        for (key, question) in requests {
            let method = question.get("method").and_then(Value::as_str)?;
            if !session.has(method.split('/').next()?) {
                return None;
            }
            let mut question = question.clone();
            make_visible(&mut question);
            let params = question.get("params").cloned().unwrap_or_else(|| json!({}));
            let asked = session.ask(&request.out, &request.cancel, method, &params);
            responses.insert(key.clone(), asked.await?);
        }
        Some(responses)
    }
}

/// For whom state is sealed: it is good for the same caller, tool and input.
fn whom(call: &Call) -> String {
    format!(
        "{}\n{}\n{}",
        call.caller,
        call.tool,
        call.input.digest().to_hex()
    )
}

/// What an answer to our question decides. Whoever closes it, or answers something else, has not
/// said no: it stays for somebody else to decide.
fn decision(answer: &Value) -> Option<bool> {
    match answer.get("action").and_then(Value::as_str)? {
        "accept" => answer.pointer("/content/approve")?.as_bool(),
        "decline" => Some(false),
        _ => None,
    }
}

/// True if a request brings an answer that decides nothing: its user is not asked once more.
fn was_left_open(request: &Request) -> bool {
    let responses = request.params.get("inputResponses");
    let answer = responses.and_then(|responses| responses.get(APPROVAL));
    answer.is_some_and(|answer| decision(answer).is_none())
}

/// Makes what could hide something in a tool's own question seen: its words may be a caller's.
fn make_visible(question: &mut Value) {
    if let Some(Value::String(message)) = question.pointer_mut("/params/message")
        && let Cow::Owned(shown) = visible_lines(message)
    {
        *message = shown;
    }
}

/// Asks whether a call may go on, with its whole input; the digest of what is displayed comes
/// along. `None` if nobody is to be asked by a client: the input is too long for the message, or
/// the approval is not pending any more.
fn question(approval: Result<Option<PendingApproval>, Fault>) -> Option<(Value, Digest)> {
    /// What clients show without cutting it.
    const MESSAGE_CHARS_MAX: usize = 2000;
    let approval = approval.ok()??;
    let (tool, shown) = (visible(&approval.tool), visible(&approval.shown));
    let message = format!("May `{tool}` be called with {shown}?");
    let fits = message.chars().count() <= MESSAGE_CHARS_MAX;
    fits.then(|| (question_in(&message), approval.displayed))
}

fn question_in(message: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "approve": {
                        "type": "boolean",
                        "title": "Approve",
                        "description": "Let this one call go on",
                    },
                },
                "required": ["approve"],
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G-6d: in a tool's own question too, line by line.
    #[test]
    fn questions_hide_nothing() {
        let mut question = json!({ "params": { "message": "Delete\n\u{202e}txt.exe\u{200b}?" } });
        make_visible(&mut question);
        let wanted = "Delete\n\\u202etxt.exe\\u200b?";
        assert_eq!(question["params"]["message"], wanted);
    }
}
