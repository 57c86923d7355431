//! A function's schema, compiled once: what does not fit it does not reach the function. B-9.
//! A `$ref` to another document is never fetched.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

/// Words of a reason that are told at most.
const REASON_CHARS_MAX: usize = 200;

/// A compiled schema.
pub(crate) struct Schema(Validator);

struct NoFetching;

impl jsonschema::Retrieve for NoFetching {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("a schema may not refer to another document ({uri})").into())
    }
}

impl Schema {
    /// The error says why it does not compile.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_retriever(NoFetching)
            .build(schema)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// The error says, as the gate does, which field is wrong and why.
    pub fn check(&self, arguments: &Value) -> Result<(), String> {
        self.0.validate(arguments).map_err(|error| {
            let (field, reason) = explain(&error);
            match field.is_empty() {
                true => format!("bad input: {reason}"),
                false => format!("bad input: {field}: {reason}"),
            }
        })
    }
}

/// Without the value itself: it may be large or private.
fn explain(error: &ValidationError<'_>) -> (String, String) {
    let path = error.instance_path().to_string();
    let field = path.trim_start_matches('/');
    let inside = |name: &str| {
        let field = format!("{field}/{name}");
        field.trim_start_matches('/').to_owned()
    };
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            (inside(name), "is required".to_owned())
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let first = unexpected.first().map_or("", String::as_str);
            let reason = format!("unexpected: {}", unexpected.join(", "));
            (inside(first), reason)
        }
        _ => {
            let masked = error.masked_with("the value").to_string();
            let reason = masked.chars().take(REASON_CHARS_MAX).collect();
            (field.to_owned(), reason)
        }
    }
}
