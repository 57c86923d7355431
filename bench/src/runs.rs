//! Streamed runs from end to end: the gate's CPU of a small event and of a gigabyte of artifact,
//! from the executor's pipe to where they are kept, and how many events share a sync. The
//! executor is this program itself, by the SDK for Rust; its own CPU is not counted.

use std::fs;
use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use callgate_emit::EmitError;
use serde_json::{Value, json};

use crate::figure::{Figure, number, quiet};
use crate::http::Connection;
use crate::rpc::Served;
use crate::scratch::Scratch;
use crate::{Bench, Failure, cpu};

/// The argument that makes this program an executor.
pub const EMIT: &str = "--emit";

const ROUNDS: usize = 5;
const EVENTS: u64 = 200_000;
const ARTIFACT_BYTES: u64 = 1_000_000_000;

const EVENT_US_MAX: f64 = 2.5;
const GIGABYTE_SECONDS_MAX: f64 = 1.1;
const EVENTS_A_SYNC_MIN: f64 = 100.0;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("runs")?;
    fs::copy(std::env::current_exe()?, scratch.workspace().join("emit"))?;
    let mut served = Served::start(bench, &scratch)?;
    let mut connection = Connection::open(served.port)?;
    let mut measure = |job: Value, policy: Value| -> Result<(Duration, Value), Failure> {
        let order = json!({ "command": ["./emit", EMIT], "job": job, "policy": policy });
        let before = served.gate_cpu();
        let report = served.ask(&mut connection, "runs/start", order)?;
        Ok((served.gate_cpu().saturating_sub(before), report))
    };
    let events = json!({ "events": EVENTS });
    let (mut streaming, mut strict, mut a_sync, mut artifact) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let policy = json!({ "name": "streaming", "count": 1024 });
        let (spent, report) = measure(events.clone(), policy)?;
        kept(&report, EVENTS)?;
        streaming.push(cpu::micros_each(spent, EVENTS as usize));
        let (spent, report) = measure(events.clone(), json!({ "name": "strict" }))?;
        let syncs = kept(&report, EVENTS)?;
        strict.push(cpu::micros_each(spent, EVENTS as usize));
        a_sync.push(EVENTS as f64 / syncs as f64);
        let job = json!({ "bytes": ARTIFACT_BYTES });
        let (spent, report) = measure(job, json!({ "name": "strict" }))?;
        if report["artifacts"]["bytes"] != ARTIFACT_BYTES {
            return Err(format!("the artifact is not whole: {report}").into());
        }
        artifact.push(spent.as_secs_f64());
    }
    served.finish(bench, &scratch)?;
    Ok(vec![
        Figure::new("runs: CPU of an event, streaming", quiet(&streaming), "µs")
            .at_most(EVENT_US_MAX)
            .beside(format!("strict {} µs", number(quiet(&strict)))),
        Figure::new("runs: events of a sync, strict", quiet(&a_sync), "")
            .at_least(EVENTS_A_SYNC_MIN)
            .beside(format!("{EVENTS} events as fast as they come")),
        Figure::new("runs: CPU of a GB of artifact", quiet(&artifact), "s")
            .at_most(GIGABYTE_SECONDS_MAX)
            .beside("read, BLAKE3, file, sync".to_owned()),
    ])
}

/// Checks that all events were kept; gives the writes that took.
fn kept(report: &Value, events: u64) -> Result<u64, Failure> {
    // And the one that ends the run.
    if report["policy"]["events_persisted"] != events + 1 {
        return Err(format!("events are missing: {report}").into());
    }
    let writes = report["policy"]["flush_triggers"].as_object();
    let writes = writes.ok_or("no writes are told")?;
    Ok(writes.values().filter_map(Value::as_u64).sum())
}

/// This program as an executor: as many events or bytes as its job says.
pub fn emit() -> ExitCode {
    callgate_emit::main(|run| {
        let number = |name: &str| run.request().job[name].as_u64().unwrap_or(0);
        let (events, bytes) = (number("events"), number("bytes"));
        let item = json!({ "name": "Lamp", "price": 99.5, "tags": ["a", "b"], "stock": 3 });
        for _ in 0..events {
            run.item("product", &item)?;
        }
        if bytes > 0 {
            let mut data = std::io::repeat(b'c').take(bytes);
            run.artifact_from("large.bin", "application/octet-stream", &mut data)?;
        }
        Ok::<_, EmitError>(())
    })
}
