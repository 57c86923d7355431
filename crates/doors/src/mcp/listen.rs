//! Changes, told to those who want to know: `subscriptions/listen` in the modern era, plain
//! notifications to whoever is connected in the legacy era.

use std::collections::HashSet;

use callgate_call::Change;
use callgate_wires::mcp::{
    AcknowledgedParams, ChangeParams, Extra, ListenFilter, ListenParams, SubscriptionMeta, meta,
};

use super::dispatch::{Given, Refusal};
use super::tasks::{Followed, knows_tasks};
use super::{Request, Server, Session};

/// Resources one stream may watch, and tasks it may follow.
const WATCHED_MAX: usize = 1024;

/// What one stream wants to know.
#[derive(Debug, Default)]
struct Wanted {
    tools: bool,
    prompts: bool,
    resources: bool,
    watched: HashSet<String>,
    /// Tasks, each once.
    tasks: Vec<String>,
}

fn check_count(name: &str, items: &[String]) -> Result<(), Refusal> {
    if items.len() > WATCHED_MAX {
        let words = format!("`{name}` holds at most {WATCHED_MAX}");
        return Err(Refusal::invalid(&words));
    }
    Ok(())
}

impl Wanted {
    /// Reads what a client wants to be told, and what of it we acknowledge.
    fn read(request: &Request) -> Result<(Self, ListenFilter), Refusal> {
        let params: ListenParams = request.read()?;
        let asked = params.notifications;
        let mut tasks = asked.task_ids.unwrap_or_default();
        check_count("taskIds", &tasks)?;
        if !tasks.is_empty() {
            knows_tasks(request)?;
        }
        let mut seen = HashSet::new();
        tasks.retain(|id| seen.insert(id.clone()));
        let watched = asked.resource_subscriptions.unwrap_or_default();
        check_count("resourceSubscriptions", &watched)?;
        let granted = ListenFilter {
            prompts_list_changed: asked.prompts_list_changed.filter(|on| *on),
            resource_subscriptions: (!watched.is_empty()).then(|| watched.clone()),
            resources_list_changed: asked.resources_list_changed.filter(|on| *on),
            task_ids: None,
            tools_list_changed: asked.tools_list_changed.filter(|on| *on),
            extra: Extra::new(),
        };
        let wanted = Self {
            tools: granted.tools_list_changed.is_some(),
            prompts: granted.prompts_list_changed.is_some(),
            resources: granted.resources_list_changed.is_some(),
            watched: watched.into_iter().collect(),
            tasks,
        };
        Ok((wanted, granted))
    }

    fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.tools,
            Change::Prompts => self.prompts,
            Change::Resources => self.resources,
            Change::Resource(uri) => self.watched.contains(uri),
        }
    }

    /// All that may have changed, for a stream that missed something.
    fn everything(&self) -> Vec<Change> {
        let lists = [Change::Tools, Change::Prompts, Change::Resources];
        let mut all: Vec<Change> = lists.into_iter().filter(|c| self.wants(c)).collect();
        all.extend(self.watched.iter().cloned().map(Change::Resource));
        all
    }
}

/// The notification of a change.
pub(super) fn notification(change: &Change) -> (&'static str, ChangeParams) {
    let (method, uri) = match change {
        Change::Tools => ("notifications/tools/list_changed", None),
        Change::Prompts => ("notifications/prompts/list_changed", None),
        Change::Resources => ("notifications/resources/list_changed", None),
        Change::Resource(uri) => ("notifications/resources/updated", Some(uri.clone())),
    };
    let params = ChangeParams {
        uri,
        ..ChangeParams::default()
    };
    (method, params)
}

/// What a legacy client is told of a change; all lists, if it fell behind.
pub(super) fn told(session: &Session, change: Option<Change>) -> Vec<Change> {
    let changes = match change {
        Some(change) => vec![change],
        None => vec![Change::Tools, Change::Prompts, Change::Resources],
    };
    changes
        .into_iter()
        .filter(|change| session.wants(change))
        .collect()
}

impl Session {
    /// True if this client is told of a change.
    pub(super) fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools | Change::Prompts | Change::Resources => true,
            Change::Resource(uri) => self.is_subscribed(uri),
        }
    }
}

impl Server {
    /// Tells changes until the client goes, cancels, or we stop.
    pub(super) async fn listen(&self, request: &Request) -> Result<Given, Refusal> {
        let (mut wanted, mut granted) = Wanted::read(request)?;
        let Some(gate) = self.gate() else {
            return Err(Refusal::invalid("nothing here ever changes"));
        };
        let mut changes = gate.changes().listen();
        let ids = std::mem::take(&mut wanted.tasks);
        let (caller, now) = (&request.peer.caller, self.seal.now());
        let mut tasks = Followed::new(&self.tasks, caller, ids, now);
        granted.task_ids = Some(tasks.ids()).filter(|ids| !ids.is_empty());
        // The request's id names the stream, so that a client with several can tell them apart.
        let stream = request.id.to_plain_text();
        let tag = || {
            Some(SubscriptionMeta {
                subscription: Some(stream.clone()),
                extra: Extra::new(),
            })
        };
        let acknowledged = AcknowledgedParams {
            meta: tag(),
            notifications: granted,
            extra: Extra::new(),
        };
        let out = &request.out;
        if !out
            .notify("notifications/subscriptions/acknowledged", &acknowledged)
            .await
        {
            return Ok(Given::Nothing);
        }
        loop {
            // `next` and `changed` are cancel safe: a change stays in the channel, a task's news in
            // its version. The other arms end the stream.
            let told = tokio::select! {
                change = changes.next() => match change {
                    Some(change) if wanted.wants(&change) => vec![change],
                    Some(_) => continue,
                    None => wanted.everything(),
                },
                () = tasks.changed() => {
                    while let Some(mut task) = tasks.next(self.seal.now()) {
                        let tag = (meta::SUBSCRIPTION.to_owned(), stream.as_str().into());
                        task.meta = Some(Extra::from_iter([tag]));
                        if !out.notify("notifications/tasks", &task).await {
                            return Ok(Given::Nothing);
                        }
                    }
                    continue;
                }
                () = request.cancel.cancelled() => return Ok(Given::Nothing),
                () = out.closed() => return Ok(Given::Nothing),
                () = self.stopping.cancelled() => return Ok(Given::empty(&request.era)),
            };
            for change in &told {
                let (method, mut params) = notification(change);
                params.meta = tag();
                if !out.notify(method, &params).await {
                    return Ok(Given::Nothing);
                }
            }
        }
    }
}
