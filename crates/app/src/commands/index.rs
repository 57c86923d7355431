//! `callgate index`: brings the search index up to what the workspace's files are.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use callgate_call::{Cancel, Fault};
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_store::search::SearchDb;
use callgate_tools::vector::{self, Report, Scope};
use clap::Args;
use serde_json::json;

use super::model;
use crate::cli::{Done, Failure, Place};
use crate::compose::chain;
use crate::error::CommandError;
use crate::show;

/// Pieces whose vectors are made and put together.
const EMBEDDED_AT_ONCE: usize = 16;

const BAR_WIDTH: u64 = 24;

/// Index the workspace's files for search.
///
/// What has not changed is not read again, and a run that was interrupted is taken up where it was.
/// The model that finds by meaning is installed first, if it is not there yet (84 MB, once).
/// What `.gitignore` and `[files]` leave out is left out. While `callgate serve` runs, it keeps an
/// index that is there up to date by itself.
#[derive(Args)]
pub struct Index {
    /// A folder or file of the workspace, instead of all of it
    #[arg(default_value = ".", hide_default_value = true)]
    path: String,
    /// Words only, without vectors
    #[arg(long)]
    lexical: bool,
}

pub fn run(environment: &Environment, place: &Place, index: &Index) -> Done {
    let parts = super::open(environment, place)?;
    let (files, secrets) = parts.workspace_files()?;
    let state = &parts.paths.state;
    let began = parts.clock.micros();
    let mut progress = Progress::new(place.json);
    let scope = Scope {
        from: &index.path,
        deep: true,
    };
    if progress.wanted {
        // A look at the folders before the one at the files, for those who watch.
        let count = vector::count(&files, scope);
        progress.total = count?;
    }
    let (of, cancel) = ((&files, &secrets), Cancel::new());
    let done = vector::index(of, state, scope, &cancel, &mut |report| {
        progress.show(report.seen, "files");
    });
    let report = done.map_err(|error| {
        progress.clear();
        chain(&error)
    })?;
    if report.seen == 0 && report.removed == 0 && !parts.paths.workspace.join(&index.path).exists()
    {
        progress.clear();
        let message = format!("there is no {} in the workspace", index.path);
        return Err(Fault::NotFound { message }.into());
    }
    if !index.lexical {
        embed(environment, &parts, &mut progress)?;
    }
    progress.clear();
    let took_ms = parts.clock.micros().saturating_sub(began) / 1000;
    tell(place, state, &report, took_ms)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes vectors of what has none yet, and hands them to whoever keeps the index.
fn embed(
    environment: &Environment,
    parts: &Parts,
    progress: &mut Progress,
) -> Result<(), CommandError> {
    if !parts.engine.has_model() {
        progress.clear();
        show::say("search by meaning needs a model, once; --lexical does without");
        if let Err(error) = model::install(environment, None) {
            let reason = chain(&error);
            // What has been done is worth something without it.
            show::say(&format!(
                "words only: the model was not installed: {reason}; `callgate model install` \
                 tries again"
            ));
            return Ok(());
        }
    }
    let mut done = 0;
    progress.total = parts.engine.unembedded()?;
    loop {
        progress.show(done, "vectors");
        let more = parts.engine.embed_some(EMBEDDED_AT_ONCE, &Cancel::new());
        match more? {
            0 => break,
            more => done += more as u64,
        }
    }
    let store = parts.vector_store()?;
    store.take_over(true, &Cancel::new())?;
    Ok(())
}

fn tell(place: &Place, state: &Path, report: &Report, took_ms: u64) -> Result<(), Failure> {
    let db = SearchDb::open(state)?;
    let counts = db.map(|db| db.counts()).transpose();
    let counts = counts?.unwrap_or_default();
    if place.json {
        show::json(&json!({
            "seen": report.seen,
            "indexed": report.indexed,
            "removed": report.removed,
            "skipped": report.skipped,
            "files": counts.files,
            "chunks": counts.chunks,
            "vectors": counts.vectors,
            "took_ms": took_ms,
        }));
        return Ok(());
    }
    show::data(&format!(
        "indexed {} of {} files in {} ms, {} gone, {} not text; the index has {} files in {} pieces\n",
        report.indexed,
        report.seen,
        took_ms,
        report.removed,
        report.skipped,
        counts.files,
        counts.chunks,
    ));
    Ok(())
}

/// How far it is, on one line of a terminal.
struct Progress {
    shown: bool,
    wanted: bool,
    /// How many there are to do.
    total: u64,
}

impl Progress {
    fn new(json: bool) -> Self {
        Self {
            shown: false,
            wanted: !json && std::io::stderr().is_terminal(),
            total: 0,
        }
    }

    fn show(&mut self, done: u64, what: &str) {
        if self.wanted && self.total > 0 {
            self.shown = true;
            let line = format!("\r\x1b[K{}", bar(done, self.total, what));
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }

    fn clear(&self) {
        if self.shown {
            let _ = std::io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}

/// A bar with its numbers. What was counted first may have become more since.
fn bar(done: u64, total: u64, what: &str) -> String {
    let total = total.max(done).max(1);
    let full = usize::try_from(done * BAR_WIDTH / total).unwrap_or(0);
    let left = usize::try_from(BAR_WIDTH).unwrap_or(0) - full;
    let percent = done * 100 / total;
    format!(
        "[{}{}] {percent:>3} % {done} of {total} {what}",
        "#".repeat(full),
        ".".repeat(left)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        assert_eq!(
            bar(0, 8, "files"),
            "[........................]   0 % 0 of 8 files"
        );
        assert_eq!(
            bar(6, 8, "files"),
            "[##################......]  75 % 6 of 8 files"
        );
        assert_eq!(
            bar(9, 8, "files"),
            "[########################] 100 % 9 of 9 files"
        );
    }
}
