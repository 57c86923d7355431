//! What a search costs at 100,000 pieces, by words and by a vector, what indexing costs, and how
//! soon `serve` knows of a file that was saved. The
//! pieces are those of this clone, as often as it takes; the vectors are random: nothing is near
//! anything, so that a first look leaves out least, and a query takes longest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callgate_call::{Clock, Timestamp};
use callgate_search::model::{DIMENSIONS, MODEL};
use callgate_search::{Ask, Engine, counted, packed, pieces, to_bytes};
use callgate_store::search::{NewChunk, SearchDb, Stamp};
use serde_json::{Value, json};

use crate::figure::{Figure, number, quiet};
use crate::http::Connection;
use crate::rpc::Served;
use crate::scratch::Scratch;
use crate::{Bench, Failure, cpu, mcp};

const PIECES: usize = 100_000;
const ROUNDS: usize = 25;
/// Files that are saved one after the other.
const SAVES: usize = 9;
/// After so long it never will be.
const SAVED_MAX: Duration = Duration::from_secs(30);
const QUERIES: [&str; 8] = [
    "where are leases spent",
    "read_config",
    "how is the journal folded into the index",
    "spawn a child process with a limit on memory",
    "fn parse",
    "timeout of a call over http",
    "error when the state folder can not be made",
    "verify the hash chain of records",
];

pub const NO_STAMP: Stamp = Stamp {
    size: 0,
    mtime: 0,
    ctime: 0,
};

pub struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let scratch = Scratch::new("search")?;
    let mut figures = vec![indexing(bench, scratch.root())?, saving(bench)?];
    let state = scratch.root().join("large");
    std::fs::create_dir_all(&state)?;
    fill(&state, bench.seed)?;
    let engine = Engine::new(&state, None, Arc::new(NoClock));
    let before = cpu::thread();
    // The first one reads the index.
    one(&engine, &words(QUERIES[0]))?;
    let read_ms = (cpu::thread() - before).as_secs_f64() * 1000.0;
    let by_words = measured(&engine, |round| words(QUERIES[round % QUERIES.len()]))?;
    let by_vector = measured(&engine, |round| near(round as u64))?;
    let narrow = measured(&engine, |round| Ask {
        path_prefix: "3/".to_owned(),
        ..near(round as u64)
    })?;
    let read = format!("the index is read once, in {} ms", number(read_ms));
    figures.push(
        Figure::new(
            "search: CPU of a query by words, 100,000 pieces",
            by_words,
            "ms",
        )
        .at_most(3.0)
        .beside(read),
    );
    figures.push(
        Figure::new(
            "search: CPU of a query by vector, 100,000 pieces",
            by_vector,
            "ms",
        )
        .at_most(2.5)
        .beside(format!("{} ms among a tenth of them", number(narrow))),
    );
    Ok(figures)
}

fn words(query: &str) -> Ask {
    Ask {
        query: Some(query.to_owned()),
        top_k: 10,
        rerank: true,
        ..Ask::default()
    }
}

fn near(seed: u64) -> Ask {
    Ask {
        embedding: Some(vector(seed)),
        top_k: 10,
        ..Ask::default()
    }
}

fn one(engine: &Engine, ask: &Ask) -> Result<(), Failure> {
    match engine.search(ask, &|_| true)?.found.len() {
        10 => Ok(()),
        found => Err(format!("{found} pieces found").into()),
    }
}

/// How long a file that is saved is not found yet, at worst.
fn saving(bench: &Bench) -> Result<Figure, Failure> {
    let scratch = Scratch::new("search-saved")?;
    let indexed = mcp::callgate(bench, &scratch, &["index", "--lexical"]).output()?;
    if !indexed.status.success() {
        return Err(String::from_utf8_lossy(&indexed.stderr).into());
    }
    let mut served = Served::start(bench, &scratch)?;
    let mut connection = Connection::open(served.port)?;
    let mut worst = Duration::ZERO;
    for round in 0..=SAVES {
        let name = format!("llama{round}");
        let path = scratch.workspace().join(format!("{name}.rs"));
        let began = Instant::now();
        std::fs::write(path, format!("fn {name}() {{}}\n"))?;
        loop {
            let params = json!({ "query": name, "top_k": 50 });
            let found = served.ask(&mut connection, "vector/search", params)?;
            // The others have a part of the name.
            let is_it = |one: &Value| one["metadata"]["path"] == format!("{name}.rs");
            if found["matches"]
                .as_array()
                .is_some_and(|all| all.iter().any(is_it))
            {
                break;
            }
            if began.elapsed() > SAVED_MAX {
                return Err(format!("{name} is not found").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The first may come before anything is followed.
        if round > 0 {
            worst = worst.max(began.elapsed());
        }
    }
    served.finish(bench, &scratch)?;
    let name = "search: a saved file is found after";
    let figure = Figure::new(name, worst.as_secs_f64() * 1000.0, "ms");
    Ok(figure
        .at_most(1000.0)
        .beside(format!("the worst of {SAVES}")))
}

/// What a query takes, in milliseconds of this thread.
fn measured(engine: &Engine, ask: impl Fn(usize) -> Ask) -> Result<f64, Failure> {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let ask = ask(round);
        let before = cpu::thread();
        one(engine, &ask)?;
        took.push((cpu::thread() - before).as_secs_f64() * 1000.0);
    }
    Ok(quiet(&took))
}

/// Numbers between -1 and 1, by a seed.
fn vector(seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..DIMENSIONS).map(|_| next()).collect()
}

fn fill(state: &Path, seed: u64) -> Result<(), Failure> {
    let files = own_sources()?;
    let mut db = SearchDb::create(state)?;
    let (mut count, mut round) = (0, 0);
    while count < PIECES {
        let step = db.begin()?;
        step.set_meta("model", MODEL)?;
        for (path, text) in &files {
            let path = format!("{round}/{path}");
            let mut chunks = Vec::new();
            for piece in pieces(&path, text).into_iter().take(PIECES - count) {
                count += 1;
                let mut hash = [0; 16];
                hash[..8].copy_from_slice(&(count as u64).to_le_bytes());
                step.put_vector(MODEL, hash, &to_bytes(&vector(seed ^ count as u64)))?;
                chunks.push(NewChunk {
                    key: format!("{path}:{}", piece.start),
                    path: path.clone(),
                    lines: Some((piece.start, piece.end)),
                    words: packed(&counted(&[&path, piece.text])),
                    hash,
                    text: piece.text.to_owned(),
                    ..NewChunk::default()
                });
            }
            step.put_file(&path, NO_STAMP, &[], &chunks)?;
        }
        step.commit()?;
        round += 1;
    }
    Ok(())
}

/// Rust of this clone.
fn own_sources() -> Result<Vec<(String, String)>, Failure> {
    let root = clone()?;
    let folders = ["crates", "xtask", "bench/src"].map(|folder| root.join(folder));
    sources(root, folders.into())
}

/// All Rust beneath some folders, with its paths from `root`.
pub fn sources(root: &Path, mut folders: Vec<PathBuf>) -> Result<Vec<(String, String)>, Failure> {
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read(&path)?;
                let shown = path.strip_prefix(root)?.to_string_lossy().into_owned();
                // Other people's tests have some that is no text.
                found.extend(String::from_utf8(text).ok().map(|text| (shown, text)));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn clone() -> Result<&'static Path, Failure> {
    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(clone.ok_or("no clone")?)
}

/// Files of this clone for each second of CPU, without vectors.
fn indexing(bench: &Bench, scratch: &Path) -> Result<Figure, Failure> {
    let root = clone()?;
    let before = cpu::children();
    let ran = Command::new(&bench.callgate)
        .arg("--workspace")
        .arg(root)
        .arg("--state")
        .arg(scratch.join("state"))
        .args(["index", "--lexical", "--json"])
        .output()?;
    let took = (cpu::children() - before).as_secs_f64();
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout)?;
    let files = report["indexed"].as_f64().ok_or("nothing was indexed")?;
    let beside = format!("{} pieces of {} files", report["chunks"], report["files"]);
    let figure = Figure::new(
        "search: files indexed in a second of CPU",
        files / took,
        "/s",
    );
    Ok(figure.at_least(200.0).beside(beside))
}
