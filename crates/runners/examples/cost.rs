//! What starting a child and calling a warm worker cost in processor time.
//!
//! `cost SPAWNER PROGRAM [BALLAST_MIB]`: SPAWNER is the test program `misbehave`, which also
//! serves as worker; PROGRAM is what is started; the ballast makes this process big.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    unsafe_code,
    reason = "a measurement, not part of the product"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Call, CallId, Caller, Cancel, Document, Job, NoSink, Patience, Plan, Runner as _, Tool, Wire,
};
use callgate_runners::{Pool, PoolRunner, PoolSettings};
use callgate_sandbox::{Spawner, Spec, Trees};
use serde_json::{Value, json};

const SPAWNS: u32 = 500;
const CALLS: u32 = 20_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let spawner = PathBuf::from(args.next().expect("SPAWNER"));
    let program = args.next().expect("PROGRAM");
    let ballast_mib: usize = args
        .next()
        .map_or(0, |text| text.parse().expect("a number"));
    let ballast = vec![1u8; ballast_mib << 20];
    for trees in [Trees::Best, Trees::Subreaper] {
        spawns(&spawner, &program, trees).await;
    }
    calls(&spawner).await;
    std::hint::black_box(ballast);
}

async fn spawns(program: &std::path::Path, child: &str, trees: Trees) {
    let spawner = Spawner::with_trees(program.to_owned(), trees);
    let spec = || Spec::new(vec![child.into()], PathBuf::from("/"));
    spawner.spawn(spec()).await.unwrap().wait().await;
    let (own, below) = (cpu(libc::RUSAGE_SELF), cpu(libc::RUSAGE_CHILDREN));
    for _ in 0..SPAWNS {
        spawner.spawn(spec()).await.unwrap().wait().await;
    }
    let own = cpu(libc::RUSAGE_SELF) - own;
    // Its descendants count once it is buried.
    drop(spawner);
    let below = cpu(libc::RUSAGE_CHILDREN) - below;
    println!(
        "spawn {trees:?}: gate {:?}, spawner and below {:?}",
        own / SPAWNS,
        below / SPAWNS
    );
}

async fn calls(program: &std::path::Path) {
    let spawner = Spawner::new(program.to_owned());
    let mut settings = PoolSettings::new(vec![program.into()], Vec::new(), PathBuf::from("/"));
    settings.calls_max = u64::MAX;
    let runner = PoolRunner::new(Pool::new(spawner, settings), None, "pool");
    let tool = tool(Arc::new(runner));
    let call = call(json!({ "do": "ok", "name": "x".repeat(180) }));
    one(&tool, &call).await;
    let (own, begun) = (cpu(libc::RUSAGE_SELF), tokio::time::Instant::now());
    for _ in 0..CALLS {
        one(&tool, &call).await;
    }
    let own = cpu(libc::RUSAGE_SELF) - own;
    println!(
        "warm call: gate {:?}, wall {:?}",
        own / CALLS,
        begun.elapsed() / CALLS
    );
}

async fn one(tool: &Tool, call: &Call) {
    let plan = Plan::default();
    let timeout = &Patience::fixed(Duration::from_secs(30));
    tool.runner
        .run(Job {
            call,
            tool,
            plan: &plan,
            timeout,
            sink: &NoSink,
        })
        .await
        .unwrap();
}

fn call(input: Value) -> Call {
    Call::new(
        CallId(7),
        "cost",
        Document::from_value(input),
        Caller::uid(0),
        Wire::Gate,
        Cancel::new(),
    )
}

fn tool(runner: Arc<PoolRunner>) -> Tool {
    assert_eq!(runner.kind(), "pool");
    Tool {
        input_schema: Value::Bool(true),
        ..Tool::new("cost", runner)
    }
}

fn cpu(who: libc::c_int) -> Duration {
    // SAFETY: all zeros is a valid `rusage`, plain integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` outlives the call.
    unsafe { libc::getrusage(who, &raw mut usage) };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
