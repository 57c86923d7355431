//! `callgate tools`: what can be called here.

use std::process::ExitCode;

use callgate_call::Fault;
use callgate_doors::http::tool_body;
use callgate_registry::environment::Environment;
use callgate_registry::suggest;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use crate::cli::{Done, Place, runtime};
use crate::error::CommandError;
use crate::show;

/// List the tools, or show one.
#[derive(Args)]
pub struct Tools {
    #[command(subcommand)]
    command: Option<ToolsCommand>,
}

#[derive(Subcommand)]
enum ToolsCommand {
    /// Show one tool with its schemas
    Show {
        /// Name, AID or alias
        tool: String,
    },
}

pub fn run(environment: &Environment, place: &Place, tools: &Tools) -> Done {
    let (list, note) = all(environment, place)?;
    match &tools.command {
        None if place.json => show::json(&json!({ "tools": list })),
        None => {
            let cell = |tool: &Value, name: &str| match &tool[name] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let rows: Vec<Vec<String>> = list
                .iter()
                .map(|tool| {
                    ["name", "aid", "tier", "runner", "description"]
                        .map(|name| cell(tool, name))
                        .to_vec()
                })
                .collect();
            show::table(&["NAME", "AID", "TIER", "RUNNER", "DESCRIPTION"], &rows);
            show::say(&note);
        }
        Some(ToolsCommand::Show { tool }) => {
            let absent =
                || unserved(environment, place, tool).unwrap_or_else(|| unknown(tool, &list));
            let found = find(&list, tool).ok_or_else(absent)?;
            show::json(found);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The tools of the running gate, or else of the workspace; and the line about them.
pub fn all(environment: &Environment, place: &Place) -> Result<(Vec<Value>, String), CommandError> {
    let paths = place.paths(environment)?;
    let asked: Result<Option<Value>, CommandError> = runtime()?.block_on(async {
        match super::running_gate(place, &paths).await? {
            None => Ok(None),
            Some(client) => {
                let asked = client.ask(Method::GET, "/v1/tools", String::new());
                Ok(Some(asked.await?))
            }
        }
    });
    if let Some(Value::Object(mut body)) = asked? {
        let tools = match body.remove("tools") {
            Some(Value::Array(tools)) => tools,
            _ => Vec::new(),
        };
        return Ok((
            tools,
            format!("from the running gate at {}", paths.socket.display()),
        ));
    }
    own(environment, place)
}

/// The tools of the workspace, whether a gate runs or not; and the line about them.
pub fn own(environment: &Environment, place: &Place) -> Result<(Vec<Value>, String), CommandError> {
    let environment = environment.of_no_tool();
    let parts = super::open(&environment, place)?;
    let setup = parts.setup()?;
    let tools = setup.catalog.tools().map(tool_body).collect();
    Ok((tools, setup.note))
}

/// The words for a built-in tool that the configuration leaves out.
fn unserved(environment: &Environment, place: &Place, tool: &str) -> Option<String> {
    let environment = environment.of_no_tool();
    let parts = super::open(&environment, place).ok()?;
    match parts.setup().ok()?.catalog.find(tool) {
        Err(fault @ Fault::UnknownTool { why: Some(_), .. }) => Some(fault.to_string()),
        _ => None,
    }
}

/// A tool among `tools` by any of its names.
pub fn find<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    tools
        .iter()
        .find(|tool| names(tool).any(|known| known == name))
}

/// What to say of a tool that is not among `tools`.
pub fn unknown(name: &str, tools: &[Value]) -> String {
    let near = suggest::question(name, tools.iter().flat_map(names));
    format!("tool not found: {name}{near}; `callgate tools` lists what there is")
}

fn names(tool: &Value) -> impl Iterator<Item = &str> {
    let aliases = tool["aliases"].as_array().into_iter().flatten();
    [&tool["name"], &tool["aid"]]
        .into_iter()
        .chain(aliases)
        .filter_map(Value::as_str)
}
