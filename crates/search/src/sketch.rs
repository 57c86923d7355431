//! A first look at many vectors, by one bit a number. A scan of all codes waits for memory and
//! for little else; bits are an eighth of it. What they say of a vector comes with how far it
//! may be off (RaBitQ, Gao and Long 2024), so that nothing near is passed over, whatever the
//! vectors are: where the bits say little, more is compared by its codes.
//!
//! A bit is the sign of a number of the vector less the mean of all, turned by a rotation that
//! gives every number its share.

use crate::simd::{self, LANES, PLANES};

/// How many standard deviations of an estimate count as possible: of those that are just
/// near enough one in 120 is missed, and hardly one of the others.
const DOUBT: f32 = 2.4;
/// Steps of the rotation.
const TURNS: u64 = 2;
/// The largest number of a query's that is told apart.
const LEVELS: f32 = ((1 << PLANES) - 1) as f32;

/// What turns bits into an estimate.
#[derive(Clone, Copy, Default)]
struct Known {
    /// What a sum of the bits' signs comes to.
    factor: f32,
    /// How far the estimate may be off.
    doubt: f32,
}

/// Bits of the vectors of a space, in the order of their rows.
#[derive(Default)]
pub struct Sketch {
    dimensions: usize,
    mean: Vec<f32>,
    /// How many the mean was taken of.
    mean_of: usize,
    /// For each eight rows, for each 64 numbers, the bits of the eight.
    bits: Vec<[u64; LANES]>,
    known: Vec<Known>,
}

impl Sketch {
    /// Takes in rows that are new; all of them when there are twice as many as the mean is of.
    /// `vector` writes a row, at length 1.
    pub fn follow(
        &mut self,
        dimensions: usize,
        rows: usize,
        vector: impl Fn(usize, &mut Vec<f32>),
    ) {
        let mut row_vector = Vec::new();
        if dimensions != self.dimensions || rows >= 2 * self.mean_of || rows < self.known.len() {
            *self = Self {
                dimensions,
                // bound: the length of a vector in memory
                mean: vec![0.0; dimensions],
                mean_of: rows,
                ..Self::default()
            };
            for row in 0..rows {
                vector(row, &mut row_vector);
                let both = self.mean.iter_mut().zip(&row_vector);
                both.for_each(|(sum, value)| *sum += value / rows as f32);
            }
        }
        for row in self.known.len()..rows {
            vector(row, &mut row_vector);
            self.put(row, &row_vector);
        }
    }

    /// Rows that are here.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    fn words(&self) -> usize {
        self.dimensions.div_ceil(64)
    }

    /// A row that is new, or another vector in its place.
    pub fn put(&mut self, row: usize, vector: &[f32]) {
        let words = self.words();
        let mut rest: Vec<f32> = vector.iter().zip(&self.mean).map(|(a, m)| a - m).collect();
        turn(&mut rest);
        if row >= self.known.len() {
            // bound: the rows in memory
            self.known.resize(row + 1, Known::default());
            let blocks = self.known.len().div_ceil(LANES);
            // bound: the rows in memory
            self.bits.resize(blocks * words, [0; LANES]);
        }
        self.known[row] = known(&rest);
        let (block, lane) = (row / LANES * words, row % LANES);
        for (at, numbers) in rest.chunks(64).enumerate() {
            let bit = |(at, value): (usize, &f32)| u64::from(*value > 0.0) << at;
            let word = numbers.iter().enumerate().map(bit).sum();
            self.bits[block + at][lane] = word;
        }
    }

    /// For each row, how near to `query` (of length 1) it may be.
    pub fn at_most(&self, query: &[f32]) -> Vec<f32> {
        let base = simd::dot(query, &self.mean);
        let mut turned = query.to_vec();
        turn(&mut turned);
        let largest = turned
            .iter()
            .fold(0.0_f32, |most, value| most.max(value.abs()));
        let step = 2.0 * largest.max(f32::MIN_POSITIVE) / LEVELS;
        let levels: Vec<u8> = turned
            .iter()
            .map(|value| (value / step + LEVELS / 2.0).round() as u8)
            .collect();
        let planes = planes(&levels);
        let all: f32 = levels
            .iter()
            .map(|level| f32::from(*level) - LEVELS / 2.0)
            .sum();
        let sums = simd::weighed(&self.bits, &planes);
        let rows = self.known.iter().zip(sums.as_flattened());
        // A set bit counts as it is, another one against it.
        rows.map(|(known, sum)| base + known.factor * step * (*sum as f32 - all) + known.doubt)
            .collect()
    }
}

fn known(rest: &[f32]) -> Known {
    let square = simd::dot(rest, rest);
    let sum: f32 = rest.iter().map(|value| value.abs()).sum();
    if sum == 0.0 || !square.is_finite() {
        return Known::default();
    }
    let count = rest.len() as f32;
    // How well the signs alone point where the vector does: 0.8 for most.
    let aligned = (sum * sum / (square * count)).min(1.0);
    Known {
        factor: square / sum,
        doubt: DOUBT * (square * (1.0 - aligned) / (aligned * (count - 1.0).max(1.0))).sqrt(),
    }
}

/// The query's levels, bit by bit.
fn planes(levels: &[u8]) -> Vec<[u64; PLANES]> {
    let word = |numbers: &[u8]| {
        let mut planes = [0; PLANES];
        for (at, level) in numbers.iter().enumerate() {
            for (bit, plane) in planes.iter_mut().enumerate() {
                *plane |= u64::from(level >> bit & 1) << at;
            }
        }
        planes
    };
    levels.chunks(64).map(word).collect()
}

/// Turns a vector: some signs change, and the numbers of the first and the last half are mixed,
/// a few times. Always the same way.
fn turn(vector: &mut [f32]) {
    let Some(width) = vector.len().checked_ilog2().map(|bits| 1 << bits) else {
        return;
    };
    let last = vector.len() - width;
    for step in 0..TURNS {
        for (at, sixty_four) in vector.chunks_mut(64).enumerate() {
            let signs = mixed(step * 1024 + at as u64);
            for (at, value) in sixty_four.iter_mut().enumerate() {
                let sign = ((signs >> at & 1) as u32) << 31;
                *value = f32::from_bits(value.to_bits() ^ sign);
            }
        }
        let from = if step % 2 == 0 { 0 } else { last };
        simd::mix(&mut vector[from..from + width]);
    }
}

/// Bits without a pattern (SplitMix64).
fn mixed(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(seed: u64, dimensions: usize) -> Vec<f32> {
        let number = |at: usize| mixed(seed * 10_000 + at as u64) as u32 as f32 / 4e9 - 0.5;
        let mut all: Vec<f32> = (0..dimensions).map(number).collect();
        let long = simd::dot(&all, &all).sqrt();
        all.iter_mut().for_each(|value| *value /= long);
        all
    }

    #[test]
    fn turning_keeps_lengths_and_angles() {
        for dimensions in [1, 2, 64, 100, 128, 384, 768] {
            let (mut a, mut b) = (vector(1, dimensions), vector(2, dimensions));
            let before = simd::dot(&a, &b);
            turn(&mut a);
            turn(&mut b);
            assert!((simd::dot(&a, &b) - before).abs() < 1e-4, "{dimensions}");
            assert!((simd::dot(&a, &a) - 1.0).abs() < 1e-4, "{dimensions}");
        }
        // One number is shared among all.
        let mut one = vec![0.0; 384];
        one[7] = 1.0;
        turn(&mut one);
        assert!(one.iter().all(|value| value.abs() < 0.5));
    }

    /// of vectors of every kind, few are nearer than they may be, and the estimate is no
    /// vague one.
    #[test]
    fn what_may_be_is_what_is() {
        for dimensions in [128, 200, 384, 1000] {
            for one_sided in [false, true] {
                let of = |seed: u64| {
                    let mut all = vector(seed, dimensions);
                    if one_sided {
                        all[3] = 2.0;
                    }
                    let long = simd::dot(&all, &all).sqrt();
                    all.iter_mut().for_each(|value| *value /= long);
                    all
                };
                let rows = 999;
                let mut sketch = Sketch::default();
                let write = |row: usize, into: &mut Vec<f32>| *into = of(row as u64);
                sketch.follow(dimensions, 500, write);
                sketch.follow(dimensions, rows, write);
                assert_eq!(sketch.len(), rows);
                let (mut beyond, mut room) = (0, 0.0);
                for query in 5000..5020 {
                    let query = of(query);
                    let most = sketch.at_most(&query);
                    assert_eq!(most.len(), rows);
                    for (row, most) in most.iter().enumerate() {
                        let is = simd::dot(&of(row as u64), &query);
                        beyond += usize::from(is > *most);
                        room += (most - is) / (20 * rows) as f32;
                    }
                }
                assert!(beyond * 30 < 20 * rows, "{dimensions}: {beyond}");
                let spread = 1.0 / (dimensions as f32).sqrt();
                assert!(room < 3.0 * spread, "{dimensions}: {room}");
            }
        }
    }
}
