//! Spans to a collector: OTLP over HTTP, as JSON. A call hands over its trace and goes on; what
//! a queue of fixed length does not take, or a collector does not, is dropped and counted. The
//! names are OpenTelemetry's for tools of models and for MCP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callgate_call::Digest;
use callgate_dial::{Address, Ask, Dialer};
use callgate_gate::Spans;
use callgate_registry::config::TelemetryConfig;
use callgate_registry::environment::Environment;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// Calls whose spans wait.
const QUEUE_MAX: usize = 2048;
/// Calls of one batch.
const BATCH_MAX: usize = 256;
/// How long a batch waits for company.
const LINGER: Duration = Duration::from_millis(200);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last batches may take together.
const FAREWELL: Duration = Duration::from_secs(2);
/// What a collector may answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

type Trace = Map<String, Value>;

/// Where calls leave their traces.
pub struct Queue {
    traces: mpsc::Sender<Box<str>>,
    dropped: Arc<AtomicU64>,
}

impl Spans for Queue {
    fn offer(&self, trace: &str) {
        if self.traces.try_send(trace.into()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Sends what is in the queue.
pub struct Exporter {
    traces: mpsc::Receiver<Box<str>>,
    dropped: Arc<AtomicU64>,
    dialer: Dialer,
    to: Address,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why traces cannot be sent to the collector of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// An address that cannot be asked.
    #[error("[telemetry]: {0}")]
    Address(String),
    /// A header without a value.
    #[error("[telemetry]: a header is name=value")]
    HeaderForm,
    /// A name that no header has.
    #[error("[telemetry]: a header's name is none")]
    HeaderName,
    /// A value that no header has. The value may be a secret, and is not printed.
    #[error("[telemetry]: header `{0}` is none")]
    HeaderValue(String),
}

/// The queue and its exporter, if the configuration names a collector.
pub fn exporter(
    config: &TelemetryConfig,
    environment: &Environment,
    dialer: Dialer,
) -> Result<Option<(Arc<Queue>, Exporter)>, TelemetryError> {
    let Some(url) = &config.otlp else {
        return Ok(None);
    };
    let to = Address::parse(url).map_err(TelemetryError::Address)?;
    let words = config
        .headers_env
        .as_deref()
        .and_then(|name| environment.text(name));
    let headers = headers(words.unwrap_or_default())?;
    let (sender, traces) = mpsc::channel(QUEUE_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    let queue = Queue {
        traces: sender,
        dropped: Arc::clone(&dropped),
    };
    let path = format!("{}/v1/traces", to.path().trim_end_matches('/'));
    let exporter = Exporter {
        traces,
        dropped,
        dialer,
        to,
        path,
        headers,
    };
    Ok(Some((Arc::new(queue), exporter)))
}

/// `name=value,name=value`, as OpenTelemetry writes headers in a variable. The values are not
/// told: they are likely secrets.
fn headers(words: &str) -> Result<Vec<(HeaderName, HeaderValue)>, TelemetryError> {
    let pairs = words
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or(TelemetryError::HeaderForm)?;
            let bad = |_| TelemetryError::HeaderValue(name.trim().to_owned());
            let name: HeaderName = name
                .trim()
                .parse()
                .map_err(|_| TelemetryError::HeaderName)?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(bad)?;
            value.set_sensitive(true);
            Ok((name, value))
        })
        .collect()
}

impl Exporter {
    /// Sends until `stop` is ready, and then what is left, for a little while.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // What an arm that loses has taken from the queue is nothing: `recv` is cancel safe.
            let first = tokio::select! {
                biased;
                () = &mut stop => break,
                first = self.traces.recv() => first,
            };
            let Some(first) = first else { return };
            // Neither arm can lose `first`, which the loop owns. Biased so that a stop cuts the
            // wait for more spans short.
            tokio::select! {
                biased;
                () = &mut stop => {
                    self.send_with(vec![first]).await;
                    break;
                }
                () = tokio::time::sleep(LINGER) => {}
            }
            self.send_with(vec![first]).await;
        }
        self.traces.close();
        let rest = async {
            while let Some(first) = self.traces.recv().await {
                self.send_with(vec![first]).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, rest).await;
    }

    /// Sends these and what else waits, up to a batch.
    async fn send_with(&mut self, mut batch: Vec<Box<str>>) {
        while batch.len() < BATCH_MAX
            && let Ok(next) = self.traces.try_recv()
        {
            batch.push(next);
        }
        let count = batch.len() as u64;
        let mut ask = Ask::post(&self.path, body(&batch).to_string().into_bytes());
        for (name, value) in &self.headers {
            ask.header(name.clone(), value.clone());
        }
        let asked = self.dialer.ask(&self.to, ask, ANSWER_BYTES_MAX);
        let taken = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(reply)) => (200..300).contains(&reply.status),
            Ok(Err(_)) | Err(_) => false,
        };
        if !taken {
            self.dropped.fetch_add(count, Ordering::Relaxed);
            tracing::debug!(target: "callgate::telemetry", calls = count, to = %self.to, "spans not taken");
        }
    }
}

/// One request of OTLP.
fn body(traces: &[Box<str>]) -> Value {
    let traces = traces
        .iter()
        .filter_map(|trace| serde_json::from_str::<Trace>(trace).ok());
    let spans: Vec<Value> = traces.flat_map(|trace| spans(&trace)).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(&[("service.name", json!("callgate"))]) },
        "scopeSpans": [{
            "scope": { "name": "callgate", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans,
        }],
    }] })
}

/// The spans of one call: its own, and one for each stage.
fn spans(trace: &Trace) -> Vec<Value> {
    let text = |name: &str| trace.get(name).and_then(Value::as_str).unwrap_or_default();
    let call = text("call_id");
    let trace_id = match text("trace_id") {
        given if is_hex(given, 32) => given,
        _ => call,
    };
    let own = span_id(call, "");
    let began_us = trace
        .get("at_ms")
        .and_then(Value::as_u64)
        .unwrap_or_default()
        * 1000;
    let mut at_us = began_us;
    let mut stages = Vec::new();
    for stage in trace
        .get("stages")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let name = stage["stage"].as_str().unwrap_or_default();
        let end_us = at_us + stage["us"].as_u64().unwrap_or_default();
        stages.push(json!({
            "traceId": trace_id,
            "spanId": span_id(call, name),
            "parentSpanId": own,
            "name": name,
            "kind": 1,
            "startTimeUnixNano": nanos(at_us),
            "endTimeUnixNano": nanos(end_us),
        }));
        at_us = end_us;
    }
    let is_mcp = matches!(text("wire"), "mcp" | "mcp-http");
    let mut span = json!({
        "traceId": trace_id,
        "spanId": own,
        "name": format!("execute_tool {}", text("tool")),
        // One that an MCP client waits for is a server's.
        "kind": if is_mcp { 2 } else { 1 },
        "startTimeUnixNano": nanos(began_us),
        "endTimeUnixNano": nanos(at_us),
        "attributes": attributes(&own_attributes(trace, is_mcp)),
        "status": match text("status") {
            "ok" => json!({ "code": 0 }),
            _ => json!({ "code": 2, "message": text("error_message") }),
        },
    });
    if is_hex(text("parent_span_id"), 16) && trace_id != call {
        span["parentSpanId"] = json!(text("parent_span_id"));
    }
    stages.insert(0, span);
    stages
}

fn own_attributes(trace: &Trace, is_mcp: bool) -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("gen_ai.operation.name", json!("execute_tool")),
        ("gen_ai.tool.type", json!("function")),
    ];
    if is_mcp {
        all.push(("mcp.method.name", json!("tools/call")));
    }
    for (name, field) in [
        ("gen_ai.tool.name", "tool"),
        ("gen_ai.tool.call.id", "call_id"),
        ("error.type", "error_type"),
        ("callgate.caller", "caller"),
        ("callgate.wire", "wire"),
        ("callgate.status", "status"),
        ("callgate.runner", "runner"),
        ("callgate.replayed", "replayed"),
        ("callgate.stopped_at", "stopped_at"),
    ] {
        all.extend(trace.get(field).map(|value| (name, value.clone())));
    }
    let level = trace
        .get("enforcement")
        .and_then(|known| known.get("level"));
    all.extend(level.map(|level| ("callgate.enforcement.level", level.clone())));
    all
}

fn attributes(pairs: &[(&str, Value)]) -> Vec<Value> {
    let typed = |value: &Value| match value {
        Value::Bool(_) => json!({ "boolValue": value }),
        _ => json!({ "stringValue": value }),
    };
    pairs
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": typed(value) }))
        .collect()
}

/// The same for the same call and stage, and never zero in practice.
fn span_id(call: &str, stage: &str) -> String {
    let mut digest = Digest::of_bytes(format!("{call} {stage}").as_bytes()).to_hex();
    digest.truncate(16);
    digest
}

/// 64-bit numbers are text in this JSON.
fn nanos(us: u64) -> String {
    us.saturating_mul(1000).to_string()
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length
        && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        && text.bytes().any(|b| b != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_as_a_variable_has_them() {
        let read = |words: &str| {
            let all = headers(words)?.into_iter();
            let words = all.map(|(name, value)| format!("{name}:{}", value.to_str().unwrap()));
            Ok::<_, TelemetryError>(words.collect::<Vec<_>>().join("|"))
        };
        assert_eq!(read("").unwrap(), "");
        assert_eq!(read("A=1, x-key = a=b").unwrap(), "a:1|x-key:a=b");
        assert!(read("nothing").is_err() && read("a b=1").is_err());
        assert!(
            !read("k=s3cret\u{1}")
                .unwrap_err()
                .to_string()
                .contains("s3cret")
        );
    }
}
