//! Changes, told to those who want to know: `subscriptions/listen` in the modern era, plain
//! notifications to whoever is connected in the legacy era.

use std::collections::HashSet;

use callgate_call::Change;
use callgate_wires::mcp::meta;
use serde_json::{Map, Value, json};

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

/// The strings of a list that may be left out.
fn strings(asked: &Map<String, Value>, name: &str) -> Result<Vec<String>, Refusal> {
    let found: Vec<String> = match asked.get(name) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| Refusal::invalid(&format!("`{name}` holds strings")))?,
        Some(_) => return Err(Refusal::invalid(&format!("`{name}` must be a list"))),
    };
    if found.len() > WATCHED_MAX {
        return Err(Refusal::invalid(&format!(
            "`{name}` holds at most {WATCHED_MAX}"
        )));
    }
    Ok(found)
}

impl Wanted {
    fn read(request: &Request) -> Result<(Self, Map<String, Value>), Refusal> {
        let asked = request
            .object("notifications")?
            .ok_or_else(|| Refusal::invalid("`notifications` is required"))?;
        let flag = |name: &str| asked.get(name) == Some(&Value::Bool(true));
        let mut tasks = strings(asked, "taskIds")?;
        if !tasks.is_empty() {
            knows_tasks(request)?;
        }
        let mut seen = HashSet::new();
        tasks.retain(|id| seen.insert(id.clone()));
        let wanted = Self {
            tools: flag("toolsListChanged"),
            prompts: flag("promptsListChanged"),
            resources: flag("resourcesListChanged"),
            watched: strings(asked, "resourceSubscriptions")?
                .into_iter()
                .collect(),
            tasks,
        };
        let mut granted = Map::new();
        for (name, on) in [
            ("toolsListChanged", wanted.tools),
            ("promptsListChanged", wanted.prompts),
            ("resourcesListChanged", wanted.resources),
        ] {
            if on {
                granted.insert(name.to_owned(), true.into());
            }
        }
        if !wanted.watched.is_empty() {
            let list = asked.get("resourceSubscriptions").cloned();
            granted.insert("resourceSubscriptions".to_owned(), list.unwrap_or_default());
        }
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
pub(super) fn notification(change: &Change) -> (&'static str, Map<String, Value>) {
    match change {
        Change::Tools => ("notifications/tools/list_changed", Map::new()),
        Change::Prompts => ("notifications/prompts/list_changed", Map::new()),
        Change::Resources => ("notifications/resources/list_changed", Map::new()),
        Change::Resource(uri) => (
            "notifications/resources/updated",
            Map::from_iter([("uri".to_owned(), uri.as_str().into())]),
        ),
    }
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
        let ids = tasks.ids();
        if !ids.is_empty() {
            granted.insert("taskIds".to_owned(), ids.into());
        }
        // The request's id names the stream, so that a client with several can tell them apart.
        let stream: Value = serde_json::from_str(request.id.as_json()).unwrap_or_default();
        let stream = stream
            .as_str()
            .map_or_else(|| stream.to_string(), str::to_owned);
        let tagged = |mut params: Map<String, Value>| {
            params.insert("_meta".to_owned(), json!({ meta::SUBSCRIPTION: stream }));
            Value::Object(params)
        };
        let acknowledged = tagged(Map::from_iter([(
            "notifications".to_owned(),
            Value::Object(granted),
        )]));
        let out = &request.out;
        if !out
            .notify("notifications/subscriptions/acknowledged", &acknowledged)
            .await
        {
            return Ok(Given::Nothing);
        }
        loop {
            let told = tokio::select! {
                change = changes.next() => match change {
                    Some(change) if wanted.wants(&change) => vec![change],
                    Some(_) => continue,
                    None => wanted.everything(),
                },
                () = tasks.changed() => {
                    while let Some(task) = tasks.next(self.seal.now()) {
                        if !out.notify("notifications/tasks", &tagged(task)).await {
                            return Ok(Given::Nothing);
                        }
                    }
                    continue;
                }
                () = request.cancel.cancelled() => return Ok(Given::Nothing),
                () = out.closed() => return Ok(Given::Nothing),
                () = self.stopping.cancelled() => return Ok(json!({}).into()),
            };
            for change in &told {
                let (method, params) = notification(change);
                if !out.notify(method, &tagged(params)).await {
                    return Ok(Given::Nothing);
                }
            }
        }
    }
}
