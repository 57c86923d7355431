//! What a call asks of a run, or why not.

use std::time::Duration;

use callgate_call::{Fault, RunOrder, RunPolicy, RunProxy, natural_number};
use serde_json::{Value, json};

use crate::programs::bad;

/// The largest artifact that may be asked for: 1 TiB.
const ARTIFACT_MAX: u64 = 1 << 40;
/// The longest a run may take: a day.
const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Names that a caller may give a run: names of folders, and no options. ST-11.
const RUN_ID_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";
/// Stands for the newest run wherever a run is named.
const LAST: &str = "last";
/// Addresses of browsers. ST-17.
const BROWSER_PATTERN: &str = "^wss?://[^\\s/]\\S*$";
/// Longest such address; some have a token in them.
const BROWSER_CHARS_MAX: usize = 2048;

/// What `runs/start` takes.
pub fn schema() -> Value {
    let word = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let count = json!({ "type": "integer", "minimum": 1 });
    let run_id = json!({ "type": "string", "pattern": RUN_ID_PATTERN,
        "description": "The run's name in the workspace, of at most 128 letters, digits and . _ -, \
                        which no other run has" });
    let browser = json!({ "type": "string", "pattern": BROWSER_PATTERN, "maxLength": BROWSER_CHARS_MAX,
        "description": "A browser that runs already: ws:// or wss://" });
    let properties = json!({
        "command": { "type": "array", "items": { "type": "string" }, "minItems": 1,
            "description": "The executor and its arguments, its script among them" },
        "run_id": run_id,
        "job": { "description": "For the script: any JSON" },
        "job_id": word,
        "attempt": { "type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 1 },
        "parent_run_id": word,
        "dataset": word,
        "source": word,
        "category": word,
        "policy": crate::closed(json!({
            "name": { "enum": ["strict", "buffered", "streaming"] },
            "events": count,
            "bytes": count,
            "count": count,
            "interval_ms": count,
        }), &["name"]),
        "artifact_max": { "type": "integer", "minimum": 1, "maximum": ARTIFACT_MAX,
            "description": "Bytes of the largest artifact" },
        "timeout_ms": { "type": "integer", "minimum": 1, "maximum": TIMEOUT_MS_MAX },
        "env": { "type": "object", "additionalProperties": { "type": "string" } },
        "proxy": crate::closed(json!({
            "protocol": { "enum": ["http", "https", "socks5"] },
            "host": word,
            "port": { "type": "integer", "minimum": 1, "maximum": 65_535 },
            "username": { "type": "string" },
            "password": { "type": "string", "writeOnly": true },
        }), &["protocol", "host", "port"]),
        "browser_ws_endpoint": browser,
    });
    crate::closed(properties, &["command"])
}

/// Reads what fits the schema. What is not said is as in `usual`.
pub fn read(input: &Value, usual: &RunOrder) -> Result<RunOrder, Fault> {
    let text = |name: &str| input[name].as_str().map(str::to_owned);
    let attempt = natural_number(&input["attempt"]).unwrap_or(1);
    let policy = match &input["policy"] {
        Value::Null => usual.policy.clone(),
        asked => policy(asked)?,
    };
    let run_id = text("run_id");
    if run_id.as_deref() == Some(LAST) {
        return Err(bad("run_id", "`last` stands for the newest run"));
    }
    Ok(RunOrder {
        run_id,
        job: input["job"].clone(),
        job_id: text("job_id"),
        attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
        parent_run_id: text("parent_run_id"),
        dataset: text("dataset").unwrap_or_else(|| usual.dataset.clone()),
        source: text("source").unwrap_or_else(|| usual.source.clone()),
        category: text("category").unwrap_or_else(|| usual.category.clone()),
        policy,
        artifact_bytes_max: natural_number(&input["artifact_max"]).or(usual.artifact_bytes_max),
        contract_versions: usual.contract_versions.clone(),
        proxy: proxy(&input["proxy"]),
        browser_ws_endpoint: text("browser_ws_endpoint"),
        timeout: natural_number(&input["timeout_ms"]).map(Duration::from_millis),
    })
}

fn policy(asked: &Value) -> Result<RunPolicy, Fault> {
    let number = |name: &str| natural_number(&asked[name]);
    RunPolicy::named(
        asked["name"].as_str().unwrap_or_default(),
        (number("events"), number("bytes")),
        (
            number("count"),
            number("interval_ms").map(Duration::from_millis),
        ),
    )
    .map_err(|reason| bad("policy", reason))
}

fn proxy(asked: &Value) -> Option<RunProxy> {
    let text = |name: &str| asked[name].as_str().map(str::to_owned);
    Some(RunProxy {
        protocol: text("protocol")?,
        host: text("host")?,
        port: u16::try_from(natural_number(&asked["port"])?).ok()?,
        username: text("username"),
        password: text("password"),
    })
}
