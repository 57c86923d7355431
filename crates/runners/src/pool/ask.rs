//! A tool that asks its caller's user: the questions a worker answers a call with, and the
//! answers its next call brings. The worker remembers nothing in between, so that any worker
//! can take the next round: all that was answered so far goes along as the fault's state.

use callgate_call::{Call, Fault};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::answer::{bad, strict};

/// The longest `ask`: a person is to read it.
const ASK_BYTES_MAX: usize = 16 * 1024;

/// What a field of a form may be. MCP's forms are flat.
const FIELD_TYPES: [&str; 5] = ["string", "number", "integer", "boolean", "array"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    message: String,
    schema: Value,
}

/// The fault that a worker's `ask` stands for.
pub(super) fn needs_input(ask: &RawValue, call: &Call) -> Fault {
    match requests(ask) {
        Ok(requests) => Fault::NeedsInput {
            requests,
            state: Some(Value::Object(answers(call))),
        },
        Err(fault) => fault,
    }
}

/// Everything the user has answered to this call, in all rounds.
pub(super) fn answers(call: &Call) -> Map<String, Value> {
    let Some(given) = &call.answers else {
        return Map::new();
    };
    let earlier = given.state.as_ref().and_then(Value::as_object);
    let mut all = earlier.cloned().unwrap_or_default();
    all.extend(given.responses.clone());
    all
}

fn requests(ask: &RawValue) -> Result<Map<String, Value>, Fault> {
    if ask.get().len() > ASK_BYTES_MAX {
        return Err(bad(format!("`ask` is longer than {ASK_BYTES_MAX} bytes")));
    }
    let Value::Object(questions) = strict(ask)? else {
        return Err(bad("`ask` is an object of questions by their names"));
    };
    if questions.is_empty() {
        return Err(bad("`ask` asks nothing"));
    }
    let requests = questions.into_iter().map(|(key, question)| {
        let request = request(question)
            .map_err(|reason| bad(format!("the question `{key}` of `ask`: {reason}")))?;
        Ok((key, request))
    });
    requests.collect()
}

fn request(question: Value) -> Result<Value, String> {
    let Question { message, schema } =
        serde_json::from_value(question).map_err(|error| error.to_string())?;
    let fields = schema.get("properties").and_then(Value::as_object);
    let (Some("object"), Some(fields)) = (schema.get("type").and_then(Value::as_str), fields)
    else {
        return Err("its `schema` is not an object's with `properties`".to_owned());
    };
    for (name, field) in fields {
        let kind = field.get("type").and_then(Value::as_str);
        if !kind.is_some_and(|kind| FIELD_TYPES.contains(&kind)) {
            let known = FIELD_TYPES.join(", ");
            return Err(format!("the type of `{name}` is not one of {known}"));
        }
    }
    Ok(json!({
        "method": "elicitation/create",
        "params": { "mode": "form", "message": message, "requestedSchema": schema },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Map<String, Value>, Fault> {
        requests(serde_json::from_str(text).expect("JSON"))
    }

    #[test]
    fn a_question_becomes_a_form() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let ask = json!({ "which": { "message": "Which?", "schema": schema } });
        let wanted = json!({ "which": {
            "method": "elicitation/create",
            "params": { "mode": "form", "message": "Which?", "requestedSchema": schema },
        } });
        assert_eq!(asked(&ask.to_string()).map(Value::Object), Ok(wanted));
    }

    #[test]
    fn what_can_not_be_asked_is_bad_output() {
        let with = |schema: Value| json!({ "q": { "message": "?", "schema": schema } }).to_string();
        let nested = json!({ "type": "object", "properties": { "a": { "type": "object" } } });
        let long = format!("{{\"q\":\"{}\"}}", "x".repeat(ASK_BYTES_MAX));
        for (text, wanted) in [
            ("7", "object of questions"),
            ("{}", "asks nothing"),
            (r#"{"q":{"message":"?"}}"#, "missing field `schema`"),
            (
                r#"{"q":{"message":"?","schema":{},"x":1}}"#,
                "unknown field",
            ),
            (&with(json!({ "type": "string" })), "not an object's"),
            (&with(nested), "the type of `a`"),
            (r#"{"q":1,"q":2}"#, "strict"),
            (&long, "longer than"),
        ] {
            let fault = asked(text).expect_err(text);
            assert_eq!(fault.kind(), "bad_output", "{text}");
            assert!(fault.to_string().contains(wanted), "{text}: {fault}");
        }
    }
}
