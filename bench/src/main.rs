//! `callgate-bench`: what a call costs. Run as `cargo xtask bench`.
//!
//! Figures are CPU per call, syscalls or syncs per call, or ratios of medians over
//! interleaved rounds, because a machine that does other things as well makes seconds lie.
//! What a figure is compared with is measured in the same run. After each bench the chain is
//! verified and its records are counted: nothing may leave the path to be fast.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a bench starts programs, reads clocks and talks on stdout"
)]

mod bridge;
mod callgrind;
mod canned;
mod chain;
mod confined;
mod cpu;
mod daemon;
mod figure;
mod gate;
mod http;
mod in_process;
mod instructions;
mod launchers;
mod lines;
mod machine;
mod mcp;
mod mcp_http;
mod mcp_start;
mod mcp_stdio;
mod piped;
mod power;
mod python;
mod recall;
mod results;
mod rivals;
mod rpc;
mod rpc_base64;
mod rpc_exec;
mod rpc_files;
mod rpc_search;
mod rpc_terminal;
mod runs;
mod scratch;
mod search;
mod serve;
mod service;
mod spawn;
mod start;
mod stream;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use figure::Figure;
use rivals::Rivals;

/// What went wrong with a bench, as opposed to a figure that is too low.
type Failure = Box<dyn std::error::Error>;

const HELP: &str = "\
callgate-bench --callgate PATH [--rmcp PATH] [--node PATH] [--typescript PATH] [--python PATH]
               [--model PATH] [--check] [--write] [--seed N] [NAME...]

  --callgate PATH   the binary to measure
  --rmcp PATH       what `bench/rivals/rmcp` was built as
  --node PATH       Node 22, for the TypeScript SDK
  --typescript PATH `bench/rivals/typescript`, where its packages are installed
  --python PATH     an interpreter that has FastMCP
  --model PATH      the package that has the model; vectors are kept beside it
  --check           exit 1 if a figure is worse than 0.7 of what is wanted, or instructions
                    are more than 2 % above their reference
  --write           put the table into bench/RESULTS.md (all benches only)
  --seed N          for the lines that are sent; random and printed if not given
  NAME              serve, gate, python, power, spawn, confined, start, mcp-stdio, mcp-http,
                    mcp-start, bridge, service, rpc-files, rpc-base64, rpc-search, rpc-exec,
                    rpc-terminal, stream, runs, search, recall, instructions; all if none is named
";

/// A bench gives its figures.
type Run = fn(&Bench) -> Result<Vec<Figure>, Failure>;

/// Every bench, in the order they run.
const BENCHES: [(&str, Run); 22] = [
    ("serve", serve::run),
    ("gate", gate::run),
    ("python", python::run),
    ("power", power::run),
    ("spawn", spawn::run),
    ("confined", confined::run),
    ("start", start::run),
    ("mcp-stdio", mcp_stdio::run),
    ("mcp-http", mcp_http::run),
    ("mcp-start", mcp_start::run),
    ("bridge", bridge::run),
    ("service", service::run),
    ("stream", stream::run),
    ("runs", runs::run),
    ("rpc-files", rpc_files::run),
    ("rpc-base64", rpc_base64::run),
    ("rpc-search", rpc_search::run),
    ("rpc-exec", rpc_exec::run),
    ("rpc-terminal", rpc_terminal::run),
    ("search", search::run),
    ("recall", recall::run),
    (instructions::NAME, instructions::run),
];

/// What every bench is handed.
#[derive(Clone)]
struct Bench {
    /// The binary that is measured.
    callgate: PathBuf,
    /// The folder for callgrind's counts, if instructions are counted.
    callgrind: Option<PathBuf>,
    rivals: Rivals,
    /// The package that has the model.
    model: Option<PathBuf>,
    seed: u64,
}

impl Bench {
    /// The measured program, under callgrind if its instructions are counted.
    fn program(&self) -> Command {
        match &self.callgrind {
            Some(folder) => callgrind::command(&self.callgate, folder),
            None => Command::new(&self.callgate),
        }
    }
}

#[derive(Default)]
struct Arguments {
    callgate: Option<PathBuf>,
    rivals: Rivals,
    model: Option<PathBuf>,
    check: bool,
    write: bool,
    seed: Option<u64>,
    names: Vec<String>,
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(runs::EMIT) {
        return runs::emit();
    }
    if std::env::args().nth(1).as_deref() == Some(canned::SERVE) {
        return canned::serve(std::env::args_os().skip(2).collect());
    }
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("callgate-bench: {reason}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match measure(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("callgate-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--callgate" => arguments.callgate = Some(PathBuf::from(value()?)),
            "--rmcp" => arguments.rivals.rmcp = Some(PathBuf::from(value()?)),
            "--node" => arguments.rivals.node = Some(PathBuf::from(value()?)),
            "--typescript" => arguments.rivals.typescript = Some(PathBuf::from(value()?)),
            "--python" => arguments.rivals.python = Some(PathBuf::from(value()?)),
            "--model" => arguments.model = Some(PathBuf::from(value()?)),
            "--check" => arguments.check = true,
            "--write" => arguments.write = true,
            "--seed" => {
                let seed = value()?
                    .parse()
                    .map_err(|_| "--seed is a number".to_owned())?;
                arguments.seed = Some(seed);
            }
            name if BENCHES.iter().any(|(known, _)| *known == name) => {
                arguments.names.push(word);
            }
            other => return Err(format!("neither an option nor a bench: `{other}`")),
        }
    }
    if arguments.write && !arguments.names.is_empty() {
        return Err("--write keeps all figures, so it takes no NAME".to_owned());
    }
    Ok(arguments)
}

/// Other work on the machine waits for ours, where we may ask for that: then it disturbs what
/// is measured by the clock less.
fn come_first() {
    let us = std::process::id().to_string();
    let quiet = Stdio::null;
    let _ = Command::new("renice")
        .args(["-n", "-10", "-p", &us])
        .stdout(quiet())
        .stderr(quiet())
        .status();
    // Where sessions are scheduled as groups, that counts among our own processes only.
    let _ = std::fs::write("/proc/self/autogroup", "-10");
}

/// Runs what was asked for. False if `--check` found a figure too far off.
fn measure(arguments: &Arguments) -> Result<bool, Failure> {
    let callgate = arguments
        .callgate
        .as_ref()
        .ok_or("--callgate PATH is needed")?;
    let callgate = callgate
        .canonicalize()
        .map_err(|error| format!("{}: {error}", callgate.display()))?;
    let seed = arguments.seed.unwrap_or_else(lines::random_seed);
    let bench = Bench {
        callgate,
        callgrind: None,
        rivals: arguments.rivals.clone(),
        model: arguments.model.clone(),
        seed,
    };
    // Instructions are the same however busy the machine is.
    if arguments.names != [instructions::NAME] {
        come_first();
    }
    let setting = results::Setting::read(seed);
    eprintln!("{setting}");
    let wanted =
        |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|n| n == name);
    let mut figures = Vec::new();
    let mut failed = Vec::new();
    let mut samples = vec![machine::sample()];
    for (name, run) in BENCHES.into_iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name} …");
        // One that can not run costs its own figures only.
        match run(&bench) {
            Ok(measured) => figures.extend(measured),
            Err(failure) => failed.push(format!("{name}: {failure}")),
        }
        samples.push(machine::sample());
    }
    figures.push(machine::figure(&samples));
    let setting = setting.with_load_after();
    print!("{}", figure::table(&figures));
    if !failed.is_empty() {
        return Err(failed.join("\n").into());
    }
    if arguments.write {
        results::write(&setting, &figures)?;
    }
    let bad: Vec<&Figure> = figures.iter().filter(|figure| !figure.passes()).collect();
    for figure in bad.iter().filter(|_| arguments.check) {
        eprintln!("too far off: {figure}");
    }
    Ok(!arguments.check || bad.is_empty())
}
