//! All the gate's work for one small call, and where it goes: thread CPU, no pipe, no socket.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use callgate_call::{
    Call, Caller, Cancel, Digest, Document, IdempotencyKey, Tier, Timestamp, Wire,
};
use callgate_gate::{Gate, Schema, Ticket};
use callgate_store::{
    Durability, End, Finish, Health, KeyId, Start, Store, Ticket as StoreTicket, View,
};
use callgate_wires::toolhost::{Reply, ReplyState, Request, RequestInput, Status, TookCall};

use crate::figure::{Figure, number, quiet};
use crate::in_process::{self, aid};
use crate::lines::{Lines, Writer};
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain, cpu};

const ROUNDS: usize = 16;
const CALLS: usize = 8_000;
/// So many calls share one settling, as lines that came in one read do.
const BATCH: usize = 64;
const CPU_MICROS_MAX: f64 = 6.0;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (name, keyed) in [
        ("gate: CPU of a call", false),
        ("gate, fresh key: CPU of a call", true),
    ] {
        figures.push(measure(bench, name, keyed)?);
    }
    Ok(figures)
}

/// One round of the whole, then one of each of its parts.
fn measure(bench: &Bench, name: &str, keyed: bool) -> Result<Figure, Failure> {
    let scratch = Scratch::new(if keyed { "gate-keyed" } else { "gate" })?;
    let parts = Scratch::new(if keyed { "parts-keyed" } else { "parts" })?;
    let runtime = in_process::runtime()?;
    let mut writer = Writer::new(bench.seed ^ u64::from(keyed));
    let mut whole = Vec::new();
    let mut stages: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    {
        // The runtime must be entered: settling may wait.
        let gate = in_process::gate(&scratch.state(), Durability::Process, bench.seed)?;
        let beside = in_process::gate(&parts.state(), Durability::Process, bench.seed)?;
        let schema = Schema::compile(&in_process::schema())?;
        for round in 0..=ROUNDS {
            let lines = writer.requests(&aid(round * 7), CALLS, keyed);
            let took = runtime.block_on(calls(&gate, &lines))?;
            let taken = runtime.block_on(taken_apart(beside.store(), &schema, &lines))?;
            // The first round warms up.
            if round > 0 {
                whole.push(cpu::micros_each(took, CALLS));
                for (stage, took) in taken {
                    stages
                        .entry(stage)
                        .or_default()
                        .push(cpu::micros_each(took, CALLS));
                }
            }
        }
        gate.store().close()?;
        beside.store().close()?;
    }
    let calls = (ROUNDS + 1) * CALLS;
    chain::check(bench, &scratch, calls)?;
    chain::check(bench, &parts, calls)?;
    let whole = quiet(&whole);
    let mut accounted = 0.0;
    let mut words = Vec::new();
    for (stage, micros) in &stages {
        let micros = quiet(micros);
        accounted += micros;
        words.push(format!("{} {}", &stage[2..], number(micros)));
    }
    words.push(format!("the rest {}", number(whole - accounted)));
    Ok(Figure::new(name, whole, "µs")
        .at_most(CPU_MICROS_MAX)
        .beside(words.join(", ")))
}

/// Request to reply, as the toolhost does it.
async fn calls(gate: &Gate, lines: &Lines) -> Result<Duration, Failure> {
    let (caller, stop) = (Caller::uid(0), Cancel::new());
    let mut out = Vec::new();
    let mut ticket = Ticket::default();
    let before = cpu::thread();
    for (index, line) in lines.each().enumerate() {
        let request = Request::parse(line)?;
        let RequestInput::Json(value, text) = request.input else {
            return Err("a request without input".into());
        };
        let aid = request.aid.ok_or("a request without a tool")?;
        let input = Document::new(value, text);
        let (id, caller) = (gate.next_id(), caller.clone());
        let mut call = Call::new(id, aid, input, caller, Wire::Toolhost, stop.clone());
        call.key = request
            .idempotency_key
            .as_deref()
            .and_then(IdempotencyKey::new);
        let answer = gate.invoke(&call).await;
        ticket = answer.ticket;
        let output = answer.outcome.result.map_err(|fault| fault.to_string())?;
        reply(output.json.text(), &mut out);
        if index % BATCH == BATCH - 1 {
            gate.settle(ticket)
                .await
                .map_err(|fault| fault.to_string())?;
            black_box(&out);
            out.clear();
        }
    }
    gate.settle(ticket)
        .await
        .map_err(|fault| fault.to_string())?;
    Ok(cpu::thread() - before)
}

fn reply(output_json: &str, out: &mut Vec<u8>) {
    let nothing = BTreeMap::new();
    Reply::Took(TookCall {
        status: Status::Ok,
        output_json,
        error: "",
        idempotent_hit: false,
        state: ReplyState::Delta(&nothing, &[]),
        strict_ok: false,
    })
    .write(out);
    out.push(b'\n');
}

/// The same work stage by stage, each over all lines. Names begin with their order.
async fn taken_apart(
    store: &Store,
    schema: &Schema,
    lines: &Lines,
) -> Result<Vec<(&'static str, Duration)>, Failure> {
    let mut stages = Vec::new();
    let mut requests = Vec::with_capacity(lines.len());
    let before = cpu::thread();
    for line in lines.each() {
        requests.push(Request::parse(line)?);
    }
    stages.push(("1 parse", cpu::thread() - before));
    let inputs: Vec<(&serde_json::Value, &str)> = requests
        .iter()
        .filter_map(|request| match &request.input {
            RequestInput::Json(value, text) => Some((value, text.as_str())),
            RequestInput::Broken(_) => None,
        })
        .collect();

    let before = cpu::thread();
    for (value, _) in &inputs {
        schema
            .check_input(value)
            .map_err(|fault| fault.to_string())?;
    }
    stages.push(("2 schema", cpu::thread() - before));

    let caller = Caller::uid(0);
    let before = cpu::thread();
    let mut digests = Vec::with_capacity(lines.len());
    for ((value, _), request) in inputs.iter().zip(&requests) {
        let key = request.idempotency_key.as_deref();
        let key = key.map(|key| KeyId::new(&caller, key));
        // The input's and the output's.
        digests.push((Digest::of_json(value), Digest::of_json(value), key));
    }
    stages.push(("3 digests", cpu::thread() - before));

    let before = cpu::thread();
    let mut ticket = StoreTicket::default();
    for (index, ((_, text), digests)) in inputs.iter().zip(&digests).enumerate() {
        ticket = record(store, &caller, text, digests)?;
        if index % BATCH == BATCH - 1 {
            store.settle(ticket).await?;
        }
    }
    store.settle(ticket).await?;
    stages.push(("4 store", cpu::thread() - before));

    let before = cpu::thread();
    let mut out = Vec::new();
    for (index, (_, text)) in inputs.iter().enumerate() {
        reply(text, &mut out);
        if index % BATCH == BATCH - 1 {
            black_box(&out);
            out.clear();
        }
    }
    stages.push(("5 reply", cpu::thread() - before));
    Ok(stages)
}

/// What the gate asks of the store for one call.
fn record(
    store: &Store,
    caller: &Caller,
    text: &str,
    (input, digest, key): &(Digest, Digest, Option<KeyId>),
) -> Result<StoreTicket, Failure> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let call = callgate_call::CallId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)));
    let tool = "bench/rows_0";
    black_box(store.breaker(tool)?);
    let view = View::Full;
    let start = Start {
        call,
        tool,
        aid: "AID.BENCH.ROWS_0.v1",
        tier: Tier::Safe,
        caller,
        wire: "toolhost",
        input: *input,
        key: *key,
        view,
        lease: None,
        displayed: None,
        brings_more: false,
        idempotent: true,
        enforcement: "none",
        unsafe_override: false,
        trace_id: None,
    };
    let finish = Finish {
        call,
        tool,
        input: *input,
        key: *key,
        view,
        end: End::Output {
            text,
            digest: *digest,
        },
        health: Health::Works,
        enforcement: "none",
        unsafe_override: false,
        network_refused: 0,
        began: Timestamp(0),
        keep: true,
        slots: None,
        trace_id: None,
    };
    if let Some(key) = key {
        black_box(store.peek(key, tool, input, view)?);
    }
    Ok(store.record_pure(start, finish))
}
