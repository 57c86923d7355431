//! `callgate artifacts`: what streamed runs made.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use callgate_call::Fault;
use callgate_registry::environment::Environment;
use callgate_store::{
    ArtifactProblem, KeptArtifact, RunCursor, RunFilter, Store, StoreError, give_file_with,
};
use callgate_tools::runs::{RunKind, shown_artifact};
use clap::{Args, Subcommand};
use serde_json::json;

use super::run::{plain, size};
use super::runs::{find, still_read};
use crate::cli::{Done, Failure, Place};
use crate::compose::chain;
use crate::show;

/// List, get, verify and collect artifacts of streamed runs.
#[derive(Args)]
pub struct Artifacts {
    #[command(subcommand)]
    command: Option<ArtifactsCommand>,
}

#[derive(Subcommand)]
enum ArtifactsCommand {
    /// Artifacts, those of the newest run first
    Ls {
        /// Only those of this run
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// So many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// The bytes of one, whole and as they were committed or not at all
    Get {
        /// Its digest, or a beginning of it that no other has; with --run also its id or name
        artifact: String,
        /// The run that made it
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
        /// To this file; - is standard output
        #[arg(long, short, value_name = "FILE", default_value = "-")]
        out: PathBuf,
    },
    /// Read all of them again: are they what was committed?
    Verify,
    /// Remove bytes that belong to no artifact
    Gc {
        /// Only bytes that are older than this: 60s, 5m, 1h, 30d
        #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = super::duration)]
        older_than: Duration,
        /// Only count them
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs that are looked at in one go.
const PAGE: usize = 1000;
/// Digits of a digest in a list.
const DIGITS: usize = 16;

pub fn run(environment: &Environment, place: &Place, artifacts: &Artifacts) -> Done {
    let parts = super::open(environment, place)?;
    let store = &parts.store;
    let code = match &artifacts.command {
        None => list(store, place, None, 50),
        Some(ArtifactsCommand::Ls { run, limit }) => list(store, place, run.as_deref(), *limit),
        Some(ArtifactsCommand::Get { artifact, run, out }) => {
            let found = one(store, artifact, run.as_deref())?;
            get(store, &found, out)
        }
        Some(ArtifactsCommand::Verify) => verify(store, place),
        Some(ArtifactsCommand::Gc {
            older_than,
            dry_run,
        }) => collect(store, place, *older_than, *dry_run),
    }?;
    super::close(&parts);
    Ok(code)
}

fn list(store: &Store, place: &Place, run: Option<&str>, limit: usize) -> Done {
    let mut found = Vec::new();
    match run {
        Some(run) => found = of_run(store, find(store, Some(RunKind::Stream), run)?.id())?,
        None => each(store, |artifact| {
            found.push(artifact);
            found.len() < limit
        })?,
    }
    found.truncate(limit);
    if place.json {
        let lines = found.iter().map(|it| format!("{}\n", shown_artifact(it)));
        show::data(&lines.collect::<String>());
        return Ok(ExitCode::SUCCESS);
    }
    let row = |artifact: &KeptArtifact| {
        vec![
            artifact.digest.to_hex()[..DIGITS].to_owned(),
            size(artifact.bytes),
            plain(&artifact.content_type),
            artifact.run_id.clone(),
            plain(&artifact.artifact_id),
            plain(&artifact.name),
        ]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let head = ["DIGEST", "SIZE", "TYPE", "RUN", "ID", "NAME"];
    show::table_or(&head, &rows, "there are no artifacts");
    Ok(ExitCode::SUCCESS)
}

fn of_run(store: &Store, run_id: &str) -> Result<Vec<KeptArtifact>, Failure> {
    let found = store.run_artifacts(run_id);
    found.map_err(|error: StoreError| Failure::from(chain(&error)))
}

/// Hands out artifacts, those of the newest run first, while `more` are wanted.
fn each(store: &Store, mut more: impl FnMut(KeptArtifact) -> bool) -> Result<(), Failure> {
    let mut after: Option<RunCursor> = None;
    loop {
        let runs = store.runs(&RunFilter::default(), PAGE, after);
        let runs = runs?;
        let Some(last) = runs.last() else {
            return Ok(());
        };
        after = Some(last.cursor);
        for run in &runs {
            for artifact in of_run(store, &run.run_id)? {
                if !more(artifact) {
                    return Ok(());
                }
            }
        }
    }
}

/// The artifact that is meant.
fn one(store: &Store, name: &str, run: Option<&str>) -> Result<KeptArtifact, Failure> {
    let missing = |message: String| Failure::from(Fault::NotFound { message });
    let hex = name.strip_prefix("b3-").unwrap_or(name);
    let mut found: Vec<KeptArtifact> = Vec::new();
    match run {
        Some(run) => {
            let all = of_run(store, find(store, Some(RunKind::Stream), run)?.id())?;
            let by_id = all.iter().position(|it| it.artifact_id == name);
            let fits = |it: &KeptArtifact| it.name == name || it.digest.to_hex().starts_with(hex);
            match by_id {
                Some(at) => found.extend(all.into_iter().nth(at)),
                None => found.extend(all.into_iter().filter(fits)),
            }
        }
        None => {
            let by_digest = store.artifacts_by(hex)?;
            found.extend(by_digest.into_iter().take(1));
            if found.is_empty() && !hex.is_empty() {
                each(store, |it| {
                    if it.digest.to_hex().starts_with(hex) {
                        found.push(it);
                    }
                    true
                })?;
            }
        }
    }
    // The same bytes under two names are one.
    found.dedup_by_key(|artifact| artifact.digest);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(missing(format!(
            "there is no artifact {name}: see `callgate artifacts ls`"
        ))),
        _ => Err(missing(format!(
            "several artifacts are called {name}: give a digest"
        ))),
    }
}

fn get(store: &Store, artifact: &KeptArtifact, out: &Path) -> Done {
    if out.as_os_str() == "-" {
        let mut stdout = io::stdout().lock();
        let given = store.give_artifact(artifact, &mut stdout);
        still_read(given.and_then(|()| stdout.flush()))?;
    } else {
        give_file_with(out, 0o644, |file| store.give_artifact(artifact, file))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(store: &Store, place: &Place) -> Done {
    let checked = store.verify_artifacts()?;
    let word = |problem: ArtifactProblem| match problem {
        ArtifactProblem::Missing => "missing",
        ArtifactProblem::Changed => "changed",
    };
    if place.json {
        let bad = checked.bad.iter().map(|bad| {
            let mut told = shown_artifact(&bad.artifact);
            told["problem"] = json!(word(bad.problem));
            told
        });
        let bad: Vec<_> = bad.collect();
        let ok = bad.is_empty();
        show::json(
            &json!({ "ok": ok, "files": checked.files, "bytes": checked.bytes, "bad": bad }),
        );
    } else {
        for bad in &checked.bad {
            let KeptArtifact { run_id, name, .. } = &bad.artifact;
            show::complain(&format!(
                "{}: b3-{}  {} of run {run_id}",
                word(bad.problem),
                bad.artifact.digest,
                plain(name)
            ));
        }
        let (files, bytes) = (checked.files, size(checked.bytes));
        let verdict = match checked.bad.len() {
            0 => "every artifact is what was committed".to_owned(),
            1 => "1 artifact is not what was committed".to_owned(),
            bad => format!("{bad} artifacts are not what was committed"),
        };
        show::data(&format!("{files} files, {bytes}: {verdict}\n"));
    }
    Ok(match checked.bad.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// S-17.
fn collect(store: &Store, place: &Place, older_than: Duration, dry_run: bool) -> Done {
    let collected = store.collect_artifacts(older_than, dry_run);
    let collected = collected?;
    let (incoming, unrecorded, bytes) = (collected.incoming, collected.unrecorded, collected.bytes);
    if place.json {
        show::json(&json!({
            "incoming": incoming, "unrecorded": unrecorded, "bytes": bytes, "dry_run": dry_run,
        }));
    } else {
        let verb = if dry_run { "would remove" } else { "removed" };
        show::data(&format!(
            "{verb} {} files, {}: {incoming} of interrupted runs, {unrecorded} that no run \
             committed\n",
            incoming + unrecorded,
            size(bytes)
        ));
    }
    Ok(ExitCode::SUCCESS)
}
