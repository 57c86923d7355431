//! The arguments of the fixture's tools, and the schemas of their inputs. The suite calls some of
//! the tools without arguments: all of them are optional, and others are allowed.

use serde::Deserialize;
use serde_json::{Value, json};

/// The arguments of `test_custom_header`.
#[derive(Deserialize)]
pub struct HeaderArguments<'a> {
    #[serde(default)]
    pub region: &'a str,
}

pub fn header() -> Value {
    json!({
        "type": "object",
        "properties": {
            "region": { "type": "string", "description": "Where", "x-mcp-header": "Region" },
        },
    })
}

/// The arguments of `greet`.
#[derive(Deserialize)]
pub struct GreetArguments<'a> {
    #[serde(default)]
    pub name: &'a str,
}

pub fn greet() -> Value {
    one_text("name")
}

/// The arguments of `slow_compute`.
#[derive(Deserialize)]
pub struct ComputeArguments<'a> {
    #[serde(default)]
    pub seconds: f64,
    #[serde(default)]
    pub label: &'a str,
}

pub fn compute() -> Value {
    json!({
        "type": "object",
        "properties": { "seconds": { "type": "number" }, "label": { "type": "string" } },
    })
}

/// The arguments of `confirm_delete`.
#[derive(Deserialize)]
pub struct ConfirmDeleteArguments<'a> {
    #[serde(default)]
    pub filename: &'a str,
}

pub fn confirm_delete() -> Value {
    one_text("filename")
}

/// The arguments of `test_sampling`.
#[derive(Deserialize)]
pub struct SamplingArguments<'a> {
    #[serde(default)]
    pub prompt: &'a str,
}

pub fn sampling() -> Value {
    one_text("prompt")
}

/// The arguments of `test_elicitation`.
#[derive(Deserialize)]
pub struct ElicitationArguments<'a> {
    #[serde(default)]
    pub message: &'a str,
}

pub fn elicitation() -> Value {
    one_text("message")
}

fn one_text(name: &str) -> Value {
    json!({ "type": "object", "properties": { name: { "type": "string" } } })
}
