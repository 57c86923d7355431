//! What the command line asks for, as the input of `runs/start`.

use std::io::ErrorKind;
use std::path::Path;

use callgate_call::RunPolicy;
use callgate_call::bounded::read_path_text;
use callgate_registry::environment::Environment;
use callgate_wires::json::{self, DEPTH_MAX};
use callgate_wires::stream::REQUEST_BYTES_MAX;
use serde_json::{Value, json};

use super::{Run, proxy};

use crate::error::ArgumentError;

/// The longest a run takes that says nothing: a day.
const TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// The first run's input, or what is wrong with the command line.
pub fn order(environment: &Environment, asked: &Run) -> Result<Value, ArgumentError> {
    if asked.parent_run_id.is_some() != (asked.attempt > 1) {
        return Err(ArgumentError::Attempt);
    }
    let timeout = asked.timeout.map(|timeout| timeout.as_millis());
    let mut input = json!({
        "command": asked.command,
        "job": job(environment, asked.job.as_deref())?,
        "attempt": asked.attempt,
        "timeout_ms": timeout.map_or(TIMEOUT_MS, |ms| u64::try_from(ms).unwrap_or(TIMEOUT_MS)),
    });
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            input[name] = value;
        }
    };
    put("run_id", asked.run_id.clone().map(Value::from));
    let browser = asked.browser_ws_endpoint.clone().map(Value::from);
    put("browser_ws_endpoint", browser);
    put("job_id", asked.job_id.clone().map(Value::from));
    put(
        "parent_run_id",
        asked.parent_run_id.clone().map(Value::from),
    );
    put("dataset", asked.dataset.clone().map(Value::from));
    put("source", asked.source.clone().map(Value::from));
    put("category", asked.category.clone().map(Value::from));
    put("artifact_max", asked.artifact_max.map(Value::from));
    put("policy", policy(asked)?);
    put("proxy", proxy::read(environment, asked)?);
    Ok(input)
}

/// Nothing if nothing is said of it. ST-84, ST-85.
fn policy(asked: &Run) -> Result<Option<Value>, ArgumentError> {
    let (buffer, flush) = (
        (asked.buffer_events, asked.buffer_bytes),
        (asked.flush_count, asked.flush_interval),
    );
    let Some(name) = &asked.policy else {
        return match (buffer, flush) {
            ((None, None), (None, None)) => Ok(None),
            _ => Err(ArgumentError::Bounds),
        };
    };
    RunPolicy::named(name, buffer, flush).map_err(|reason| ArgumentError::RunPolicy {
        name: name.clone(),
        reason,
    })?;
    let interval = flush
        .1
        .map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    let bounds = [
        ("events", buffer.0),
        ("bytes", buffer.1),
        ("count", flush.0),
        // What is shorter than a millisecond is due at once.
        ("interval_ms", interval.map(|ms| ms.max(1))),
    ];
    let mut policy = json!({ "name": name });
    for (name, bound) in bounds {
        if let Some(bound) = bound {
            policy[name] = json!(bound);
        }
    }
    Ok(Some(policy))
}

fn job(environment: &Environment, asked: Option<&str>) -> Result<Value, ArgumentError> {
    let Some(text) = asked else {
        return Ok(Value::Null);
    };
    let text = match text.strip_prefix('@') {
        Some(file) => read_file(environment, file, REQUEST_BYTES_MAX, "--job")?,
        None => text.to_owned(),
    };
    json::parse(text.as_bytes(), DEPTH_MAX).map_err(|source| ArgumentError::Json {
        name: "--job".to_owned(),
        source,
    })
}

/// A file that an option names, which is no longer than `max`.
pub fn read_file(
    environment: &Environment,
    file: &str,
    max: usize,
    option: &'static str,
) -> Result<String, ArgumentError> {
    let path = environment.current_dir.join(Path::new(file));
    match read_path_text(&path, max as u64) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(ArgumentError::LongFile {
            option,
            path,
            bytes_max: max,
        }),
        Err(source) => Err(ArgumentError::File {
            option,
            path,
            source,
        }),
    }
}

/// Reads the name of a run, as `runs/start` takes it.
pub fn run_id(text: &str) -> Result<String, ArgumentError> {
    let is_first = |c: char| c.is_ascii_alphanumeric();
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if text.len() <= 128
        && text.starts_with(is_first)
        && text.chars().all(is_known)
        && text != "last"
    {
        return Ok(text.to_owned());
    }
    Err(ArgumentError::RunName)
}

/// Reads the address of a browser.
pub fn browser(text: &str) -> Result<String, ArgumentError> {
    let rest = text.strip_prefix("ws://");
    let rest = rest
        .or_else(|| text.strip_prefix("wss://"))
        .unwrap_or_default();
    let is_address =
        !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace);
    if is_address && text.chars().count() <= 2048 {
        return Ok(text.to_owned());
    }
    Err(ArgumentError::Browser)
}

/// Reads `4096`, `64K`, `8M`, `8G` or `1T`.
pub fn bytes(text: &str) -> Result<u64, ArgumentError> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => (number, text.chars().next_back()),
        None => (text, None),
    };
    let shift = match unit {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => 0,
    };
    let number: u64 = number.parse().map_err(|_| ArgumentError::Size)?;
    let bytes = number.checked_mul(1 << shift);
    bytes
        .filter(|bytes| (1..=1 << 40).contains(bytes))
        .ok_or(ArgumentError::Size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("4096").ok(), Some(4096));
        assert_eq!(bytes("8G").ok(), Some(8 << 30));
        assert_eq!(bytes("1T").ok(), Some(1 << 40));
        for wrong in ["", "0", "G", "2T", "1g", "-1", "99999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
