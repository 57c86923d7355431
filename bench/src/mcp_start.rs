//! `callgate mcp` from its start to its first answer, and what it weighs while nobody asks.

use std::time::Duration;

use crate::figure::{Figure, number, quiet};
use crate::mcp::{self, MODERN_META};
use crate::piped::Piped;
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain, cpu};

const ROUNDS: usize = 30;
const CPU_MS_MAX: f64 = 15.0;
const RESIDENT_MB_MAX: f64 = 12.0;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("mcp-start")?;
    let start = || {
        let words = ["mcp", "--standalone"];
        Piped::start(&mut mcp::callgate(bench, &scratch, &words))
    };
    let mut cpus = Vec::new();
    for _ in 0..ROUNDS {
        let before = cpu::children();
        let mut server = start()?;
        list(&mut server)?;
        server.finish()?;
        cpus.push((cpu::children() - before).as_secs_f64() * 1e3);
    }
    let mut server = start()?;
    list(&mut server)?;
    // It tends its state every second; what that takes counts.
    std::thread::sleep(Duration::from_millis(2500));
    let resident = cpu::resident(server.pid()).ok_or("it has gone")? as f64 / 1e6;
    server.finish()?;
    chain::check(bench, &scratch, 0)?;
    let first = cpus.first().copied().unwrap_or(f64::NAN);
    Ok(vec![
        Figure::new(
            "mcp-start: CPU to the first `tools/list`",
            quiet(&cpus),
            "ms",
        )
        .at_most(CPU_MS_MAX)
        .beside(format!(
            "its end included; {ROUNDS} starts, the very first, without state, {} ms",
            number(first)
        )),
        Figure::new("mcp-start: `mcp` idle, resident", resident, "MB").at_most(RESIDENT_MB_MAX),
    ])
}

/// Asks for the tools, without a handshake, as a modern client does.
pub fn list(server: &mut Piped) -> Result<(), Failure> {
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{MODERN_META}}}}}"#
    );
    let answer = server.ask(request.as_bytes())?;
    match answer["result"]["tools"].as_array() {
        Some(tools) if !tools.is_empty() => Ok(()),
        _ => Err(format!("answered {answer}").into()),
    }
}
