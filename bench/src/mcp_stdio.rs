//! MCP on pipes, `tools/call` of the built-in echo, 16 in flight: against rmcp, the TypeScript
//! SDK and FastMCP.

use crate::figure::{Figure, median, number, quiet};
use crate::lines::{Lines, Writer};
use crate::mcp::{self, INITIALIZE, INITIALIZED, MODERN_META, TOOL};
use crate::piped::{Piped, Spent};
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain};

const WINDOW: usize = 16;
const ROUNDS: usize = 7;
/// Calls that are looked at, before those that are counted. They warm compilers up as well.
const CHECKED: usize = 100;

/// A server, how many calls it gets in a round, and how much faster than it we want to be.
struct Rival {
    name: &'static str,
    piped: Piped,
    calls: usize,
    wanted: f64,
    spent: Vec<Spent>,
}

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("mcp-stdio")?;
    let mut writer = Writer::new(bench.seed);
    let mut ours = begun(Piped::start(&mut mcp::callgate(
        bench,
        &scratch,
        &["mcp", "--standalone", "--only", "builtin/echo"],
    ))?)?;
    let rivals = &bench.rivals;
    let mut rivals = [
        ("rmcp", rivals.rmcp()?, 20_000, 2.0),
        ("TypeScript SDK", rivals.typescript()?, 10_000, 5.0),
        ("FastMCP", rivals.fastmcp()?, 300, 100.0),
    ]
    .map(|(name, mut command, calls, wanted)| {
        Ok(Rival {
            name,
            piped: begun(Piped::start(&mut command)?)?,
            calls,
            wanted,
            spent: Vec::new(),
        })
    })
    .into_iter()
    .collect::<Result<Vec<Rival>, Failure>>()?;
    let few = writer.tool_calls(TOOL, CHECKED, None);
    check(&mut ours, &few)?;
    for rival in &mut rivals {
        check(&mut rival.piped, &few)?;
    }
    let legacy = writer.tool_calls(TOOL, 40_000, None);
    let modern = writer.tool_calls(TOOL, 40_000, Some(MODERN_META));
    let (mut in_legacy, mut in_modern) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        in_legacy.push(ours.exchange(&legacy, WINDOW)?);
        for rival in &mut rivals {
            let lines = writer.tool_calls(TOOL, rival.calls, None);
            rival.spent.push(rival.piped.exchange(&lines, WINDOW)?);
        }
        in_modern.push(ours.exchange(&modern, WINDOW)?);
    }
    ours.finish()?;
    let counted = ROUNDS * (legacy.len() + modern.len());
    chain::check(bench, &scratch, few.len() + counted)?;
    let rate = |spent: &[Spent]| median(&spent.iter().map(Spent::per_second).collect::<Vec<_>>());
    let cpu = |spent: &[Spent]| quiet(&spent.iter().map(Spent::cpu_micros).collect::<Vec<_>>());
    let mut figures: Vec<Figure> = rivals
        .iter()
        .map(|rival| {
            let (us, them) = (rate(&in_legacy), rate(&rival.spent));
            let name = format!("mcp-stdio: calls/s against {}", rival.name);
            Figure::new(&name, us / them, "x")
                .at_least(rival.wanted)
                .beside(format!(
                    "{} against {} calls/s; CPU of a call {} against {} µs",
                    number(us),
                    number(them),
                    number(cpu(&in_legacy)),
                    number(cpu(&rival.spent)),
                ))
        })
        .collect();
    figures.push(
        Figure::new("mcp-stdio: CPU of a modern call", cpu(&in_modern), "µs")
            .beside(format!("{} calls/s", number(rate(&in_modern)))),
    );
    Ok(figures)
}

/// After the handshake.
pub fn begun(mut piped: Piped) -> Result<Piped, Failure> {
    let answer = piped.ask(INITIALIZE.as_bytes())?;
    if answer["result"]["protocolVersion"].is_null() {
        return Err(format!("answered {answer}").into());
    }
    piped.tell(INITIALIZED.as_bytes())?;
    Ok(piped)
}

fn check(piped: &mut Piped, lines: &Lines) -> Result<(), Failure> {
    for line in lines.each() {
        let answer = piped.ask(line)?;
        mcp::check(line, &answer)?;
    }
    Ok(())
}
