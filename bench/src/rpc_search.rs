//! `files/search` over a tree of other people's source code: its CPU against ripgrep's, which
//! finds the same lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::figure::{Figure, number, quiet};
use crate::http::Connection;
use crate::rpc::Served;
use crate::scratch::Scratch;
use crate::{Bench, Failure, cpu};

const ROUNDS: usize = 7;
/// Searches in a round: what has gone is counted in ticks of 10 ms.
const SEARCHES: usize = 5;
/// The tree, at most.
const FILES_MAX: usize = 4_000;
const RATIO_MAX: f64 = 1.5;
/// What is looked for: few enough lines for one page, by a word and by a pattern.
const QUERIES: [&str; 2] = ["get_unchecked_mut", r"fn\s+from_raw_\w+\s*\("];
/// Lines of one page, at most.
const LIMIT: usize = 1_000;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("rpc-search")?;
    let files = copy_sources(&scratch.workspace())?;
    let mut served = Served::start(bench, &scratch)?;
    let mut connection = Connection::open(served.port)?;
    let mut figures = Vec::new();
    for query in QUERIES {
        let lines = by_ripgrep(&scratch.workspace(), query)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = served.cpu()?;
            for _ in 0..SEARCHES {
                let params = json!({ "query": query, "limit": LIMIT });
                let found = served.ask(&mut connection, "files/search", params)?;
                let count = found["matches"].as_array().map_or(0, Vec::len);
                if count != lines || !found["next_cursor"].is_null() {
                    return Err(format!("{count} lines, ripgrep has {lines}: {query}").into());
                }
            }
            let spent = served.cpu()?.saturating_sub(before);
            ours.push(cpu::micros_each(spent, SEARCHES) / 1e3);
            let before = cpu::children();
            for _ in 0..SEARCHES {
                by_ripgrep(&scratch.workspace(), query)?;
            }
            theirs.push(cpu::micros_each(cpu::children() - before, SEARCHES) / 1e3);
        }
        let (us, them) = (quiet(&ours), quiet(&theirs));
        let beside = format!(
            "{} against {} ms; {lines} lines of {files} files",
            number(us),
            number(them)
        );
        let name = format!("rpc-search: CPU for `{query}` against ripgrep");
        figures.push(
            Figure::new(&name, us / them, "x")
                .at_most(RATIO_MAX)
                .beside(beside),
        );
    }
    served.finish(bench, &scratch)?;
    Ok(figures)
}

/// The sources that Cargo has fetched to build us: text of many hands. How many files.
fn copy_sources(workspace: &Path) -> Result<usize, Failure> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home
        .ok_or("neither CARGO_HOME nor HOME")?
        .join("registry/src");
    let mut folders = vec![registry];
    let mut copied = 0;
    while let Some(folder) = folders.pop() {
        let mut entries = fs::read_dir(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?
            .collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "rs") {
                // As many to a folder as a crate may have.
                let to = workspace.join(format!("part-{}", copied / 100));
                fs::create_dir_all(&to)?;
                fs::copy(&path, to.join(format!("{copied}.rs")))?;
                copied += 1;
                if copied == FILES_MAX {
                    return Ok(copied);
                }
            }
        }
    }
    match copied {
        0 => Err("Cargo has fetched no sources".into()),
        copied => Ok(copied),
    }
}

/// How many lines ripgrep finds.
fn by_ripgrep(workspace: &Path, query: &str) -> Result<usize, Failure> {
    let found = Command::new("rg")
        .args([
            "--no-config",
            "--line-number",
            "--column",
            "--regexp",
            query,
        ])
        .current_dir(workspace)
        .output()
        .map_err(|error| format!("rg: {error}"))?;
    match found.status.code() {
        Some(0) => Ok(memchr::memchr_iter(b'\n', &found.stdout).count()),
        _ => Err(String::from_utf8_lossy(&found.stderr).into()),
    }
}
