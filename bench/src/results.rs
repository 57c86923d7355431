//! Where and when figures were measured, and `bench/RESULTS.md`.

use std::fmt;
use std::fs;
use std::process::Command;

use crate::Failure;
use crate::figure::{Figure, table};

const FILE: &str = "bench/RESULTS.md";

/// What a reader must know to judge a figure.
pub struct Setting {
    commit: String,
    machine: String,
    niceness: String,
    load_before: String,
    load_after: String,
    seed: u64,
}

impl Setting {
    pub fn read(seed: u64) -> Self {
        Self {
            commit: commit(),
            machine: machine(),
            niceness: niceness().unwrap_or_default(),
            load_before: load(),
            load_after: String::new(),
            seed,
        }
    }

    pub fn with_load_after(self) -> Self {
        Self {
            load_after: load(),
            ..self
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            commit,
            machine,
            niceness,
            load_before,
            load_after,
            seed,
        } = self;
        write!(f, "commit {commit}; {machine}; niceness {niceness}; ")?;
        write!(f, "load average {load_before} before")?;
        if !load_after.is_empty() {
            write!(f, ", {load_after} after")?;
        }
        write!(f, "; seed {seed}")
    }
}

/// Writes the table. Run from the project's folder, as `cargo xtask bench` does.
pub fn write(setting: &Setting, figures: &[Figure]) -> Result<(), Failure> {
    let text = format!(
        "# Results\n\n\
         Written by `cargo xtask bench --write`. CPU is user and system together and the \
         lower quartile of the rounds, because neighbours only ever add to it; contestants are \
         measured in the same run, in turns, and ratios are of medians. Calls over the bridge, of \
         Python and of `exec/run`, where processes wait for each other, are measured on one core. \
         `near` is within what \
         `--check` lets pass (0.7 of what is wanted). After every bench the chain was verified and \
         its records counted against the calls. Instructions are \
         counted by callgrind, in the gate's own process without the kernel, and held to a reference \
         that is in the source.\n\n{setting}\n\n{}",
        table(figures)
    );
    fs::write(FILE, text).map_err(|error| format!("write {FILE}: {error}").into())
}

/// The commit that is checked out, marked if the files are not as committed.
fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (
        git(&["rev-parse", "--short=12", "HEAD"]),
        git(&["status", "--porcelain"]),
    ) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit} and changes"),
        (None, _) => "unknown".to_owned(),
    }
}

fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("processor unknown", |rest| {
        rest.trim_start_matches([' ', '\t', ':'])
    });
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpus} x {model}, Linux {}", kernel.trim())
}

fn niceness() -> Option<String> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(16)
        .map(str::to_owned)
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}
