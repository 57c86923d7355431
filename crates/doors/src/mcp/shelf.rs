//! Resources, prompts and completion. Each is fixed by configuration or given by a tool, which
//! then is called like any other, through the gate.

use std::sync::Arc;

use callgate_call::{CallId, Fault, Outcome, Prompt, Resource, Sink, Source};
use callgate_gate::{Gate, content};
use callgate_wires::jsonrpc::{INVALID_PARAMS, RpcError};
use callgate_wires::mcp::RESOURCE_NOT_FOUND;
use serde_json::{Map, Value, json};

use super::calls::{Beat, ROUNDS_MAX, Round};
use super::dispatch::{Given, Refusal, cached, refusal_of};
use super::tools::{Told, told};
use super::{Request, Server};

/// Where the records of a call are: its id follows.
const CALL_ADDRESS: &str = "callgate://call/";
/// Values proposed at most, as the protocol has it.
const COMPLETIONS_MAX: usize = 100;

impl Server {
    pub(super) fn list_resources(&self, request: &Request) -> Result<Given, Refusal> {
        let Some(gate) = self.gate() else {
            return self.page(request, "resources", &[]);
        };
        let catalog = gate.catalog();
        let shown = |resource: &Resource| shown(resource, "uri");
        let resources = catalog.shelf().resources.iter();
        let all: Vec<Value> = resources
            .filter(|resource| self.may_know(request, &resource.source))
            .map(shown)
            .collect();
        self.page(request, "resources", &all)
    }

    pub(super) fn list_templates(&self, request: &Request) -> Result<Given, Refusal> {
        let Some(gate) = self.gate() else {
            return self.page(request, "resourceTemplates", &[]);
        };
        let catalog = gate.catalog();
        let shown = |resource: &Resource| shown(resource, "uriTemplate");
        let templates = catalog.shelf().templates.iter();
        let mut all: Vec<Value> = templates
            .filter(|template| self.may_know(request, &template.source))
            .map(shown)
            .collect();
        all.push(json!({
            "uriTemplate": format!("{CALL_ADDRESS}{{id}}"),
            "name": "call",
            "title": "What is recorded of a call",
            "description": "The chain's records of one of your calls, by the id in its result's _meta",
            "mimeType": "application/json",
        }));
        self.page(request, "resourceTemplates", &all)
    }

    pub(super) async fn read_resource(&self, request: &Request) -> Result<Given, Refusal> {
        let uri = request.text("uri")?;
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
            match fixed {
                Some(resource) => Some((resource.clone(), Map::new())),
                None => shelf.templates.iter().find_map(|template| {
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
        let result = json!({ "contents": contents });
        Ok(if request.era.is_modern() {
            cached(result).into()
        } else {
            result.into()
        })
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
        let content = json!({ "uri": uri, "mimeType": "application/json", "text": text });
        let result = json!({ "contents": [content] });
        Ok(Some(if request.era.is_modern() {
            cached(result).into()
        } else {
            result.into()
        }))
    }

    pub(super) fn list_prompts(&self, request: &Request) -> Result<Given, Refusal> {
        let Some(gate) = self.gate() else {
            return self.page(request, "prompts", &[]);
        };
        let catalog = gate.catalog();
        let prompts = catalog.shelf().prompts.iter();
        let all: Vec<Value> = prompts
            .filter(|prompt| self.may_know(request, &prompt.source))
            .map(shown_prompt)
            .collect();
        self.page(request, "prompts", &all)
    }

    pub(super) async fn get_prompt(&self, request: &Request) -> Result<Given, Refusal> {
        let prompt = self.prompt(request, request.text("name")?)?;
        let arguments = request.object("arguments")?.cloned().unwrap_or_default();
        for argument in &prompt.arguments {
            if argument.required && !arguments.contains_key(&argument.name) {
                let words = format!("the argument `{}` is required", argument.name);
                return Err(Refusal::invalid(&words));
            }
        }
        if arguments.values().any(|value| !value.is_string()) {
            return Err(Refusal::invalid("the arguments of a prompt are strings"));
        }
        let messages = match &prompt.source {
            Source::Fixed(messages) => placed(messages, &arguments),
            Source::Tool(tool) => match self.ask_tool(request, tool, arguments).await? {
                Asked::Value(given) => given.get("messages").cloned().unwrap_or(given),
                Asked::Question(asked) => return Ok(asked),
                Asked::Fault(fault) => return Err(refusal_of(&fault)),
            },
        };
        content::check_messages(&messages).map_err(|fault| refusal_of(&fault))?;
        Ok(json!({ "description": prompt.description, "messages": messages }).into())
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
        let (Source::Tool(tool), Some(gate)) = (source, self.gate()) else {
            return true;
        };
        let peer = &request.peer;
        gate.visible(tool, &peer.caller, peer.scope.as_deref())
            .is_ok()
    }

    pub(super) fn complete(&self, request: &Request) -> Result<Given, Refusal> {
        let reference = request
            .object("ref")?
            .ok_or_else(|| Refusal::invalid("`ref` is required"))?;
        let argument = request
            .object("argument")?
            .ok_or_else(|| Refusal::invalid("`argument` is required"))?;
        let text = |object: &Map<String, Value>, name: &str| {
            let value = object.get(name).and_then(Value::as_str).map(str::to_owned);
            value.ok_or_else(|| Refusal::invalid(&format!("`{name}` must be a string")))
        };
        let (name, typed) = (text(argument, "name")?, text(argument, "value")?);
        let values = match text(reference, "type")?.as_str() {
            "ref/prompt" => {
                let prompt = self.prompt(request, &text(reference, "name")?)?;
                let known = prompt.arguments.into_iter().find(|a| a.name == name);
                known.map(|argument| argument.values).unwrap_or_default()
            }
            "ref/resource" => Vec::new(),
            _ => return Err(Refusal::invalid("`ref.type` is ref/prompt or ref/resource")),
        };
        let fitting: Vec<String> = values
            .into_iter()
            .filter(|value| value.to_lowercase().starts_with(&typed.to_lowercase()))
            .collect();
        let shown = &fitting[..fitting.len().min(COMPLETIONS_MAX)];
        Ok(json!({ "completion": {
            "values": shown,
            "total": fitting.len(),
            "hasMore": fitting.len() > shown.len(),
        } })
        .into())
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
        let entry = gate
            .catalog()
            .find(tool)
            .cloned()
            .map_err(|fault| refusal_of(&fault))?;
        let mut call = self.new_call(gate, request, &entry.tool.name, arguments);
        call.answers = self.answers(gate, request, &call)?;
        let beat = Beat::new(request);
        call.sink = Some(Arc::clone(&beat) as Arc<dyn Sink>);
        for _ in 0..ROUNDS_MAX {
            let outcome = beat.while_waiting(gate.call(&call)).await;
            let fault = match outcome.result {
                Ok(output) => return Ok(Asked::Value(output.json.into_value())),
                Err(fault) => fault,
            };
            let outcome = Outcome {
                result: Err(fault.clone()),
                ..outcome
            };
            let end = told(&entry.tool, &call, outcome, request.era.is_modern());
            let asked = self.ask_meanwhile(gate, request, &entry.tool, call, end);
            match beat.while_waiting(asked).await? {
                Round::Next(next) => call = next,
                Round::Last(_, Told::Result(_)) => return Ok(Asked::Fault(fault)),
                Round::Last(call, end) => {
                    return Ok(match self.finish(request, &call, end)? {
                        // Nobody can be asked, and a tool's result is none of these requests'.
                        Given::Written(..) => Asked::Fault(fault),
                        asked => Asked::Question(asked),
                    });
                }
            }
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

fn shown(resource: &Resource, address: &str) -> Value {
    let mut shown = json!({
        address: resource.uri,
        "name": resource.name,
        "description": resource.description,
    });
    if let Some(title) = &resource.face.title {
        shown["title"] = title.as_str().into();
    }
    if !resource.face.icons.is_empty() {
        shown["icons"] = resource.face.icons.clone().into();
    }
    if let Some(mime_type) = &resource.mime_type {
        shown["mimeType"] = mime_type.as_str().into();
    }
    shown
}

fn shown_prompt(prompt: &Prompt) -> Value {
    let argument = |argument: &callgate_call::PromptArgument| {
        json!({
            "name": argument.name,
            "description": argument.description,
            "required": argument.required,
        })
    };
    let arguments: Vec<Value> = prompt.arguments.iter().map(argument).collect();
    let mut shown = json!({
        "name": prompt.name,
        "description": prompt.description,
        "arguments": arguments,
    });
    if let Some(title) = &prompt.face.title {
        shown["title"] = title.as_str().into();
    }
    if !prompt.face.icons.is_empty() {
        shown["icons"] = prompt.face.icons.clone().into();
    }
    shown
}

/// The contents in the output of a tool: its `contents`, or else the whole output as one.
fn contents_of(output: Value) -> Value {
    let is_content = |name: &str| output.get(name).is_some();
    match output.get("contents") {
        Some(contents) => contents.clone(),
        // Plain JSON, as tools that know nothing of MCP give it.
        None if output.is_object() && !is_content("text") && !is_content("blob") => {
            json!({ "text": output.to_string() })
        }
        None => output,
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
