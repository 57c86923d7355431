//! `callgate runs`: runs of the workspace, those that go on and those that ended; streamed ones
//! here, the pilot's in `runs/piloted.rs`.

mod piloted;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use callgate_call::Fault;
use callgate_registry::environment::Environment;
use callgate_store::{Run, RunCursor, RunFilter, RunState, Store, StoreError, give_file_with};
use callgate_tools::runs::{self as kept, KeptRun, RunKind, shown_artifact, shown_run};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::run::{plain, size, summary};
use crate::cli::{Done, Failure, Place};
use crate::compose::chain;
use crate::error::CommandError;
use crate::show;

/// List runs, streamed ones and those of the pilot; show them, follow and export their events.
///
/// A run is named by its id, by a beginning of it that no other has, or as `last`: the newest.
#[derive(Args)]
pub struct Runs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
}

#[derive(Subcommand)]
enum RunsCommand {
    /// The newest runs, the newest first
    Ls(Ls),
    /// A run: how it ended, its counts, its artifacts or steps and slots, its report
    Show {
        /// The run
        run: String,
    },
    /// The events of a run, and those to come until it ends
    Tail {
        /// The run
        #[arg(default_value = "last")]
        run: String,
        /// Begin with so many of the newest
        #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
        last: Option<u32>,
        /// Only those that are there
        #[arg(long)]
        no_follow: bool,
    },
    /// The events of a run as lines of JSON
    Export {
        /// The run
        run: String,
        /// To this file, whole or not at all; - is standard output
        #[arg(long, short, value_name = "FILE", default_value = "-")]
        out: PathBuf,
        /// Only events of this type
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
    },
}

#[derive(Args, Default)]
struct Ls {
    /// Only runs that are so far, or ended so
    #[arg(long, value_enum)]
    status: Option<Status>,
    /// Only runs of executors, or of the pilot
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Only runs of this job, or of this request of the pilot
    #[arg(long, value_name = "ID")]
    job_id: Option<String>,
    /// Only runs of this dataset
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,
    /// Only runs of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only runs of this category
    #[arg(long, value_name = "NAME")]
    category: Option<String>,
    /// So many of the newest [default: 50]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// How far a run is, or how it ended.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Status {
    Running,
    /// Its process died before it could say how the run ended
    Lost,
    Success,
    ScriptError,
    ExecutorCrash,
    PolicyFailure,
    VersionMismatch,
    Noop,
    GoalDone,
    AskSup,
    ToolError,
    Breaker,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Stream,
    Pilot,
}

/// Runs that are listed unless more are asked for.
const LISTED: usize = 50;
/// How often a run that goes on is looked at.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(100);
/// Runs among which one is looked for by how its id begins.
const SEARCHED_MAX: usize = 100_000;
const PAGE: usize = 1000;

pub fn run(environment: &Environment, place: &Place, runs: &Runs) -> Done {
    let parts = super::open(environment, place)?;
    let store = &parts.store;
    match &runs.command {
        None => list(store, place, &Ls::default())?,
        Some(RunsCommand::Ls(ls)) => list(store, place, ls)?,
        Some(RunsCommand::Show { run }) => match find(store, None, run)? {
            KeptRun::Streamed(run) => show_run(store, place, &run)?,
            KeptRun::Piloted(run) => piloted::show_run(store, place, &run)?,
        },
        Some(RunsCommand::Tail {
            run,
            last,
            no_follow,
        }) => {
            let seen = match find(store, None, run)? {
                KeptRun::Streamed(run) => tail(store, place, &run, *last, !no_follow),
                KeptRun::Piloted(run) => piloted::tail(store, place, &run, *last, !no_follow),
            };
            still_read(seen)?;
        }
        Some(RunsCommand::Export { run, out, kind }) => {
            let run = find(store, None, run)?;
            let export = |to: &mut dyn Write| match &run {
                KeptRun::Streamed(run) => export(store, run, kind.as_deref(), to),
                KeptRun::Piloted(run) => piloted::export(store, run, kind.as_deref(), to),
            };
            if out.as_os_str() == "-" {
                still_read(export(&mut io::stdout().lock()))?;
            } else {
                give_file_with(out, 0o644, |file| {
                    let mut file = io::BufWriter::new(file);
                    export(&mut file)?;
                    file.flush()
                })?;
            }
        }
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

/// A reader that went away is no error of ours.
pub fn still_read(written: io::Result<()>) -> Result<(), CommandError> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandError::Io(error)),
        _ => Ok(()),
    }
}

fn list(store: &Store, place: &Place, ls: &Ls) -> Result<(), StoreError> {
    let filter = RunFilter {
        job_id: ls.job_id.clone(),
        state: ls
            .status
            .and_then(|status| status.to_possible_value())
            .map(|value| value.get_name().to_owned()),
        dataset: ls.dataset.clone(),
        source: ls.source.clone(),
        category: ls.category.clone(),
    };
    let limit = ls.limit.unwrap_or(LISTED);
    let kind = ls.kind.map(|kind| match kind {
        Kind::Stream => RunKind::Stream,
        Kind::Pilot => RunKind::Pilot,
    });
    let runs = kept::page(store, kind, &filter, limit, None)?;
    if place.json {
        let lines: String = runs
            .iter()
            .map(|run| format!("{}\n", run.shown()))
            .collect();
        show::data(&lines);
        return Ok(());
    }
    let rows = runs.iter().map(|run| match run {
        KeptRun::Streamed(run) => row(run),
        KeptRun::Piloted(run) => piloted::row(run),
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head = ["RUN", "STATE", "STARTED", "TOOK", "EVENTS", "SOURCE", "JOB"];
    show::table_or(&head, &rows, "there are no such runs");
    Ok(())
}

fn row(run: &Run) -> Vec<String> {
    let (took, events) = match &run.state {
        RunState::Ended(end) => (
            super::run::seconds(end.at.0.saturating_sub(run.started_at.0) * 1000),
            end.persisted.to_string(),
        ),
        RunState::Running | RunState::Lost(_) => (String::new(), String::new()),
    };
    let job = match (&run.job_id, run.attempt) {
        (Some(job), 1) => job.clone(),
        (Some(job), attempt) => format!("{job} (attempt {attempt})"),
        (None, 1) => String::new(),
        (None, attempt) => format!("(attempt {attempt})"),
    };
    vec![
        run.run_id.clone(),
        run.state.as_str().to_owned(),
        show::time(run.started_at.0),
        took,
        events,
        plain(&run.partition.source),
        plain(&job),
    ]
}

/// The run that is meant, among those of one kind or all.
pub fn find(store: &Store, kind: Option<RunKind>, name: &str) -> Result<KeptRun, Failure> {
    let missing = |message: String| Failure::from(Fault::NotFound { message });
    let failed = |error: StoreError| Failure::from(chain(&error));
    if let Some(run) = kept::find(store, name).map_err(failed)? {
        return Ok(run);
    }
    // A variable that was not set, as a rule; every run begins with nothing.
    if name.is_empty() {
        return Err(missing("no run is named".to_owned()));
    }
    let any = RunFilter::default();
    if name == "last" {
        let newest = kept::page(store, kind, &any, 1, None).map_err(failed)?;
        let newest = newest.into_iter().next();
        return newest.ok_or_else(|| missing("there are no runs".to_owned()));
    }
    let (mut found, mut after): (Vec<KeptRun>, Option<RunCursor>) = (Vec::new(), None);
    for _ in 0..SEARCHED_MAX / PAGE {
        let page = kept::page(store, kind, &any, PAGE, after).map_err(failed)?;
        after = page.last().map(KeptRun::cursor);
        let is_last = page.len() < PAGE;
        found.extend(page.into_iter().filter(|run| run.id().starts_with(name)));
        if is_last || found.len() > 1 {
            break;
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(missing(format!(
            "there is no run {name}: see `callgate runs ls`"
        ))),
        _ => Err(missing(format!("several runs begin with {name}"))),
    }
}

fn show_run(store: &Store, place: &Place, run: &Run) -> Result<(), CommandError> {
    let artifacts = store.run_artifacts(&run.run_id)?;
    let report = store.run_report(&run.run_id)?;
    let report: Option<Value> = report.and_then(|text| serde_json::from_slice(&text).ok());
    // An end says how many; of a run without one they are counted.
    let events = match &run.state {
        RunState::Ended(end) => end.persisted,
        RunState::Running | RunState::Lost(_) => count_events(store, run)?,
    };
    let mut told = shown_run(run);
    told["events"] = json!(events);
    told["path"] = json!(run.path());
    if place.json {
        let artifacts: Vec<Value> = artifacts.iter().map(shown_artifact).collect();
        show::json(&json!({ "run": told, "artifacts": artifacts, "report": report }));
        return Ok(());
    }
    let mut text = head_of(run, report.as_ref(), events);
    text.push_str(&about(run));
    for artifact in &artifacts {
        let (name, kind) = (plain(&artifact.name), plain(&artifact.content_type));
        let (id, bytes) = (plain(&artifact.artifact_id), size(artifact.bytes));
        text.push_str(&format!(
            "    {id}  {name}  {kind}  {bytes}  b3-{}\n",
            artifact.digest
        ));
    }
    show::data(&text);
    Ok(())
}

/// How far a run is, or how it ended.
fn head_of(run: &Run, report: Option<&Value>, events: u64) -> String {
    match &run.state {
        RunState::Ended(end) => match report {
            Some(report) => summary(report),
            None => {
                let (id, word) = (&run.run_id, end.verdict.as_str());
                format!("run {id}  {word}; its report is not there any more\n")
            }
        },
        RunState::Running => format!("run {}  running; {events} events so far\n", run.run_id),
        RunState::Lost(at) => format!(
            "run {}  lost: its process died before it could say how the run ended; found out at \
             {}\n  {events} events were kept, and the artifacts below\n",
            run.run_id,
            show::time(at.0)
        ),
    }
}

/// What it was asked for, and where it is.
fn about(run: &Run) -> String {
    let mut text = String::new();
    text.push_str(&format!("  started    {}\n", show::time(run.started_at.0)));
    if let Some(job) = &run.job_id {
        text.push_str(&format!(
            "  job        {}, attempt {}\n",
            plain(job),
            run.attempt
        ));
    }
    if let Some(parent) = &run.parent_run_id {
        text.push_str(&format!("  after      {}\n", plain(parent)));
    }
    text.push_str(&format!("  policy     {}\n", run.policy));
    text.push_str(&format!("  kept in    {}\n", plain(&run.path())));
    text
}

fn count_events(store: &Store, run: &Run) -> Result<u64, CommandError> {
    let mut count = 0;
    let Some(mut events) = store.run_events(&run.run_id)? else {
        return Ok(count);
    };
    while events.next_line().map_err(CommandError::Io)?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn tail(
    store: &Store,
    place: &Place,
    run: &Run,
    last: Option<u32>,
    follow: bool,
) -> io::Result<()> {
    let events = store.run_events(&run.run_id).map_err(io::Error::other)?;
    let Some(mut events) = events else {
        return Ok(());
    };
    let mut out = io::stdout().lock();
    let mut write = |line: &[u8]| -> io::Result<()> {
        match place.json {
            true => out.write_all(line)?,
            false => out.write_all(in_words(line).as_bytes())?,
        }
        out.write_all(b"\n")?;
        out.flush()
    };
    if let Some(last) = last.map(|last| last as usize) {
        let mut newest: VecDeque<Vec<u8>> = VecDeque::new();
        while let Some(line) = events.next_line()? {
            if newest.len() == last {
                newest.pop_front();
            }
            if last > 0 {
                newest.push_back(line.to_vec());
            }
        }
        newest.iter().try_for_each(|line| write(line))?;
    }
    loop {
        // Asked before the last look, so that nothing that came before the end is missed.
        let now = store.run(&run.run_id).map_err(io::Error::other)?;
        while let Some(line) = events.next_line()? {
            write(line)?;
        }
        match now.map(|run| run.state) {
            Some(RunState::Running) if follow => std::thread::sleep(LOOK_EVERY),
            Some(RunState::Lost(_)) => {
                show::say("the run was lost: its process died before it could say how it ended");
                return Ok(());
            }
            _ => return Ok(()),
        }
    }
}

/// An event in a line for people.
fn in_words(line: &[u8]) -> String {
    let Ok(event) = serde_json::from_slice::<Value>(line) else {
        return plain(&String::from_utf8_lossy(line));
    };
    let text = |name: &str| plain(event[name].as_str().unwrap_or_default());
    let payload = &event["payload"];
    let about = match (payload["level"].as_str(), payload["message"].as_str()) {
        (Some(level), Some(message)) => format!("{level}: {message}"),
        _ => payload.to_string(),
    };
    format!(
        "{:>6}  {}  {}  {}",
        event["seq"],
        text("ts"),
        text("type"),
        plain(&about)
    )
}

fn export(store: &Store, run: &Run, kind: Option<&str>, to: &mut dyn Write) -> io::Result<()> {
    let events = store.run_events(&run.run_id).map_err(io::Error::other)?;
    let Some(mut events) = events else {
        return Ok(());
    };
    while let Some(line) = events.next_line()? {
        if is_wanted(line, kind) {
            to.write_all(line)?;
            to.write_all(b"\n")?;
        }
    }
    to.flush()
}

/// True of an event of this type, or of any.
fn is_wanted(line: &[u8], kind: Option<&str>) -> bool {
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(rename = "type")]
        kind: String,
    }
    kind.is_none_or(|kind| serde_json::from_slice::<Head>(line).is_ok_and(|head| head.kind == kind))
}
