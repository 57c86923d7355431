//! What a call leaves behind, with a real store and tools that are closures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Asker, Call, Caller, Cancel, Clock, Detail, Document, Enforcement, Fault, Guarantee, Held,
    Isolation, Job, Level, ManualClock, Origin, OriginSource, Output, PackOrigin, Plan, Planner,
    RunFuture, Runner, Secrets, Stream, Timestamp, Tool, Wire,
};
use callgate_gate::{Catalog, Found, Gate, Setup, find_trace};
use callgate_store::{Options, Store, TRACE_BYTES_MAX};
use serde_json::{Value, json};

use crate::support::folder;

type Function = fn(&Job<'_>) -> Result<Output, Fault>;

struct Told(Function, &'static str);

impl Runner for Told {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(async move { (self.0)(&job) })
    }

    fn kind(&self) -> &'static str {
        self.1
    }
}

/// Holds a tool as it is told to.
struct Holds(Enforcement);

impl Planner for Holds {
    fn plan(&self, _: &Call, _: &Tool) -> Result<Plan, Fault> {
        Ok(Plan {
            enforcement: self.0.clone(),
            ..Plan::default()
        })
    }

    fn outlook(&self, _: &Tool) -> Vec<Held> {
        Vec::new()
    }
}

struct Bench {
    gate: Gate,
    dir: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

const SECRET: &str = "s3cret-value";

fn bench(name: &str, tool: Tool, enforcement: Enforcement) -> Bench {
    let dir = folder(name);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let store = Store::open(&dir, Options::default(), Arc::clone(&clock)).unwrap();
    let mut catalog = Catalog::default();
    catalog.add(tool).unwrap();
    let setup = Setup {
        catalog,
        secrets: Secrets::new(vec![SECRET.to_owned()]),
        ..Setup::default()
    };
    let planner = Arc::new(Holds(enforcement));
    let gate = Gate::new(setup, Arc::new(store), planner, clock, 7);
    Bench { gate, dir }
}

fn tool(function: Function, kind: &'static str) -> Tool {
    Tool::new("demo/work", Arc::new(Told(function, kind)))
}

impl Bench {
    async fn trace(&self, input: Value) -> Value {
        let id = self.gate.next_id();
        let (input, caller) = (Document::from_value(input), Caller::uid(1000));
        let mut call = Call::new(id, "demo/work", input, caller, Wire::Gate, Cancel::new());
        call.default_timeout = Duration::from_millis(1500);
        call.trace_id = Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned());
        self.gate.call(&call).await;
        match find_trace(self.gate.store(), &id.to_string()).unwrap() {
            Found::One(trace) => *trace,
            other => panic!("{other:?}"),
        }
    }
}

fn echo(job: &Job<'_>) -> Result<Output, Fault> {
    Ok(Output::from_value(job.call.input.value().clone()))
}

/// TP-65, TP-66, TP-67, TP-68, TP-69: and nothing that the call's tool does not have.
#[tokio::test]
async fn every_trace_has() {
    let bench = bench("fields", tool(echo, "process"), Enforcement::default());
    let mut trace = bench.trace(json!({ "b": 1, "a": "text" })).await;
    let call = trace["call_id"].take();
    assert!(call.is_string());
    let stages = trace["stages"].take();
    let names: Vec<&str> = stages
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["stage"].as_str().unwrap())
        .collect();
    let all =
        "find,check input,authorise,replay,lease,admit,plan,begin,run,check output,finish,settle";
    assert_eq!(names.join(","), all);
    let summary = json!({ "type": "object", "keys": ["a", "b"], "count": 2 });
    let wanted = json!({
        "type": "tool_call", "call_id": null, "at_ms": 1_000_000, "stages": null,
        "tool": "demo/work", "tool_name": "demo/work", "kind": "process", "runner": "local",
        "resolved_source": "binding", "purity": "impure", "timeout_ms": 1500, "sandbox": false,
        "caller": "uid:1000", "wire": "gate", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "protocol_version": 1, "input_summary": summary, "output_summary": summary,
        "status": "ok", "result": "ok", "decision": "allowed", "capability": "none",
        "reason": "ok", "duration_ms": 0, "duration_us": 0,
        "enforcement": { "level": "none" },
    });
    assert_eq!(trace, wanted);
}

/// TP-70, TP-71, TP-72, TP-73, TP-74, TP-75, TP-76, TP-81, TP-82, TP-83: what a runner tells
/// stands in the trace by its name, without secrets.
#[tokio::test]
async fn facts_of_runners() {
    const FACTS: [&str; 10] = [
        "python_env",
        "python_path",
        "deps_source",
        "service_url",
        "service_handshake",
        "enforcement_level",
        "container_runtime",
        "image",
        "command",
        "container_enforcement",
    ];
    fn tells(job: &Job<'_>) -> Result<Output, Fault> {
        for name in FACTS {
            job.sink.fact(name, "first");
            job.sink.fact(name, &format!("{name} and {SECRET}"));
        }
        echo(job)
    }
    let bench = bench("facts", tool(tells, "service"), Enforcement::default());
    let trace = bench.trace(json!({})).await;
    for name in FACTS {
        assert_eq!(trace[name], format!("{name} and [secret]"), "{name}");
    }
    // TP-65, TP-80: the runner's word; only a local one says whether it was confined.
    assert_eq!(trace["runner"], "service");
    assert!(trace.get("sandbox").is_none());

    // A yes or a no, where that is all there is to say.
    fn shakes(job: &Job<'_>) -> Result<Output, Fault> {
        job.sink.fact("service_handshake", "true");
        job.sink.fact("command", "true");
        echo(job)
    }
    let trace = self::bench("shakes", tool(shakes, "service"), Enforcement::default())
        .trace(json!({}))
        .await;
    assert_eq!(
        (&trace["service_handshake"], &trace["command"]),
        (&json!(true), &json!("true"))
    );
}

/// TP-62, TP-66, TP-77, TP-78, TP-79: where a tool of a pack is from.
#[tokio::test]
async fn packs() {
    let mut tool = tool(echo, "python");
    tool.entry = Some("m:f".to_owned());
    tool.origin = Some(Arc::new(Origin {
        source: OriginSource::InstalledPack,
        pack: Some(PackOrigin {
            id: "acme.greeter".to_owned(),
            name: "Greeter".to_owned(),
            version: "1.2".to_owned(),
        }),
        runner: "container",
        entry: "m:f".to_owned(),
        pure: true,
    }));
    let trace = bench("packs", tool, Enforcement::default())
        .trace(json!({}))
        .await;
    for (name, wanted) in [
        ("pack_id", "acme.greeter"),
        ("pack_name", "Greeter"),
        ("pack_version", "1.2"),
        ("resolved_source", "installed_pack"),
        ("runner", "container"),
    ] {
        assert_eq!(trace[name], wanted, "{name}");
    }
    assert!(trace.get("entry").is_none() && trace.get("purity").is_none());
}

fn held(guarantee: Guarantee, level: Level, missing: &str) -> Held {
    Held {
        guarantee: Some(guarantee),
        asker: Asker::Tool,
        level,
        mechanisms: vec!["landlock"],
        missing: missing.to_owned(),
    }
}

/// TP-80, TP-84: how each promise was kept, by what, and what an override let through.
#[tokio::test]
async fn enforcement_in_detail() {
    let detail = Detail {
        held: vec![
            held(Guarantee::NoFilesystemRead, Level::Enforced, ""),
            held(Guarantee::NoSubprocess, Level::Partial, "no seccomp"),
        ],
        isolation: Isolation::Call,
        unsafe_override: true,
        ..Detail::default()
    };
    let enforcement = Enforcement {
        level: Level::Partial,
        detail: Some(Arc::new(detail)),
    };
    let trace = bench("held", tool(echo, "python"), enforcement)
        .trace(json!({}))
        .await;
    assert_eq!(
        (&trace["sandbox"], &trace["unsafe_override"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        trace["enforcement"],
        json!({ "level": "partial", "isolation": "call", "held": [
            { "guarantee": "no_filesystem_read", "source": "tool", "level": "enforced",
              "mechanisms": ["landlock"] },
            { "guarantee": "no_subprocess", "source": "tool", "level": "partial",
              "mechanisms": ["landlock"], "missing": "no seccomp" },
        ] })
    );
    assert_eq!(
        trace["capability_checks"],
        json!([{
            "type": "capability_check", "tool_name": "demo/work", "runner": "local",
            "resolved_source": "binding", "capability": "subprocess", "allowed": true,
            "guarantee_source": "tool", "reason": "coverage_missing", "protocol_version": 1,
        }])
    );
}

/// TP-85: how calls end.
#[tokio::test]
async fn ends() {
    fn ends(job: &Job<'_>) -> Result<Output, Fault> {
        match job.call.input.value()["how"].as_str() {
            Some("blocked") => Err(Fault::GuaranteeBlocked {
                guarantee: "no_network".to_owned(),
                detail: String::new(),
            }),
            _ => Err(Fault::ToolFailed {
                error_type: "ValueError".to_owned(),
                message: format!("no {SECRET}"),
                content: None,
            }),
        }
    }
    let bench = bench("ends", tool(ends, "python"), Enforcement::default());
    let words = |trace: &Value| {
        [
            "status",
            "decision",
            "capability",
            "reason",
            "error_type",
            "error_message",
        ]
        .map(|name| trace[name].as_str().unwrap().to_owned())
        .join("|")
    };
    assert_eq!(
        words(&bench.trace(json!({ "how": "blocked" })).await),
        "blocked|blocked|network|guarantee_blocked|guarantee_blocked|blocked by guarantee no_network"
    );
    assert_eq!(
        words(&bench.trace(json!({})).await),
        "error|allowed|none|tool_failed|ValueError|no [secret]"
    );
    let refused = bench.trace(json!([])).await;
    assert_eq!(
        (
            &refused["stopped_at"],
            &refused["status"],
            &refused["fault"]
        ),
        (&json!("check input"), &json!("error"), &json!("bad_input"))
    );
}

/// TP-85: summaries at, below and past their limits, and a trace of the largest of all parts.
#[tokio::test]
async fn summaries_and_the_largest_trace() {
    fn shouts(job: &Job<'_>) -> Result<Output, Fault> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            job.sink.chunk(stream, "\"\\".repeat(100_000).as_bytes());
            job.sink.chunk(stream, format!("end {SECRET}").as_bytes());
        }
        for name in ["image", "command", "service_url", "python_path"] {
            job.sink.fact(name, &"\"".repeat(10_000));
        }
        Ok(Output::from_value(job.call.input.value()["give"].clone()))
    }
    let mut tool = tool(shouts, "process");
    tool.input_schema = json!({});
    let bench = bench("summaries", tool, Enforcement::default());
    let of =
        async |give: Value| bench.trace(json!({ "give": give })).await["output_summary"].clone();
    assert_eq!(
        of(json!([1, 2])).await,
        json!({ "type": "list", "count": 2 })
    );
    assert_eq!(of(json!(5)).await, json!({ "type": "number" }));
    let preview = async |text: String| {
        of(json!(text)).await["preview"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(preview("ü".repeat(80)).await, "ü".repeat(80));
    assert_eq!(preview("ü".repeat(81)).await, "ü".repeat(80));
    // Cleaned before it is cut: no half of a secret is left.
    let across = format!("{}{SECRET}", "x".repeat(75));
    assert_eq!(preview(across).await, format!("{}[secr", "x".repeat(75)));
    let many: Value = (0..12)
        .map(|n| (format!("k{n:02}"), json!(n)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let shown = of(many).await;
    assert_eq!(
        (shown["keys"].as_array().unwrap().len(), &shown["count"]),
        (10, &json!(12))
    );
    let wide: Value = (0..12)
        .map(|n| (format!("{}{n}", "\"".repeat(500)), json!(n)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let large = bench.trace(json!({ "give": wide })).await;
    let size = large.to_string().len();
    assert!((16 * 1024..=TRACE_BYTES_MAX).contains(&size), "{size}");
    let tail = large["stderr_tail"].as_str().unwrap();
    assert!(tail.len() <= 4096 && tail.ends_with("end [secret]"));
    assert_eq!(bench.gate.store().traces_lost(), 0);
}
