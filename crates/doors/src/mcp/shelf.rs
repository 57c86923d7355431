//! Resources, prompts and completion. Each is fixed by configuration or given by a tool, which
//! then is called like any other, through the gate.

use std::sync::Arc;

use callgate_call::{
    AddressSpace, CallId, Face, Fault, Outcome, Prompt, Resource, Sink, Source, Tool,
};
use callgate_gate::{Gate, content};
use callgate_wires::jsonrpc::{INVALID_PARAMS, RpcError};
use callgate_wires::mcp::{
    self as wire, CompleteParams, CompleteResult, Completion, CompletionArgument, Extra,
    GetPromptParams, GetPromptResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, PromptArgument, PromptDefinition, RESOURCE_NOT_FOUND, RawJson,
    ReadResourceParams, ReadResourceResult, ResourceContents, ResourceDefinition, ResourceTemplate,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::calls::{ROUNDS_MAX, Round, end_of};
use super::dispatch::{Given, Refusal, refusal_of};
use super::progress::Beat;
use super::request::RoundParams;
use super::tools::Told;
use super::{Request, Server};

/// Where the records of a call are: its id follows.
const CALL_ADDRESS: &str = "callgate://call/";
/// Values proposed at most, as the protocol has it.
const COMPLETIONS_MAX: usize = 100;

impl Server {
    pub(super) fn list_resources(&self, request: &Request) -> Result<Given, Refusal> {
        let catalog = self.gate().map(|gate| gate.catalog());
        let all = catalog
            .iter()
            .flat_map(|catalog| &catalog.shelf().resources);
        let known = all.filter(|resource| self.is_listed(request, &resource.source));
        let page = self.page(request, "resources", known)?;
        Ok(Given::of(&ListResourcesResult {
            meta: None,
            cache_scope: request.era.cache_scope(),
            next_cursor: page.next_cursor,
            resources: page.items.into_iter().map(shown_resource).collect(),
            result_type: request.era.complete(),
            ttl_ms: request.era.cache_ttl_ms(),
            extra: Extra::new(),
        }))
    }

    pub(super) fn list_templates(&self, request: &Request) -> Result<Given, Refusal> {
        let catalog = self.gate().map(|gate| gate.catalog());
        let all = catalog
            .iter()
            .flat_map(|catalog| &catalog.shelf().templates);
        let known = all.filter(|template| self.is_listed(request, &template.source));
        let shown = known
            .map(shown_template)
            .chain(catalog.iter().map(|_| call_template()));
        let page = self.page(request, "resourceTemplates", shown)?;
        Ok(Given::of(&ListResourceTemplatesResult {
            meta: None,
            cache_scope: request.era.cache_scope(),
            next_cursor: page.next_cursor,
            resource_templates: page.items,
            result_type: request.era.complete(),
            ttl_ms: request.era.cache_ttl_ms(),
            extra: Extra::new(),
        }))
    }

    pub(super) async fn read_resource(&self, request: &mut Request) -> Result<Given, Refusal> {
        let params: ReadResourceParams = request.read()?;
        request.round = RoundParams {
            responses: params.input_responses,
            state: params.request_state,
        };
        let (request, uri) = (&*request, params.uri.as_str());
        let missing = || {
            let code = if request.era.is_modern() {
                INVALID_PARAMS
            } else {
                RESOURCE_NOT_FOUND
            };
            let error = RpcError::new(code, format!("there is no resource {uri:?}"));
            Refusal::from(error.with(json!({ "uri": uri })))
        };
        let gate = self.gate().ok_or_else(missing)?;
        if let Some(id) = uri.strip_prefix(CALL_ADDRESS) {
            let id = CallId::parse(id).ok_or_else(missing)?;
            return self
                .call_trail(request, gate, uri, id)
                .await?
                .ok_or_else(missing);
        }
        let found = {
            let catalog = gate.catalog();
            let shelf = catalog.shelf();
            let fixed = shelf.resources.iter().find(|resource| resource.uri == uri);
            let space = || shelf.spaces.iter().find(|one| uri.starts_with(&one.prefix));
            match (fixed, space()) {
                (Some(resource), _) => Some((resource.clone(), Map::new())),
                (None, Some(space)) => Some((unlisted(uri, space), Map::new())),
                (None, None) => shelf.templates.iter().find_map(|template| {
                    fill(&template.uri, uri).map(|values| (template.clone(), values))
                }),
            }
        };
        let (resource, values) = found
            .filter(|(resource, _)| self.may_know(request, &resource.source))
            .ok_or_else(missing)?;
        let mut arguments = values.clone();
        arguments.insert("uri".to_owned(), uri.into());
        let given = match &resource.source {
            Source::Fixed(contents) => placed(contents, &values),
            Source::Tool(tool) => match self.ask_tool(request, tool, arguments).await? {
                Asked::Value(given) => contents_of(given),
                Asked::Question(asked) => return Ok(asked),
                Asked::Fault(Fault::NotFound { .. }) => return Err(missing()),
                Asked::Fault(fault) => return Err(refusal_of(&fault)),
            },
        };
        let contents = match given {
            Value::Array(items) => items,
            one => vec![one],
        };
        let contents: Vec<Value> = contents
            .into_iter()
            .map(|content| complete_content(content, uri, resource.mime_type.as_deref()))
            .collect();
        let contents = Value::Array(contents);
        content::check_contents(&contents).map_err(|fault| refusal_of(&fault))?;
        Ok(resource_read(request, items_of(contents)))
    }

    /// What the chain has of one of the caller's own calls.
    async fn call_trail(
        &self,
        request: &Request,
        gate: &Arc<Gate>,
        uri: &str,
        id: CallId,
    ) -> Result<Option<Given>, Refusal> {
        let (gate, caller) = (Arc::clone(gate), request.peer.caller.clone());
        // A long chain takes a while to look through; others are served meanwhile.
        let looked = tokio::task::spawn_blocking(move || gate.trail(id, &caller)).await;
        let records = match looked {
            Ok(trail) => trail.map_err(|fault| refusal_of(&fault))?,
            Err(_) => return Err(Refusal::invalid("the chain could not be read")),
        };
        if records.is_empty() {
            return Ok(None);
        }
        let text = format!("[{}]", records.join(","));
        let content = ResourceContents {
            mime_type: Some("application/json".to_owned()),
            text: Some(text),
            uri: uri.to_owned(),
            ..ResourceContents::default()
        };
        Ok(Some(resource_read(request, vec![content])))
    }

    pub(super) fn list_prompts(&self, request: &Request) -> Result<Given, Refusal> {
        let catalog = self.gate().map(|gate| gate.catalog());
        let all = catalog.iter().flat_map(|catalog| &catalog.shelf().prompts);
        let known = all.filter(|prompt| self.is_listed(request, &prompt.source));
        let page = self.page(request, "prompts", known)?;
        Ok(Given::of(&ListPromptsResult {
            meta: None,
            cache_scope: request.era.cache_scope(),
            next_cursor: page.next_cursor,
            prompts: page.items.into_iter().map(shown_prompt).collect(),
            result_type: request.era.complete(),
            ttl_ms: request.era.cache_ttl_ms(),
            extra: Extra::new(),
        }))
    }

    pub(super) async fn get_prompt(&self, request: &mut Request) -> Result<Given, Refusal> {
        let params: GetPromptParams = request.read()?;
        request.round = RoundParams {
            responses: params.input_responses,
            state: params.request_state,
        };
        let request = &*request;
        let prompt = self.prompt(request, &params.name)?;
        let arguments = params.arguments.unwrap_or_default();
        let texts = arguments
            .into_iter()
            .map(|(name, text)| (name, text.into()));
        let arguments: Map<String, Value> = texts.collect();
        for argument in &prompt.arguments {
            if argument.required && !arguments.contains_key(&argument.name) {
                let words = format!("the argument `{}` is required", argument.name);
                return Err(Refusal::invalid(&words));
            }
        }
        let (messages, description) = match &prompt.source {
            Source::Fixed(messages) => (placed(messages, &arguments), None),
            Source::Tool(tool) => match self.ask_tool(request, tool, arguments).await? {
                Asked::Value(given) => messages_of(given),
                Asked::Question(asked) => return Ok(asked),
                Asked::Fault(fault) => return Err(refusal_of(&fault)),
            },
        };
        content::check_messages(&messages).map_err(|fault| refusal_of(&fault))?;
        Ok(Given::of(&GetPromptResult {
            meta: None,
            description: description.or(Some(prompt.description)),
            messages: items_of(messages),
            result_type: request.era.complete(),
            extra: Extra::new(),
        }))
    }

    fn prompt(&self, request: &Request, name: &str) -> Result<Prompt, Refusal> {
        let unknown = || Refusal::invalid(&format!("there is no prompt {name:?}"));
        let catalog = self.gate().ok_or_else(unknown)?.catalog();
        let found = catalog.shelf().prompts.iter().find(|p| p.name == name);
        found
            .filter(|prompt| self.may_know(request, &prompt.source))
            .cloned()
            .ok_or_else(unknown)
    }

    /// What a tool gives is there for those only who may know of the tool.
    fn may_know(&self, request: &Request, source: &Source) -> bool {
        self.known(request, source, |_| true)
    }

    /// Returns whether a list shows what comes from this source: its tool is known to the caller,
    /// and not refused for now.
    fn is_listed(&self, request: &Request, source: &Source) -> bool {
        self.known(request, source, |tool| !tool.runner.is_hidden())
    }

    fn known(&self, request: &Request, source: &Source, fits: fn(&Tool) -> bool) -> bool {
        let (Source::Tool(tool), Some(gate)) = (source, self.gate()) else {
            return true;
        };
        let peer = &request.peer;
        gate.visible(tool, &peer.caller, peer.scope.as_deref())
            .is_ok_and(|entry| fits(&entry.tool))
    }

    pub(super) fn complete(&self, request: &Request) -> Result<Given, Refusal> {
        let CompleteParams {
            argument,
            reference,
            ..
        } = request.read()?;
        let CompletionArgument { name, value, .. } = argument;
        let values = match (reference.kind.as_str(), &reference.name) {
            ("ref/prompt", Some(prompt)) => {
                let prompt = self.prompt(request, prompt)?;
                let known = prompt.arguments.into_iter().find(|a| a.name == name);
                known.map(|argument| argument.values).unwrap_or_default()
            }
            ("ref/prompt", None) => return Err(Refusal::invalid("`ref.name` is required")),
            ("ref/resource", _) => Vec::new(),
            _ => return Err(Refusal::invalid("`ref.type` is ref/prompt or ref/resource")),
        };
        let typed = value.to_lowercase();
        let fitting: Vec<String> = values
            .into_iter()
            .filter(|value| value.to_lowercase().starts_with(&typed))
            .collect();
        let (total, mut shown) = (fitting.len(), fitting);
        shown.truncate(COMPLETIONS_MAX);
        Ok(Given::of(&CompleteResult {
            meta: None,
            completion: Completion {
                has_more: Some(total > shown.len()),
                total: u64::try_from(total).ok(),
                values: shown,
                extra: Extra::new(),
            },
            result_type: request.era.complete(),
            extra: Extra::new(),
        }))
    }

    /// Calls the tool behind a resource or a prompt.
    async fn ask_tool(
        &self,
        request: &Request,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Asked, Refusal> {
        let Some(gate) = self.gate() else {
            return Ok(Asked::Value(Value::Null));
        };
        let mut found = gate.find(tool);
        let entry = found.entry().map_err(refusal_of)?;
        let name = entry.tool.name.clone();
        let mut call = self.new_call(gate, request, name, arguments);
        call.answers = self.answers(gate, request, &found, &call)?;
        let beat = Beat::new(request);
        call.sink = Some(Arc::clone(&beat) as Arc<dyn Sink>);
        for _ in 0..ROUNDS_MAX {
            let outcome = beat.while_waiting(gate.call_found(&call, &found)).await;
            let fault = match outcome.result {
                Ok(output) => return Ok(Asked::Value(output.json.into_value())),
                Err(fault) => fault,
            };
            let outcome = Outcome {
                result: Err(fault.clone()),
                ..outcome
            };
            let end = end_of(gate, &found, &call, outcome, request.era.is_modern());
            let asked = self.ask_meanwhile(gate, request, &found, call, end);
            match beat.while_waiting(asked).await? {
                Round::Next(next) => call = next,
                Round::Last(_, Told::Result(_)) => return Ok(Asked::Fault(fault)),
                Round::Last(call, end) => {
                    return Ok(match self.finish(request, &found, &call, end)? {
                        // Nobody can be asked, and a tool's result is none of these requests'.
                        Given::Written(_) => Asked::Fault(fault),
                        asked => Asked::Question(asked),
                    });
                }
            }
            found = gate.find(&call.tool);
        }
        Err(Refusal::asked_too_often())
    }
}

/// What the tool behind a resource or a prompt came to.
enum Asked {
    /// Its output.
    Value(Value),
    /// What its client must be told first, or nothing, if it took the request back.
    Question(Given),
    /// Its failure.
    Fault(Fault),
}

/// The result of a resource that was read.
fn resource_read<C: Serialize>(request: &Request, contents: Vec<C>) -> Given {
    Given::of(&ReadResourceResult {
        meta: None,
        cache_scope: request.era.cache_scope(),
        contents,
        result_type: request.era.complete(),
        ttl_ms: request.era.cache_ttl_ms(),
        extra: Extra::new(),
    })
}

/// A resource that is in no list. Whether it is there is the tool's to say.
fn unlisted(uri: &str, space: &AddressSpace) -> Resource {
    Resource {
        uri: uri.to_owned(),
        name: String::new(),
        description: String::new(),
        face: Face::default(),
        mime_type: None,
        source: Source::Tool(space.tool.clone()),
        definition: None,
    }
}

fn shown_resource(resource: &Resource) -> ResourceDefinition {
    let passed = resource.definition.as_ref().map(wire::read);
    if let Some(Ok(passed)) = passed {
        return ResourceDefinition {
            uri: resource.uri.clone(),
            ..passed
        };
    }
    ResourceDefinition {
        description: Some(resource.description.clone()),
        icons: resource.face.icons.iter().map(RawJson::of).collect(),
        mime_type: resource.mime_type.clone(),
        name: resource.name.clone(),
        title: resource.face.title.clone(),
        uri: resource.uri.clone(),
        ..ResourceDefinition::default()
    }
}

fn shown_template(template: &Resource) -> ResourceTemplate {
    let passed = template.definition.as_ref().map(wire::read);
    if let Some(Ok(passed)) = passed {
        return ResourceTemplate {
            uri_template: template.uri.clone(),
            ..passed
        };
    }
    ResourceTemplate {
        description: Some(template.description.clone()),
        icons: template.face.icons.iter().map(RawJson::of).collect(),
        mime_type: template.mime_type.clone(),
        name: template.name.clone(),
        title: template.face.title.clone(),
        uri_template: template.uri.clone(),
        ..ResourceTemplate::default()
    }
}

/// The records of calls.
fn call_template() -> ResourceTemplate {
    let about = "The chain's records of one of your calls, by the id in its result's _meta";
    ResourceTemplate {
        description: Some(about.to_owned()),
        mime_type: Some("application/json".to_owned()),
        name: "call".to_owned(),
        title: Some("What is recorded of a call".to_owned()),
        uri_template: format!("{CALL_ADDRESS}{{id}}"),
        ..ResourceTemplate::default()
    }
}

fn shown_prompt(prompt: &Prompt) -> PromptDefinition {
    let passed = prompt.definition.as_ref().map(wire::read);
    if let Some(Ok(passed)) = passed {
        return PromptDefinition {
            name: prompt.name.clone(),
            ..passed
        };
    }
    let argument = |argument: &callgate_call::PromptArgument| PromptArgument {
        description: Some(argument.description.clone()),
        name: argument.name.clone(),
        required: Some(argument.required),
        ..PromptArgument::default()
    };
    PromptDefinition {
        arguments: Some(prompt.arguments.iter().map(argument).collect()),
        description: Some(prompt.description.clone()),
        icons: prompt.face.icons.iter().map(RawJson::of).collect(),
        name: prompt.name.clone(),
        title: prompt.face.title.clone(),
        ..PromptDefinition::default()
    }
}

/// The output of a tool behind a prompt: its `messages`, or else they are the whole output.
#[derive(Deserialize)]
struct PromptOutput {
    messages: Value,
    description: Option<String>,
}

fn messages_of(output: Value) -> (Value, Option<String>) {
    match wire::read::<PromptOutput>(&output) {
        Ok(given) => (given.messages, given.description),
        Err(_) => (output, None),
    }
}

/// The output of a tool behind a resource, as far as it knows of MCP.
#[derive(Deserialize)]
struct ResourceOutput {
    contents: Option<Value>,
    text: Option<IgnoredAny>,
    blob: Option<IgnoredAny>,
}

/// The contents in the output of a tool: its `contents`, or else the whole output as one.
fn contents_of(output: Value) -> Value {
    match wire::read::<ResourceOutput>(&output) {
        Ok(ResourceOutput {
            contents: Some(contents),
            ..
        }) => contents,
        // Plain JSON, as tools that know nothing of MCP give it.
        Ok(ResourceOutput {
            text: None,
            blob: None,
            ..
        }) if output.is_object() => json!({ "text": output.to_string() }),
        _ => output,
    }
}

/// The items of a list that was checked to be one.
fn items_of(list: Value) -> Vec<Value> {
    match list {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// A content block of a resource with what it may leave out.
fn complete_content(content: Value, uri: &str, mime_type: Option<&str>) -> Value {
    let mut content = match content {
        Value::Object(content) => content,
        Value::String(text) => Map::from_iter([("text".to_owned(), text.into())]),
        other => Map::from_iter([("text".to_owned(), other.to_string().into())]),
    };
    content.entry("uri").or_insert_with(|| uri.into());
    if let Some(mime_type) = mime_type {
        content
            .entry("mimeType")
            .or_insert_with(|| mime_type.into());
    }
    Value::Object(content)
}

/// `{name}` in every text of `value`, replaced by the argument of that name. One pass: what an
/// argument holds is not looked at again.
fn placed(value: &Value, arguments: &Map<String, Value>) -> Value {
    match value {
        Value::String(text) => Value::String(placed_text(text, arguments)),
        Value::Array(items) => items.iter().map(|item| placed(item, arguments)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| (key.clone(), placed(member, arguments)))
            .collect(),
        other => other.clone(),
    }
}

fn placed_text(text: &str, arguments: &Map<String, Value>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(open) = rest.find('{') {
        let after = &rest[open + 1..];
        let value = after
            .find('}')
            .and_then(|close| Some((close, arguments.get(&after[..close])?.as_str()?)));
        match value {
            Some((close, value)) => {
                out.push_str(&rest[..open]);
                out.push_str(value);
                rest = &after[close + 1..];
            }
            None => {
                out.push_str(&rest[..=open]);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// The values that make `template` into `uri`: each place takes at least one character and no
/// slash.
fn fill(template: &str, uri: &str) -> Option<Map<String, Value>> {
    let Some(open) = template.find('{') else {
        return (template == uri).then(Map::new);
    };
    let close = open + template[open..].find('}')?;
    let rest = uri.strip_prefix(&template[..open])?;
    let after = &template[close + 1..];
    let literal = &after[..after.find('{').unwrap_or(after.len())];
    let end = if literal.is_empty() {
        rest.len()
    } else {
        rest.find(literal)?
    };
    let value = &rest[..end];
    if value.is_empty() || value.contains('/') {
        return None;
    }
    let mut values = fill(after, &rest[end..])?;
    values.insert(template[open + 1..close].to_owned(), value.into());
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let filled = |template: &str, uri: &str| fill(template, uri).map(Value::Object);
        assert_eq!(filled("a://b", "a://b"), Some(json!({})));
        assert_eq!(filled("a://b", "a://c"), None);
        assert_eq!(
            filled("a://{id}/data", "a://7/data"),
            Some(json!({"id": "7"}))
        );
        assert_eq!(
            filled("a://{x}-{y}", "a://1-2"),
            Some(json!({"x": "1", "y": "2"}))
        );
        assert_eq!(filled("a://{id}/data", "a:///data"), None);
        assert_eq!(filled("a://{id}/data", "a://1/2/data"), None);
        assert_eq!(filled("a://{id}", "a://1/2"), None);
    }

    #[test]
    fn places() {
        let arguments = json!({"a": "{b}", "b": "2"});
        let arguments = arguments.as_object().unwrap();
        for (text, wanted) in [
            ("x {a} {b} {c} {", "x {b} 2 {c} {"),
            ("{a}{a}", "{b}{b}"),
            ("{\"k\": {b}}", "{\"k\": 2}"),
        ] {
            assert_eq!(placed_text(text, arguments), wanted);
        }
    }
}
