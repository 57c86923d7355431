//! The fixture of the official MCP conformance suite: the tools, prompts and resources its
//! scenarios call by name. They go through the same gate and doors as any other tool, so that
//! the suite grades the product.

mod rounds;
pub(crate) mod schemas;

use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Change, Changes, Face, Fault, Job, Log, LogLevel, Output, Progress, Prompt, PromptArgument,
    Resource, RunFuture, Runner, Shelf, Source, Tasks, Tool,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::arguments;
use schemas::{ComputeArguments, ConfirmDeleteArguments, GreetArguments, HeaderArguments};

/// A red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound at all.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// A function that may wait, as a runner.
struct Waiting<F>(F);

impl<F> Runner for Waiting<F>
where
    F: for<'a> Fn(Job<'a>) -> RunFuture<'a> + Send + Sync,
{
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        (self.0)(job)
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

fn tool<F>(name: &str, description: &str, run: F) -> Tool
where
    F: for<'a> Fn(Job<'a>) -> RunFuture<'a> + Send + Sync + 'static,
{
    Tool {
        description: description.to_owned(),
        gives_content: true,
        ..Tool::new(name, Arc::new(Waiting(run)))
    }
}

/// Ends with the call.
async fn pause(job: Job<'_>, how_long: Duration) -> Result<(), Fault> {
    // Both arms only wait.
    tokio::select! {
        () = tokio::time::sleep(how_long) => Ok(()),
        () = job.call.cancel.cancelled() => Err(Fault::Cancelled),
    }
}

fn text(words: &str) -> Result<Output, Fault> {
    content(json!([{ "type": "text", "text": words }]))
}

fn content(blocks: Value) -> Result<Output, Fault> {
    Output::from_content(json!({ "content": blocks }))
}

fn failed(words: &str) -> Result<Output, Fault> {
    let blocks = json!([{ "type": "text", "text": words }]);
    Output::from_content(json!({ "content": blocks, "isError": true }))
}

/// Reads the arguments of a call.
fn asked<'a, T: Deserialize<'a>>(job: &Job<'a>) -> Result<T, Fault> {
    arguments(job.call.input.value())
}

/// The whole fixture. `changes` is where two of the tools tell that a list has changed.
#[must_use]
pub fn fixture(changes: &Changes) -> (Vec<Tool>, Shelf) {
    let mut tools = plain();
    tools.extend(talkative(changes));
    tools.extend(rounds::tools());
    tools.extend(tasks());
    (tools, shelf())
}

fn plain() -> Vec<Tool> {
    let embedded = json!({
        "type": "resource",
        "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        },
    });
    let mixed = json!([
        { "type": "text", "text": "Multiple content types test:" },
        { "type": "image", "data": PNG, "mimeType": "image/png" },
        {
            "type": "resource",
            "resource": {
                "uri": "test://mixed-content-resource",
                "mimeType": "application/json",
                "text": "{\"test\":\"data\",\"value\":123}",
            },
        },
    ]);
    vec![
        tool("test_simple_text", "One text", |_| {
            Box::pin(async { text("This is a simple text response for testing.") })
        }),
        tool("test_image_content", "One picture", |_| {
            Box::pin(async {
                content(json!([{ "type": "image", "data": PNG, "mimeType": "image/png" }]))
            })
        }),
        tool("test_audio_content", "One sound", |_| {
            Box::pin(async {
                content(json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]))
            })
        }),
        tool("test_embedded_resource", "One resource", move |_| {
            let blocks = json!([embedded]);
            Box::pin(async move { content(blocks) })
        }),
        tool(
            "test_multiple_content_types",
            "A text, a picture and a resource",
            move |_| {
                let blocks = mixed.clone();
                Box::pin(async move { content(blocks) })
            },
        ),
        tool("test_error_handling", "Fails", |_| {
            Box::pin(async { failed("This tool intentionally returns an error for testing") })
        }),
        Tool {
            input_schema: schema_of_everything(),
            ..tool(
                "json_schema_2020_12_tool",
                "Has a schema with everything",
                |job| {
                    let given = job.call.input.text().to_owned();
                    Box::pin(async move {
                        text(&format!("JSON Schema 2020-12 tool called with: {given}"))
                    })
                },
            )
        },
        Tool {
            input_schema: schemas::header(),
            ..tool(
                "test_custom_header",
                "Has an argument that is mirrored in a header",
                |job| {
                    Box::pin(async move {
                        let HeaderArguments { region } = asked(&job)?;
                        text(&format!("region: {region}"))
                    })
                },
            )
        },
        Tool {
            input_schema: schemas::greet(),
            tasks: Tasks::Forbidden,
            ..tool("greet", "Says hello at once", |job| {
                Box::pin(async move {
                    let GreetArguments { name } = asked(&job)?;
                    text(&format!("Hello, {name}!"))
                })
            })
        },
    ]
}

fn schema_of_everything() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }, { "not": { "required": ["contactMethod"] } }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": {},
        "additionalProperties": false,
    })
}

fn talkative(changes: &Changes) -> Vec<Tool> {
    const STEP: Duration = Duration::from_millis(50);
    let (tools_changed, prompts_changed) = (changes.clone(), changes.clone());
    vec![
        tool("test_tool_with_progress", "Reports progress", |job| {
            Box::pin(async move {
                for done in [0.0, 50.0, 100.0] {
                    job.sink.progress(&Progress {
                        done,
                        total: Some(100.0),
                        message: Some(format!("Completed step {done} of 100")),
                    });
                    pause(job, STEP).await?;
                }
                text("Tool with progress executed successfully")
            })
        }),
        tool("test_tool_with_logging", "Logs", |job| {
            logging(job, "Tool with logging executed successfully")
        }),
        tool("test_logging_tool", "Logs, where that is wanted", |job| {
            logging(job, "logged")
        }),
        tool(
            "test_streaming_elicitation",
            "Says something before it ends",
            |job| {
                Box::pin(async move {
                    job.sink.progress(&Progress {
                        done: 1.0,
                        total: None,
                        message: None,
                    });
                    job.sink.linger();
                    pause(job, STEP).await?;
                    text("streamed")
                })
            },
        ),
        tool(
            "test_reconnection",
            "Lets go of its connection before it answers",
            |job| {
                Box::pin(async move {
                    job.sink.linger();
                    pause(job, 2 * STEP).await?;
                    text("Reconnection test completed successfully")
                })
            },
        ),
        tool(
            "test_trigger_tool_change",
            "Tells that the tools changed",
            move |_| {
                tools_changed.tell(Change::Tools);
                Box::pin(async { text("told") })
            },
        ),
        tool(
            "test_trigger_prompt_change",
            "Tells that the prompts changed",
            move |_| {
                prompts_changed.tell(Change::Prompts);
                Box::pin(async { text("told") })
            },
        ),
    ]
}

fn logging<'a>(job: Job<'a>, end: &'static str) -> RunFuture<'a> {
    Box::pin(async move {
        for words in [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ] {
            job.sink.log(&Log {
                level: LogLevel::Info,
                logger: None,
                data: words.into(),
            });
            pause(job, Duration::from_millis(50)).await?;
        }
        text(end)
    })
}

fn tasks() -> Vec<Tool> {
    /// Longer than the fixture waits before it makes a task of a call.
    const LONG: Duration = Duration::from_millis(400);
    vec![
        Tool {
            input_schema: schemas::compute(),
            timeout: Some(Duration::from_secs(300)),
            ..tool("slow_compute", "Takes as long as it is told", |job| {
                Box::pin(async move {
                    let ComputeArguments { seconds, label } = asked(&job)?;
                    pause(
                        job,
                        Duration::try_from_secs_f64(seconds).unwrap_or_default(),
                    )
                    .await?;
                    text(&format!("computed {label}"))
                })
            })
        },
        Tool {
            tasks: Tasks::Required,
            ..tool("failing_job", "Fails after a while", |job| {
                Box::pin(async move {
                    pause(job, Duration::from_secs(1)).await?;
                    failed("the job failed")
                })
            })
        },
        tool("protocol_error_job", "Ends in trouble of our own", |job| {
            Box::pin(async move {
                pause(job, LONG).await?;
                Err(Fault::Internal {
                    message: "the job broke".to_owned(),
                })
            })
        }),
        Tool {
            input_schema: schemas::confirm_delete(),
            ..tool("confirm_delete", "Asks from within a task", |job| {
                Box::pin(async move {
                    let ConfirmDeleteArguments { filename } = asked(&job)?;
                    match rounds::answer(&job, "confirm") {
                        Some(_) => text(&format!("deleted {filename}")),
                        None => {
                            pause(job, LONG).await?;
                            rounds::ask(
                                [("confirm", rounds::form("Delete it?", "confirm", "boolean"))],
                                None,
                            )
                        }
                    }
                })
            })
        },
        tool("multi_input", "Asks twice from within a task", |job| {
            Box::pin(async move {
                let answered = ["first", "second"].map(|key| rounds::answer(&job, key).is_some());
                if answered == [true, true] {
                    return text("both answered");
                }
                pause(job, LONG).await?;
                rounds::ask(
                    [
                        ("first", rounds::form("First?", "name", "string")),
                        ("second", rounds::form("Second?", "name", "string")),
                    ],
                    None,
                )
            })
        }),
        Tool {
            tasks: Tasks::Required,
            ..tool("test_tool_with_task", "Asks, and then takes long", |job| {
                Box::pin(async move {
                    let Some(name) = rounds::field(&job, "user_name", "name") else {
                        return rounds::ask(
                            [("user_name", rounds::form("Who?", "name", "string"))],
                            None,
                        );
                    };
                    pause(job, LONG).await?;
                    text(&format!("Hello, {name}!"))
                })
            })
        },
    ]
}

fn shelf() -> Shelf {
    let resource = |uri: &str, name: &str, mime_type: &str, contents: Value| Resource {
        uri: uri.to_owned(),
        name: name.to_owned(),
        description: format!("{name} for the conformance suite"),
        face: Face::default(),
        mime_type: Some(mime_type.to_owned()),
        source: Source::Fixed(contents),
        definition: None,
    };
    let template_data = r#"{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}"#;
    Shelf {
        resources: vec![
            resource(
                "test://static-text",
                "Static text",
                "text/plain",
                json!({ "text": "This is the content of the static text resource." }),
            ),
            resource(
                "test://static-binary",
                "Static binary",
                "image/png",
                json!({ "blob": PNG }),
            ),
            resource(
                "test://watched-resource",
                "Watched resource",
                "text/plain",
                json!({ "text": "Watched resource content" }),
            ),
        ],
        templates: vec![resource(
            "test://template/{id}/data",
            "Template",
            "application/json",
            json!({ "text": template_data }),
        )],
        prompts: prompts(),
        ..Shelf::default()
    }
}

fn prompts() -> Vec<Prompt> {
    let argument = |name: &str, values: &[&str]| PromptArgument {
        name: name.to_owned(),
        description: format!("The argument {name}"),
        required: true,
        values: values.iter().map(|&value| value.to_owned()).collect(),
    };
    let prompt = |name: &str, arguments: Vec<PromptArgument>, source: Source| Prompt {
        name: name.to_owned(),
        description: format!("{name} for the conformance suite"),
        face: Face::default(),
        arguments,
        source,
        definition: None,
    };
    let says = |block: Value| json!({ "role": "user", "content": block });
    let words = |words: &str| json!({ "type": "text", "text": words });
    vec![
        prompt(
            "test_simple_prompt",
            vec![],
            Source::Fixed(json!([says(words("This is a simple prompt for testing."))])),
        ),
        prompt(
            "test_prompt_with_arguments",
            vec![
                argument("arg1", &["test", "testing"]),
                argument("arg2", &[]),
            ],
            Source::Fixed(json!([says(words(
                "Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"
            ))])),
        ),
        prompt(
            "test_prompt_with_embedded_resource",
            vec![argument("resourceUri", &[])],
            Source::Fixed(json!([
                says(json!({
                    "type": "resource",
                    "resource": {
                        "uri": "{resourceUri}",
                        "mimeType": "text/plain",
                        "text": "Embedded resource content for testing.",
                    },
                })),
                says(words("Please process the embedded resource above.")),
            ])),
        ),
        prompt(
            "test_prompt_with_image",
            vec![],
            Source::Fixed(json!([
                says(json!({ "type": "image", "data": PNG, "mimeType": "image/png" })),
                says(words("Please analyze the image above.")),
            ])),
        ),
        prompt(
            "test_input_required_result_prompt",
            vec![],
            Source::Tool("test_prompt_source".to_owned()),
        ),
    ]
}
