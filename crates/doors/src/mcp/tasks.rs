//! Calls that their client asks after instead of waiting: the tasks extension. A task lives in
//! memory, as long as its time to live after its end; the call itself is recorded like any other.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate_call::{Answers, Call, Caller, Cancel, Timestamp};
use callgate_gate::{Entry, Gate};
use callgate_wires::mcp::meta;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::calls::{Beat, ROUNDS_MAX, again};
use super::dispatch::{Given, Refusal};
use super::tools::{Told, told, told_fault_as_result};
use super::{Request, Server};

/// Tasks kept at once. At the bound calls are waited for, as if tasks were not known.
const TASKS_MAX: usize = 1024;
/// How long a task can be asked after once it has ended.
const TTL: Duration = Duration::from_secs(600);
/// How long a person may take to answer.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(3600);
/// How often to ask.
const POLL: Duration = Duration::from_millis(500);

/// All tasks of a server.
#[derive(Default)]
pub(super) struct Tasks {
    all: Mutex<HashMap<String, Arc<Task>>>,
    next: AtomicU64,
}

/// One task.
struct Task {
    id: String,
    caller: Caller,
    created: Timestamp,
    cancel: Cancel,
    state: Mutex<State>,
    /// The client answered something.
    answered: Notify,
}

struct State {
    status: Status,
    changed: Timestamp,
    /// Asked and not answered yet.
    asked: Map<String, Value>,
    answers: Map<String, Value>,
}

enum Status {
    Working,
    InputRequired,
    /// The whole result, as bytes of JSON.
    Completed(Vec<u8>),
    Failed(Value),
    Cancelled,
}

impl Status {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Failed(_) | Self::Cancelled)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Tasks {
    /// Ends every call that runs as a task.
    pub(super) fn cancel_all(&self) {
        for task in lock(&self.all).values() {
            task.cancel.cancel();
        }
    }

    /// Keeps a task; `None` at the bound.
    fn keep(
        &self,
        id: String,
        caller: Caller,
        cancel: Cancel,
        now: Timestamp,
    ) -> Option<Arc<Task>> {
        let mut all = lock(&self.all);
        if all.len() >= TASKS_MAX {
            all.retain(|_, task| {
                let state = lock(&task.state);
                !state.status.is_over() || now.since(state.changed) < TTL
            });
            if all.len() >= TASKS_MAX {
                return None;
            }
        }
        let task = Arc::new(Task {
            id: id.clone(),
            caller,
            created: now,
            cancel,
            state: Mutex::new(State {
                status: Status::Working,
                changed: now,
                asked: Map::new(),
                answers: Map::new(),
            }),
            answered: Notify::new(),
        });
        all.insert(id, Arc::clone(&task));
        Some(task)
    }

    fn find(&self, id: &str, caller: &Caller, now: Timestamp) -> Option<Arc<Task>> {
        let mut all = lock(&self.all);
        let task = all.get(id).filter(|task| task.caller == *caller)?;
        let is_old = {
            let state = lock(&task.state);
            state.status.is_over() && now.since(state.changed) >= TTL
        };
        if is_old {
            all.remove(id);
            return None;
        }
        Some(Arc::clone(task))
    }
}

impl Task {
    /// What is common to all that is told of a task.
    fn told(&self, state: &State) -> Map<String, Value> {
        let Value::Object(told) = json!({
            "taskId": self.id,
            "status": state.status.as_str(),
            "createdAt": self.created.rfc3339(),
            "lastUpdatedAt": state.changed.rfc3339(),
            "ttlMs": millis(TTL),
            "pollIntervalMs": millis(POLL),
        }) else {
            return Map::new();
        };
        told
    }

    fn set(&self, status: Status, now: Timestamp) {
        let mut state = lock(&self.state);
        if !state.status.is_over() {
            state.status = status;
            state.changed = now;
        }
    }
}

impl Server {
    /// Waits a while for a call, and then makes it a task.
    pub(super) async fn call_or_task(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        entry: &Arc<Entry>,
        call: Call,
        beat: &Arc<Beat>,
    ) -> Result<Given, Refusal> {
        // A task of its own from the start, for it may outlive its request.
        let (work_gate, work_entry) = (Arc::clone(gate), Arc::clone(entry));
        let cancel = Cancel::clone(&call.cancel);
        let mut work = self.calls.spawn(async move {
            let outcome = work_gate.call(&call).await;
            let end = told(&work_entry.tool, &call, outcome, true);
            (call, end)
        });
        let patience = tokio::time::sleep(self.settings.task_after);
        tokio::select! {
            done = &mut work => return self.ended(request, done),
            () = patience => {}
        }
        let now = self.seal.now();
        let id = format!(
            "task_{}",
            self.seal
                .nonce(self.tasks.next.fetch_add(1, Ordering::Relaxed))
        );
        // The call goes on whatever becomes of the connection: from here on only
        // `tasks/cancel` ends it.
        let kept = self
            .tasks
            .keep(id, request.peer.caller.clone(), cancel, now);
        let Some(task) = kept else {
            let done = beat.while_waiting(work).await;
            return self.ended(request, done);
        };
        let created = {
            let state = lock(&task.state);
            let mut created = task.told(&state);
            created.insert("resultType".to_owned(), "task".into());
            created
        };
        let follow = Follow {
            gate: Arc::clone(gate),
            entry: Arc::clone(entry),
            task,
            seal: self.seal.clone(),
            askable: request_capabilities(request),
            stopping: self.stopping.clone(),
        };
        self.calls.spawn(async move {
            if let Ok((call, end)) = work.await {
                follow.to_the_end(call, end).await;
            } else {
                let error = json!({ "code": -32603, "message": "the call's task ended early" });
                follow.task.set(Status::Failed(error), follow.seal.now());
            }
        });
        Ok(Given::Result(created))
    }

    fn ended(
        &self,
        request: &Request,
        done: Result<(Call, Told), tokio::task::JoinError>,
    ) -> Result<Given, Refusal> {
        match done {
            Ok((call, end)) => self.finish(request, &call, end, None),
            Err(_) => Err(callgate_wires::jsonrpc::RpcError::new(
                callgate_wires::jsonrpc::INTERNAL_ERROR,
                "the call's task ended early",
            )
            .into()),
        }
    }

    pub(super) fn task_method(&self, request: &Request) -> Result<Given, Refusal> {
        if !request.era.has_extension(meta::TASKS) {
            let required = json!({ "extensions": { meta::TASKS: {} } });
            return Err(Refusal::missing_capability(required));
        }
        let now = self.seal.now();
        let task = self
            .tasks
            .find(request.text("taskId")?, &request.peer.caller, now)
            .ok_or_else(|| Refusal::invalid("there is no such task, or it is too long ago"))?;
        match request.method.as_str() {
            "tasks/get" => Ok(detailed(&task)),
            "tasks/cancel" => {
                task.cancel.cancel();
                task.answered.notify_one();
                Ok(json!({}).into())
            }
            _ => {
                let responses = request
                    .object("inputResponses")?
                    .cloned()
                    .unwrap_or_default();
                let mut state = lock(&task.state);
                for (key, answer) in responses {
                    // Answers to what was not asked are not for us.
                    if state.asked.remove(&key).is_some() {
                        state.answers.insert(key, answer);
                    }
                }
                state.changed = now;
                drop(state);
                task.answered.notify_one();
                Ok(json!({}).into())
            }
        }
    }
}

/// What `tasks/get` tells: the task, and its result, error or questions.
fn detailed(task: &Task) -> Given {
    let state = lock(&task.state);
    let mut told = task.told(&state);
    told.insert("resultType".to_owned(), "complete".into());
    match &state.status {
        Status::Working | Status::Cancelled => {}
        Status::InputRequired => {
            told.insert(
                "inputRequests".to_owned(),
                Value::Object(state.asked.clone()),
            );
        }
        Status::Completed(result) => {
            let result = serde_json::from_slice(result).unwrap_or(Value::Null);
            told.insert("result".to_owned(), result);
        }
        Status::Failed(error) => {
            told.insert("error".to_owned(), error.clone());
        }
    }
    Given::Result(told)
}

/// A task's call, round by round, to its end.
struct Follow {
    gate: Arc<Gate>,
    entry: Arc<Entry>,
    task: Arc<Task>,
    seal: super::Seal,
    askable: BTreeMap<String, ()>,
    stopping: Cancel,
}

impl Follow {
    async fn to_the_end(&self, mut call: Call, mut end: Told) {
        let mut rounds = 0;
        loop {
            let status = match end {
                Told::Result(result) => Status::Completed(result),
                Told::Nothing => Status::Cancelled,
                Told::Error(error) => {
                    let mut object = json!({ "code": error.code, "message": error.message });
                    if let Some(data) = error.data {
                        object["data"] = data;
                    }
                    Status::Failed(object)
                }
                Told::Approve(id) => {
                    let words = callgate_call::Fault::NeedsApproval { approval: id }.to_string();
                    let result =
                        json!({ "content": [{ "type": "text", "text": words }], "isError": true });
                    Status::Completed(result.to_string().into_bytes())
                }
                Told::Ask { requests, state }
                    if rounds == ROUNDS_MAX || !self.can_ask(&requests) =>
                {
                    let fault = callgate_call::Fault::NeedsInput { requests, state };
                    Status::Completed(told_fault_as_result(&fault, &call, true))
                }
                Told::Ask { requests, state } => {
                    rounds += 1;
                    let Some(responses) = self.ask(requests).await else {
                        self.task.set(Status::Cancelled, self.seal.now());
                        return;
                    };
                    call = again(&self.gate, call, Some(Answers { responses, state }));
                    let outcome = self.gate.call(&call).await;
                    end = told(&self.entry.tool, &call, outcome, true);
                    continue;
                }
            };
            self.task.set(status, self.seal.now());
            return;
        }
    }

    fn can_ask(&self, requests: &Map<String, Value>) -> bool {
        requests.values().any(|question| self.is_askable(question))
    }

    fn is_askable(&self, question: &Value) -> bool {
        let method = question.get("method").and_then(Value::as_str);
        let needed = method.and_then(|method| method.split('/').next());
        needed.is_some_and(|needed| self.askable.contains_key(needed))
    }

    /// Waits until everything that can be asked is answered; `None` if the task is cancelled,
    /// nobody answers for long, or we stop.
    async fn ask(&self, requests: Map<String, Value>) -> Option<Map<String, Value>> {
        {
            let mut state = lock(&self.task.state);
            state.asked = requests
                .into_iter()
                .filter(|(_, question)| self.is_askable(question))
                .collect();
            state.answers = Map::new();
            state.status = Status::InputRequired;
            state.changed = self.seal.now();
        }
        let late = tokio::time::sleep(ANSWERS_WAIT_MAX);
        let mut late = std::pin::pin!(late);
        loop {
            {
                let mut state = lock(&self.task.state);
                if state.asked.is_empty() {
                    state.status = Status::Working;
                    return Some(std::mem::take(&mut state.answers));
                }
            }
            tokio::select! {
                () = self.task.answered.notified() => {}
                () = self.task.cancel.cancelled() => return None,
                () = self.stopping.cancelled() => return None,
                () = &mut late => return None,
            }
        }
    }
}

fn request_capabilities(request: &Request) -> BTreeMap<String, ()> {
    match &request.era {
        super::Era::Modern { capabilities, .. } => {
            capabilities.keys().map(|key| (key.clone(), ())).collect()
        }
        super::Era::Legacy(_) => BTreeMap::new(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
