//! `toolhost --serve`, the built-in echo, 64 lines in flight: how near to `cat` it comes, and
//! that a key costs the same however many were seen before.

use std::process::Command;

use crate::figure::{Figure, median, number, quiet, ratio};
use crate::lines::{Lines, Writer};
use crate::piped::{Piped, Spent};
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain, cpu, mcp, start};

/// The built-in echo.
pub const AID: &str = "AID.BUILTIN.ECHO.v1";
const WINDOW: usize = 64;
const ROUNDS: usize = 5;
/// Lines of one round without keys.
const PLAIN_LINES: usize = 100_000;
/// Lines of one round with keys.
const KEYED_LINES: usize = 50_000;
const KEYS_FEW: usize = 1_000;
const KEYS_MANY: usize = 1_000_000;
/// Starts on a state that has seen many keys.
const STARTS: usize = 20;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = plain(bench)?;
    figures.extend(keyed(bench)?);
    Ok(figures)
}

fn plain(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("plain")?;
    let mut writer = Writer::new(bench.seed);
    let lines = writer.requests(AID, PLAIN_LINES, false);
    let mut host = host(bench, &scratch)?;
    let mut cat = Piped::start(&mut Command::new("cat"))?;
    let few = writer.requests(AID, KEYS_FEW, false);
    host.check(&few)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(cat.exchange(&lines, WINDOW)?);
        ours.push(host.exchange(&lines, WINDOW)?);
    }
    cat.finish()?;
    host.finish()?;
    chain::check(bench, &scratch, few.len() + ROUNDS * lines.len())?;
    let beside = format!(
        "{} against {} lines/s of `cat`",
        number(rate(&ours)),
        number(rate(&theirs))
    );
    Ok(vec![
        Figure::new(
            "serve: lines/s against `cat`",
            rate(&ours) / rate(&theirs),
            "x",
        )
        .at_least(0.12)
        .beside(beside),
        Figure::new("serve: CPU of a call", cpu_of(&ours), "µs").beside(format!(
            "`cat` {} µs; {} reads and writes a call, against {}",
            number(cpu_of(&theirs)),
            number(io_calls(&ours)),
            number(io_calls(&theirs)),
        )),
    ])
}

fn keyed(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("keyed")?;
    let mut writer = Writer::new(bench.seed ^ 1);
    let mut seen = 0;
    let mut fresh = |count: usize| {
        seen += count;
        writer.requests(AID, count, true)
    };
    let mut old = host(bench, &scratch)?;
    old.check(&fresh(KEYS_FEW))?;
    let mut growing = Vec::new();
    while growing.len() * KEYED_LINES + KEYS_FEW < KEYS_MANY {
        growing.push(old.exchange(&fresh(KEYED_LINES), WINDOW)?);
    }
    let (mut after_few, mut after_many) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        after_few.push(young(bench, round, &fresh_elsewhere(bench, round))?);
        after_many.push(old.exchange(&fresh(KEYED_LINES), WINDOW)?);
    }
    old.finish()?;
    let starts = starts(bench, &scratch)?;
    chain::check(bench, &scratch, seen + STARTS)?;
    let all: Vec<Spent> = growing.iter().chain(&after_many).copied().collect();
    let micros = |spent: &[Spent]| spent.iter().map(Spent::cpu_micros).collect::<Vec<_>>();
    let cost = ratio(&micros(&after_many), &micros(&after_few));
    let beside = format!(
        "{} µs after {} keys, {} µs after {}",
        number(cpu_of(&after_many)),
        number((seen - ROUNDS * KEYED_LINES) as f64),
        number(cpu_of(&after_few)),
        number(KEYS_FEW as f64),
    );
    let worst = all.iter().map(Spent::cpu_micros).fold(0.0, f64::max);
    Ok(vec![
        Figure::new("serve, fresh keys: calls", rate(&all), "/s")
            .at_least(40_000.0)
            .beside(format!(
                "CPU of a call {} µs, at worst {} µs over {} calls; {} reads and writes a call",
                number(cpu_of(&all)),
                number(worst),
                number(KEYED_LINES as f64),
                number(io_calls(&all)),
            )),
        Figure::new("serve, fresh keys: CPU after many against few", cost, "x")
            .at_most(1.2)
            .beside(beside),
        Figure::new(
            "serve, fresh keys: CPU of `--run` after many",
            quiet(&starts),
            "ms",
        )
        .at_most(start::CPU_MS_MAX)
        .beside(format!("{STARTS} starts")),
    ])
}

/// A host that has seen few keys only, for one round.
fn young(bench: &Bench, round: usize, lines: &[Lines; 2]) -> Result<Spent, Failure> {
    let scratch = Scratch::new(&format!("young-{round}"))?;
    let mut host = host(bench, &scratch)?;
    host.check(&lines[0])?;
    let spent = host.exchange(&lines[1], WINDOW)?;
    host.finish()?;
    chain::check(bench, &scratch, lines[0].len() + lines[1].len())?;
    Ok(spent)
}

fn fresh_elsewhere(bench: &Bench, round: usize) -> [Lines; 2] {
    let mut writer = Writer::new(bench.seed ^ (round as u64 + 2));
    [KEYS_FEW, KEYED_LINES].map(|count| writer.requests(AID, count, true))
}

/// A host of the built-in tools.
pub fn host(bench: &Bench, scratch: &Scratch) -> Result<Piped, Failure> {
    Piped::start(toolhost(bench, scratch).args(["--serve", "builtin"]))
}

/// `callgate toolhost` in a scratch folder.
pub fn toolhost(bench: &Bench, scratch: &Scratch) -> Command {
    mcp::callgate(bench, scratch, &["toolhost"])
}

/// CPU of single calls on a state that is not small any more, in milliseconds.
fn starts(bench: &Bench, scratch: &Scratch) -> Result<Vec<f64>, Failure> {
    let mut cpus = Vec::new();
    for _ in 0..STARTS {
        let mut command = toolhost(bench, scratch);
        command.args(["--run", "builtin", AID]);
        let before = cpu::children();
        start::one_shot(&mut command)?;
        cpus.push((cpu::children() - before).as_secs_f64() * 1e3);
    }
    Ok(cpus)
}

fn rate(spent: &[Spent]) -> f64 {
    median(&spent.iter().map(Spent::per_second).collect::<Vec<_>>())
}

fn cpu_of(spent: &[Spent]) -> f64 {
    quiet(&spent.iter().map(Spent::cpu_micros).collect::<Vec<_>>())
}

fn io_calls(spent: &[Spent]) -> f64 {
    let each = |spent: &Spent| spent.io_calls as f64 / spent.lines as f64;
    median(&spent.iter().map(each).collect::<Vec<_>>())
}
