//! Durability `power` with 64 callers: how many syncs a call costs when they share them.

use std::sync::Arc;

use callgate_call::{Call, Caller, Cancel, Document, IdempotencyKey, Wire};
use callgate_gate::Gate;
use callgate_store::Durability;
use serde_json::json;
use tokio::task::JoinSet;

use crate::figure::{Figure, number};
use crate::in_process::{self, aid};
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain};

const CALLERS: usize = 64;
const CALLS_EACH: usize = 50;
const ALONE: usize = 50;
const SYNCS_MAX: f64 = 0.1;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("power")?;
    let runtime = in_process::runtime()?;
    let (alone, together) = {
        let gate = in_process::gate(&scratch.state(), Durability::Power, bench.seed)?;
        let syncs = || gate.store().stats().fsyncs;
        let before = syncs();
        runtime.block_on(caller(Arc::clone(&gate), 0, ALONE))?;
        let between = syncs();
        runtime.block_on(callers(&gate))?;
        let after = syncs();
        gate.store().close()?;
        (between - before, after - between)
    };
    let calls = CALLERS * CALLS_EACH;
    chain::check(bench, &scratch, ALONE + calls)?;
    let each = together as f64 / calls as f64;
    Ok(vec![
        Figure::new("power, 64 callers: syncs of a call", each, "")
            .at_most(SYNCS_MAX)
            .beside(format!(
                "{together} for {calls} keyed calls; one caller alone {} a call",
                number(alone as f64 / ALONE as f64)
            )),
    ])
}

async fn callers(gate: &Arc<Gate>) -> Result<(), Failure> {
    let mut all = JoinSet::new();
    for number in 1..=CALLERS {
        all.spawn(caller(Arc::clone(gate), number, CALLS_EACH));
    }
    while let Some(ended) = all.join_next().await {
        ended??;
    }
    Ok(())
}

/// Calls one after the other, each with a key of its own, each settled before the next.
async fn caller(gate: Arc<Gate>, number: usize, calls: usize) -> Result<(), String> {
    for index in 0..calls {
        let input = Document::from_value(json!({ "query": "rows", "limit": 10, "page": index }));
        let (id, caller, cancel) = (gate.next_id(), Caller::uid(0), Cancel::new());
        let mut call = Call::new(id, aid(number), input, caller, Wire::Gate, cancel);
        call.key = IdempotencyKey::new(&format!("{number}-{index}"));
        gate.call(&call)
            .await
            .result
            .map_err(|fault| fault.to_string())?;
    }
    Ok(())
}
