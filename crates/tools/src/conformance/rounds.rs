//! The tools of the fixture that ask their caller's user. They ask once, in rounds; for a
//! legacy client the door asks in the old way.

use std::collections::BTreeMap;

use callgate_call::{Fault, Job, Output, Tool};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::schemas::{self, ElicitationArguments, SamplingArguments};
use super::{asked, text, tool};

/// The answer to a question, if it came.
pub(super) fn answer<'a>(job: &Job<'a>, key: &str) -> Option<&'a Value> {
    job.call.answers.as_ref()?.responses.get(key)
}

/// A text of an accepted form.
pub(super) fn field<'a>(job: &Job<'a>, key: &str, name: &str) -> Option<&'a str> {
    let answer = FormAnswer::deserialize(answer(job, key)?).ok()?;
    match answer.content?.get(name)? {
        FormValue::Text(text) => Some(text),
        FormValue::Other(_) => None,
    }
}

/// The answer to a form, as far as texts go.
#[derive(Deserialize)]
struct FormAnswer<'a> {
    #[serde(borrow)]
    content: Option<BTreeMap<&'a str, FormValue<'a>>>,
}

/// The value of a field of a form.
#[derive(Deserialize)]
#[serde(untagged)]
enum FormValue<'a> {
    Text(&'a str),
    Other(IgnoredAny),
}

/// The answer to a form, to be shown as it is.
#[derive(Default, Deserialize)]
struct ElicitationAnswer<'a> {
    action: Option<&'a str>,
    content: Option<Value>,
}

/// The answer to a request for a message of a model.
#[derive(Default, Deserialize)]
struct SampledAnswer<'a> {
    #[serde(borrow)]
    content: Option<SampledContent<'a>>,
}

/// The content of a message of a model, as far as it is a text.
#[derive(Deserialize)]
struct SampledContent<'a> {
    text: Option<&'a str>,
}

fn state<'a>(job: &Job<'a>) -> Option<&'a Value> {
    job.call.answers.as_ref()?.state.as_ref()
}

/// Asks.
pub(super) fn ask<const N: usize>(
    questions: [(&str, Value); N],
    state: Option<Value>,
) -> Result<Output, Fault> {
    let requests: Map<String, Value> = questions
        .into_iter()
        .map(|(key, question)| (key.to_owned(), question))
        .collect();
    Err(Fault::NeedsInput { requests, state })
}

/// A form with one field.
pub(super) fn form(message: &str, field: &str, kind: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": { field: { "type": kind } },
                "required": [field],
            },
        },
    })
}

fn sampling(prompt: &str) -> Value {
    json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }],
            "maxTokens": 100,
        },
    })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

fn sampled(answer: &Value) -> &str {
    let answer = SampledAnswer::deserialize(answer).unwrap_or_default();
    let text = answer.content.and_then(|content| content.text);
    text.unwrap_or_default()
}

pub(super) fn tools() -> Vec<Tool> {
    let mut tools = legacy();
    tools.extend(modern());
    tools
}

fn legacy() -> Vec<Tool> {
    vec![
        Tool {
            input_schema: schemas::sampling(),
            ..tool("test_sampling", "Asks a model", |job| {
                Box::pin(async move {
                    let SamplingArguments { prompt } = asked(&job)?;
                    match answer(&job, "sample") {
                        Some(answer) => text(&format!("LLM response: {}", sampled(answer))),
                        None => ask([("sample", sampling(prompt))], None),
                    }
                })
            })
        },
        Tool {
            input_schema: schemas::elicitation(),
            ..tool("test_elicitation", "Asks a person", |job| {
                Box::pin(async move {
                    let ElicitationArguments { message } = asked(&job)?;
                    answered(&job, two_texts(message))
                })
            })
        },
        tool(
            "test_elicitation_sep1034_defaults",
            "Asks with defaults",
            |job| {
                let question = json!({
                    "method": "elicitation/create",
                    "params": {
                        "message": "Please review and update the form fields with defaults",
                        "requestedSchema": {
                            "type": "object",
                            "properties": {
                                "name": { "type": "string", "description": "User name", "default": "John Doe" },
                                "age": { "type": "integer", "description": "User age", "default": 30 },
                                "score": { "type": "number", "description": "User score", "default": 95.5 },
                                "status": {
                                    "type": "string",
                                    "description": "User status",
                                    "enum": ["active", "inactive", "pending"],
                                    "default": "active",
                                },
                                "verified": { "type": "boolean", "description": "Verification status", "default": true },
                            },
                            "required": [],
                        },
                    },
                });
                Box::pin(async move { answered(&job, question) })
            },
        ),
        tool(
            "test_elicitation_sep1330_enums",
            "Asks with choices",
            |job| {
                let question = json!({
                    "method": "elicitation/create",
                    "params": { "message": "Please select options from the enum fields", "requestedSchema": choices() },
                });
                Box::pin(async move { answered(&job, question) })
            },
        ),
    ]
}

/// A form with a name and an address.
fn two_texts(message: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "username": { "type": "string", "description": "User's response" },
                    "email": { "type": "string", "description": "User's email address" },
                },
                "required": ["username", "email"],
            },
        },
    })
}

/// Five ways to write a choice.
fn choices() -> Value {
    let titled = json!([
        { "const": "value1", "title": "First Option" },
        { "const": "value2", "title": "Second Option" },
        { "const": "value3", "title": "Third Option" },
    ]);
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": {
                "type": "string",
                "description": "Select one option",
                "enum": ["option1", "option2", "option3"],
            },
            "titledSingle": { "type": "string", "description": "Select one option with titles", "oneOf": titled },
            "legacyEnum": {
                "type": "string",
                "description": "Select one option (legacy)",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array",
                "description": "Select multiple options",
                "minItems": 1,
                "maxItems": 3,
                "items": { "type": "string", "enum": ["option1", "option2", "option3"] },
            },
            "titledMulti": {
                "type": "array",
                "description": "Select multiple options with titles",
                "minItems": 1,
                "maxItems": 3,
                "items": { "anyOf": titled },
            },
        },
        "required": [],
    })
}

fn answered(job: &Job<'_>, question: Value) -> Result<Output, Fault> {
    let Some(answer) = answer(job, "answer") else {
        return ask([("answer", question)], None);
    };
    let answer = ElicitationAnswer::deserialize(answer).unwrap_or_default();
    let action = answer.action.unwrap_or("unknown");
    let content = answer.content.unwrap_or_else(|| json!({}));
    text(&format!(
        "Elicitation completed: action={action}, content={content}"
    ))
}

fn modern() -> Vec<Tool> {
    let name = || form("What is your name?", "name", "string");
    vec![
        tool(
            "test_input_required_result_elicitation",
            "Asks for a name",
            move |job| {
                Box::pin(async move {
                    match field(&job, "user_name", "name") {
                        Some(name) => text(&format!("Hello, {name}!")),
                        None => ask(
                            [("user_name", form("What is your name?", "name", "string"))],
                            None,
                        ),
                    }
                })
            },
        ),
        tool(
            "test_input_required_result_sampling",
            "Asks a model",
            |job| {
                Box::pin(async move {
                    match answer(&job, "capital_question") {
                        Some(answer) => text(sampled(answer)),
                        None => ask(
                            [(
                                "capital_question",
                                sampling("What is the capital of France?"),
                            )],
                            None,
                        ),
                    }
                })
            },
        ),
        tool(
            "test_input_required_result_list_roots",
            "Asks for roots",
            |job| {
                Box::pin(async move {
                    match answer(&job, "client_roots") {
                        Some(answer) => text(&format!("roots: {answer}")),
                        None => ask([("client_roots", roots())], None),
                    }
                })
            },
        ),
        tool(
            "test_input_required_result_request_state",
            "Asks and remembers",
            |job| {
                Box::pin(async move {
                    match (answer(&job, "confirm"), state(&job)) {
                        (Some(_), Some(state)) if state == "asked" => text("state-ok"),
                        _ => ask(
                            [("confirm", form("Go on?", "ok", "boolean"))],
                            Some("asked".into()),
                        ),
                    }
                })
            },
        ),
        tool(
            "test_input_required_result_multiple_inputs",
            "Asks for three things",
            move |job| {
                let (name, greeting) = (name(), sampling("Generate a greeting"));
                Box::pin(async move {
                    let keys = ["user_name", "greeting", "client_roots"];
                    if keys.iter().all(|key| answer(&job, key).is_some()) {
                        let name = field(&job, "user_name", "name").unwrap_or_default();
                        return text(&format!("All answered, {name}"));
                    }
                    ask(
                        [
                            ("user_name", name),
                            ("greeting", greeting),
                            ("client_roots", roots()),
                        ],
                        Some("asked".into()),
                    )
                })
            },
        ),
        tool(
            "test_input_required_result_multi_round",
            "Asks twice",
            |job| {
                Box::pin(async move {
                    match (state(&job).and_then(Value::as_str), answer(&job, "step2")) {
                        (Some("two"), Some(_)) => text("Both steps are done"),
                        (Some("one"), _) if answer(&job, "step1").is_some() => ask(
                            [("step2", form("Step 2: your colour?", "color", "string"))],
                            Some("two".into()),
                        ),
                        (Some("two"), None) => ask(
                            [("step2", form("Step 2: your colour?", "color", "string"))],
                            Some("two".into()),
                        ),
                        _ => ask(
                            [("step1", form("Step 1: your name?", "name", "string"))],
                            Some("one".into()),
                        ),
                    }
                })
            },
        ),
        tool(
            "test_input_required_result_tampered_state",
            "Trusts no state",
            |job| {
                Box::pin(async move {
                    match (answer(&job, "confirm"), state(&job)) {
                        (Some(_), Some(_)) => text("state-ok"),
                        _ => ask(
                            [("confirm", form("Go on?", "ok", "boolean"))],
                            Some("asked".into()),
                        ),
                    }
                })
            },
        ),
        tool(
            "test_input_required_result_capabilities",
            "Asks for what the client can do",
            |job| {
                Box::pin(async move {
                    let keys = ["user_name", "capital_question"];
                    if keys.iter().any(|key| answer(&job, key).is_some()) {
                        return text("answered");
                    }
                    ask(
                        [
                            ("user_name", form("What is your name?", "name", "string")),
                            (
                                "capital_question",
                                sampling("What is the capital of France?"),
                            ),
                        ],
                        None,
                    )
                })
            },
        ),
        tool("test_missing_capability", "Needs a model", |job| {
            Box::pin(async move {
                match answer(&job, "sample") {
                    Some(answer) => text(sampled(answer)),
                    None => ask([("sample", sampling("Say something"))], None),
                }
            })
        }),
        Tool {
            // Its messages are no content of its own.
            gives_content: false,
            ..tool(
                "test_prompt_source",
                "What is behind the prompt that asks",
                |job| {
                    Box::pin(async move {
                        if answer(&job, "user_context").is_none() {
                            return ask(
                                [("user_context", form("What context?", "context", "string"))],
                                None,
                            );
                        }
                        let context = field(&job, "user_context", "context").unwrap_or_default();
                        let block = json!({ "type": "text", "text": format!("Use this context: {context}") });
                        Ok(Output::from_value(
                            json!({ "messages": [{ "role": "user", "content": block }] }),
                        ))
                    })
                },
            )
        },
    ]
}
