//! The run request: one JSON line on the executor's stdin. ST-10 to ST-19.

use serde_json::{Map, Value};

use super::limits::REQUEST_BYTES_MAX;
use super::proxy::ProxyEndpoint;
use crate::json;

/// What an executor is asked to run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// Names the run.
    pub run_id: String,
    /// 1 for the first try.
    pub attempt: u32,
    /// What it works on, where that has a name.
    pub job_id: Option<String>,
    /// The try before this one; there from the second try on.
    pub parent_run_id: Option<String>,
    /// What the script is given.
    pub job: Value,
    /// The proxy to use.
    pub proxy: Option<ProxyEndpoint>,
    /// A browser that runs already.
    pub browser_ws_endpoint: Option<String>,
    /// Where what it emits is kept.
    pub storage: Option<Storage>,
}

/// Where a run's events are kept. ST-18.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words are the contract's")]
pub struct Storage {
    pub dataset: String,
    pub source: String,
    pub category: String,
    pub day: String,
    pub run_id: String,
}

/// Why a line is no run request. ST-19.
#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    /// More than is read.
    #[error("a run request of more than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    /// Not a JSON object.
    #[error("not a JSON object")]
    NotJson(#[source] Option<json::JsonError>),
    /// A field that is not there or not right.
    #[error("`{field}` {problem}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What is wrong with it, without its value.
        problem: &'static str,
    },
}

impl RunRequest {
    /// Reads the line, with or without its end. Fields that we do not know are left alone.
    pub fn parse(line: &[u8]) -> Result<Self, BadRequest> {
        if line.len() > REQUEST_BYTES_MAX {
            return Err(BadRequest::TooLong);
        }
        let value =
            json::parse(line, json::DEPTH_MAX).map_err(|error| BadRequest::NotJson(Some(error)))?;
        let Value::Object(mut object) = value else {
            return Err(BadRequest::NotJson(None));
        };
        let attempt = object.get("attempt").and_then(Value::as_u64);
        let attempt = attempt
            .and_then(|attempt| u32::try_from(attempt).ok())
            .filter(|attempt| *attempt >= 1)
            .ok_or_else(|| bad("attempt", "is not an integer of 1 or more"))?;
        let proxy = match object.get("proxy") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let proxy = ProxyEndpoint::from_json(value);
                Some(proxy.map_err(|problem| bad("proxy", problem))?)
            }
        };
        let request = Self {
            run_id: required(&object, "run_id")?,
            attempt,
            job_id: optional(&object, "job_id")?,
            parent_run_id: optional(&object, "parent_run_id")?,
            browser_ws_endpoint: optional(&object, "browser_ws_endpoint")?
                .filter(|endpoint| !endpoint.is_empty()),
            storage: storage(&object)?,
            proxy,
            job: object
                .remove("job")
                .ok_or_else(|| bad("job", "is missing"))?,
        };
        request.check_parent()?;
        Ok(request)
    }

    /// A first try has no try before it, and every other one has. ST-14.
    pub fn check_parent(&self) -> Result<(), BadRequest> {
        match (self.attempt, &self.parent_run_id) {
            (1, Some(_)) => Err(bad("parent_run_id", "is there for attempt 1")),
            (2.., None) => Err(bad("parent_run_id", "is missing after attempt 1")),
            _ => Ok(()),
        }
    }

    /// Appends the line, its end included. It has the proxy's password.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let mut object = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                object.insert(key.to_owned(), value);
            }
        };
        let text = |text: &Option<String>| text.as_deref().map(Value::from);
        put("run_id", Some(self.run_id.as_str().into()));
        put("attempt", Some(self.attempt.into()));
        put("job_id", text(&self.job_id));
        put("parent_run_id", text(&self.parent_run_id));
        put("job", Some(self.job.clone()));
        put("proxy", self.proxy.as_ref().map(ProxyEndpoint::to_json));
        put("browser_ws_endpoint", text(&self.browser_ws_endpoint));
        put("storage", self.storage.as_ref().map(Storage::to_json));
        out.extend_from_slice(Value::Object(object).to_string().as_bytes());
        out.push(b'\n');
    }
}

impl Storage {
    fn to_json(&self) -> Value {
        serde_json::json!({
            "dataset": self.dataset,
            "source": self.source,
            "category": self.category,
            "day": self.day,
            "run_id": self.run_id,
        })
    }
}

fn bad(field: &'static str, problem: &'static str) -> BadRequest {
    BadRequest::Field { field, problem }
}

fn required(object: &Map<String, Value>, field: &'static str) -> Result<String, BadRequest> {
    match optional(object, field)? {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) => Err(bad(field, "is empty")),
        None => Err(bad(field, "is missing")),
    }
}

fn optional(
    object: &Map<String, Value>,
    field: &'static str,
) -> Result<Option<String>, BadRequest> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(bad(field, "is not text")),
    }
}

fn storage(object: &Map<String, Value>) -> Result<Option<Storage>, BadRequest> {
    let parts = match object.get("storage") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(parts)) => parts,
        Some(_) => return Err(bad("storage", "is not an object")),
    };
    let part = |name: &str| {
        let text = parts.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| bad("storage", "has a part that is missing, empty or not text"))
    };
    Ok(Some(Storage {
        dataset: part("dataset")?,
        source: part("source")?,
        category: part("category")?,
        day: part("day")?,
        run_id: part("run_id")?,
    }))
}
