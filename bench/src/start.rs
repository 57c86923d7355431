//! One call, from the start of the program to its end; and what the program weighs.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::daemon::{Daemon, wait_for};
use crate::figure::{Figure, number, quiet};
use crate::scratch::Scratch;
use crate::serve::toolhost;
use crate::{Bench, Failure, chain, cpu};

const AID: &str = "AID.BUILTIN.ECHO.v1";
const ROUNDS: usize = 50;

/// CPU of one call by a program of its own.
pub const CPU_MS_MAX: f64 = 5.0;
const BINARY_MB_MAX: f64 = 32.0;
const RESIDENT_MB_MAX: f64 = 15.0;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let mut figures = one_shots(bench)?;
    let binary = std::fs::metadata(&bench.callgate)?.len() as f64 / 1e6;
    figures.push(Figure::new("start: binary", binary, "MB").at_most(BINARY_MB_MAX));
    figures.push(idle(bench)?);
    Ok(figures)
}

fn one_shots(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("start")?;
    let tool_exec = || {
        let mut command = Command::new(&bench.callgate);
        command.args(["tool_exec", AID]);
        command
            .arg("--workspace")
            .arg(scratch.workspace())
            .arg("--state")
            .arg(scratch.state());
        command
    };
    let run = || {
        let mut command = toolhost(bench, &scratch);
        command.args(["--run", "builtin", AID]);
        command
    };
    let mut cpus: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let [runs, execs, trues] = &mut cpus;
        runs.push(cpu_ms(|| one_shot(&mut run()))?);
        execs.push(cpu_ms(|| one_shot(&mut tool_exec()))?);
        trues.push(cpu_ms(|| {
            Ok(Command::new("/bin/true").status().map(|_| ())?)
        })?);
    }
    chain::check(bench, &scratch, 2 * ROUNDS)?;
    let [runs, execs, trues] = cpus.map(|cpus| quiet(&cpus));
    let beside = format!("`/bin/true` {} ms; {ROUNDS} of each", number(trues));
    let figure = |name: &str, value: f64| {
        Figure::new(name, value, "ms")
            .at_most(CPU_MS_MAX)
            .beside(beside.clone())
    };
    Ok(vec![
        figure("start: CPU of `--run`", runs),
        figure("start: CPU of `tool_exec`", execs),
    ])
}

/// Runs one call by a program of its own and checks that it was answered.
pub fn one_shot(command: &mut Command) -> Result<(), Failure> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("a child without its stdin")?;
    stdin.write_all(br#"{"input_json":"{\"n\":1}"}"#)?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let reply: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    if reply["status"] == "OK" {
        Ok(())
    } else {
        Err(format!("answered {reply}").into())
    }
}

fn cpu_ms(run: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let before = cpu::children();
    run()?;
    Ok((cpu::children() - before).as_secs_f64() * 1e3)
}

/// What `callgate serve` keeps resident while nobody calls.
fn idle(bench: &Bench) -> Result<Figure, Failure> {
    let scratch = Scratch::new("idle")?;
    let socket = scratch.root().join("gate.sock");
    let mut command = Command::new(&bench.callgate);
    command.arg("serve").arg("--socket").arg(&socket);
    command
        .arg("--workspace")
        .arg(scratch.workspace())
        .arg("--state")
        .arg(scratch.state());
    let gate = Daemon::start(&mut command)?;
    wait_for("`callgate serve`", || UnixStream::connect(&socket).is_ok())?;
    // It tends its state every second; what that takes counts.
    std::thread::sleep(Duration::from_millis(2500));
    let resident = cpu::resident(gate.pid()).ok_or("the gate has gone")? as f64 / 1e6;
    Ok(Figure::new("start: `serve` idle, resident", resident, "MB").at_most(RESIDENT_MB_MAX))
}
