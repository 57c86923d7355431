//! Questions to the caller's user. A tool asks by `NeedsInput`, policy by `NeedsApproval`; a
//! modern client gets an `input_required` result and calls again with the answers, a legacy
//! client gets requests of ours. What the client keeps for us in between is sealed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Answers, Call, Digest, Fault, visible, visible_lines};
use callgate_gate::{FoundTool, Gate, PendingApproval};
use callgate_wires::json;
use callgate_wires::jsonrpc::{INTERNAL_ERROR, RpcError};
use callgate_wires::mcp::{
    self, ElicitAction, ElicitResult, Extra, InputRequest, InputRequests, InputRequiredResult,
    QuestionParams, RawJson, ResultType,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::dispatch::{Given, Refusal};
use super::request::RoundParams;
use super::tools::told_fault_as_result;
use super::{Era, Request, Server};

/// How long a person may think.
const STATE_LIFE: Duration = Duration::from_secs(3600);

/// The name of our own question.
const APPROVAL: &str = "callgate_approval";

/// What a client keeps for us between two rounds, sealed.
#[derive(Default, Serialize, Deserialize)]
struct SealedRound {
    /// What was answered to the tool's questions before a person was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<Map<String, Value>>,
    /// The approval that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<String>,
    /// The digest of what was displayed of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    displayed: Option<String>,
    /// What the tool wants to be reminded of: any JSON.
    #[serde(
        default,
        deserialize_with = "mcp::present",
        skip_serializing_if = "Option::is_none"
    )]
    tool: Option<Value>,
}

/// The fields of our own question.
#[derive(Deserialize)]
struct ApprovalAnswer {
    approve: bool,
}

impl Server {
    /// The answers a modern request brings along. State that is not ours, or was not given for
    /// this call, is refused; an answer to our own question is taken here.
    pub(super) fn answers_of_round(
        &self,
        gate: &Gate,
        request: &Request,
        found: &FoundTool,
        call: &Call,
    ) -> Result<Option<Answers>, Refusal> {
        let RoundParams { responses, state } = &request.round;
        let state = match state {
            None => SealedRound::default(),
            Some(sealed) => self.seal.open(&whom(call), sealed).map_err(|_| {
                Refusal::invalid("`requestState` is not ours, not of this call, or too old")
            })?,
        };
        let SealedRound {
            answered,
            approval,
            displayed,
            tool: state,
        } = state;
        // What was answered before a person was asked.
        let mut all = answered.unwrap_or_default();
        let Some(responses) = responses else {
            let says_nothing = state.is_none() && all.is_empty();
            return Ok((!says_nothing).then_some(Answers {
                responses: all,
                state,
            }));
        };
        all.extend(responses.clone());
        let mut responses = all;
        if let (Some(id), Some(displayed), Some(answer)) = (
            approval,
            displayed.as_deref().and_then(Digest::from_hex),
            responses.remove(APPROVAL),
        ) {
            // Asked again, since what may be asked can have changed meanwhile.
            if found.may_client_approve(&call.caller) {
                self.decide(gate, request, (&id, &displayed), &answer)?;
            }
        }
        Ok(Some(Answers { responses, state }))
    }

    /// What a modern client is asked for a tool, or an older one is told.
    pub(super) fn ask(
        &self,
        request: &Request,
        call: &Call,
        requests: Map<String, Value>,
        state: Option<Value>,
    ) -> Result<Given, Refusal> {
        if !request.era.is_modern() {
            let fault = Fault::NeedsInput { requests, state };
            let result = told_fault_as_result(&fault, call, false);
            return Ok(Given::Written(result));
        }
        let (asked, missing) = self.askable(request, requests)?;
        if asked.is_empty() && !missing.is_empty() {
            return Err(Refusal::missing_capability(Value::Object(missing)));
        }
        let state = state.map(|state| SealedRound {
            tool: Some(state),
            ..SealedRound::default()
        });
        Ok(self.input_required(call, asked, state.as_ref()))
    }

    /// Asks the user of a modern client for approval, where that may be, or says who may be asked.
    pub(super) fn ask_approval(
        &self,
        request: &Request,
        found: &FoundTool,
        call: &Call,
        id: String,
    ) -> Given {
        let may = found.may_client_approve(&call.caller);
        let may = may && request.era.has("elicitation") && !was_left_open(request);
        let question = match (self.gate(), request.era.is_modern() && may) {
            (Some(gate), true) => question(gate.pending_approval(&id)),
            _ => None,
        };
        let Some((question, displayed)) = question else {
            let fault = Fault::NeedsApproval { approval: id };
            let result = told_fault_as_result(&fault, call, request.era.is_modern());
            return Given::Written(result);
        };
        let asked = InputRequests::from([(APPROVAL.to_owned(), question)]);
        let answers = call.answers.clone();
        let state = SealedRound {
            approval: Some(id),
            displayed: Some(displayed.to_hex()),
            answered: answers.as_ref().map(|answers| answers.responses.clone()),
            tool: answers.and_then(|answers| answers.state),
        };
        self.input_required(call, asked, Some(&state))
    }

    fn input_required(
        &self,
        call: &Call,
        asked: InputRequests,
        state: Option<&SealedRound>,
    ) -> Given {
        let state = state.map(|state| self.seal.close(&whom(call), state, STATE_LIFE));
        let mut result = Vec::new();
        let asks = InputRequiredResult {
            meta: None,
            input_requests: Some(asked),
            request_state: state,
            result_type: ResultType::InputRequired,
            extra: Extra::new(),
        };
        json::write(&asks, &mut result);
        Given::Question(result)
    }

    /// The questions a client can answer, and the capabilities the others would need.
    pub(super) fn askable(
        &self,
        request: &Request,
        requests: Map<String, Value>,
    ) -> Result<(InputRequests, Map<String, Value>), Refusal> {
        let (mut asked, mut missing) = (InputRequests::new(), Map::new());
        for (key, question) in read_questions(&requests)? {
            if request.era.has(question.capability()) {
                asked.insert(key, question);
            } else {
                missing.insert(question.capability().to_owned(), json!({}));
            }
        }
        Ok((asked, missing))
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
        found: &FoundTool,
        id: &str,
    ) -> Result<bool, Refusal> {
        if !found.may_client_approve(&call.caller) || !request.era.has("elicitation") {
            return Ok(false);
        }
        let Era::Legacy(session) = &request.era else {
            return Ok(false);
        };
        let Some((question, displayed)) = question(gate.pending_approval(id)) else {
            return Ok(false);
        };
        let asked = session.ask(&request.out, &request.cancel, &question);
        match asked.await {
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
        for (key, question) in read_questions(requests).ok()? {
            if !session.has(question.capability()) {
                return None;
            }
            let asked = session.ask(&request.out, &request.cancel, &question);
            responses.insert(key, asked.await?);
        }
        Some(responses)
    }
}

/// The questions of a tool, with what could hide something in them made visible.
pub(super) fn read_questions(requests: &Map<String, Value>) -> Result<InputRequests, Refusal> {
    let read = |(key, question): (&String, &Value)| {
        let mut question: InputRequest = mcp::read(question).map_err(|error| {
            let words = format!("the tool's question `{key}` can not be asked: {error}");
            Refusal::from(RpcError::new(INTERNAL_ERROR, words))
        })?;
        make_visible(&mut question);
        Ok((key.clone(), question))
    };
    requests.iter().map(read).collect()
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
    let answer: ElicitResult<RawJson> = mcp::read(answer).ok()?;
    match answer.action {
        ElicitAction::Accept => {
            let fields: ApprovalAnswer = serde_json::from_str(answer.content?.get()).ok()?;
            Some(fields.approve)
        }
        ElicitAction::Decline => Some(false),
        _ => None,
    }
}

/// True if a request brings an answer that decides nothing: its user is not asked once more.
fn was_left_open(request: &Request) -> bool {
    let responses = request.round.responses.as_ref();
    let answer = responses.and_then(|responses| responses.get(APPROVAL));
    answer.is_some_and(|answer| decision(answer).is_none())
}

/// Makes what could hide something in a tool's own question seen: its words may be a caller's.
fn make_visible(question: &mut InputRequest) {
    let params = question.params.as_mut();
    if let Some(message) = params.and_then(|params| params.message.as_mut())
        && let Cow::Owned(shown) = visible_lines(message)
    {
        *message = shown;
    }
}

/// Asks whether a call may go on, with its whole input; the digest of what is displayed comes
/// along. `None` if nobody is to be asked by a client: the input is too long for the message, or
/// the approval is not pending any more.
fn question(approval: Result<Option<PendingApproval>, Fault>) -> Option<(InputRequest, Digest)> {
    /// What clients show without cutting it.
    const MESSAGE_CHARS_MAX: usize = 2000;
    let approval = approval.ok()??;
    let (tool, shown) = (visible(&approval.tool), visible(&approval.shown));
    let message = format!("May `{tool}` be called with {shown}?");
    let fits = message.chars().count() <= MESSAGE_CHARS_MAX;
    fits.then(|| (question_in(message), approval.displayed))
}

fn question_in(message: String) -> InputRequest {
    let form = json!({
        "mode": "form",
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
    });
    InputRequest {
        method: "elicitation/create".to_owned(),
        params: Some(QuestionParams {
            message: Some(message),
            extra: form.as_object().cloned().unwrap_or_default(),
        }),
        extra: Extra::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G-6d: in a tool's own question too, line by line.
    #[test]
    fn questions_hide_nothing() {
        let mut question = question_in("Delete\n\u{202e}txt.exe\u{200b}?".to_owned());
        make_visible(&mut question);
        let wanted = "Delete\n\\u202etxt.exe\\u200b?";
        assert_eq!(question.params.unwrap().message.unwrap(), wanted);
    }
}
