//! JSON Schema 2020-12, compiled once. A failure names the field and the reason; a `$ref`
//! to another document is never fetched.

use std::sync::OnceLock;

use callgate_call::Fault;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::Value;

/// A schema, compiled once.
pub struct Schema(Kind);

enum Kind {
    /// `{"type": "object"}`, the schema of tools that say nothing else.
    AnyObject,
    /// Compiled when it was written.
    Ready(Box<Validator>),
    /// One of our own, compiled when it is first needed: a program that answers one call
    /// should not pay for tools it does not use.
    Later(Value, OnceLock<Option<Box<Validator>>>),
    /// A schema of an MCP server, compiled when it is first needed. One that does not compile
    /// checks nothing but that the value is an object: the server has the last word.
    Foreign(Value, OnceLock<Option<Box<Validator>>>),
}

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
        if is_any_object(schema) {
            return Ok(Self(Kind::AnyObject));
        }
        compile(schema).map(|validator| Self(Kind::Ready(validator)))
    }

    /// A schema of a built-in tool, which is known to compile.
    #[must_use]
    pub fn builtin(schema: &Value) -> Self {
        if is_any_object(schema) {
            return Self(Kind::AnyObject);
        }
        Self(Kind::Later(schema.clone(), OnceLock::new()))
    }

    /// A schema that an MCP server lists for one of its tools.
    #[must_use]
    pub fn foreign(schema: &Value) -> Self {
        if is_any_object(schema) {
            return Self(Kind::AnyObject);
        }
        Self(Kind::Foreign(schema.clone(), OnceLock::new()))
    }

    /// The first thing that is wrong with `value`: the field and the reason.
    fn problem(&self, value: &Value) -> Option<(String, String)> {
        let validator = match &self.0 {
            Kind::AnyObject if value.is_object() => return None,
            Kind::AnyObject => return Some((String::new(), "must be an object".to_owned())),
            Kind::Ready(validator) => validator,
            Kind::Later(schema, ready) => match ready.get_or_init(|| compile(schema).ok()) {
                Some(validator) => validator,
                None => return Some((String::new(), "the schema does not compile".to_owned())),
            },
            Kind::Foreign(schema, ready) => match ready.get_or_init(|| compile_foreign(schema)) {
                Some(validator) => validator,
                None if value.is_object() => return None,
                None => return Some((String::new(), "must be an object".to_owned())),
            },
        };
        // To say yes takes a third of what it takes to say why not.
        if validator.is_valid(value) {
            return None;
        }
        validator.validate(value).err().map(|error| explain(&error))
    }

    /// Checks a call's input.
    pub fn check_input(&self, value: &Value) -> Result<(), Fault> {
        match self.problem(value) {
            None => Ok(()),
            Some((field, reason)) => Err(Fault::BadInput { field, reason }),
        }
    }

    /// Checks a tool's output.
    pub fn check_output(&self, value: &Value) -> Result<(), Fault> {
        match self.problem(value) {
            None => Ok(()),
            Some((field, reason)) if field.is_empty() => Err(Fault::BadOutput { reason }),
            Some((field, reason)) => Err(Fault::BadOutput {
                reason: format!("{field}: {reason}"),
            }),
        }
    }
}

fn is_any_object(schema: &Value) -> bool {
    schema
        .as_object()
        .is_some_and(|members| members.len() == 1 && members.get("type") == Some(&"object".into()))
}

fn compile(schema: &Value) -> Result<Box<Validator>, SchemaError> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_retriever(NoFetching)
        .build(schema)
        .map(Box::new)
        .map_err(|error| SchemaError(error.to_string()))
}

/// Compiles a schema of an MCP server in the draft it names, or else 2020-12. References to other
/// documents are not fetched: a schema that has some is not compiled.
fn compile_foreign(schema: &Value) -> Option<Box<Validator>> {
    let options = jsonschema::options().with_retriever(NoFetching);
    options.build(schema).ok().map(Box::new)
}

/// Which field, and what is wrong with it, without repeating the value: it may be large or
/// private.
fn explain(error: &ValidationError<'_>) -> (String, String) {
    let mut field = error
        .instance_path()
        .to_string()
        .trim_start_matches('/')
        .to_owned();
    let mut name = |name: &str| {
        if !field.is_empty() {
            field.push('/');
        }
        field.extend(name.chars().take(200));
    };
    let reason = match error.kind() {
        ValidationErrorKind::Required { property } => {
            name(property.as_str().unwrap_or_default());
            "is required".to_owned()
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            if let Some(first) = unexpected.first() {
                name(first);
            }
            format!("unexpected: {}", unexpected.join(", "))
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map_or(&[][..], Vec::as_slice);
            let mut shown: String = one_of(options).chars().take(ENUM_CHARS_MAX).collect();
            shown.insert_str(0, "the value is not one of ");
            shown
        }
        _ => {
            let masked = error.masked_with("the value").to_string();
            masked.chars().take(200).collect()
        }
    };
    (field, reason)
}

/// So many values of an `enum` are named.
const ENUM_VALUES_MAX: usize = 12;
/// And so much of them.
const ENUM_CHARS_MAX: usize = 600;

/// The values there are; of many the first.
fn one_of(options: &[Value]) -> String {
    let (shown, more) = options.split_at(options.len().min(ENUM_VALUES_MAX));
    let shown: Vec<String> = shown.iter().map(Value::to_string).collect();
    match (more.len(), shown.split_last()) {
        (0, Some((last, []))) => last.clone(),
        (0, Some((last, rest))) => format!("{} or {last}", rest.join(", ")),
        (more, _) => format!("{} or {more} others", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Whoever chose wrongly is told what there is to choose from: up to twelve values.
    /// U-5: a server's schema that does not compile, or refers elsewhere, checks that inputs are
    /// objects and nothing more; one that compiles is held to.
    #[test]
    fn schemas_of_servers() {
        for schema in [
            json!({ "type": "nonsense" }),
            json!({ "properties": { "a": { "$ref": "https://example.com/schema.json" } } }),
            json!({ "pattern": "(" }),
        ] {
            let schema = Schema::foreign(&schema);
            assert!(schema.check_input(&json!({ "a": 1 })).is_ok());
            assert!(schema.check_input(&json!([1])).is_err());
        }
        let draft_7 = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object", "properties": { "a": { "type": "string" } },
        });
        let schema = Schema::foreign(&draft_7);
        assert!(schema.check_input(&json!({ "a": "x" })).is_ok());
        assert!(schema.check_input(&json!({ "a": 1 })).is_err());
    }

    #[test]
    fn values_of_an_enum_are_listed() {
        let said = |count: usize| {
            let values: Vec<String> = (0..count).map(|n| format!("v{n}")).collect();
            let schema = json!({"properties": {"mode": {"enum": values}}});
            let (field, reason) = fault(schema, json!({"mode": "secret"}));
            assert_eq!(field, "mode");
            let named = reason.matches('v').count() - "the value".matches('v').count();
            (reason, named)
        };
        assert_eq!(said(1).0, r#"the value is not one of "v0""#);
        assert_eq!(said(3).0, r#"the value is not one of "v0", "v1" or "v2""#);
        let (eleven, twelve, thirteen) = (said(11), said(12), said(13));
        assert_eq!((eleven.1, twelve.1, thirteen.1), (11, 12, 12));
        assert!(twelve.0.ends_with(r#", "v10" or "v11""#), "{}", twelve.0);
        assert!(
            thirteen.0.ends_with(r#", "v11" or 1 others"#),
            "{}",
            thirteen.0
        );
        let long = json!({"enum": ["x".repeat(10_000), "y"]});
        assert!(fault(long, json!(1)).1.len() < 700);
    }

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
        let (field, reason) = fault(schema, json!({"name": "a", "secret": 1}));
        assert_eq!((&*field, &*reason), ("secret", "unexpected: secret"));
    }

    /// The schema of tools that give none is checked without the library, with its words.
    #[test]
    fn any_object() {
        let schema = Schema::compile(&json!({"type": "object"})).unwrap();
        assert!(schema.check_input(&json!({"a": 1})).is_ok());
        for no_object in [json!([]), json!("x"), json!(1), json!(null)] {
            assert!(schema.check_input(&no_object).is_err(), "{no_object}");
        }
        let later = Schema::builtin(&json!({"type": "object", "required": ["a"]}));
        assert!(later.check_input(&json!({})).is_err());
        assert!(later.check_input(&json!({"a": 1})).is_ok());
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
