//! One request to its method, in its era, and the refusals that need no method.

use std::sync::atomic::Ordering;
use std::time::Duration;

use callgate_call::{Fault, LogLevel, idle_only_words};
use callgate_gate::{Attempt, Ticket};
use callgate_wires::json;
use callgate_wires::jsonrpc::{
    self, INTERNAL_ERROR, INVALID_REQUEST, Id, METHOD_NOT_FOUND, RpcError,
};
use callgate_wires::mcp::{
    self as wire, DiscoverMeta, DiscoverResult, EmptyResult, Extra, Implementation,
    InitializeParams, InitializeResult, ListCapability, ListParams, ServerCapabilities,
    SetLevelParams, SubscribeParams, VERSIONS, meta, negotiate,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Era, Request, Server};

/// A request that is not carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub error: RpcError,
    /// The HTTP status in the modern era.
    pub status: u16,
}

impl Refusal {
    pub fn invalid(message: &str) -> Self {
        Self::with_status(wire::invalid(message), 200)
    }

    pub fn with_status(error: RpcError, status: u16) -> Self {
        Self { error, status }
    }

    fn unknown_method(method: &str) -> Self {
        let error = RpcError::new(METHOD_NOT_FOUND, format!("there is no method {method:?}"));
        Self::with_status(error, 404)
    }

    pub fn asked_too_often() -> Self {
        Self::invalid("the tool asked too often")
    }

    pub fn missing_capability(required: Value) -> Self {
        Self::with_status(wire::missing_capability(required), 400)
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self { error, status: 200 }
    }
}

/// How a request was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The id of the request.
    pub id: Id,
    /// The HTTP status: in the legacy era always 200.
    pub status: u16,
    /// What must be safe before the answer is told.
    pub ticket: Option<Ticket>,
    /// True if there is nothing to tell: the client took the request back.
    pub silent: bool,
}

/// What a method gives.
pub(super) enum Given {
    /// A whole result, as JSON.
    Written(Vec<u8>),
    /// A result that asks, as JSON.
    Question(Vec<u8>),
    /// Nothing: the client took the request back.
    Nothing,
}

impl Given {
    /// A result.
    pub fn of<T: Serialize>(result: &T) -> Self {
        let mut written = Vec::new();
        json::write(result, &mut written);
        Self::Written(written)
    }

    /// A result that says no more than that it is one.
    pub fn empty(era: &Era) -> Self {
        Self::of(&EmptyResult {
            meta: None,
            result_type: era.complete(),
            extra: Extra::new(),
        })
    }

    /// The result of a call that was passed on. It says that it is whole if nobody has said so.
    pub fn result(mut result: Map<String, Value>, era: &Era) -> Self {
        if let Some(complete) = era.complete() {
            let complete = Value::String(complete.into());
            result.entry("resultType").or_insert(complete);
        }
        Self::of(&result)
    }
}

/// What a request comes to, and what must be safe before that is told.
pub(super) type AtOnce = (Result<Given, Refusal>, Option<Ticket>);

impl Server {
    /// Answers one request that had no answer at once: the whole message is appended to `out`,
    /// and whatever it rests on is safe.
    pub(crate) async fn answer(&self, request: &mut Request, out: &mut Vec<u8>) -> Answered {
        // Boxed: what waits has room of its own, and others need none for it.
        let given = Box::pin(self.given(request)).await;
        written(
            request.id.clone(),
            request.era.is_modern(),
            (given, None),
            out,
        )
    }

    /// Answers one request if nothing has to be waited for, like [`Server::answer`].
    pub(crate) fn attempt(
        &self,
        mut request: Request,
        out: &mut Vec<u8>,
    ) -> Attempt<Answered, Request> {
        match self.given_at_once(&mut request) {
            Some(given) => {
                let is_modern = request.era.is_modern();
                Attempt::Done(written(request.id, is_modern, given, out))
            }
            None => Attempt::Pending(request),
        }
    }

    /// What `given` is for, and calls that wait, come to nothing here.
    fn given_at_once(&self, request: &mut Request) -> Option<AtOnce> {
        match request.method.as_str() {
            "tools/call" => return self.call_at_once(request),
            "resources/read" | "prompts/get" => return None,
            "subscriptions/listen" if request.era.is_modern() => return None,
            _ => {}
        }
        let own = match &request.era {
            Era::Modern { .. } => self.modern(request),
            Era::Legacy(session) => self.legacy(request, session),
        };
        let given = own.or_else(|| self.common(request));
        let unknown = || Err(Refusal::unknown_method(&request.method));
        Some((given.unwrap_or_else(unknown), None))
    }

    /// The methods that may wait for long. What is rare and large is boxed here and further in.
    async fn given(&self, request: &mut Request) -> Result<Given, Refusal> {
        match request.method.as_str() {
            "tools/call" => self.call_tool(request).await,
            "resources/read" => Box::pin(self.read_resource(request)).await,
            "prompts/get" => Box::pin(self.get_prompt(request)).await,
            "subscriptions/listen" => Box::pin(self.listen(request)).await,
            other => Err(Refusal::unknown_method(other)),
        }
    }

    /// The methods of the modern era alone.
    fn modern(&self, request: &Request) -> Option<Result<Given, Refusal>> {
        Some(match request.method.as_str() {
            "server/discover" => Ok(self.discover(request)),
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.task_method(request),
            _ => return None,
        })
    }

    /// The methods of the legacy era alone.
    fn legacy(
        &self,
        request: &Request,
        session: &super::Session,
    ) -> Option<Result<Given, Refusal>> {
        Some(match request.method.as_str() {
            "initialize" => self.initialize(request, session),
            "ping" => Ok(Given::empty(&request.era)),
            "logging/setLevel" => set_level(request, session),
            "resources/subscribe" => subscribe(request, session),
            "resources/unsubscribe" => unsubscribe(request, session),
            _ => return None,
        })
    }

    /// The methods both eras have.
    fn common(&self, request: &Request) -> Option<Result<Given, Refusal>> {
        Some(match request.method.as_str() {
            "tools/list" => self.list_tools(request),
            "resources/list" => self.list_resources(request),
            "resources/templates/list" => self.list_templates(request),
            "prompts/list" => self.list_prompts(request),
            "completion/complete" => self.complete(request),
            _ => return None,
        })
    }

    fn initialize(&self, request: &Request, session: &super::Session) -> Result<Given, Refusal> {
        let params: InitializeParams = request.read()?;
        if session.begun.load(Ordering::Relaxed) {
            let error = RpcError::new(INVALID_REQUEST, "this session is initialized already");
            return Err(Refusal::with_status(error, 400));
        }
        let version = negotiate(&params.protocol_version);
        session.begin(version, params.capabilities.unwrap_or_default());
        Ok(Given::of(&InitializeResult {
            meta: None,
            capabilities: self.capabilities(false),
            instructions: self.instructions(request),
            protocol_version: version.to_owned(),
            server_info: self.identity(),
            extra: Extra::new(),
        }))
    }

    fn discover(&self, request: &Request) -> Given {
        Given::of(&DiscoverResult {
            meta: Some(DiscoverMeta {
                server: Some(self.identity()),
                extra: Extra::new(),
            }),
            cache_scope: request.era.cache_scope(),
            capabilities: self.capabilities(true),
            instructions: self.instructions(request),
            result_type: request.era.complete(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
            ttl_ms: request.era.cache_ttl_ms(),
            extra: Extra::new(),
        })
    }

    /// Words for the model and its user: those of the settings, why tools that the workspace names
    /// may be missing, and patterns of the client that fit no tool.
    fn instructions(&self, request: &Request) -> Option<String> {
        let doubt = self.gate().and_then(|gate| gate.doubt());
        let words = [
            self.settings.instructions.clone(),
            doubt,
            self.idle_words(request),
        ];
        words
            .into_iter()
            .flatten()
            .reduce(|a, b| format!("{a}\n\n{b}"))
    }

    fn idle_words(&self, request: &Request) -> Option<String> {
        let scope = request.peer.scope.as_ref().filter(|scope| scope.is_only)?;
        let catalog = self.gate()?.catalog();
        let idle = catalog.idle_patterns(&scope.tools);
        let words: Vec<String> = idle.into_iter().map(idle_only_words).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    fn capabilities(&self, modern: bool) -> ServerCapabilities {
        let changing = |list_changed, subscribe| {
            Some(ListCapability {
                list_changed: Some(list_changed),
                subscribe,
                extra: Extra::new(),
            })
        };
        if self.gate().is_none() {
            return ServerCapabilities {
                tools: changing(false, None),
                ..ServerCapabilities::default()
            };
        }
        let tasks = || Extra::from_iter([(meta::TASKS.to_owned(), json!({}))]);
        ServerCapabilities {
            completions: Some(Extra::new()),
            extensions: modern.then(tasks),
            logging: Some(Extra::new()),
            prompts: changing(true, None),
            resources: changing(true, Some(true)),
            tools: changing(true, None),
            ..ServerCapabilities::default()
        }
    }

    fn identity(&self) -> Implementation {
        Implementation {
            name: self.settings.name.clone(),
            title: Some("Callgate".to_owned()),
            version: self.settings.version.clone(),
            ..Implementation::default()
        }
    }

    /// A page of a list, as the request's cursor says. `name` is that of the list.
    pub(super) fn page<T>(
        &self,
        request: &Request,
        name: &str,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Page<T>, Refusal> {
        let params: ListParams = request.read()?;
        let start = match params.cursor {
            None => 0,
            Some(cursor) => {
                let opened: Result<usize, _> = self.seal.open(name, &cursor);
                opened.map_err(|_| Refusal::invalid("`cursor` is not one of ours"))?
            }
        };
        let mut rest = items.into_iter().skip(start);
        let items: Vec<T> = rest.by_ref().take(PAGE_ITEMS).collect();
        let next = rest.next().map(|_| start.saturating_add(PAGE_ITEMS));
        let next_cursor = next.map(|next| self.seal.close(name, &next, CURSOR_LIFE));
        Ok(Page { items, next_cursor })
    }
}

/// One page of a list.
#[derive(Debug, PartialEq)]
pub(super) struct Page<T> {
    pub items: Vec<T>,
    /// Where the next one begins.
    pub next_cursor: Option<String>,
}

/// How long a cursor is good.
const CURSOR_LIFE: Duration = Duration::from_secs(3600);
/// Items of a page. Hosts show all pages at once, so this bounds messages only.
const PAGE_ITEMS: usize = 200;

/// Appends the message that tells what a request came to.
fn written(id: Id, is_modern: bool, (given, ticket): AtOnce, out: &mut Vec<u8>) -> Answered {
    let mut answered = Answered {
        id,
        status: 200,
        ticket,
        silent: false,
    };
    match given {
        Ok(Given::Written(result) | Given::Question(result)) => {
            out.reserve(result.len() + 64);
            jsonrpc::open_result(&answered.id, out);
            out.extend_from_slice(&result);
            out.push(b'}');
        }
        Ok(Given::Nothing) => answered.silent = true,
        Err(refusal) => {
            jsonrpc::write_error(Some(&answered.id), &refusal.error, out);
            if is_modern {
                answered.status = refusal.status;
            }
        }
    }
    answered
}

fn set_level(request: &Request, session: &super::Session) -> Result<Given, Refusal> {
    let params: SetLevelParams = request.read()?;
    let level = LogLevel::parse(&params.level)
        .ok_or_else(|| Refusal::invalid("`level` is not one of the eight levels"))?;
    session.set_log_level(level);
    Ok(Given::empty(&request.era))
}

fn subscribe(request: &Request, session: &super::Session) -> Result<Given, Refusal> {
    let params: SubscribeParams = request.read()?;
    if !session.subscribe(&params.uri) {
        return Err(Refusal::invalid("too many subscriptions"));
    }
    Ok(Given::empty(&request.era))
}

fn unsubscribe(request: &Request, session: &super::Session) -> Result<Given, Refusal> {
    let params: SubscribeParams = request.read()?;
    session.unsubscribe(&params.uri);
    Ok(Given::empty(&request.era))
}

/// The fault of something that is not a tool call.
pub(super) fn refusal_of(fault: &Fault) -> Refusal {
    let code = match fault {
        Fault::Internal { .. } => INTERNAL_ERROR,
        _ => jsonrpc::INVALID_PARAMS,
    };
    RpcError::new(code, fault.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::super::rig;
    use super::*;

    /// One page: what it holds, and where the next one is.
    fn page(
        server: &Server,
        name: &str,
        items: &[Value],
        params: Value,
    ) -> Result<(Vec<Value>, Value), i32> {
        let (request, _said) = rig::request(params);
        match server.page(&request, name, items.iter().cloned()) {
            Ok(page) => Ok((page.items, json!(page.next_cursor))),
            Err(refusal) => Err(refusal.error.code),
        }
    }

    /// Just below, at and past the edge of one page and of two: every item once, in its order.
    #[test]
    fn pages() {
        let (server, clock) = rig::server();
        for count in [0_usize, 1, 199, 200, 201, 400, 401] {
            let items: Vec<Value> = (0..count).map(Value::from).collect();
            let (mut seen, mut sizes) = (Vec::new(), Vec::new());
            let mut cursor = Value::Null;
            loop {
                let params = json!({ "cursor": cursor });
                let (page, next) = page(&server, "tools", &items, params).unwrap();
                sizes.push(page.len());
                seen.extend(page);
                cursor = next;
                if cursor.is_null() {
                    break;
                }
            }
            assert_eq!(seen, items);
            assert_eq!(sizes.len(), count.div_ceil(PAGE_ITEMS).max(1), "{sizes:?}");
            assert!(sizes.iter().all(|&size| size <= PAGE_ITEMS), "{sizes:?}");
        }

        let items: Vec<Value> = (0..201).map(Value::from).collect();
        let (_, next) = page(&server, "tools", &items, json!({})).unwrap();
        let ask = |name: &str, items: &[Value], cursor: Value| {
            page(&server, name, items, json!({ "cursor": cursor }))
        };
        // A list that has become shorter meanwhile has an end.
        assert_eq!(
            ask("tools", &items[..7], next.clone()),
            Ok((vec![], Value::Null))
        );
        let refused = Err(jsonrpc::INVALID_PARAMS);
        let cut = next.as_str().unwrap().split_at(20).0;
        for cursor in [json!(7), json!(""), json!("200"), json!(cut)] {
            assert_eq!(ask("tools", &items, cursor.clone()), refused, "{cursor}");
        }
        assert_eq!(
            ask("prompts", &items, next.clone()),
            refused,
            "of another list"
        );
        clock.advance(std::time::Duration::from_secs(3600));
        assert!(ask("tools", &items, next.clone()).is_ok());
        clock.advance(std::time::Duration::from_millis(1));
        assert_eq!(ask("tools", &items, next), refused, "too old");
    }
}
