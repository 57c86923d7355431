//! `callgate run`: one streamed run from the shell, and those that it asks for.
//!
//! A run is an ordinary call of `runs/start`. It is made in this process whether or not a gate
//! serves the workspace: who started it ends it, and what became of it is in the state of the
//! workspace either way.

mod ask;
mod conduct;
mod fan;
mod live;
mod proxy;
mod screen;
mod tell;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_exporters::webhook::Notifier;
use callgate_registry::environment::Environment;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::cli::{Done, Failure, Place, runtime};
use crate::compose::{self, chain};
use crate::error::{ArgumentError, CommandError};
use conduct::Conductor;
use live::Live;

pub use screen::{plain, seconds, size};
pub use tell::summary;

/// What a wrong command line exits with, as the parser does.
const USAGE: u8 = 2;
/// What a run exits with that was refused before it began.
const REFUSED: u8 = 3;

/// Run an executor: keep the events and artifacts that it streams, and say how it ended.
///
/// The executor gets one line of JSON on its standard input and streams frames on its standard
/// output (docs/runs.md). Ctrl-C ends it with all it started; it is reported all the same.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Run {
    /// The executor and its arguments, the script last
    #[arg(required = true, last = true, value_name = "EXECUTOR")]
    command: Vec<String>,
    /// What the script works on: JSON, or @FILE that holds it
    #[arg(long, value_name = "JSON")]
    job: Option<String>,
    /// The run's name, which no other run of the workspace has; else it is given one
    #[arg(long, value_name = "ID", value_parser = ask::run_id)]
    run_id: Option<String>,
    /// The job's name
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    job_id: Option<String>,
    /// Which try it is; from the second on with --parent-run-id
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    attempt: u32,
    /// The run that was the try before
    #[arg(long, value_name = "RUN", value_parser = NonEmptyStringValueParser::new())]
    parent_run_id: Option<String>,
    /// The longest it may take, such as 90s or 2h; a day if nothing is said
    #[arg(long, value_name = "TIME", value_parser = super::call::timeout)]
    timeout: Option<Duration>,
    /// The dataset that its events go to [default: callgate]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    dataset: Option<String>,
    /// Whose data it is [default: default]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    source: Option<String>,
    /// What kind of data it is [default: default]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    category: Option<String>,
    /// When events are written: strict, buffered or streaming
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// buffered: so many events at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    buffer_events: Option<u64>,
    /// buffered: so many bytes at most, such as 64M
    #[arg(long, value_name = "BYTES", value_parser = ask::bytes)]
    buffer_bytes: Option<u64>,
    /// streaming: events of a batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    flush_count: Option<u64>,
    /// streaming: the longest that an event waits
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    flush_interval: Option<Duration>,
    /// Bytes of the largest artifact, such as 8G [default: 1G]
    #[arg(long, value_name = "BYTES", value_parser = ask::bytes)]
    artifact_max: Option<u64>,
    /// A proxy for the script, without a password: http://HOST:PORT, https:// or socks5://
    #[arg(long, value_name = "URL", conflicts_with = "proxy_from")]
    proxy: Option<String>,
    /// Where the proxy is written with its password: a file, or env:NAME
    #[arg(long, value_name = "FILE|env:NAME")]
    proxy_from: Option<String>,
    /// A browser that runs already, for scripts that drive one: ws://HOST:PORT/… or wss://
    #[arg(long, value_name = "URL", value_parser = ask::browser)]
    browser_ws_endpoint: Option<String>,
    /// Check all of it, say what would be run, and run nothing
    #[arg(long, conflicts_with = "report")]
    dry_run: bool,
    /// Write the report there as JSON, whole or not at all; - is standard output
    #[arg(long, value_name = "PATH")]
    report: Option<PathBuf>,
    /// Also run what it enqueues, and what those do, so many steps deep
    #[arg(long, value_name = "N", default_value_t = 0)]
    depth: u32,
    /// So many runs at most, this one counted
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_runs: u32,
    /// So many runs at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    parallel: u32,
    /// Tell this address when a run has ended; instead of runs.webhook
    #[arg(long, value_name = "URL")]
    notify: Option<String>,
    /// The variable with the secret that signs what --notify is told
    #[arg(long, value_name = "NAME", requires = "notify")]
    notify_secret_env: Option<String>,
    /// Makes a retry safe: the same key never runs it twice
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// A lease token from `callgate lease grant runs/start`
    #[arg(long, value_name = "TOKEN")]
    lease: Option<String>,
    /// Correlates traces
    #[arg(long, value_name = "ID")]
    trace_id: Option<String>,
    /// Show no progress and no summary
    #[arg(long, short)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  callgate run -- python3 -m callgate.emit crawl.py
  callgate run --job '{\"page\": 1}' --report - -- ./executor crawl.js
  callgate run --depth 2 --max-runs 50 -- ./executor crawl.js

Fan-out:
  With --depth an enqueued target is run as well: by the same executor, in place of the last
  argument (after it, if it has none), with its params as the job. The same target with the same
  params is run once.

Exit codes, those of the first run:
  0  success
  1  script_error: the script says that it failed
  2  executor_crash: it crashed, sent what is no stream, could not be started, took too long or
     was cancelled; or the command line is wrong
  3  policy_failure or version_mismatch; or it was refused before it began, or its report could
     not be written
With --dry-run: 0 it would begin, 1 it would be refused or wait for an approval, 2 the command
line is wrong.";

/// The command line is wrong.
fn usage(error: ArgumentError) -> Failure {
    Failure::from(error).exiting(USAGE)
}

/// Nothing was run.
fn refused(error: CommandError) -> Failure {
    Failure::from(error).exiting(REFUSED)
}

pub fn run(environment: &Environment, place: &Place, asked: &Run) -> Done {
    let order = ask::order(environment, asked).map_err(usage)?;
    tell::check_place(asked).map_err(usage)?;
    let mut parts = super::open(environment, place).map_err(refused)?;
    let notifier = Notifier::of(asked.notify.as_deref(), asked.notify_secret_env.as_deref());
    let notifier = match notifier
        .named(environment)
        .map_err(|error| Failure::from(chain(&error)).exiting(USAGE))?
    {
        Some(notifier) => Some(notifier),
        None => Notifier::configured(&parts)
            .map_err(|error| Failure::from(chain(&error)).exiting(REFUSED))?,
    };
    let live = Arc::new(Live::new(fan::Bounds {
        depth: asked.depth,
        runs_max: asked.max_runs as usize,
    }));
    parts.run_watch = Some(Arc::clone(&live) as _);
    let setup = super::setup(&parts).map_err(refused)?;
    let gate = Arc::new(compose::gate(&parts, setup));
    let conductor = Conductor {
        parts: &parts,
        gate,
        live,
        notifier: notifier.map(Arc::new),
        asked,
        order,
    };
    if asked.dry_run {
        let rehearsed = runtime().map_err(refused)?.block_on(conductor.rehearse());
        super::close(&parts);
        return tell::rehearsal(place, rehearsed);
    }
    let ended = runtime().map_err(refused)?.block_on(conductor.conduct());
    super::close(&parts);
    tell::all(place, asked, &ended.map_err(refused)?)
}
