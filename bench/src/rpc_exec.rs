//! `exec/run true` over HTTP: the CPU of the gate and of all it starts, above that of a start of
//! the same program by itself, confined and bounded as it is there.

use std::path::Path;
use std::sync::Arc;

use callgate_call::{Ipc, Needs};
use callgate_sandbox::{Limits, Trees};
use serde_json::json;

use crate::figure::{Figure, number, quiet};
use crate::http::Connection;
use crate::rpc::Served;
use crate::scratch::Scratch;
use crate::{Bench, Failure, confined, cpu, in_process};

const ROUNDS: usize = 11;
/// Calls in a round: what has gone is counted in ticks of 10 ms.
const CALLS: usize = 300;
const ABOVE_US_MAX: f64 = 300.0;
const PROGRAM: &str = "/usr/bin/true";
/// What `exec/run` lets a program's tree have, where nothing is said.
const PROCESSES: u64 = 4096;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("rpc-exec")?;
    let _one_core = cpu::OneCore::hold()?;
    let runtime = in_process::runtime()?;
    let mut served = Served::start(bench, &scratch)?;
    let mut connection = Connection::open(served.port)?;
    let needs = Arc::new(Needs {
        writes: vec![scratch.workspace()],
        ipc: Ipc::Private,
        ..Needs::default()
    });
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = served.cpu()?;
        for _ in 0..CALLS {
            let params = json!({ "command": "true" });
            let ran = served.ask(&mut connection, "exec/run", params)?;
            if ran["exit_code"] != 0 {
                return Err(format!("`true` ended with {ran}").into());
            }
        }
        let spent = served.cpu()?.saturating_sub(before);
        ours.push(cpu::micros_each(spent, CALLS));
        let confined = confined::children(
            bench,
            Path::new(PROGRAM),
            Trees::Best,
            Some(Arc::clone(&needs)),
            Limits {
                processes: Some(PROCESSES),
                ..Limits::default()
            },
        );
        bare.push(runtime.block_on(confined)?);
    }
    served.finish(bench, &scratch)?;
    let (us, them) = (quiet(&ours), quiet(&bare));
    let beside = format!(
        "{} µs with HTTP, records and output; a confined start with its bound on processes, by itself, {} µs",
        number(us),
        number(them)
    );
    Ok(vec![
        Figure::new(
            "rpc-exec: CPU of `true`, above a confined start",
            us - them,
            "µs",
        )
        .at_most(ABOVE_US_MAX)
        .beside(beside),
    ])
}
