//! Calls that their client asks after instead of waiting: the tasks extension. A task lives in
//! memory, as long as its time to live after its end; the call itself is recorded like any other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate_call::{Answers, Call, Caller, Cancel, Timestamp};
use callgate_gate::{FoundTool, Gate};
use callgate_wires::jsonrpc::{self, INTERNAL_ERROR, RpcError};
use callgate_wires::mcp::{
    self as wire, ClientCapabilities, Extra, InputRequest, InputRequests, RawJson, ResultType,
    TaskParams, TaskStatus, UpdateTaskParams, meta,
};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use super::calls::{ROUNDS_MAX, again, end_of};
use super::dispatch::{Given, Refusal};
use super::progress::Beat;
use super::rounds::read_questions;
use super::tools::{Told, told_fault_as_result};
use super::{Request, Server};

/// Tasks kept at once. At the bound calls are waited for, as if tasks were not known.
const TASKS_MAX: usize = 1024;
/// Bytes of results kept at once. Beyond, the oldest leave before their time.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a task can be asked after once it has ended.
const TTL: Duration = Duration::from_secs(600);
/// How long a person may take to answer.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(3600);
/// The interval at which to ask.
const POLL: Duration = Duration::from_millis(500);

/// All tasks of a server. Lock order: `all`, then the state of a task, which is a leaf.
#[derive(Default)]
pub(super) struct Tasks {
    all: Mutex<HashMap<String, Arc<Task>>>,
    next: AtomicU64,
    /// Rung when any of them has changed.
    news: watch::Sender<()>,
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
    news: watch::Sender<()>,
}

struct State {
    status: Status,
    changed: Timestamp,
    /// How often it has changed.
    version: u64,
    /// Asked and not answered yet.
    asked: InputRequests,
    answers: Map<String, Value>,
}

enum Status {
    Working,
    InputRequired,
    /// The whole result, as bytes of JSON.
    Completed(Vec<u8>),
    Failed(RawJson),
    Cancelled,
}

impl Status {
    /// As clients are told it.
    fn shown(&self) -> TaskStatus {
        match self {
            Self::Working => TaskStatus::Working,
            Self::InputRequired => TaskStatus::InputRequired,
            Self::Completed(_) => TaskStatus::Completed,
            Self::Failed(_) => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Failed(_) | Self::Cancelled)
    }

    /// What it holds. An error is short.
    fn bytes(&self) -> usize {
        match self {
            Self::Completed(result) => result.len(),
            _ => 0,
        }
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
        // A look at each costs nothing beside a call that took long enough to become a task.
        all.retain(|_, task| !task.is_old(now));
        if all.len() >= TASKS_MAX {
            return None;
        }
        let task = Arc::new(Task {
            id: id.clone(),
            caller,
            created: now,
            cancel,
            state: Mutex::new(State {
                status: Status::Working,
                changed: now,
                version: 0,
                asked: InputRequests::new(),
                answers: Map::new(),
            }),
            answered: Notify::new(),
            news: self.news.clone(),
        });
        all.insert(id, Arc::clone(&task));
        Some(task)
    }

    fn find(&self, id: &str, caller: &Caller, now: Timestamp) -> Option<Arc<Task>> {
        let mut all = lock(&self.all);
        let task = all.get(id).filter(|task| task.caller == *caller)?;
        if task.is_old(now) {
            all.remove(id);
            return None;
        }
        Some(Arc::clone(task))
    }

    /// Ends a task, and lets go of the oldest results that are more than may be kept.
    fn end(&self, task: &Task, status: Status, now: Timestamp) {
        task.set(status, now);
        let mut all = lock(&self.all);
        let mut kept: Vec<(Timestamp, usize, String)> = all
            .values()
            .filter_map(|task| {
                let state = lock(&task.state);
                let bytes = state.status.bytes();
                (bytes > 0).then(|| (state.changed, bytes, task.id.clone()))
            })
            .collect();
        let mut bytes: usize = kept.iter().map(|(_, bytes, _)| bytes).sum();
        if bytes <= KEPT_BYTES_MAX {
            return;
        }
        kept.sort();
        for (_, one, id) in kept {
            if bytes <= KEPT_BYTES_MAX || id == task.id {
                continue;
            }
            bytes -= one;
            all.remove(&id);
        }
    }
}

impl Task {
    /// What is common to all that is told of a task.
    fn told(&self, state: &State) -> wire::Task {
        wire::Task {
            meta: None,
            created_at: self.created.rfc3339(),
            error: None,
            input_requests: None,
            last_updated_at: Some(state.changed.rfc3339()),
            poll_interval_ms: Some(millis(POLL)),
            result: None,
            result_type: None,
            status: state.status.shown(),
            status_message: None,
            task_id: self.id.clone(),
            ttl_ms: Some(millis(TTL)),
            extra: Extra::new(),
        }
    }

    /// True if it ended too long ago to be asked after.
    fn is_old(&self, now: Timestamp) -> bool {
        let state = lock(&self.state);
        state.status.is_over() && now.since(state.changed) >= TTL
    }

    fn set(&self, status: Status, now: Timestamp) {
        self.change(now, |state| state.status = status);
    }

    /// Changes what has not ended yet, and rings.
    fn change(&self, now: Timestamp, change: impl FnOnce(&mut State)) {
        {
            let mut state = lock(&self.state);
            if state.status.is_over() {
                return;
            }
            change(&mut state);
            state.changed = now;
            state.version += 1;
        }
        self.news.send_replace(());
    }
}

/// The tasks that one stream is told of, each with the version it was told last. By their ids: a
/// stream keeps no result that is let go of.
pub(super) struct Followed {
    tasks: Arc<Tasks>,
    caller: Caller,
    versions: Vec<(String, Option<u64>)>,
    news: watch::Receiver<()>,
}

impl Followed {
    /// Those of the ids that are tasks of this caller's.
    pub(super) fn new(
        tasks: &Arc<Tasks>,
        caller: &Caller,
        ids: Vec<String>,
        now: Timestamp,
    ) -> Self {
        let mut followed = Self {
            tasks: Arc::clone(tasks),
            caller: caller.clone(),
            versions: ids.into_iter().map(|id| (id, None)).collect(),
            news: tasks.news.subscribe(),
        };
        followed
            .versions
            .retain(|(id, _)| tasks.find(id, caller, now).is_some());
        // As they stand, which the client may not know: a task can end before it is asked after.
        followed.news.mark_changed();
        followed
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.versions.iter().map(|(id, _)| id.clone()).collect()
    }

    /// Ready when there may be something to tell.
    pub(super) async fn changed(&mut self) {
        if self.versions.is_empty() || self.news.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The next task that is not as it was told last. Whoever reads slowly hears of the newest
    /// state alone; what has ended, or is let go of, is followed no longer.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<wire::Task> {
        let mut at = 0;
        while let Some((id, told)) = self.versions.get_mut(at) {
            let Some(task) = self.tasks.find(id, &self.caller, now) else {
                self.versions.remove(at);
                continue;
            };
            let state = lock(&task.state);
            if *told == Some(state.version) {
                at += 1;
                continue;
            }
            *told = Some(state.version);
            if state.status.is_over() {
                self.versions.remove(at);
            }
            return Some(detailed(&task, &state));
        }
        None
    }
}

impl Server {
    /// Waits a while for a call, and then makes it a task.
    pub(super) async fn call_or_task(
        &self,
        gate: &Arc<Gate>,
        request: &Request,
        found: FoundTool,
        call: Call,
        beat: &Arc<Beat>,
    ) -> Result<Given, Refusal> {
        // A task of its own from the start, for it may outlive its request.
        let (work_gate, work_found) = (Arc::clone(gate), found.clone());
        let cancel = Cancel::clone(&call.cancel);
        let mut work = self.calls.spawn(async move {
            let outcome = work_gate.call_found(&call, &work_found).await;
            let end = end_of(&work_gate, &work_found, &call, outcome, true);
            (call, end)
        });
        let patience = tokio::time::sleep(self.settings.task_after);
        // The handle is borrowed: a call that takes longer goes on as a task.
        tokio::select! {
            done = &mut work => return self.ended(request, &found, done),
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
            return self.ended(request, &found, done);
        };
        let created = {
            let state = lock(&task.state);
            wire::Task {
                result_type: Some(ResultType::Task),
                ..task.told(&state)
            }
        };
        let follow = Follow {
            gate: Arc::clone(gate),
            tasks: Arc::clone(&self.tasks),
            task,
            seal: self.seal.clone(),
            askable: askable(request),
            stopping: self.stopping.clone(),
        };
        self.calls.spawn(async move {
            if let Ok((call, end)) = work.await {
                follow.to_the_end(call, end).await;
            } else {
                follow.end(failed(&lost()));
            }
        });
        Ok(Given::of(&created))
    }

    fn ended(
        &self,
        request: &Request,
        found: &FoundTool,
        done: Result<(Call, Told), tokio::task::JoinError>,
    ) -> Result<Given, Refusal> {
        match done {
            Ok((call, end)) => self.finish(request, found, &call, end),
            Err(_) => Err(lost().into()),
        }
    }

    pub(super) fn task_method(&self, request: &Request) -> Result<Given, Refusal> {
        knows_tasks(request)?;
        let now = self.seal.now();
        let find = |id: &str| {
            let found = self.tasks.find(id, &request.peer.caller, now);
            found.ok_or_else(|| Refusal::invalid("there is no such task, or it is too long ago"))
        };
        if request.method == "tasks/update" {
            let params: UpdateTaskParams = request.read()?;
            let task = find(&params.task_id)?;
            task.change(now, |state| {
                for (key, answer) in params.input_responses.unwrap_or_default() {
                    // Answers to what was not asked are not for us.
                    if state.asked.remove(&key).is_some() {
                        state.answers.insert(key, answer);
                    }
                }
            });
            task.answered.notify_one();
            return Ok(Given::empty(&request.era));
        }
        let params: TaskParams = request.read()?;
        let task = find(&params.task_id)?;
        if request.method == "tasks/cancel" {
            task.cancel.cancel();
            task.answered.notify_one();
            return Ok(Given::empty(&request.era));
        }
        let told = detailed(&task, &lock(&task.state));
        Ok(Given::of(&wire::Task {
            result_type: request.era.complete(),
            ..told
        }))
    }
}

/// The error of a call whose task ended without an outcome.
fn lost() -> RpcError {
    RpcError::new(INTERNAL_ERROR, "the call's task ended early")
}

/// The status of a task that ended with an error of the protocol.
fn failed(error: &RpcError) -> Status {
    let mut written = Vec::new();
    jsonrpc::write_error_object(error, &mut written);
    Status::Failed(raw(&written))
}

/// JSON of our own.
fn raw(written: &[u8]) -> RawJson {
    let text = String::from_utf8_lossy(written).into_owned();
    RawJson::from_text(text).unwrap_or_else(|| RawJson::of(&()))
}

/// Tasks are for clients that say they know them.
pub(super) fn knows_tasks(request: &Request) -> Result<(), Refusal> {
    if request.era.has_extension(meta::TASKS) {
        return Ok(());
    }
    let required = json!({ "extensions": { meta::TASKS: {} } });
    Err(Refusal::missing_capability(required))
}

/// What `tasks/get` and notifications tell: the task, and its result, error or questions.
fn detailed(task: &Task, state: &State) -> wire::Task {
    let mut told = task.told(state);
    match &state.status {
        Status::Working | Status::Cancelled => {}
        Status::InputRequired => told.input_requests = Some(state.asked.clone()),
        Status::Completed(result) => told.result = Some(raw(result)),
        Status::Failed(error) => told.error = Some(error.clone()),
    }
    told
}

/// A task's call, round by round, to its end.
struct Follow {
    gate: Arc<Gate>,
    tasks: Arc<Tasks>,
    task: Arc<Task>,
    seal: super::Seal,
    /// What its client can be asked for.
    askable: Box<ClientCapabilities>,
    stopping: Cancel,
}

impl Follow {
    async fn to_the_end(&self, mut call: Call, mut end: Told) {
        let mut rounds = 0;
        loop {
            let status = match end {
                Told::Result(result) => Status::Completed(result),
                Told::Nothing => Status::Cancelled,
                Told::Error(error) => failed(&error),
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
                    let requests = read_questions(&requests).unwrap_or_default();
                    let Some(responses) = self.ask(requests).await else {
                        return self.end(Status::Cancelled);
                    };
                    call = again(&self.gate, call, Some(Answers { responses, state }));
                    let found = self.gate.find(&call.tool);
                    let outcome = self.gate.call_found(&call, &found).await;
                    end = end_of(&self.gate, &found, &call, outcome, true);
                    continue;
                }
            };
            return self.end(status);
        }
    }

    fn end(&self, status: Status) {
        self.tasks.end(&self.task, status, self.seal.now());
    }

    fn can_ask(&self, requests: &Map<String, Value>) -> bool {
        let questions = read_questions(requests).unwrap_or_default();
        questions.values().any(|question| self.is_askable(question))
    }

    fn is_askable(&self, question: &InputRequest) -> bool {
        self.askable.has(question.capability())
    }

    /// Waits until everything that can be asked is answered; `None` if the task is cancelled,
    /// nobody answers for long, or we stop.
    async fn ask(&self, requests: InputRequests) -> Option<Map<String, Value>> {
        self.task.change(self.seal.now(), |state| {
            state.asked = requests
                .into_iter()
                .filter(|(_, question)| self.is_askable(question))
                .collect();
            state.answers = Map::new();
            state.status = Status::InputRequired;
        });
        let late = tokio::time::sleep(ANSWERS_WAIT_MAX);
        let mut late = std::pin::pin!(late);
        loop {
            let mut answers = None;
            if lock(&self.task.state).asked.is_empty() {
                self.task.change(self.seal.now(), |state| {
                    state.status = Status::Working;
                    answers = Some(std::mem::take(&mut state.answers));
                });
                return answers;
            }
            // An answer that comes between the look and the wait is not missed: `notify_one` keeps
            // a permit for the next `notified`.
            tokio::select! {
                () = self.task.answered.notified() => {}
                () = self.task.cancel.cancelled() => return None,
                () = self.stopping.cancelled() => return None,
                () = &mut late => return None,
            }
        }
    }
}

fn askable(request: &Request) -> Box<ClientCapabilities> {
    match &request.era {
        super::Era::Modern { capabilities, .. } => capabilities.clone(),
        super::Era::Legacy(_) => Box::default(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn later(duration: Duration) -> Timestamp {
        NOW.plus(duration)
    }

    fn keep(tasks: &Tasks, id: impl ToString, now: Timestamp) -> Option<Arc<Task>> {
        tasks.keep(id.to_string(), Caller::uid(0), Cancel::new(), now)
    }

    fn count(tasks: &Tasks) -> usize {
        lock(&tasks.all).len()
    }

    /// At the bound calls are waited for; one that is old makes room.
    #[test]
    fn tasks_are_bounded() {
        let tasks = Tasks::default();
        for id in 0..TASKS_MAX {
            assert!(keep(&tasks, id, NOW).is_some(), "{id}");
        }
        assert!(keep(&tasks, "more", NOW).is_none());
        let caller = Caller::uid(0);
        let task = tasks.find("7", &caller, NOW).unwrap();
        tasks.end(&task, Status::Cancelled, NOW);
        let just = TTL.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(keep(&tasks, "more", later(just)).is_none());
        assert!(keep(&tasks, "more", later(TTL)).is_some());
        assert_eq!(count(&tasks), TASKS_MAX);
    }

    /// What ended is let go of in time, whether or not there are many.
    #[test]
    fn old_tasks_leave_with_the_next_new_one() {
        let tasks = Tasks::default();
        for id in 0..10 {
            let task = keep(&tasks, id, NOW).unwrap();
            if id > 0 {
                tasks.end(&task, Status::Completed(b"{}".to_vec()), NOW);
            }
        }
        keep(&tasks, "new", later(TTL / 2)).unwrap();
        assert_eq!(count(&tasks), 11);
        keep(&tasks, "newer", later(TTL)).unwrap();
        assert_eq!(count(&tasks), 3, "those that run, however long");
    }

    /// Results are bounded by their bytes: the oldest leave first, the newest stays in any case.
    #[test]
    fn results_are_bounded() {
        let tasks = Tasks::default();
        let caller = Caller::uid(0);
        let known = |id: &str| tasks.find(id, &caller, NOW).is_some();
        let end = |id: &str, bytes: usize, ms: u64| {
            let task = keep(&tasks, id, NOW).unwrap();
            let at = later(Duration::from_millis(ms));
            tasks.end(&task, Status::Completed(vec![b'x'; bytes]), at);
        };
        keep(&tasks, "runs", NOW).unwrap();
        end("second", KEPT_BYTES_MAX / 2, 2);
        end("first", KEPT_BYTES_MAX / 2, 1);
        assert!(known("first") && known("second"));
        end("third", 1, 3);
        assert!(!known("first") && known("second") && known("third"));
        end("huge", KEPT_BYTES_MAX + 1, 4);
        assert!(!known("second") && !known("third") && known("huge") && known("runs"));
    }
    /// A stream is told how a task stands and then of each change, the newest alone if it is
    /// slow; what ended or is gone it hears of no more, and of others' tasks never.
    #[tokio::test]
    async fn streams_follow_tasks() {
        let tasks = Arc::new(Tasks::default());
        let caller = Caller::uid(0);
        for id in ["a", "b", "c"] {
            keep(&tasks, id, NOW).unwrap();
        }
        let other = tasks.keep("d".to_owned(), Caller::uid(1), Cancel::new(), NOW);
        let wanted = ["b", "a", "c", "d", "e"].map(str::to_owned).to_vec();
        let mut followed = Followed::new(&tasks, &caller, wanted, NOW);
        assert_eq!(followed.ids(), ["b", "a", "c"]);
        let told = |followed: &mut Followed, now| {
            let all = std::iter::from_fn(|| followed.next(now));
            all.map(|task| format!("{} {}", task.task_id, task.status.as_str()))
                .collect::<Vec<_>>()
        };
        followed.changed().await;
        assert_eq!(
            told(&mut followed, NOW),
            ["b working", "a working", "c working"]
        );
        let silent = |followed: &mut Followed| {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            std::pin::pin!(followed.changed())
                .poll(&mut context)
                .is_pending()
        };
        assert!(silent(&mut followed), "nothing has changed");

        let find = |id: &str| tasks.find(id, &caller, NOW).unwrap();
        find("a").set(Status::InputRequired, NOW);
        find("a").set(Status::Working, NOW);
        find("b").set(Status::InputRequired, NOW);
        other.unwrap().set(Status::InputRequired, NOW);
        followed.changed().await;
        assert_eq!(told(&mut followed, NOW), ["b input_required", "a working"]);

        tasks.end(&find("a"), Status::Completed(b"{}".to_vec()), NOW);
        tasks.end(&find("c"), Status::Cancelled, NOW);
        find("c").set(Status::Working, later(TTL));
        followed.changed().await;
        let late = later(TTL / 2);
        assert_eq!(told(&mut followed, late), ["a completed", "c cancelled"]);
        assert_eq!(followed.ids(), ["b"]);
        tasks.end(&find("b"), Status::Cancelled, NOW);
        assert_eq!(told(&mut followed, later(TTL)), [""; 0], "let go of");
        assert_eq!(followed.ids().len(), 0);
        assert!(silent(&mut followed), "there is nothing left to follow");
    }
}
