//! What a call asks of a run, or why not.

use callgate_call::{Fault, RunOrder, RunPolicy, RunProxy};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::NaturalNumber;
use crate::programs::{Variables, bad};

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

/// The arguments of `runs/start`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStartArguments<'a> {
    #[serde(borrow)]
    pub command: Vec<&'a str>,
    run_id: Option<String>,
    /// Passed on to the script as it is.
    #[serde(default)]
    job: Value,
    job_id: Option<String>,
    attempt: Option<NaturalNumber>,
    parent_run_id: Option<String>,
    dataset: Option<String>,
    source: Option<String>,
    category: Option<String>,
    #[serde(borrow)]
    policy: Option<RunPolicyArguments<'a>>,
    artifact_max: Option<NaturalNumber>,
    timeout_ms: Option<NaturalNumber>,
    #[serde(borrow, default)]
    pub env: Variables<'a>,
    proxy: Option<RunProxyArguments>,
    browser_ws_endpoint: Option<String>,
}

/// The policy that a call asks for, by name and with its bounds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunPolicyArguments<'a> {
    name: &'a str,
    events: Option<NaturalNumber>,
    bytes: Option<NaturalNumber>,
    count: Option<NaturalNumber>,
    interval_ms: Option<NaturalNumber>,
}

/// The proxy that a run is to use.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunProxyArguments {
    protocol: String,
    host: String,
    port: NaturalNumber,
    username: Option<String>,
    password: Option<String>,
}

/// Reads the order of a run from what fits the schema. What the call leaves out is as in `usual`.
pub fn read(asked: RunStartArguments<'_>, usual: &RunOrder) -> Result<RunOrder, Fault> {
    let policy = match &asked.policy {
        None => usual.policy.clone(),
        Some(asked) => policy(asked)?,
    };
    if asked.run_id.as_deref() == Some(LAST) {
        return Err(bad("run_id", "`last` stands for the newest run"));
    }
    let attempt = asked.attempt.map_or(1, |attempt| attempt.0);
    let artifact_max = asked.artifact_max.map(|max| max.0);
    Ok(RunOrder {
        run_id: asked.run_id,
        job: asked.job,
        job_id: asked.job_id,
        attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
        parent_run_id: asked.parent_run_id,
        dataset: asked.dataset.unwrap_or_else(|| usual.dataset.clone()),
        source: asked.source.unwrap_or_else(|| usual.source.clone()),
        category: asked.category.unwrap_or_else(|| usual.category.clone()),
        policy,
        artifact_bytes_max: artifact_max.or(usual.artifact_bytes_max),
        contract_versions: usual.contract_versions.clone(),
        proxy: asked.proxy.and_then(proxy),
        browser_ws_endpoint: asked.browser_ws_endpoint,
        timeout: asked.timeout_ms.map(NaturalNumber::milliseconds),
    })
}

fn policy(asked: &RunPolicyArguments<'_>) -> Result<RunPolicy, Fault> {
    let number = |asked: Option<NaturalNumber>| asked.map(|number| number.0);
    RunPolicy::named(
        asked.name,
        (number(asked.events), number(asked.bytes)),
        (
            number(asked.count),
            asked.interval_ms.map(NaturalNumber::milliseconds),
        ),
    )
    .map_err(|reason| bad("policy", reason))
}

fn proxy(asked: RunProxyArguments) -> Option<RunProxy> {
    Some(RunProxy {
        protocol: asked.protocol,
        host: asked.host,
        port: u16::try_from(asked.port.0).ok()?,
        username: asked.username,
        password: asked.password,
    })
}
