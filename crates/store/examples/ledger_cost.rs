//! What the store costs, as CPU per operation: `cargo run --release -p callgate-store --example
//! ledger_cost [keys]`. The folder is made under the system's temporary one and removed.
#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use std::path::Path;
use std::sync::Arc;

use callgate_call::{CallId, Caller, Clock, Digest, Tier, Timestamp};
use callgate_store::{
    Begun, End, Finish, Health, KeyId, Options, Seen, Start, Store, Ticket, View,
};
use rustix::time::{ClockId, clock_gettime};

struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::Realtime);
        Timestamp((now.tv_sec as u64) * 1000 + (now.tv_nsec as u64) / 1_000_000)
    }
}

fn cpu_us() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn wall_us() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

const OUTPUT: &str =
    r#"{"echo":{"name":"Ada","list":[1,2,3],"text":"a line of some length to be echoed"}}"#;

fn start<'a>(call: u64, key: Option<KeyId>, caller: &'a Caller) -> Start<'a> {
    Start {
        call: CallId(u128::from(call) << 40),
        tool: "builtin/echo",
        aid: "AID.BUILTIN.ECHO.v1",
        tier: Tier::Safe,
        caller,
        wire: "toolhost",
        input: Digest([7; 32]),
        key,
        view: View::TOOLHOST,
        lease: None,
        displayed: None,
        brings_more: false,
        idempotent: false,
        enforcement: "none",
        unsafe_override: false,
        trace_id: None,
    }
}

fn finish<'a>(call: u64, key: Option<KeyId>, digest: Digest) -> Finish<'a> {
    Finish {
        call: CallId(u128::from(call) << 40),
        tool: "builtin/echo",
        input: Digest([7; 32]),
        key,
        view: View::TOOLHOST,
        end: End::Output {
            text: OUTPUT,
            digest,
        },
        slots: None,
        health: Health::Works,
        enforcement: "none",
        unsafe_override: false,
        network_refused: 0,
        began: Timestamp(0),
        keep: true,
        trace_id: None,
    }
}

fn open(dir: &Path) -> Store {
    Store::open(dir, Options::default(), Arc::new(SystemClock)).expect("the folder is ours")
}

/// CPU and wall µs per call of `count` calls, settled 64 at a time.
fn measure(count: u64, mut call: impl FnMut(u64) -> Ticket, store: &Store) -> (f64, f64) {
    let (cpu, wall) = (cpu_us(), wall_us());
    for n in 0..count {
        let ticket = call(n);
        if n % 64 == 63 {
            store.settle_now(ticket).expect("written");
        }
    }
    (
        (cpu_us() - cpu) / count as f64,
        (wall_us() - wall) / count as f64,
    )
}

fn main() {
    let keys_max: u64 = match std::fs::read_to_string("/proc/self/cmdline") {
        Ok(line) => line
            .split('\0')
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(1_000_000),
        Err(_) => 1_000_000,
    };
    let dir = std::env::temp_dir().join(format!("ledger-cost-{}", std::process::id()));
    let caller = Caller::uid(1000);
    let digest = Digest::of_bytes(OUTPUT.as_bytes());

    let store = open(&dir.join("pure"));
    for round in 0..3 {
        let (cpu, wall) = measure(
            100_000,
            |n| store.record_pure(start(n, None, &caller), finish(n, None, digest)),
            &store,
        );
        println!("record_pure, 64 a settle, round {round}: {cpu:.2} µs CPU, {wall:.2} µs wall");
    }
    println!("{:?}", store.stats());

    let store = open(&dir.join("pure-keyed"));
    let pure = |store: &Store, round: &str, count: u64| {
        measure(
            count,
            |n| {
                let key = KeyId::new(&caller, &format!("pure-{round}-{n}"));
                let seen = store
                    .peek(&key, "builtin/echo", &Digest([7; 32]), View::TOOLHOST)
                    .expect("readable");
                assert_eq!(seen, Seen::New);
                store.record_pure(start(n, Some(key), &caller), finish(n, Some(key), digest))
            },
            store,
        )
    };
    pure(&store, "many", keys_max);
    println!("{:?}", store.stats());
    let mut ratios = Vec::new();
    for round in 0..7 {
        let few = open(&dir.join(format!("few-{round}")));
        pure(&few, "few", 1_000);
        let (few_cpu, few_wall) = pure(&few, "round", 50_000);
        let (cpu, wall) = pure(&store, &format!("round-{round}"), 50_000);
        ratios.push(cpu / few_cpu);
        println!(
            "peek + record_pure after 1000 keys: {few_cpu:.2} µs CPU, {few_wall:.2} wall; after {keys_max}: {cpu:.2} µs CPU, {wall:.2} wall"
        );
        drop(few);
        let _ = std::fs::remove_dir_all(dir.join(format!("few-{round}")));
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratio of CPU, median: {:.2}", ratios[ratios.len() / 2]);

    let store = open(&dir.join("keyed"));
    let mut next = 0_u64;
    let mut keyed = |store: &Store, count: u64| {
        let from = next;
        next += count;
        measure(
            count,
            |n| {
                let key = KeyId::new(&caller, &format!("key-{}", from + n));
                let seen = store
                    .peek(&key, "builtin/echo", &Digest([7; 32]), View::TOOLHOST)
                    .expect("readable");
                assert_eq!(seen, Seen::New);
                let begun = store.begin(start(n, Some(key), &caller)).expect("writable");
                assert!(matches!(begun, Begun::Started(_)));
                store.finish(finish(n, Some(key), digest)).expect("small")
            },
            store,
        )
    };
    keyed(&store, keys_max);
    println!("{:?}", store.stats());
    // Rounds of 50,000 hold several folds each, so that their cost is in the figure; the
    // two stores take turns, so that the machine's load is in both.
    let mut ratios = Vec::new();
    for round in 0..7 {
        let few = open(&dir.join(format!("few-{round}")));
        keyed(&few, 1_000);
        let (few_cpu, few_wall) = keyed(&few, 50_000);
        let (cpu, wall) = keyed(&store, 50_000);
        ratios.push(cpu / few_cpu);
        println!(
            "peek + begin + finish after 1000 keys: {few_cpu:.2} µs CPU, {few_wall:.2} wall; after {keys_max}: {cpu:.2} µs CPU, {wall:.2} wall"
        );
        drop(few);
        let _ = std::fs::remove_dir_all(dir.join(format!("few-{round}")));
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratio of CPU, median: {:.2}", ratios[ratios.len() / 2]);
    let unfolded = Options {
        fold: false,
        ..Options::default()
    };
    let lookups = Store::open(&dir.join("keyed"), unfolded, Arc::new(SystemClock)).expect("ours");
    for _ in 0..3 {
        let (cpu, wall) = keyed(&lookups, 50_000);
        println!("after {keys_max} keys, without folding: {cpu:.2} µs CPU, {wall:.2} wall");
    }
    drop(lookups);

    let key = KeyId::new(&caller, &format!("key-{}", keys_max / 2));
    let (cpu, count) = (cpu_us(), 20_000);
    for _ in 0..count {
        let seen = store
            .peek(&key, "builtin/echo", &Digest([7; 32]), View::Full)
            .expect("readable");
        assert!(matches!(seen, Seen::Finished(_)));
    }
    println!(
        "peek of a folded key: {:.2} µs CPU",
        (cpu_us() - cpu) / f64::from(count)
    );
    let cpu = cpu_us();
    store.close().expect("closes");
    println!("close: {:.0} µs CPU", cpu_us() - cpu);
    drop(store);
    let cpu = cpu_us();
    let store = open(&dir.join("keyed"));
    println!("open: {:.0} µs CPU", cpu_us() - cpu);
    let cpu = cpu_us();
    let fresh = KeyId::new(&caller, "fresh");
    let seen = store
        .peek(&fresh, "builtin/echo", &Digest([7; 32]), View::Full)
        .expect("readable");
    assert_eq!(seen, Seen::New);
    println!("first peek after it: {:.0} µs CPU", cpu_us() - cpu);
    let cpu = cpu_us();
    store
        .settle_now(store.record_pure(start(1, None, &caller), finish(1, None, digest)))
        .expect("written");
    store.close().expect("closes");
    println!("one call and close: {:.0} µs CPU", cpu_us() - cpu);
    let (cpu, wall) = (cpu_us(), wall_us());
    let verdict = store.verify().expect("readable");
    assert!(verdict.is_good(), "{verdict:?}");
    println!(
        "verify: {:.2} µs CPU, {:.2} µs wall a record, {} records",
        (cpu_us() - cpu) / verdict.records as f64,
        (wall_us() - wall) / verdict.records as f64,
        verdict.records
    );
    let _ = std::fs::remove_dir_all(&dir);
}
