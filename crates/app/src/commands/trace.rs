//! `callgate trace`: what is known of a call.

use std::process::ExitCode;
use std::time::Duration;

use callgate_call::Fault;
use callgate_gate::{Found, TraceError, find_trace, recent_traces};
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use crate::cli::{Done, Place};
use crate::show;

/// Show what is known of a call: stages, enforcement, facts, last words.
///
/// A call of a pure built-in tool, or one whose trace has left the ring, is shown as the chain
/// has it.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Trace {
    #[command(subcommand)]
    command: Option<TraceCommand>,
    /// The call's id, or a beginning that no other has
    #[arg(required_unless_present_any = ["last", "failed"])]
    call: Option<String>,
    /// The newest call
    #[arg(long, conflicts_with = "call")]
    last: bool,
    /// The newest call that did not end well
    #[arg(long, conflicts_with_all = ["call", "last"])]
    failed: bool,
}

#[derive(Subcommand)]
enum TraceCommand {
    /// List calls, newest first
    List {
        /// Only this tool
        #[arg(long)]
        tool: Option<String>,
        /// Only calls younger than this: 60s, 5m, 1h, 30d
        #[arg(long, value_name = "DURATION", value_parser = super::duration)]
        since: Option<Duration>,
        /// Only calls that ended so
        #[arg(long, value_enum)]
        status: Option<Status>,
        /// So many of the newest
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Status {
    Ok,
    Error,
    Blocked,
    /// Its end was not recorded: it runs, or its gate was killed
    Unknown,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
        }
    }
}

pub fn run(environment: &Environment, place: &Place, trace: &Trace) -> Done {
    let parts = super::open(environment, place)?;
    match &trace.command {
        Some(TraceCommand::List {
            tool,
            since,
            status,
            limit,
        }) => {
            let from = since.map(|since| {
                let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                parts.clock.now().0.saturating_sub(ms)
            });
            let fits = |trace: &Value| {
                let at = trace["at_ms"].as_u64().unwrap_or_default();
                let is_of = |tool: &String| {
                    [&trace["tool"], &trace["tool_id"]].contains(&&Value::from(tool.as_str()))
                };
                tool.as_ref().is_none_or(is_of)
                    && status.is_none_or(|status| trace["status"] == status.as_str())
                    && from.is_none_or(|from| at >= from)
            };
            list(place, &recent(&parts, *limit, fits)?);
        }
        None => {
            let found = one(&parts, trace)?;
            if place.json {
                show::json(&found);
            } else {
                show::data(&tree(&found));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn recent(
    parts: &Parts,
    max: usize,
    keep: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>, TraceError> {
    recent_traces(&parts.store, max, keep)
}

/// The call that is meant.
fn one(parts: &Parts, trace: &Trace) -> Result<Value, crate::cli::Failure> {
    let missing = |message: String| Fault::NotFound { message }.into();
    let Some(prefix) = &trace.call else {
        let fits = |found: &Value| !trace.failed || found["status"] != "ok";
        let newest = recent(parts, 1, fits)?.into_iter().next();
        return newest.ok_or_else(|| missing("no such call yet".to_owned()));
    };
    match find_trace(&parts.store, prefix)? {
        Found::One(trace) => Ok(*trace),
        Found::Nothing => Err(missing(format!(
            "nothing is known of a call {prefix}; `callgate trace list` has the newest"
        ))),
        Found::Several(ids) => Err(missing(format!(
            "several calls begin with {prefix}: {}",
            ids.join(", ")
        ))),
    }
}

fn list(place: &Place, traces: &[Value]) {
    if place.json {
        let lines: String = traces.iter().map(|trace| format!("{trace}\n")).collect();
        return show::data(&lines);
    }
    let row = |trace: &Value| {
        vec![
            text(trace, "call_id"),
            show::time(trace["at_ms"].as_u64().unwrap_or_default()),
            text(trace, "tool"),
            text(trace, "status"),
            trace["duration_ms"]
                .as_u64()
                .map_or_else(String::new, |ms| format!("{ms} ms")),
            text(trace, "caller"),
            text(trace, "wire"),
            text(trace, "error_message")
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = traces.iter().map(row).collect();
    let head = [
        "CALL", "AT", "TOOL", "STATUS", "TOOK", "CALLER", "WIRE", "ERROR",
    ];
    show::table_or(&head, &rows, "no such calls");
}

fn text(trace: &Value, name: &str) -> String {
    match &trace[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Fields that have a place of their own in the tree.
const PLACED: [&str; 18] = [
    "type",
    "call_id",
    "at_ms",
    "tool",
    "tool_name",
    "status",
    "result",
    "duration_ms",
    "duration_us",
    "stages",
    "enforcement",
    "capability_checks",
    "stdout_tail",
    "stderr_tail",
    "error_message",
    "input_summary",
    "output_summary",
    "protocol_version",
];

/// A trace for people.
fn tree(trace: &Value) -> String {
    let mut out = format!(
        "{}  {}  {}  {}\n",
        text(trace, "call_id"),
        text(trace, "tool"),
        text(trace, "status"),
        took(trace)
    );
    let at = show::time(trace["at_ms"].as_u64().unwrap_or_default());
    let mut branches = vec![("at".to_owned(), vec![at])];
    let mut branch = |name: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            branches.push((name.to_owned(), lines));
        }
    };
    branch("error", lines_of(&text(trace, "error_message")));
    branch("input", summary(&trace["input_summary"]));
    branch("output", summary(&trace["output_summary"]));
    branch("stages", stages(trace));
    branch("enforcement", enforcement(&trace["enforcement"]));
    branch("checks", checks(&trace["capability_checks"]));
    branch("facts", facts(trace));
    branch("stdout", lines_of(&text(trace, "stdout_tail")));
    branch("stderr", lines_of(&text(trace, "stderr_tail")));
    let last = branches.len() - 1;
    for (index, (name, lines)) in branches.iter().enumerate() {
        let (fork, bar) = if index == last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        if let [only] = lines.as_slice() {
            out.push_str(&format!("{fork} {name}: {only}\n"));
            continue;
        }
        out.push_str(&format!("{fork} {name}\n"));
        for line in lines {
            out.push_str(format!("{bar}   {line}").trim_end());
            out.push('\n');
        }
    }
    show::plain(&out)
}

fn took(trace: &Value) -> String {
    match (trace["duration_us"].as_u64(), trace["duration_ms"].as_u64()) {
        (Some(us), _) => micros(us),
        (None, Some(ms)) => format!("{ms} ms"),
        (None, None) => String::new(),
    }
}

fn micros(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn summary(summary: &Value) -> Vec<String> {
    let count = &summary["count"];
    let words = match summary["type"].as_str() {
        None => return Vec::new(),
        Some("object") => {
            let keys = summary["keys"].as_array().map_or(&[][..], Vec::as_slice);
            let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
            format!("object of {count}: {}", keys.join(", "))
        }
        Some("list") => format!("list of {count}"),
        Some("text") => format!("text of {}: {}", summary["chars"], summary["preview"]),
        Some(other) => other.to_owned(),
    };
    vec![words]
}

fn stages(trace: &Value) -> Vec<String> {
    let all = trace["stages"].as_array().map_or(&[][..], Vec::as_slice);
    let stopped = &trace["stopped_at"];
    all.iter()
        .map(|stage| {
            let took = micros(stage["us"].as_u64().unwrap_or_default());
            let name = stage["stage"].as_str().unwrap_or_default();
            let mark = if stage["stage"] == *stopped {
                "  ← stopped here"
            } else {
                ""
            };
            format!("{name:<13} {took:>10}{mark}")
        })
        .collect()
}

fn enforcement(enforcement: &Value) -> Vec<String> {
    let Some(level) = enforcement["level"].as_str() else {
        return Vec::new();
    };
    let isolation = enforcement["isolation"].as_str();
    let isolation = isolation.map_or_else(String::new, |word| format!(", isolation {word}"));
    let mut lines = vec![format!("{level}{isolation}")];
    let promises = enforcement["held"].as_array().into_iter().flatten();
    let [writes, network] = ["writes", "network"].map(|name| enforcement.get(name));
    for held in promises.chain(writes).chain(network) {
        let mechanisms = held["mechanisms"].as_array().map_or(&[][..], Vec::as_slice);
        let mechanisms: Vec<&str> = mechanisms.iter().filter_map(Value::as_str).collect();
        let missing = held["missing"].as_str();
        let missing = missing.map_or_else(String::new, |words| format!("  missing: {words}"));
        lines.push(format!(
            "{:<20} {:<9} {:<6} {}{missing}",
            text(held, "guarantee"),
            text(held, "level"),
            text(held, "source"),
            mechanisms.join(" + "),
        ));
    }
    lines
}

fn checks(checks: &Value) -> Vec<String> {
    let line = |check: &Value| {
        let verdict = if check["allowed"] == true {
            "allowed"
        } else {
            "blocked"
        };
        let (capability, source) = (text(check, "capability"), text(check, "guarantee_source"));
        format!(
            "{capability:<17} {verdict}  {source}  {}",
            text(check, "reason")
        )
    };
    checks.as_array().into_iter().flatten().map(line).collect()
}

fn facts(trace: &Value) -> Vec<String> {
    let members = trace.as_object().into_iter().flatten();
    members
        .filter(|(name, _)| !PLACED.contains(&name.as_str()))
        .map(|(name, _)| format!("{name:<18} {}", text(trace, name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_for_people() {
        for (us, words) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1000, "1.0 ms"),
            (12_345, "12.3 ms"),
            (2_500_000, "2.5 s"),
        ] {
            assert_eq!(micros(us), words);
        }
    }
}
