//! What keeping a run costs, as CPU: `cargo run --release -p callgate-store --example run_cost
//! [events] [MiB]`. The folder is made under the system's temporary one and removed.
#![allow(clippy::print_stdout, reason = "a program that prints figures")]
#![allow(
    clippy::unwrap_used,
    reason = "a program that stops at the first surprise"
)]

use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    CallId, Clock, Partition, RunArtifact, RunEvent, RunLog, RunPolicy, RunStart, RunVerdict, Runs,
    Timestamp,
};
use callgate_store::{Options, RunKeeper, Store};
use rustix::time::{ClockId, clock_gettime};

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.micros() / 1000)
    }

    fn micros(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        (now.tv_sec as u64) * 1_000_000 + (now.tv_nsec as u64) / 1000
    }
}

fn cpu_us() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

const LINE: &[u8] = br#"{"contract_version":"1.0.0","event_id":"6f1c2a34-0d6d-4c5e-9e0e-0a8f4f3b2a10","run_id":"r","seq":1,"type":"item","ts":"2026-11-16T15:00:00.000Z","attempt":1,"payload":{"item_type":"page","data":{"n":1}}}"#;

fn begin(keeper: &RunKeeper, run: &str, policy: RunPolicy) -> Box<dyn RunLog> {
    let part = || "default".to_owned();
    let start = RunStart {
        run_id: run.to_owned(),
        call: CallId(1),
        attempt: 1,
        job_id: None,
        parent_run_id: None,
        partition: Partition {
            dataset: part(),
            source: part(),
            category: part(),
            day: "2026-11-16".to_owned(),
        },
        policy,
    };
    keeper.begin(&start).unwrap()
}

fn events(keeper: &RunKeeper, run: &str, policy: RunPolicy, count: u64) {
    let before = cpu_us();
    let mut log = begin(keeper, run, policy);
    for seq in 1..=count {
        let (kind, line) = ("item", LINE);
        log.event(&RunEvent { seq, kind, line }).unwrap();
    }
    log.seal().unwrap();
    let writes: u64 = log.counts().flushes.values().sum();
    log.end(RunVerdict::Success, &serde_json::Value::Null)
        .unwrap();
    let each_ns = (cpu_us() - before) * 1000.0 / count as f64;
    println!(
        "{run}: {each_ns:.0} ns an event, {} events a write",
        count / writes
    );
}

fn artifact(keeper: &RunKeeper, mib: u64) {
    let piece: Vec<u8> = (0..1024 * 1024_u32).map(|n| n as u8).collect();
    let before = cpu_us();
    let mut log = begin(keeper, "artifact", RunPolicy::Strict);
    for _ in 0..mib {
        log.chunk("a", &piece).unwrap();
    }
    let artifact = RunArtifact {
        artifact_id: "a",
        name: "a",
        content_type: "x",
        bytes: mib * 1024 * 1024,
    };
    log.commit(&artifact).unwrap();
    log.end(RunVerdict::Success, &serde_json::Value::Null)
        .unwrap();
    let gb = (mib * 1024 * 1024) as f64 / 1e9;
    println!(
        "artifact: {:.2} CPU seconds a GB",
        (cpu_us() - before) / 1e6 / gb
    );
}

#[allow(clippy::disallowed_methods, reason = "a program has arguments")]
fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let count = numbers.next().unwrap_or(1_000_000);
    let mib = numbers.next().unwrap_or(1024);
    let dir = std::env::temp_dir().join(format!("run-cost-{}", std::process::id()));
    let store = Store::open(&dir, Options::default(), Arc::new(SystemClock)).unwrap();
    let keeper = RunKeeper::new(Arc::new(store));
    let by_count = RunPolicy::Streaming {
        count: Some(1000),
        interval: Some(Duration::from_millis(200)),
    };
    events(&keeper, "streaming", by_count, count);
    events(&keeper, "strict", RunPolicy::Strict, count);
    artifact(&keeper, mib);
    std::fs::remove_dir_all(&dir).unwrap();
}
