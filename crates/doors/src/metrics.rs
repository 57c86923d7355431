//! `GET /metrics`: what is counted, in the text form of Prometheus, for the owner alone.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use callgate_call::{Caller, Load};
use callgate_gate::{DURATION_EDGES_US, Gate, ToolNumbers};

use callgate_listener::web::{Entrance, empty};

/// The path.
pub const PATH: &str = "/metrics";

/// Pages of memory are of this size wherever we run; a wrong one would only show a wrong gauge.
const PAGE_BYTES: u64 = 4096;

struct Door {
    gate: Arc<Gate>,
    entrance: Entrance,
    owner: Caller,
}

/// The path, for whoever `entrance` recognises as the owner.
pub fn router(gate: Arc<Gate>, entrance: Entrance, owner: Caller) -> Router {
    let door = Door {
        gate,
        entrance,
        owner,
    };
    Router::new()
        .route(PATH, get(scrape))
        .with_state(Arc::new(door))
}

async fn scrape(State(door): State<Arc<Door>>, headers: HeaderMap) -> Response {
    let identity = match door.entrance.admit(&headers).await {
        Ok(identity) => identity,
        Err(refused) => {
            door.gate.refused_stranger(refused.reason);
            return refused.finish(empty(StatusCode::UNAUTHORIZED));
        }
    };
    // What others call is nobody's business but the owner's.
    if identity.caller != door.owner || identity.scope.is_some() {
        return empty(StatusCode::FORBIDDEN);
    }
    let mut response = Response::new(Body::from(page(&door.gate)));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A page in the making.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, word)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{}\"", escaped(word));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    fn alone(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

fn escaped(word: &str) -> String {
    word.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn page(gate: &Gate) -> String {
    let mut page = Page::default();
    calls(&mut page, &gate.tool_numbers());
    workers(&mut page, &loads(gate));
    chain(&mut page, gate);
    process(&mut page);
    page.0
}

fn calls(page: &mut Page, tools: &[ToolNumbers]) {
    page.family("callgate_calls_total", "counter", "Calls that ended.");
    for one in tools {
        for (wire, outcome, count) in &one.ended {
            let labels = [
                ("tool", one.tool.as_str()),
                ("wire", wire),
                ("outcome", outcome),
            ];
            page.sample("callgate_calls_total", &labels, count);
        }
    }
    let name = "callgate_call_duration_seconds";
    page.family(
        name,
        "histogram",
        "How long calls took, from door to record.",
    );
    for one in tools {
        for (at, count) in one.durations.iter().enumerate() {
            let edge = DURATION_EDGES_US.get(at);
            let edge = edge.map_or_else(|| "+Inf".to_owned(), |us| seconds(*us));
            let labels = [("tool", one.tool.as_str()), ("le", edge.as_str())];
            page.sample(&format!("{name}_bucket"), &labels, count);
        }
        let labels = [("tool", one.tool.as_str())];
        page.sample(&format!("{name}_sum"), &labels, seconds(one.duration_us));
        let all = one.durations.last().copied().unwrap_or_default();
        page.sample(&format!("{name}_count"), &labels, all);
    }
    page.family("callgate_calls_in_flight", "gauge", "Calls under way.");
    for one in tools {
        page.sample(
            "callgate_calls_in_flight",
            &[("tool", &one.tool)],
            one.in_flight,
        );
    }
    page.family(
        "callgate_replays_total",
        "counter",
        "Calls that an earlier one answered.",
    );
    for one in tools {
        page.sample(
            "callgate_replays_total",
            &[("tool", &one.tool)],
            one.replayed,
        );
    }
    let name = "callgate_enforcement_total";
    page.family(
        name,
        "counter",
        "Calls by how far their tool was held to its guarantees.",
    );
    for one in tools {
        for (level, count) in &one.levels {
            page.sample(name, &[("tool", &one.tool), ("level", level)], count);
        }
    }
}

/// Microseconds as seconds, exactly.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What each pool is doing. Tools that share one are counted once.
fn loads(gate: &Gate) -> Vec<Load> {
    let mut loads: Vec<Load> = gate
        .catalog()
        .tools()
        .filter_map(|tool| tool.runner.load())
        .collect();
    loads.sort_by_key(|load| load.pool);
    loads.dedup_by_key(|load| load.pool);
    loads
}

fn workers(page: &mut Page, loads: &[Load]) {
    let sum = |of: fn(&Load) -> usize| loads.iter().map(of).sum::<usize>();
    page.family("callgate_workers", "gauge", "Workers of pools.");
    page.sample(
        "callgate_workers",
        &[("state", "busy")],
        sum(|load| load.busy),
    );
    page.sample(
        "callgate_workers",
        &[("state", "idle")],
        sum(|load| load.idle),
    );
    let queued = sum(|load| load.queued);
    page.alone(
        "callgate_queue",
        "gauge",
        "Calls that wait for a worker.",
        queued,
    );
}

fn chain(page: &mut Page, gate: &Gate) {
    let (totals, tools) = (gate.record_totals(), gate.catalog().tools().count());
    page.alone("callgate_tools", "gauge", "Tools in the catalog.", tools);
    page.alone(
        "callgate_chain_records",
        "gauge",
        "Records in the chain.",
        totals.chain_records,
    );
    let help = "Records that could not be written and were given up.";
    page.alone(
        "callgate_records_lost_total",
        "counter",
        help,
        totals.records_lost,
    );
    let help = "Traces that could not be kept.";
    page.alone(
        "callgate_traces_lost_total",
        "counter",
        help,
        totals.traces_lost,
    );
    let help = "Calls whose spans did not reach the collector.";
    page.alone(
        "callgate_spans_dropped_total",
        "counter",
        help,
        gate.spans_dropped(),
    );
}

/// What the kernel says of us; what it does not say is left out.
fn process(page: &mut Page) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    if let Some(pages) = pages {
        let help = "Resident memory of this process.";
        page.alone(
            "process_resident_memory_bytes",
            "gauge",
            help,
            pages * PAGE_BYTES,
        );
    }
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        // The folder itself is open while it is read.
        let open = entries.count().saturating_sub(1);
        page.alone(
            "process_open_fds",
            "gauge",
            "Open descriptors of this process.",
            open,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_seconds() {
        let shown: Vec<String> = [0, 100, 5000, 1_000_000, 60_000_000, 1_234_567]
            .into_iter()
            .map(seconds)
            .collect();
        assert_eq!(shown, ["0", "0.0001", "0.005", "1", "60", "1.234567"]);
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.sample("x", &[("tool", "a\"b\\c\nd"), ("w", "")], 1);
        assert_eq!(page.0, "x{tool=\"a\\\"b\\\\c\\nd\",w=\"\"} 1\n");
    }
}
