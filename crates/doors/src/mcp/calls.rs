//! `tools/call`: one call through the gate, its rounds, and the moment it becomes a task.

use std::sync::Arc;

use callgate_call::{
    Answers, Call, Cancel, Document, IdempotencyKey, LeaseToken, Outcome, Sink, Tasks,
};
use callgate_gate::{FoundTool, Gate};
use callgate_wires::mcp::{CallToolParams, Params, meta};
use serde_json::{Map, Value, json};

use super::dispatch::{AtOnce, Given, Refusal};
use super::progress::Beat;
use super::relay::RelayCall;
use super::tools::{Told, told, told_unknown};
use super::{Behind, Request, Running, Server};

/// Rounds of questions one call may take.
pub(super) const ROUNDS_MAX: usize = 16;

impl Server {
    /// A call of a tool that neither waits nor speaks: it has no task of its own, and its record
    /// is made safe together with others'. `None`, and nothing has been done, if it is none.
    pub(super) fn call_at_once(&self, request: &mut Request) -> Option<AtOnce> {
        let gate = self.gate()?;
        let found = request.found.take()?;
        let answered = self.pure_call(gate, request, &found);
        request.found = Some(found);
        answered
    }

    fn pure_call(&self, gate: &Gate, request: &mut Request, found: &FoundTool) -> Option<AtOnce> {
        let tool = found.tool_within(request.peer.scope.as_deref())?;
        let waits = !tool.runner.is_pure() || tool.tasks == Tasks::Required;
        if waits || found.asks(&request.peer.caller) {
            return None;
        }
        let Params::CallTool(params) = &mut request.params else {
            return None;
        };
        let name = std::mem::take(&mut params.name);
        let arguments = params.arguments.take().unwrap_or_default();
        let mut call = self.new_call(gate, request, name, arguments);
        match self.answers(gate, request, found, &call) {
            Ok(answers) => call.answers = answers,
            Err(refusal) => return Some((Err(refusal), None)),
        }
        let Some(answer) = gate.answer_at_once(&call, found) else {
            // It waits for another call of its key, and so from here on like any other.
            if let (Params::CallTool(params), Value::Object(arguments)) =
                (&mut request.params, call.input.into_value())
            {
                params.name = call.tool;
                params.arguments = Some(arguments);
            }
            return None;
        };
        let end = told(tool, &call, answer.outcome, request.era.is_modern());
        Some((self.finish(request, found, &call, end), Some(answer.ticket)))
    }

    pub(super) async fn call_tool(&self, request: &mut Request) -> Result<Given, Refusal> {
        let params: CallToolParams = match std::mem::take(&mut request.params) {
            Params::CallTool(params) => *params,
            malformed @ Params::Other(_) => {
                request.params = malformed;
                request.read()?
            }
        };
        let arguments = params.arguments.unwrap_or_default();
        let found = request.found.take();
        let request = &*request;
        match (&self.behind, found) {
            (Behind::Relay(relay), _) => {
                let call = RelayCall {
                    name: params.name,
                    arguments,
                    meta: request.meta.ours(),
                    cancel: Cancel::clone(&request.cancel),
                };
                let result = Beat::new(request).while_waiting(relay.call(call)).await;
                if request.cancel.is_cancelled() {
                    return Ok(Given::Nothing);
                }
                Ok(Given::result(result, &request.era))
            }
            (Behind::Gate(gate), found) => {
                let found = found.unwrap_or_else(|| gate.find(&params.name));
                let call = self.new_call(gate, request, params.name, arguments);
                let scope = request.peer.scope.as_deref();
                if found.tool_within(scope).is_some() {
                    return self.call_found(gate, request, found, call).await;
                }
                // Through the gate all the same: what is refused is recorded.
                let outcome = Box::pin(gate.call_found(&call, &found)).await;
                let end = told_unknown(outcome, &call.tool, gate.doubt());
                self.finish(request, &found, &call, end)
            }
        }
    }

    async fn call_found(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        found: FoundTool,
        mut call: Call,
    ) -> Result<Given, Refusal> {
        let tasks = found.tool().map_or(Tasks::Forbidden, |tool| tool.tasks);
        let knows_tasks = request.era.has_extension(meta::TASKS);
        if tasks == Tasks::Required && !knows_tasks && request.era.is_modern() {
            let required = json!({ "extensions": { meta::TASKS: {} } });
            return Err(Refusal::missing_capability(required));
        }
        call.answers = self.answers(gate, request, &found, &call)?;
        let _running = Running::new(&self.running);
        let beat = Beat::new(request);
        call.sink = Some(Arc::clone(&beat) as Arc<dyn Sink>);
        if knows_tasks && tasks != Tasks::Forbidden {
            return Box::pin(self.call_or_task(gate, request, found, call, &beat)).await;
        }
        Box::pin(self.rounds(gate, request, found, call, &beat)).await
    }

    /// A call of this request's.
    pub(super) fn new_call(
        &self,
        gate: &Gate,
        request: &Request,
        tool: String,
        arguments: Map<String, Value>,
    ) -> Call {
        let input = Document::from_value(Value::Object(arguments));
        let peer = &request.peer;
        let (caller, cancel) = (peer.caller.clone(), Arc::clone(&request.cancel));
        let mut call = Call::new(gate.next_id(), tool, input, caller, peer.wire, cancel);
        call.scope.clone_from(&peer.scope);
        call.session.clone_from(&peer.session);
        call.key = request
            .meta
            .idempotency_key
            .as_deref()
            .and_then(IdempotencyKey::new);
        call.lease = request.meta.lease_token.as_deref().map(LeaseToken::new);
        if let Some((trace, span)) = request.meta.trace() {
            call.trace_id = Some(trace.to_owned());
            call.parent_span = Some(span.to_owned());
        }
        call
    }

    /// Calls until the tool needs no more of its caller's user. Each round is a call of its own,
    /// of the tool that is there then.
    async fn rounds(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        mut found: FoundTool,
        mut call: Call,
        beat: &Arc<Beat>,
    ) -> Result<Given, Refusal> {
        let modern = request.era.is_modern();
        for _ in 0..ROUNDS_MAX {
            let outcome = beat.while_waiting(gate.call_found(&call, &found)).await;
            let end = end_of(gate, &found, &call, outcome, modern);
            let asked = self.ask_meanwhile(gate, request, &found, call, end);
            match beat.while_waiting(asked).await? {
                Round::Next(next) => call = next,
                Round::Last(call, end) => return self.finish(request, &found, &call, end),
            }
            found = gate.find(&call.tool);
        }
        Err(Refusal::asked_too_often())
    }

    /// Asks a legacy client's user what a call needs. A modern client is asked by the call's end.
    pub(super) async fn ask_meanwhile(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        found: &FoundTool,
        call: Call,
        end: Told,
    ) -> Result<Round, Refusal> {
        match end {
            Told::Approve(id) if !request.era.is_modern() => {
                let asked = self.approve_legacy(gate, request, &call, found, &id);
                Ok(match asked.await? {
                    true => Round::Next(again(gate, call, None)),
                    false => Round::Last(call, Told::Approve(id)),
                })
            }
            Told::Ask { requests, state } if !request.era.is_modern() => {
                Ok(match self.ask_legacy(request, &requests).await {
                    Some(responses) => {
                        Round::Next(again(gate, call, Some(Answers { responses, state })))
                    }
                    None => Round::Last(call, Told::Ask { requests, state }),
                })
            }
            end => Ok(Round::Last(call, end)),
        }
    }
}

impl Server {
    /// The answers that a request brings along; most bring none.
    pub(super) fn answers(
        &self,
        gate: &Gate,
        request: &Request,
        found: &FoundTool,
        call: &Call,
    ) -> Result<Option<Answers>, Refusal> {
        if request.round.responses.is_none() && request.round.state.is_none() {
            return Ok(None);
        }
        self.answers_of_round(gate, request, found, call)
    }

    /// The result of a call for its client.
    pub(super) fn finish(
        &self,
        request: &Request,
        found: &FoundTool,
        call: &Call,
        end: Told,
    ) -> Result<Given, Refusal> {
        match end {
            Told::Result(result) => Ok(Given::Written(result)),
            Told::Error(error) => Err(error.into()),
            Told::Nothing => Ok(Given::Nothing),
            Told::Ask { requests, state } => self.ask(request, call, requests, state),
            Told::Approve(id) => Ok(self.ask_approval(request, found, call, id)),
        }
    }
}

/// The step after a round of a call.
pub(super) enum Round {
    /// The next one, with what was answered.
    Next(Call),
    /// It was the last, and ended so.
    Last(Call, Told),
}

/// The next round of a call.
pub(super) fn again(gate: &Gate, call: Call, answers: Option<Answers>) -> Call {
    Call {
        id: gate.next_id(),
        answers: answers.or(call.answers),
        ..call
    }
}

/// The end of a call in the form for its tool, which may be gone by a later round.
pub(super) fn end_of(
    gate: &Gate,
    found: &FoundTool,
    call: &Call,
    outcome: Outcome,
    modern: bool,
) -> Told {
    match found.tool_within(call.scope.as_deref()) {
        Some(tool) => told(tool, call, outcome, modern),
        None => told_unknown(outcome, &call.tool, gate.doubt()),
    }
}

#[cfg(test)]
mod tests {
    use callgate_call::Tool;
    use callgate_gate::Attempt;

    use super::super::rig;
    use super::*;

    /// The answer to a call of `tool`, which another one replaces once the call was read.
    async fn answer_over_a_reload(is_pure: bool) -> Value {
        let tool = |value: Value| Tool::new("tool", Arc::new(rig::Answers { value, is_pure }));
        let state = rig::State::new();
        let server = rig::server_with(&state, tool(json!("of the one")));
        let (request, _said) = rig::call(&server, json!({ "name": "tool" }));
        // It gives structured content, and only to clients that know tasks.
        let other = Tool {
            output_schema: Some(json!({ "type": "object" })),
            tasks: Tasks::Required,
            ..tool(json!({ "of": "the other" }))
        };
        server.gate().unwrap().replace(rig::setup_with(other));
        let mut answer = Vec::new();
        match server.attempt(request, &mut answer) {
            Attempt::Done(_) => assert!(is_pure),
            Attempt::Pending(mut request) => {
                assert!(!is_pure);
                server.answer(&mut request, &mut answer).await;
            }
        }
        serde_json::from_slice(&answer).unwrap()
    }

    /// Whether a call may wait, whether it must be a task and the form of its result are decided
    /// for the tool that runs, however late another one takes its place.
    #[tokio::test]
    async fn a_reload_does_not_mix_two_tools() {
        for is_pure in [false, true] {
            let answer = answer_over_a_reload(is_pure).await;
            let result = &answer["result"];
            let content = json!([{ "type": "text", "text": "of the one" }]);
            assert_eq!(result["content"], content, "{answer}");
            assert_eq!(result.get("structuredContent"), None);
        }
    }
}
