//! `tools/call`: one call through the gate, its rounds, its signs of life, and the moment it
//! becomes a task.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate_call::{
    Answers, Call, Cancel, Document, IdempotencyKey, LeaseToken, Log, Progress, Sink, Stream,
    Tasks, Tool,
};
use callgate_gate::{Entry, Gate};
use callgate_wires::mcp::meta;
use serde_json::{Map, Value, json};

use super::dispatch::{AtOnce, Given, Refusal};
use super::relay::RelayCall;
use super::tools::{Told, told, told_unknown};
use super::{Behind, Era, Outbox, Request, Running, Server};

/// How often a call that says nothing itself shows that it lives. Clients give up at 60 s.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Rounds of questions one call may take.
pub(super) const ROUNDS_MAX: usize = 16;

impl Server {
    /// A call of a tool that neither waits nor speaks: it has no task of its own, and its record
    /// is made safe together with others'. Nothing, and nothing has been done, if it is none.
    pub(super) fn call_at_once(&self, request: &mut Request) -> Option<AtOnce> {
        let Behind::Gate(gate) = &self.behind else {
            return None;
        };
        let name = request.params.get("name")?.as_str()?;
        let entry = Arc::clone(gate.catalog().find(name).ok()?);
        let tool = &entry.tool;
        let scope = request.peer.scope.as_deref();
        let may_know = scope.is_none_or(|scope| scope.allows(tool));
        let waits = !tool.runner.is_pure() || tool.tasks == Tasks::Required;
        if !may_know || waits || gate.asks(name, &request.peer.caller) {
            return None;
        }
        let arguments = match taken_arguments(request) {
            Ok(arguments) => arguments,
            Err(refusal) => return Some((Err(refusal), None)),
        };
        let name = request.text("name").ok()?;
        let mut call = self.new_call(gate, request, name, arguments);
        match self.answers(gate, request, &call) {
            Ok(answers) => call.answers = answers,
            Err(refusal) => return Some((Err(refusal), None)),
        }
        let Some(answer) = gate.invoke_at_once(&call, &entry) else {
            // It waits for another call of its key, and so from here on like any other.
            let arguments = call.input.into_value();
            request.params.insert("arguments".to_owned(), arguments);
            return None;
        };
        let end = told(tool, &call, answer.outcome, request.era.is_modern());
        Some((self.finish(request, &call, end), Some(answer.ticket)))
    }

    pub(super) async fn call_tool(&self, request: &mut Request) -> Result<Given, Refusal> {
        let arguments = taken_arguments(request)?;
        let request = &*request;
        match &self.behind {
            Behind::Relay(relay) => {
                let call = RelayCall {
                    name: request.text("name")?.to_owned(),
                    arguments,
                    meta: our_meta(request),
                    cancel: Cancel::clone(&request.cancel),
                };
                let result = Beat::new(request).while_waiting(relay.call(call)).await;
                if request.cancel.is_cancelled() {
                    return Ok(Given::Nothing);
                }
                Ok(Given::Result(result))
            }
            Behind::Gate(gate) => {
                let name = request.text("name")?;
                let scope = request.peer.scope.as_deref();
                let found = gate.catalog().find(name).ok().cloned();
                let call = self.new_call(gate, request, name, arguments);
                match found.filter(|entry| scope.is_none_or(|scope| scope.allows(&entry.tool))) {
                    Some(entry) => self.call_entry(gate, request, &entry, call).await,
                    // Through the gate all the same: what is refused is recorded.
                    None => {
                        let outcome = Box::pin(gate.call(&call)).await;
                        let end = told_unknown(outcome, name, gate.doubt());
                        self.finish(request, &call, end)
                    }
                }
            }
        }
    }

    async fn call_entry(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        entry: &Arc<Entry>,
        mut call: Call,
    ) -> Result<Given, Refusal> {
        let tool = &entry.tool;
        let knows_tasks = request.era.has_extension(meta::TASKS);
        if tool.tasks == Tasks::Required && !knows_tasks && request.era.is_modern() {
            let required = json!({ "extensions": { meta::TASKS: {} } });
            return Err(Refusal::missing_capability(required));
        }
        call.answers = self.answers(gate, request, &call)?;
        let _running = Running::new(&self.running);
        let beat = Beat::new(request);
        call.sink = Some(Arc::clone(&beat) as Arc<dyn Sink>);
        if knows_tasks && tool.tasks != Tasks::Forbidden {
            return Box::pin(self.call_or_task(gate, request, entry, call, &beat)).await;
        }
        Box::pin(self.rounds(gate, request, entry, call, &beat)).await
    }

    /// A call of this request's.
    pub(super) fn new_call(
        &self,
        gate: &Gate,
        request: &Request,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Call {
        let input = Document::from_value(Value::Object(arguments));
        let peer = &request.peer;
        let (caller, cancel) = (peer.caller.clone(), Arc::clone(&request.cancel));
        let mut call = Call::new(gate.next_id(), tool, input, caller, peer.wire, cancel);
        call.scope.clone_from(&peer.scope);
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

    /// Calls until the tool needs no more of its caller's user.
    async fn rounds(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        entry: &Arc<Entry>,
        mut call: Call,
        beat: &Arc<Beat>,
    ) -> Result<Given, Refusal> {
        let modern = request.era.is_modern();
        for _ in 0..ROUNDS_MAX {
            let outcome = beat.while_waiting(gate.call(&call)).await;
            let end = told(&entry.tool, &call, outcome, modern);
            let asked = self.ask_meanwhile(gate, request, &entry.tool, call, end);
            match beat.while_waiting(asked).await? {
                Round::Next(next) => call = next,
                Round::Last(call, end) => return self.finish(request, &call, end),
            }
        }
        Err(Refusal::asked_too_often())
    }

    /// Asks a legacy client's user what a call needs. A modern client is asked by the call's end.
    pub(super) async fn ask_meanwhile(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        tool: &Tool,
        call: Call,
        end: Told,
    ) -> Result<Round, Refusal> {
        match end {
            Told::Approve(id) if !request.era.is_modern() => {
                let asked = self.approve_legacy(gate, request, &call, tool, &id);
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

/// What follows a round of a call.
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

/// The arguments of a call. Taken out, not copied: nobody looks at them again.
fn taken_arguments(request: &mut Request) -> Result<Map<String, Value>, Refusal> {
    match request.params.remove("arguments") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(arguments)) => Ok(arguments),
        Some(_) => Err(Refusal::invalid("`arguments` must be an object")),
    }
}

/// Our own part of a request's `_meta`.
fn our_meta(request: &Request) -> Map<String, Value> {
    let given = request.params.get("_meta").and_then(Value::as_object);
    let ours = |key: &str| key.starts_with("callgate/") || key == "traceparent";
    given
        .into_iter()
        .flatten()
        .filter(|(key, _)| ours(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Takes what a running tool says to its client, and says something itself when it does not.
pub(super) struct Beat {
    out: Outbox,
    token: Option<Value>,
    era: Era,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// What was told last; nothing was at first.
    told: Option<f64>,
    beats: u32,
    spoke: bool,
}

impl Last {
    /// Progress must grow with each report: by next to nothing where the tool's does not.
    fn grow(&mut self, done: f64) -> f64 {
        let next = self.told.map_or(done, |told| done.max(told.next_up()));
        self.told = Some(next);
        next
    }
}

impl Beat {
    pub(super) fn new(request: &Request) -> Arc<Self> {
        Arc::new(Self {
            out: request.out.clone(),
            token: request.meta.progress_token.clone(),
            era: request.era.clone(),
            last: Mutex::default(),
        })
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits for `work`, and shows signs of life meanwhile.
    pub(super) async fn while_waiting<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(HEARTBEAT) => self.beat(),
            }
        }
    }

    /// What the tool says next still comes after it.
    fn beat(&self) {
        let Some(token) = &self.token else { return };
        let mut last = self.last();
        if std::mem::take(&mut last.spoke) {
            return;
        }
        last.beats += 1;
        let told = last.told.unwrap_or_default();
        let done = last.grow(told + 1e-9);
        let seconds = HEARTBEAT.as_secs() * u64::from(last.beats);
        let params = json!({
            "progressToken": token,
            "progress": done,
            "message": format!("still running after {seconds} s"),
        });
        self.out.offer("notifications/progress", &params);
    }
}

impl Sink for Beat {
    fn chunk(&self, _: Stream, _: &[u8]) {}

    fn progress(&self, progress: &Progress) {
        let Some(token) = &self.token else { return };
        let mut last = self.last();
        last.spoke = true;
        let done = last.grow(progress.done);
        drop(last);
        let mut params = json!({ "progressToken": token, "progress": done });
        if let Some(total) = progress.total {
            params["total"] = total.into();
        }
        if let Some(message) = &progress.message {
            params["message"] = message.as_str().into();
        }
        self.out.offer("notifications/progress", &params);
    }

    fn log(&self, log: &Log) {
        if !self.era.wants_log(log.level) {
            return;
        }
        let mut params = json!({ "level": log.level.as_str(), "data": log.data });
        if let Some(logger) = &log.logger {
            params["logger"] = logger.as_str().into();
        }
        self.out.offer("notifications/message", &params);
    }

    fn linger(&self) {
        self.out.linger();
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig;
    use super::*;

    /// What is said while a call waits so long, each with when.
    async fn said_within(params: Value, seconds: u64, speaks: &[u64]) -> Vec<(u64, Value)> {
        let (request, mut said) = rig::request(params);
        let beat = Beat::new(&request);
        let start = tokio::time::Instant::now();
        let work = async {
            for at in speaks {
                tokio::time::sleep_until(start + Duration::from_secs(*at)).await;
                beat.progress(&Progress {
                    done: *at as f64,
                    total: None,
                    message: None,
                });
            }
            tokio::time::sleep_until(start + Duration::from_secs(seconds)).await;
        };
        let mut heard = Vec::new();
        {
            let mut waiting = std::pin::pin!(beat.while_waiting(work));
            loop {
                tokio::select! {
                    biased;
                    Some(one) = said.recv() => {
                        let message = rig::message(&one);
                        assert_eq!(message["method"], "notifications/progress");
                        heard.push((start.elapsed().as_secs(), message["params"].clone()));
                    }
                    () = &mut waiting => break,
                }
            }
        }
        heard
    }

    /// A sign of life each 15 s, if its client wants progress and the tool shows none; what the
    /// tool says still comes after it and is more.
    #[tokio::test(start_paused = true)]
    async fn signs_of_life() {
        let token = || json!({ "_meta": { "progressToken": "p" } });
        let times = |heard: &[(u64, Value)]| heard.iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(said_within(token(), 14, &[]).await, []);
        let heard = said_within(token(), 61, &[]).await;
        assert_eq!(times(&heard), [15, 30, 45, 60]);
        assert_eq!(heard[1].1["message"], "still running after 30 s");
        assert_eq!(heard[1].1["progressToken"], "p");
        let heard = said_within(token(), 61, &[20, 40]).await;
        assert_eq!(
            times(&heard),
            [15, 20, 40, 60],
            "silent after what the tool said"
        );
        let done: Vec<f64> = heard
            .iter()
            .filter_map(|(_, said)| said["progress"].as_f64())
            .collect();
        assert!(done.is_sorted_by(|one, next| one < next), "{done:?}");
        assert_eq!(said_within(json!({}), 61, &[20]).await, []);
    }

    /// A call shows that it lives, whether the gate carries it out or it is passed on, and if its
    /// client wants progress only.
    #[tokio::test(start_paused = true)]
    async fn signs_of_life_of_every_call() {
        let state = rig::State::new();
        let token = json!({ "progressToken": "p" });
        let beats = ["still running after 15 s", "still running after 30 s"];
        for server in [rig::gate_server(&state), rig::server().0] {
            assert_eq!(heard_of_a_call(&server, &token).await, beats);
            assert_eq!(heard_of_a_call(&server, &json!({})).await, [""; 0]);
        }
    }

    /// What is said of a call that is taken back after 31 s.
    async fn heard_of_a_call(server: &Server, meta: &Value) -> Vec<Value> {
        let params = json!({ "name": "hangs", "_meta": meta });
        let (mut request, mut said) = rig::request(params);
        request.method = "tools/call".to_owned();
        let cancel = Arc::clone(&request.cancel);
        let taken_back = async {
            tokio::time::sleep(Duration::from_secs(31)).await;
            cancel.cancel();
        };
        let mut answer = Vec::new();
        let (answered, ()) = tokio::join!(server.answer(&mut request, &mut answer), taken_back);
        assert!(answered.silent);
        let mut heard = Vec::new();
        while let Ok(one) = said.try_recv() {
            heard.push(rig::message(&one)["params"]["message"].clone());
        }
        heard
    }

    /// Progress grows with each report, whatever the tool says of itself and however large its
    /// numbers are.
    #[tokio::test]
    async fn progress_grows() {
        let (request, mut said) = rig::request(json!({ "_meta": { "progressToken": "p" } }));
        let beat = Beat::new(&request);
        for done in [0.0, 5.0, 5.0, 3.0, 1e12] {
            beat.progress(&Progress {
                done,
                total: None,
                message: None,
            });
        }
        beat.beat(); // the tool spoke
        beat.beat();
        let mut heard = Vec::new();
        while let Ok(one) = said.try_recv() {
            heard.extend(rig::message(&one)["params"]["progress"].as_f64());
        }
        assert_eq!(heard.len(), 6);
        assert_eq!((heard[0], heard[1], heard[4]), (0.0, 5.0, 1e12));
        assert!(heard.is_sorted_by(|one, next| one < next), "{heard:?}");
    }
}
