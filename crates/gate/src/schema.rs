//! JSON Schema 2020-12, compiled once. A failure names the field and the reason; a `$ref`
//! to another document is never fetched.

use callgate_call::Fault;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

/// A compiled schema.
pub struct Schema(Validator);

/// Why a schema does not compile.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(String);

/// Refuses every document that is not in the schema itself.
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
    /// Compiles a schema.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_retriever(NoFetching)
            .build(schema)
            .map(Self)
            .map_err(|error| SchemaError(error.to_string()))
    }

    /// Checks a call's input.
    pub fn check_input(&self, value: &Value) -> Result<(), Fault> {
        match self.0.validate(value) {
            Ok(()) => Ok(()),
            Err(error) => {
                let (field, reason) = explain(&error);
                Err(Fault::BadInput { field, reason })
            }
        }
    }

    /// Checks a tool's output.
    pub fn check_output(&self, value: &Value) -> Result<(), Fault> {
        match self.0.validate(value) {
            Ok(()) => Ok(()),
            Err(error) => {
                let (field, reason) = explain(&error);
                let at = if field.is_empty() {
                    String::new()
                } else {
                    format!("{field}: ")
                };
                Err(Fault::BadOutput {
                    reason: format!("{at}{reason}"),
                })
            }
        }
    }
}

/// Which field, and what is wrong with it, without repeating the value: it may be large or
/// private.
fn explain(error: &ValidationError<'_>) -> (String, String) {
    let mut field = error
        .instance_path()
        .to_string()
        .trim_start_matches('/')
        .to_owned();
    let reason = match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            if !field.is_empty() {
                field.push('/');
            }
            field.push_str(name);
            "is required".to_owned()
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            format!("unexpected: {}", unexpected.join(", "))
        }
        _ => {
            let masked = error.masked_with("the value").to_string();
            masked.chars().take(200).collect()
        }
    };
    (field, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault(schema: Value, input: Value) -> (String, String) {
        match Schema::compile(&schema)
            .unwrap()
            .check_input(&input)
            .unwrap_err()
        {
            Fault::BadInput { field, reason } => (field, reason),
            other => panic!("{other}"),
        }
    }

    /// F-3: the field and the reason.
    #[test]
    fn names_field_and_reason() {
        let schema = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "n": {"type": "array", "items": {"type": "integer", "minimum": 3}}},
            "required": ["name"], "additionalProperties": false
        });
        let (field, reason) = fault(schema.clone(), json!({}));
        assert_eq!((field.as_str(), reason.as_str()), ("name", "is required"));
        let (field, reason) = fault(schema.clone(), json!({"name": 5}));
        assert_eq!(field, "name");
        assert!(
            reason.contains("string") && !reason.contains('5'),
            "{reason}"
        );
        let (field, reason) = fault(schema.clone(), json!({"name": "a", "n": [3, 2]}));
        assert_eq!(field, "n/1");
        assert!(reason.contains('3'), "{reason}");
        let (_, reason) = fault(schema, json!({"name": "a", "secret": 1}));
        assert_eq!(reason, "unexpected: secret");
    }

    #[test]
    fn never_fetches() {
        for schema in [
            json!({"$ref": "https://example.com/schema.json"}),
            json!({"$ref": "file:///etc/hostname"}),
        ] {
            let error = Schema::compile(&schema).err().unwrap();
            assert!(error.to_string().contains("another document"), "{error}");
        }
    }

    #[test]
    fn a_broken_schema_says_so() {
        assert!(Schema::compile(&json!({"type": "strin"})).is_err());
        assert!(Schema::compile(&json!({"pattern": "("})).is_err());
    }
}
