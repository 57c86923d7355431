//! A Python tool: a warm worker, a fork of a warm interpreter for each call, and an interpreter
//! for each call, in one host.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::figure::{Figure, number, quiet};
use crate::lines::Writer;
use crate::piped::{Piped, Spent};
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain, cpu};

const EXAMPLE: &str = "examples/hello";
const WARM_AID: &str = "AID.DEMO.GREET.v1";
const FORKED_AID: &str = "AID.BENCH.FORKED.v1";
const FRESH_AID: &str = "AID.BENCH.FRESH.v1";
const COLD_AID: &str = "AID.BENCH.COLD.v1";
const ROUNDS: usize = 5;
/// A pool replaces a worker every 1,000 calls. Spells this short mostly miss that, so that
/// the quieter ones are the warm call and their mean has the replacement in it.
const SPELLS: usize = 10;
const SPELL_CALLS: usize = 100;
const COLD_CALLS: usize = 8;
const WINDOW: usize = 64;
const CPU_MICROS_MAX: f64 = 100.0;
const FORKED_CPU_MICROS_MAX: f64 = 3_000.0;

/// The example's own greeting in other isolations, and by a program of its own.
const MORE_TOOLS: &str = r#"
[[tool]]
name = "forked"
aid = "AID.BENCH.FORKED.v1"
isolation = "call"
runner = { kind = "python", entry = "tools.sample:greet" }

[[tool]]
name = "fresh"
aid = "AID.BENCH.FRESH.v1"
isolation = "cold"
runner = { kind = "python", entry = "tools.sample:greet" }

[[tool]]
name = "cold"
aid = "AID.BENCH.COLD.v1"
runner = { kind = "process", command = ["python3", "tools/cold.py"] }
"#;
const COLD_PROGRAM: &str = "\
import json, sys
payload = json.load(sys.stdin)
json.dump({'message': 'Hello ' + payload['name']}, sys.stdout)
";

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("python")?;
    let _one_core = cpu::OneCore::hold()?;
    let workspace = scratch.workspace();
    copy(Path::new(EXAMPLE), &workspace)?;
    let config = workspace.join("callgate.toml");
    fs::write(&config, fs::read_to_string(&config)? + MORE_TOOLS)?;
    fs::write(workspace.join("tools/cold.py"), COLD_PROGRAM)?;
    let mut command = Command::new(&bench.callgate);
    command
        .arg("toolhost")
        .arg("--serve")
        .arg(&workspace)
        .arg("--state")
        .arg(scratch.state());
    command.env("PATH", path_of_python()?);
    let mut host = Piped::start(&mut command)?;
    let mut writer = Writer::new(bench.seed);
    let warm_up = writer.greetings(WARM_AID, 200);
    host.check(&warm_up)?;
    host.check(&writer.greetings(FORKED_AID, COLD_CALLS))?;
    let (mut alone, mut batched, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    let (mut forked, mut fresh) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for _ in 0..SPELLS {
            alone.push(host.exchange(&writer.greetings(WARM_AID, SPELL_CALLS), 1)?);
            batched.push(host.exchange(&writer.greetings(WARM_AID, SPELL_CALLS), WINDOW)?);
        }
        forked.push(host.exchange(&writer.greetings(FORKED_AID, SPELL_CALLS), 1)?);
        fresh.push(host.exchange(&writer.greetings(FRESH_AID, COLD_CALLS), 1)?);
        cold.push(host.exchange(&writer.greetings(COLD_AID, COLD_CALLS), 1)?);
    }
    host.finish()?;
    let calls = warm_up.len()
        + COLD_CALLS
        + ROUNDS * (2 * SPELLS * SPELL_CALLS + SPELL_CALLS + 2 * COLD_CALLS);
    chain::check(bench, &scratch, calls)?;
    let cold = quiet_of(&cold, Spent::cpu_micros);
    let (forked_all, fresh) = (
        quiet_of(&forked, Spent::cpu_micros),
        quiet_of(&fresh, Spent::cpu_micros),
    );
    let figure = |name: &str, warm: &[Spent]| {
        let (all, ours) = (
            quiet_of(warm, Spent::cpu_micros),
            quiet_of(warm, Spent::own_cpu_micros),
        );
        let mean = warm.iter().map(Spent::cpu_micros).sum::<f64>() / warm.len() as f64;
        Figure::new(name, all, "µs")
            .at_most(CPU_MICROS_MAX)
            .beside(format!(
                "host {} µs, worker {} µs; on average, with its replacements, {} µs; \
                 an interpreter for each call {} µs, {} x",
                number(ours),
                number(all - ours),
                number(mean),
                number(cold),
                number(cold / all),
            ))
    };
    let forked_own = quiet_of(&forked, Spent::own_cpu_micros);
    Ok(vec![
        figure("python: CPU of a warm call, one at a time", &alone),
        figure("python: CPU of a warm call, 64 waiting", &batched),
        Figure::new(
            "python: CPU of a call in a fork of its own",
            forked_all,
            "µs",
        )
        .at_most(FORKED_CPU_MICROS_MAX)
        .beside(format!(
            "host {} µs; a worker for each call {} µs, {} x; an interpreter for each call {} µs, {} x",
            number(forked_own),
            number(fresh),
            number(fresh / forked_all),
            number(cold),
            number(cold / forked_all),
        )),
    ])
}

fn quiet_of(spent: &[Spent], each: fn(&Spent) -> f64) -> f64 {
    quiet(&spent.iter().map(each).collect::<Vec<_>>())
}

/// The search path with the interpreter itself first: what starts it may be a script, and
/// then the cold call would look worse than it is.
pub fn path_of_python() -> Result<OsString, Failure> {
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()?;
    let program = PathBuf::from(String::from_utf8(asked.stdout)?.trim());
    let folder = program.parent().ok_or("there is no python3")?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let entries = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
