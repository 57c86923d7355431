//! One request, from a line of `--serve` or the whole stdin of `--run` and `tool_exec`.

mod quick;

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::limits::{DEPTH_MAX, LEASE_TTL_MS_DEFAULT, LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN};
use super::state::StateMessage;
use crate::json::{self, JsonError, Key, Members, ObjectOr, Strict};

/// Which way a request came in; the three word their refusals differently (T-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A line of `--serve`.
    Serve,
    /// `--run PLUGIN AID`.
    Run,
    /// `tool_exec AID`.
    ToolExec,
}

/// One request with its fields checked for their types; unknown fields are ignored.
#[derive(Debug, Default, PartialEq)]
pub struct Request {
    /// `aid`; the empty text stands for anything that is no string, and names no tool.
    pub aid: Option<String>,
    /// `input_json` or `inputs`, whichever came; `{}` if neither did. T-1.
    pub input: RequestInput,
    /// `ds_state`.
    pub state: StateMessage,
    /// `idempotency_key`; the empty string is none.
    pub idempotency_key: Option<String>,
    /// `_lease_token`; the empty string is none.
    pub lease_token: Option<String>,
}

/// A tool's input as it came.
#[derive(Debug, PartialEq)]
pub enum RequestInput {
    /// Strict JSON: the value and its text.
    Json(Value, String),
    /// `input_json` does not hold JSON; the reason. The request itself is in order.
    Broken(String),
}

impl Default for RequestInput {
    fn default() -> Self {
        Self::Json(Value::Object(serde_json::Map::new()), "{}".to_owned())
    }
}

/// Why a request can not be taken.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Not strict JSON, or `null`.
    #[error("{0}")]
    NotJson(String),
    /// JSON, but no object.
    #[error("the request must be an object")]
    NotAnObject,
    /// A field of the wrong type, or two that exclude each other. T-1, T-25.
    #[error("{0}")]
    Wrong(String),
}

impl From<JsonError> for RequestError {
    fn from(error: JsonError) -> Self {
        Self::NotJson(error.to_string())
    }
}

impl Request {
    /// Reads one request.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        if let Some(envelope) = quick::envelope(bytes) {
            return envelope.into_request();
        }
        match json::parse_with(bytes, ObjectOr(STRICT, EnvelopeMembers))? {
            Ok(envelope) => envelope.into_request(),
            Err(Value::Null) => Err(RequestError::NotJson("the request is null".to_owned())),
            Err(_) => Err(RequestError::NotAnObject),
        }
    }
}

/// A field that should be a string.
#[derive(Debug, Default)]
enum Text<'a> {
    #[default]
    Absent,
    Is(Cow<'a, str>),
    Not,
}

impl Text<'_> {
    fn optional(self, name: &str) -> Result<Option<String>, RequestError> {
        match self {
            Self::Absent => Ok(None),
            Self::Is(text) if text.is_empty() => Ok(None),
            Self::Is(text) => Ok(Some(text.into_owned())),
            Self::Not => Err(RequestError::Wrong(format!("{name} must be a string"))),
        }
    }
}

#[derive(Default)]
struct Envelope<'a> {
    aid: Text<'a>,
    input_json: Text<'a>,
    inputs: Option<Value>,
    ds_state: Value,
    idempotency_key: Text<'a>,
    lease_token: Text<'a>,
}

impl Envelope<'_> {
    fn into_request(self) -> Result<Request, RequestError> {
        let aid = match self.aid {
            Text::Absent => None,
            Text::Is(text) => Some(text.into_owned()),
            Text::Not => Some(String::new()),
        };
        Ok(Request {
            aid,
            input: read_input(self.input_json, self.inputs)?,
            state: StateMessage::from_value(self.ds_state)
                .map_err(|error| RequestError::Wrong(error.to_string()))?,
            idempotency_key: self.idempotency_key.optional("idempotency_key")?,
            lease_token: self.lease_token.optional("_lease_token")?,
        })
    }
}

fn read_input(input_json: Text<'_>, inputs: Option<Value>) -> Result<RequestInput, RequestError> {
    let wrong = |reason: &str| Err(RequestError::Wrong(reason.to_owned()));
    match (input_json, inputs) {
        (Text::Absent, None) => Ok(RequestInput::default()),
        (Text::Absent, Some(Value::Object(members))) => {
            let value = Value::Object(members);
            let text = value.to_string();
            Ok(RequestInput::Json(value, text))
        }
        (Text::Absent, Some(_)) => wrong("inputs must be an object"),
        (_, Some(_)) => wrong("input_json and inputs exclude each other"),
        (Text::Not, None) => wrong("input_json must be a string that holds JSON"),
        (Text::Is(text), None) => Ok(match json::parse_text(&text, DEPTH_MAX) {
            Ok(value) => RequestInput::Json(value, text.into_owned()),
            Err(error) => RequestInput::Broken(error.to_string()),
        }),
    }
}

const STRICT: Strict = Strict {
    depth_left: DEPTH_MAX,
};

struct EnvelopeMembers;

impl<'de> Members<'de> for EnvelopeMembers {
    type Out = Box<Envelope<'de>>;

    fn read<A: MapAccess<'de>>(
        self,
        mut members: A,
        inside: Strict,
    ) -> Result<Self::Out, A::Error> {
        let mut envelope = Box::<Envelope<'de>>::default();
        let mut seen = 0u8;
        let mut others: Vec<Cow<'de, str>> = Vec::new();
        while let Some(key) = members.next_key_seed(Key)? {
            let known = match key.as_ref() {
                "aid" => 0,
                "input_json" => 1,
                "inputs" => 2,
                "ds_state" => 3,
                "idempotency_key" => 4,
                "_lease_token" => 5,
                _ => 7,
            };
            let twice = if known == 7 {
                others.contains(&key)
            } else {
                seen & (1 << known) != 0
            };
            if twice {
                return Err(json::duplicate(&key));
            }
            match known {
                0 => envelope.aid = members.next_value_seed(TextSeed(inside))?,
                1 => envelope.input_json = members.next_value_seed(TextSeed(inside))?,
                2 => envelope.inputs = Some(members.next_value_seed(inside)?),
                3 => envelope.ds_state = members.next_value_seed(inside)?,
                4 => envelope.idempotency_key = members.next_value_seed(TextSeed(inside))?,
                5 => envelope.lease_token = members.next_value_seed(TextSeed(inside))?,
                _ => {
                    // Unknown members are ignored, but not for ever: duplicates among them
                    // are looked for in a list, so the list is bounded.
                    if others.len() == UNKNOWN_MEMBERS_MAX {
                        return Err(serde::de::Error::custom("too many unknown members"));
                    }
                    others.push(key);
                    members.next_value_seed(inside)?;
                }
            }
            seen |= 1 << known;
        }
        Ok(envelope)
    }
}

const UNKNOWN_MEMBERS_MAX: usize = 64;

/// Reads a string, or walks past anything else.
struct TextSeed(Strict);

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Text<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Text::Is(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Text::Is(Cow::Owned(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        Ok(Text::Is(Cow::Owned(value)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Text::Absent)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Text::Not)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Text::Not)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Text::Not)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Text::Not)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        self.0.visit_seq(items)?;
        Ok(Text::Not)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        self.0.visit_map(members)?;
        Ok(Text::Not)
    }
}

/// The in-band lease commands, where `leases.in_band` turns them on. T-15.
#[derive(Debug, PartialEq, Eq)]
pub enum LeaseCommand {
    /// `_lease.issue`.
    Issue {
        /// The tool it is good for.
        tool_aid: String,
        /// The highest tier it is good for.
        tier: u64,
        /// Its life, clamped.
        ttl_ms: u64,
    },
    /// `_lease.gc`.
    Collect,
}

impl LeaseCommand {
    /// True if `aid` names one.
    #[must_use]
    pub fn is_named(aid: &str) -> bool {
        matches!(aid, "_lease.issue" | "_lease.gc")
    }

    /// Reads the command from the bytes of its request.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let value = json::parse(bytes, DEPTH_MAX)?;
        if value.get("aid").and_then(Value::as_str) == Some("_lease.gc") {
            return Ok(Self::Collect);
        }
        let number = |name: &str, default: u64| match value.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(given) => given
                .as_u64()
                .ok_or_else(|| RequestError::Wrong(format!("{name} must be a whole number"))),
        };
        let tool_aid = match value.get("tool_aid") {
            Some(Value::String(aid)) => aid.clone(),
            None | Some(Value::Null) => String::new(),
            Some(_) => return Err(RequestError::Wrong("tool_aid must be a string".to_owned())),
        };
        Ok(Self::Issue {
            tool_aid,
            tier: number("tier", 0)?,
            ttl_ms: number("ttl_ms", LEASE_TTL_MS_DEFAULT)?
                .clamp(LEASE_TTL_MS_MIN, LEASE_TTL_MS_MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: &Value) -> Result<Request, RequestError> {
        Request::parse(value.to_string().as_bytes())
    }

    #[test]
    fn the_contract_s_example() {
        let request = parse(&json!({
            "aid": "AID.MEMORY.QUERY.v1",
            "input_json": "{\"query\": \"test\", \"k\": \"3\"}",
            "ds_state": {"delta": true},
            "idempotency_key": "req-abc-123",
            "_lease_token": "tok_1",
            "unknown": {"x": [1]}
        }))
        .unwrap();
        assert_eq!(request.aid.as_deref(), Some("AID.MEMORY.QUERY.v1"));
        let text = "{\"query\": \"test\", \"k\": \"3\"}";
        assert_eq!(
            request.input,
            RequestInput::Json(json!({"query": "test", "k": "3"}), text.to_owned())
        );
        assert_eq!(request.idempotency_key.as_deref(), Some("req-abc-123"));
        assert_eq!(request.lease_token.as_deref(), Some("tok_1"));
    }

    /// T-1: either spelling of the input, never both.
    #[test]
    fn inputs_or_input_json() {
        let wanted = RequestInput::Json(json!({"a": 1}), "{\"a\":1}".to_owned());
        assert_eq!(parse(&json!({"inputs": {"a": 1}})).unwrap().input, wanted);
        assert_eq!(
            parse(&json!({"input_json": "{\"a\":1}"})).unwrap().input,
            wanted
        );
        assert_eq!(parse(&json!({})).unwrap().input, RequestInput::default());
        for both in [
            json!({"inputs": {}, "input_json": "{}"}),
            json!({"inputs": {}, "input_json": 1}),
        ] {
            assert!(parse(&both).unwrap_err().to_string().contains("exclude"));
        }
        assert!(matches!(
            parse(&json!({"input_json": "{"})).unwrap().input,
            RequestInput::Broken(_)
        ));
    }

    /// T-25: a known field of the wrong type is refused, never ignored.
    #[test]
    fn wrong_types() {
        for bad in [
            json!({"input_json": {}}),
            json!({"input_json": 1}),
            json!({"inputs": []}),
            json!({"inputs": null}),
            json!({"idempotency_key": 1}),
            json!({"idempotency_key": {}}),
            json!({"_lease_token": []}),
            json!({"ds_state": []}),
        ] {
            assert!(matches!(parse(&bad), Err(RequestError::Wrong(_))), "{bad}");
        }
        let empty = json!({"idempotency_key": "", "_lease_token": ""});
        let null = json!({"idempotency_key": null, "_lease_token": null, "input_json": null,
            "aid": null, "ds_state": null});
        for absent in [empty, null] {
            assert_eq!(parse(&absent).unwrap(), Request::default());
        }
        for no_tool in [json!({"aid": ""}), json!({"aid": 7}), json!({"aid": {}})] {
            assert_eq!(parse(&no_tool).unwrap().aid.as_deref(), Some(""));
        }
    }

    /// G-1: duplicates among known and unknown members, at any depth.
    #[test]
    fn duplicates() {
        for bad in [
            r#"{"aid":"A","aid":"A"}"#,
            r#"{"x":1,"x":1}"#,
            r#"{"a\u0069d":"A","aid":"B"}"#,
            r#"{"inputs":{"a":1,"a":2}}"#,
            r#"{"aid":{"a":1,"a":2}}"#,
            r#"[{"a":1,"a":2}]"#,
        ] {
            let error = Request::parse(bad.as_bytes()).unwrap_err();
            assert!(
                error.to_string().contains("duplicate key"),
                "{bad}: {error}"
            );
        }
    }

    /// T-25: unknown members are ignored, up to 64 of them.
    #[test]
    fn unknown_members() {
        let with = |count: usize| {
            let members: serde_json::Map<String, Value> =
                (0..count).map(|n| (format!("x{n}"), Value::Null)).collect();
            parse(&Value::Object(members))
        };
        assert_eq!(with(63).unwrap(), Request::default());
        assert_eq!(with(64).unwrap(), Request::default());
        assert!(matches!(with(65), Err(RequestError::NotJson(_))));
    }

    /// G-1: the depth counts from the request's own bracket, 32 at most.
    #[test]
    fn depth() {
        let nested = |depth: usize| {
            format!(
                "{{\"x\":{}{}}}",
                "[".repeat(depth - 1),
                "]".repeat(depth - 1)
            )
        };
        assert!(Request::parse(nested(31).as_bytes()).is_ok());
        assert!(Request::parse(nested(32).as_bytes()).is_ok());
        assert!(Request::parse(nested(33).as_bytes()).is_err());
    }

    #[test]
    fn no_object() {
        assert!(matches!(
            Request::parse(b"null"),
            Err(RequestError::NotJson(_))
        ));
        for text in ["[]", "1", "\"x\"", "true", "[1,[2]]", "-1.5"] {
            assert!(matches!(
                Request::parse(text.as_bytes()),
                Err(RequestError::NotAnObject)
            ));
        }
    }

    /// T-15: the life of a lease is clamped at both ends.
    #[test]
    fn lease_commands() {
        let issue = |ttl: Value| {
            let bytes = json!({"aid": "_lease.issue", "tool_aid": "A", "tier": 2, "ttl_ms": ttl});
            match LeaseCommand::parse(bytes.to_string().as_bytes()).unwrap() {
                LeaseCommand::Issue { ttl_ms, .. } => ttl_ms,
                LeaseCommand::Collect => panic!("an issue"),
            }
        };
        for (given, wanted) in [
            (999, 1000),
            (1000, 1000),
            (1001, 1001),
            (300_000, 300_000),
            (300_001, 300_000),
        ] {
            assert_eq!(issue(json!(given)), wanted);
        }
        assert_eq!(issue(Value::Null), 10_000);
        assert_eq!(
            LeaseCommand::parse(br#"{"aid":"_lease.gc"}"#).unwrap(),
            LeaseCommand::Collect
        );
        assert!(LeaseCommand::parse(br#"{"aid":"_lease.issue","tier":"2"}"#).is_err());
    }
}
