//! BM25 over words. A query goes through the postings of its words one after the other and adds
//! up; at a hundred thousand pieces that is under a millisecond for most, and needs no pruning.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::slots::Mask;
use crate::words::Word;

/// How soon more of the same word stops to count, and how much length does: the usual values.
const K1: f32 = 1.2;
const B: f32 = 0.75;
/// A piece's number and a count in one: 24 and 8 bits.
pub const SLOTS_MAX: usize = 1 << 24;

/// Words are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, word: u32) {
        // The table takes its place from the low bits and a tag from the high ones.
        self.0 = u64::from(word) | (u64::from(word) << 32);
    }
}

/// Which pieces have which words.
#[derive(Default)]
pub struct Lexical {
    postings: HashMap<Word, Vec<u32>, BuildHasherDefault<AsItIs>>,
    /// Words of each piece.
    lengths: Vec<u32>,
    total: u64,
    /// What a piece's length comes to, for all lengths at once.
    norms: Vec<f32>,
}

impl Lexical {
    /// Adds a piece, whose number is the next one.
    pub fn add(&mut self, words: impl Iterator<Item = (Word, u8)>) {
        let Ok(slot) = u32::try_from(self.lengths.len()) else {
            return;
        };
        let mut length = 0;
        for (word, count) in words {
            length += u32::from(count);
            let posting = (slot << 8) | u32::from(count);
            self.postings.entry(word).or_default().push(posting);
        }
        self.lengths.push(length);
        self.total += u64::from(length);
    }

    /// To be called once all is added.
    pub fn settle(&mut self) {
        let count = self.lengths.len().max(1) as f32;
        let average = (self.total as f32 / count).max(1.0);
        let norm = |length: &u32| K1 * (1.0 - B + B * *length as f32 / average);
        self.norms = self.lengths.iter().map(norm).collect();
    }

    /// The `k` best of the pieces in `mask`, the best first; of equals the older.
    pub fn search(&self, words: &[Word], mask: &Mask, k: usize) -> Vec<(u32, f32)> {
        let mut scores = vec![0.0_f32; self.lengths.len()];
        let count = self.lengths.len() as f32;
        for word in words {
            let Some(postings) = self.postings.get(word) else {
                continue;
            };
            let has = postings.len() as f32;
            let weight = (1.0 + (count - has + 0.5) / (has + 0.5)).ln() * (K1 + 1.0);
            for posting in postings {
                let (slot, often) = ((posting >> 8) as usize, (posting & 0xff) as f32);
                scores[slot] += weight * often / (often + self.norms[slot]);
            }
        }
        let mut best = Best::new(k);
        for (slot, score) in scores.iter().enumerate() {
            if *score > 0.0 && mask.has(slot) {
                best.see(slot as u32, *score);
            }
        }
        best.done()
    }
}

/// The `k` best of what it sees; of equals the first in number.
pub struct Best {
    k: usize,
    least: f32,
    kept: Vec<(u32, f32)>,
}

fn order(a: &(u32, f32), b: &(u32, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

impl Best {
    pub fn new(k: usize) -> Self {
        Self {
            k,
            least: f32::NEG_INFINITY,
            // bound: the schema's `top_k`
            kept: Vec::with_capacity(4 * k.max(1)),
        }
    }

    /// One more, with a higher number than those before.
    #[inline]
    pub fn see(&mut self, slot: u32, score: f32) {
        if score > self.least {
            self.kept.push((slot, score));
            if self.kept.len() >= 4 * self.k.max(1) {
                self.cut();
            }
        }
    }

    #[cold]
    fn cut(&mut self) {
        let k = self.k.max(1);
        self.kept.select_nth_unstable_by(k - 1, order);
        self.kept.truncate(k);
        self.least = self.kept[k - 1].1;
    }

    /// The best, the best first.
    pub fn done(mut self) -> Vec<(u32, f32)> {
        self.kept.sort_unstable_by(order);
        self.kept.truncate(self.k);
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{counted, hash};

    #[test]
    fn rare_words_and_short_pieces_first() {
        let mut lexical = Lexical::default();
        for text in ["a b c d e f", "a b", "a a a c", "z"] {
            lexical.add(counted(&[text]).into_iter());
        }
        lexical.settle();
        let all = Mask::all(4);
        let found = |words: &[&str], k| -> Vec<u32> {
            let words: Vec<Word> = words.iter().map(|word| hash(word)).collect();
            let found = lexical.search(&words, &all, k);
            found.iter().map(|(slot, _)| *slot).collect()
        };
        assert_eq!(found(&["b"], 9), [1, 0]);
        assert_eq!(found(&["z", "a"], 1), [3]);
        assert_eq!(found(&["c", "a"], 9), [2, 0, 1]);
        assert!(found(&["nowhere"], 9).is_empty());
    }

    /// Against sorting all of it, with equals among them.
    #[test]
    fn the_best_are_the_best() {
        let mut seed = 5_u32;
        for k in 1..20 {
            let scores: Vec<f32> = (0..300)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((seed >> 16) % 50) as f32
                })
                .collect();
            let mut wanted: Vec<(u32, f32)> = (0..).zip(scores.iter().copied()).collect();
            wanted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            wanted.truncate(k);
            let mut best = Best::new(k);
            (0..)
                .zip(&scores)
                .for_each(|(slot, score)| best.see(slot, *score));
            assert_eq!(best.done(), wanted);
        }
    }
}
