//! What a run is: its header, which every record of it carries, and the request that it comes of.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::DEPTH_MAX;
use crate::json;

/// `spec_version` of a header that says nothing else. TH-131.
pub const SPEC_VERSION: &str = "1.4.2";
/// `profile_id` of a header that says nothing else. TH-132.
pub const PROFILE_ID: &str = "A";
/// Longest id, goal and tag; most tags and tool patterns.
const WORD_BYTES_MAX: usize = 256;
const WORDS_MAX: usize = 256;
/// The tag that is in every menu. TH-136.
pub const TAG_META: &str = "tag.meta";
/// Tries of a queued run, where its request does not say. TH-149.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 5;
/// Most tries that a request may ask for.
const ATTEMPTS_MAX: u64 = 100;
/// How long a queued run that failed waits before its second try. TH-149.
pub const BASE_DELAY_MS_DEFAULT: u64 = 2000;
/// The longest it waits before any. TH-149.
pub const DELAY_MS_MAX: u64 = 60_000;
/// What is added at random. TH-149.
pub const JITTER_MS_MAX: u64 = 250;

/// Names a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHeader {
    /// `spec_version`.
    pub spec_version: String,
    /// `profile_id`.
    pub profile_id: String,
    /// `run_id`: hexadecimal digits.
    pub run_id: String,
    /// `request_id`: the caller's own.
    pub request_id: Option<String>,
}

impl RunHeader {
    /// The header of a run.
    #[must_use]
    pub fn new(run_id: String, request: &RunRequest) -> Self {
        Self {
            spec_version: SPEC_VERSION.to_owned(),
            profile_id: PROFILE_ID.to_owned(),
            run_id,
            request_id: request.request_id.clone(),
        }
    }

    /// As records carry it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "spec_version": self.spec_version,
            "profile_id": self.profile_id,
            "run_id": self.run_id,
        });
        if let Some(id) = &self.request_id {
            value["request_id"] = json!(id);
        }
        value
    }

    /// Reads what a record carries. Fields that are absent have their defaults.
    pub fn from_value(value: &Value) -> Result<Self, RunRequestError> {
        let members = value
            .as_object()
            .ok_or_else(|| wrong("a header is an object"))?;
        let or = |name: &str, default: &str| {
            let found = word(members, name)?;
            Ok::<_, RunRequestError>(found.unwrap_or_else(|| default.to_owned()))
        };
        let run_id = word(members, "run_id")?.ok_or_else(|| wrong("run_id is missing"))?;
        if !is_run_id(&run_id) {
            return Err(wrong("run_id must be 1 to 64 hexadecimal digits"));
        }
        Ok(Self {
            spec_version: or("spec_version", SPEC_VERSION)?,
            profile_id: or("profile_id", PROFILE_ID)?,
            run_id,
            request_id: word(members, "request_id")?,
        })
    }
}

/// True for the digits of a run id. Older ones are not padded.
#[must_use]
pub fn is_run_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whose choice counts. TH-143.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlMode {
    /// The policy program is not asked.
    #[default]
    FallbackOnly,
    /// It is asked, and its answer noted.
    ShadowPolicy,
    /// Its choice counts unless it is `INVALID`.
    Blended,
    /// Its choice counts.
    PolicyOnly,
}

impl ControlMode {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::FallbackOnly,
        Self::ShadowPolicy,
        Self::Blended,
        Self::PolicyOnly,
    ];

    /// The contract's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FallbackOnly => "FALLBACK_ONLY",
            Self::ShadowPolicy => "SHADOW_POLICY",
            Self::Blended => "BLENDED",
            Self::PolicyOnly => "POLICY_ONLY",
        }
    }

    /// True if the policy program is asked.
    #[must_use]
    pub fn asks_policy(self) -> bool {
        self != Self::FallbackOnly
    }

    /// True if its choice counts.
    #[must_use]
    pub fn takes_policy(self) -> bool {
        matches!(self, Self::Blended | Self::PolicyOnly)
    }
}

/// A request for a run. TH-135.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// `goal_id`.
    pub goal_id: String,
    /// `candidate_tags`, with `tag.meta`.
    pub candidate_tags: Vec<String>,
    /// `inputs`.
    pub inputs: Map<String, Value>,
    /// `control_mode`.
    pub control_mode: ControlMode,
    /// `request_id`.
    pub request_id: Option<String>,
    /// `_capabilities.allowed_tools`; absent allows all.
    pub allowed_tools: Option<Vec<String>>,
    /// `_capabilities.blocked_tools`.
    pub blocked_tools: Vec<String>,
    /// `_queue.max_attempts`.
    pub max_attempts: u32,
    /// `_queue.base_delay_ms`: before the second try; it doubles with each further one.
    pub base_delay_ms: u64,
}

/// Why a request is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunRequestError(String);

fn wrong(reason: impl Into<String>) -> RunRequestError {
    RunRequestError(reason.into())
}

impl RunRequest {
    /// Reads a request's text: strict JSON, as all requests of this contract.
    pub fn parse(bytes: &[u8]) -> Result<Self, RunRequestError> {
        let value = json::parse(bytes, DEPTH_MAX).map_err(|error| wrong(error.to_string()))?;
        Self::from_value(&value)
    }

    /// Reads a request. Fields that are not known are ignored, known ones of another type are
    /// not (T-25).
    pub fn from_value(value: &Value) -> Result<Self, RunRequestError> {
        let members = value
            .as_object()
            .ok_or_else(|| wrong("a request is an object"))?;
        let goal_id = word(members, "goal_id")?.ok_or_else(|| wrong("goal_id is missing"))?;
        let mut candidate_tags = words(members, "candidate_tags")?.unwrap_or_default();
        if !candidate_tags.iter().any(|tag| tag == TAG_META) {
            candidate_tags.push(TAG_META.to_owned());
        }
        let none = Map::new();
        let queue = object(members, "_queue")?.unwrap_or(&none);
        let attempts = (u64::from(ATTEMPTS_MAX_DEFAULT), 1..=ATTEMPTS_MAX);
        let delays = (BASE_DELAY_MS_DEFAULT, 0..=DELAY_MS_MAX);
        let capabilities = object(members, "_capabilities")?.unwrap_or(&none);
        Ok(Self {
            goal_id,
            candidate_tags,
            inputs: object(members, "inputs")?.cloned().unwrap_or_default(),
            control_mode: control_mode(members)?,
            request_id: word(members, "request_id")?,
            allowed_tools: words(capabilities, "allowed_tools")?,
            blocked_tools: words(capabilities, "blocked_tools")?.unwrap_or_default(),
            max_attempts: u32::try_from(queued(queue, "max_attempts", attempts)?)
                .unwrap_or(u32::MAX),
            base_delay_ms: queued(queue, "base_delay_ms", delays)?,
        })
    }

    /// As it is recorded.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "goal_id": self.goal_id,
            "candidate_tags": self.candidate_tags,
            "inputs": self.inputs,
            "control_mode": self.control_mode.as_str(),
            "_capabilities": { "blocked_tools": self.blocked_tools },
            "_queue": {
                "max_attempts": self.max_attempts,
                "base_delay_ms": self.base_delay_ms,
            },
        });
        if let Some(allowed) = &self.allowed_tools {
            value["_capabilities"]["allowed_tools"] = json!(allowed);
        }
        if let Some(id) = &self.request_id {
            value["request_id"] = json!(id);
        }
        value
    }

    /// How long to wait after a try that failed, before what is added at random. TH-149.
    #[must_use]
    pub fn delay_ms(&self, attempt: u32) -> u64 {
        let doubled = 1_u64
            .checked_shl(attempt.saturating_sub(1))
            .unwrap_or(u64::MAX);
        self.base_delay_ms.saturating_mul(doubled).min(DELAY_MS_MAX)
    }

    /// True if a tool with these names and tags is on the menu.
    #[must_use]
    pub fn admits(&self, names: &[&str], tags: &[String]) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begin) => names.iter().any(|name| name.starts_with(begin)),
            None => names.contains(&pattern.as_str()),
        };
        tags.iter().any(|tag| self.candidate_tags.contains(tag))
            && self
                .allowed_tools
                .as_ref()
                .is_none_or(|all| all.iter().any(fits))
            && !self.blocked_tools.iter().any(fits)
    }
}

/// A text that is not empty; `null` and the empty text count as absent, as ids do elsewhere (T-25).
fn word(members: &Map<String, Value>, name: &str) -> Result<Option<String>, RunRequestError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() > WORD_BYTES_MAX => Err(wrong(format!(
            "{name} is longer than {WORD_BYTES_MAX} bytes"
        ))),
        Some(Value::String(text)) => Ok((!text.is_empty()).then(|| text.clone())),
        Some(_) => Err(wrong(format!("{name} must be a string"))),
    }
}

fn words(members: &Map<String, Value>, name: &str) -> Result<Option<Vec<String>>, RunRequestError> {
    let items = match members.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) if items.len() <= WORDS_MAX => items,
        Some(Value::Array(_)) => return Err(wrong(format!("{name} has more than {WORDS_MAX}"))),
        Some(_) => return Err(wrong(format!("{name} must be a list of strings"))),
    };
    let text = |item: &Value| match item.as_str() {
        Some(text) if !text.is_empty() && text.len() <= WORD_BYTES_MAX => Ok(text.to_owned()),
        _ => Err(wrong(format!("{name} must be a list of strings"))),
    };
    items.iter().map(text).collect::<Result<_, _>>().map(Some)
}

fn object<'a>(
    members: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a Map<String, Value>>, RunRequestError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(inside)) => Ok(Some(inside)),
        Some(_) => Err(wrong(format!("{name} must be an object"))),
    }
}

fn control_mode(members: &Map<String, Value>) -> Result<ControlMode, RunRequestError> {
    let Some(text) = word(members, "control_mode")? else {
        return Ok(ControlMode::default());
    };
    let found = ControlMode::ALL
        .into_iter()
        .find(|mode| mode.as_str() == text);
    found.ok_or_else(|| {
        wrong("control_mode is one of FALLBACK_ONLY, SHADOW_POLICY, BLENDED, POLICY_ONLY")
    })
}

fn queued(
    queue: &Map<String, Value>,
    name: &str,
    (default, range): (u64, RangeInclusive<u64>),
) -> Result<u64, RunRequestError> {
    match queue.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => match value.as_u64() {
            Some(number) if range.contains(&number) => Ok(number),
            _ => Err(wrong(format!(
                "_queue.{name} is {} to {}",
                range.start(),
                range.end()
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TH-131, TH-132, TH-133, TH-134: each field, its default and its type.
    #[test]
    fn headers() {
        let request =
            RunRequest::from_value(&json!({"goal_id": "g", "request_id": "r-1"})).unwrap();
        let header = RunHeader::new("00ff".to_owned(), &request);
        let wanted = json!({"spec_version": "1.4.2", "profile_id": "A", "run_id": "00ff",
                            "request_id": "r-1"});
        assert_eq!(header.to_value(), wanted);
        assert_eq!(RunHeader::from_value(&wanted).unwrap(), header);
        let bare = RunHeader::from_value(&json!({"run_id": "1a"})).unwrap();
        assert_eq!(
            (&*bare.spec_version, &*bare.profile_id, &bare.request_id),
            ("1.4.2", "A", &None)
        );
        assert!(bare.to_value().get("request_id").is_none());
        for wrong in [
            json!({}),
            json!([]),
            json!({"run_id": ""}),
            json!({"run_id": "xyz"}),
            json!({"run_id": 7}),
            json!({"run_id": "a".repeat(65)}),
            json!({"run_id": "1a", "spec_version": 1}),
            json!({"run_id": "1a", "profile_id": []}),
            json!({"run_id": "1a", "request_id": 5}),
        ] {
            assert!(RunHeader::from_value(&wrong).is_err(), "{wrong}");
        }
    }

    /// TH-135: each field of a request, its default, and what is read back of it.
    #[test]
    fn requests() {
        let bare = RunRequest::parse(b"{\"goal_id\":\"goal.x\",\"other\":1}").unwrap();
        assert_eq!(bare.candidate_tags, [TAG_META]);
        assert_eq!(bare.control_mode, ControlMode::FallbackOnly);
        assert_eq!((bare.max_attempts, &bare.request_id), (5, &None));
        let whole = json!({
            "goal_id": "g", "candidate_tags": ["tag.a", "tag.meta"], "inputs": {"x": 1},
            "control_mode": "POLICY_ONLY", "request_id": "r",
            "_capabilities": {"allowed_tools": ["AID.A.*"], "blocked_tools": ["AID.A.B.v1"]},
            "_queue": {"max_attempts": 2, "base_delay_ms": 10},
        });
        let read = RunRequest::from_value(&whole).unwrap();
        assert_eq!(read.to_value(), whole);
        assert_eq!(RunRequest::from_value(&bare.to_value()).unwrap(), bare);
        for mode in ControlMode::ALL {
            let request = json!({"goal_id": "g", "control_mode": mode.as_str()});
            assert_eq!(RunRequest::from_value(&request).unwrap().control_mode, mode);
        }
        for wrong in [
            json!(null),
            json!({}),
            json!({"goal_id": ""}),
            json!({"goal_id": 1}),
            json!({"goal_id": "g".repeat(257)}),
            json!({"goal_id": "g", "candidate_tags": "tag.a"}),
            json!({"goal_id": "g", "candidate_tags": [1]}),
            json!({"goal_id": "g", "candidate_tags": vec!["t"; 257]}),
            json!({"goal_id": "g", "inputs": []}),
            json!({"goal_id": "g", "control_mode": "policy_only"}),
            json!({"goal_id": "g", "control_mode": 1}),
            json!({"goal_id": "g", "request_id": 1}),
            json!({"goal_id": "g", "_capabilities": 1}),
            json!({"goal_id": "g", "_capabilities": {"allowed_tools": {}}}),
            json!({"goal_id": "g", "_queue": []}),
            json!({"goal_id": "g", "_queue": {"max_attempts": 0}}),
            json!({"goal_id": "g", "_queue": {"max_attempts": 101}}),
            json!({"goal_id": "g", "_queue": {"base_delay_ms": 60_001}}),
        ] {
            assert!(RunRequest::from_value(&wrong).is_err(), "{wrong}");
        }
        assert!(RunRequest::parse(b"{\"goal_id\":\"g\",\"goal_id\":\"h\"}").is_err());
    }

    /// TH-149: 2 s, doubling, 60 s at most.
    #[test]
    fn delays() {
        let request = RunRequest::from_value(&json!({"goal_id": "g"})).unwrap();
        let delays: Vec<u64> = [1, 2, 3, 5, 6, 99].map(|n| request.delay_ms(n)).to_vec();
        assert_eq!(delays, [2000, 4000, 8000, 32_000, 60_000, 60_000]);
    }

    /// TH-135, TH-136: tags, and names exact or with a trailing star.
    #[test]
    fn who_is_on_the_menu() {
        let request = |capabilities: Value| {
            let request =
                json!({"goal_id": "g", "candidate_tags": ["tag.a"], "_capabilities": capabilities});
            RunRequest::from_value(&request).unwrap()
        };
        let tag = |name: &str| vec![name.to_owned()];
        let names = ["one", "AID.A.ONE.v1"];
        assert!(request(json!({})).admits(&names, &tag("tag.a")));
        assert!(request(json!({})).admits(&names, &tag("tag.meta")));
        assert!(!request(json!({})).admits(&names, &tag("tag.b")));
        assert!(request(json!({"allowed_tools": ["AID.A.*"]})).admits(&names, &tag("tag.a")));
        assert!(request(json!({"allowed_tools": ["one"]})).admits(&names, &tag("tag.a")));
        assert!(!request(json!({"allowed_tools": ["AID.A.ON"]})).admits(&names, &tag("tag.a")));
        assert!(!request(json!({"allowed_tools": []})).admits(&names, &tag("tag.a")));
        assert!(!request(json!({"blocked_tools": ["*"]})).admits(&names, &tag("tag.a")));
        assert!(!request(json!({"blocked_tools": ["AID.A.ONE.v1"]})).admits(&names, &tag("tag.a")));
    }
}
