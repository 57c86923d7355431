//! Sums over many numbers, in the widest instructions this machine has. The only loops here that
//! anybody waits for.

use std::sync::OnceLock;

use fearless_simd::{Level, Simd, dispatch, f32x8, prelude::*};

/// Columns of a panel.
pub const PANEL: usize = 16;
/// Rows that are worked on at once: with the panel's two vectors, what the registers hold.
const ROWS: usize = 4;

fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(Level::new)
}

/// The products of `query` with the rows of `codes` that are asked for, one after the other.
/// A row that is not there gives none.
pub fn dots(query: &[i8], codes: &[i8], rows: &[u32], mut each: impl FnMut(usize, i32)) {
    dispatch!(level(), simd => dots_in(simd, query, codes, rows, &mut each));
}

#[inline(always)]
fn dots_in<S: Simd>(
    _: S,
    query: &[i8],
    codes: &[i8],
    rows: &[u32],
    each: &mut impl FnMut(usize, i32),
) {
    let width = query.len();
    for (at, row) in rows.iter().enumerate() {
        let from = (*row as usize).saturating_mul(width);
        if let Some(codes) = codes.get(from..from.saturating_add(width)) {
            let mut sum = 0_i32;
            for (a, b) in query.iter().zip(codes) {
                // 127 times 127, and 4,096 of them, overflow neither; a check would keep the
                // loop from becoming wide.
                let product = i32::from(*a).wrapping_mul(i32::from(*b));
                sum = sum.wrapping_add(product);
            }
            each(at, sum);
        }
    }
}

/// Rows whose bits lie side by side.
pub const LANES: usize = 8;
/// Bits of a query's numbers.
pub const PLANES: usize = 5;

/// For each row of `bits`, what the query's levels come to where its bits are set, twice and
/// less the middle of all levels. `planes` are the query's: one for each word of a row.
pub fn weighed(bits: &[[u64; LANES]], planes: &[[u64; PLANES]]) -> Vec<[i32; LANES]> {
    dispatch!(level(), simd => weighed_in(simd, bits, planes))
}

#[inline(always)]
fn weighed_in<S: Simd>(_: S, bits: &[[u64; LANES]], planes: &[[u64; PLANES]]) -> Vec<[i32; LANES]> {
    const LEVELS: i64 = (1 << PLANES) - 1;
    let words = planes.len().max(1);
    // bound: the bits in memory
    let mut all = vec![[0_i32; LANES]; bits.len() / words];
    for (sums, rows) in all.iter_mut().zip(bits.chunks_exact(words)) {
        let mut weights = [0_i64; LANES];
        for (rows, planes) in rows.iter().zip(planes) {
            for lane in 0..LANES {
                weights[lane] -= LEVELS * i64::from(rows[lane].count_ones());
            }
            for (at, plane) in planes.iter().enumerate() {
                for lane in 0..LANES {
                    weights[lane] += i64::from((rows[lane] & plane).count_ones()) << (at + 1);
                }
            }
        }
        for lane in 0..LANES {
            // At most 62 times 4,096.
            sums[lane] = weights[lane] as i32;
        }
    }
    all
}

/// Mixes numbers, as many as a power of two: each becomes a sum of all of them, with signs, and
/// lengths stay (Walsh and Hadamard).
pub fn mix(numbers: &mut [f32]) {
    dispatch!(level(), simd => mix_in(simd, numbers));
}

#[inline(always)]
fn mix_in<S: Simd>(_: S, numbers: &mut [f32]) {
    let (sixteens, _) = numbers.as_chunks_mut::<16>();
    for sixteen in sixteens.iter_mut() {
        mix_sixteen(sixteen);
    }
    let mut half = if sixteens.is_empty() { 1 } else { 16 };
    while half < numbers.len() {
        for both in numbers.chunks_exact_mut(2 * half) {
            let (low, high) = both.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let scale = 1.0 / (numbers.len() as f32).sqrt();
    numbers.iter_mut().for_each(|value| *value *= scale);
}

/// The same among neighbours, where a loop over pairs would not become wide.
#[inline(always)]
fn mix_sixteen(numbers: &mut [f32; 16]) {
    for half in [1, 2, 4, 8] {
        let before = *numbers;
        for (at, value) in numbers.iter_mut().enumerate() {
            let other = before[at ^ half];
            let own = before[at];
            *value = other + if at & half == 0 { own } else { -own };
        }
    }
}

/// A matrix of weights, laid out for [`Panels::times`].
pub struct Panels {
    inner: usize,
    outer: usize,
    /// For each 16 outputs, for each input, the 16 weights.
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Panels {
    /// From `outer` rows of `inner` weights. `outer` is a multiple of 16.
    pub fn new(weights: &[f32], bias: &[f32], inner: usize) -> Self {
        let outer = bias.len();
        let mut laid = Vec::with_capacity(weights.len());
        for panel in 0..outer / PANEL {
            for input in 0..inner {
                let row = |column: usize| weights[(panel * PANEL + column) * inner + input];
                laid.extend((0..PANEL).map(row));
            }
        }
        Self {
            inner,
            outer,
            weights: laid,
            bias: bias.to_vec(),
        }
    }

    /// `out = rows * weights + bias`, for rows of `inner` numbers.
    pub fn times(&self, rows: &[f32], out: &mut Vec<f32>) {
        let count = rows.len() / self.inner;
        out.clear();
        // bound: the values in memory, times the width of the model
        out.resize(count * self.outer, 0.0);
        dispatch!(level(), simd => times_in(simd, self, rows, out));
    }
}

#[inline(always)]
fn times_in<S: Simd>(simd: S, panels: &Panels, rows: &[f32], out: &mut [f32]) {
    let (inner, outer) = (panels.inner, panels.outer);
    let count = rows.len() / inner;
    for (at, panel) in panels.weights.chunks_exact(inner * PANEL).enumerate() {
        let bias = &panels.bias[at * PANEL..(at + 1) * PANEL];
        let mut row = 0;
        while row < count {
            // The last few rows are done once more with those before them.
            let first = row.min(count.saturating_sub(ROWS));
            let block = &rows[first * inner..];
            let done = (count - first).min(ROWS);
            let sums = block_in(simd, panel, bias, block, inner, done);
            for (line, sums) in sums.iter().enumerate().take(done) {
                let place = (first + line) * outer + at * PANEL;
                sums[0].store_slice(&mut out[place..place + 8]);
                sums[1].store_slice(&mut out[place + 8..place + 16]);
            }
            row = first + done;
        }
    }
}

#[inline(always)]
fn block_in<S: Simd>(
    simd: S,
    panel: &[f32],
    bias: &[f32],
    rows: &[f32],
    inner: usize,
    count: usize,
) -> [[f32x8<S>; 2]; ROWS] {
    let start = [
        f32x8::from_slice(simd, &bias[..8]),
        f32x8::from_slice(simd, &bias[8..16]),
    ];
    let mut sums = [start; ROWS];
    // Fewer rows than a block has read the last one again.
    let line = |at: usize| {
        let from = at.min(count - 1) * inner;
        &rows[from..from + inner]
    };
    let lines = [line(0), line(1), line(2), line(3)];
    for (at, weights) in panel.chunks_exact(PANEL).enumerate() {
        let low = f32x8::from_slice(simd, &weights[..8]);
        let high = f32x8::from_slice(simd, &weights[8..16]);
        for (sums, line) in sums.iter_mut().zip(lines) {
            let value = f32x8::splat(simd, line[at]);
            sums[0] = value.mul_add(low, sums[0]);
            sums[1] = value.mul_add(high, sums[1]);
        }
    }
    sums
}

/// The product of two rows of numbers.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    dispatch!(level(), simd => dot_in(simd, a, b))
}

#[inline(always)]
fn dot_in<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = f32x8::splat(simd, 0.0);
    let (mut left, mut right) = (a.chunks_exact(8), b.chunks_exact(8));
    for (a, b) in (&mut left).zip(&mut right) {
        sums = f32x8::from_slice(simd, a).mul_add(f32x8::from_slice(simd, b), sums);
    }
    let mut eight = [0.0; 8];
    sums.store_slice(&mut eight);
    let rest = left.remainder().iter().zip(right.remainder());
    eight.iter().sum::<f32>() + rest.map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, mut seed: u32) -> Vec<f32> {
        (0..count)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 16) as f32 / 32768.0 - 1.0
            })
            .collect()
    }

    #[test]
    fn a_product_is_what_it_is() {
        for rows in 1..10 {
            let (inner, outer) = (24, 32);
            let (a, w, bias) = (
                numbers(rows * inner, 1),
                numbers(inner * outer, 2),
                numbers(outer, 3),
            );
            let mut out = Vec::new();
            Panels::new(&w, &bias, inner).times(&a, &mut out);
            for row in 0..rows {
                for column in 0..outer {
                    let line = &a[row * inner..(row + 1) * inner];
                    let weights = &w[column * inner..(column + 1) * inner];
                    let sum: f32 = line.iter().zip(weights).map(|(a, b)| a * b).sum();
                    let wanted = sum + bias[column];
                    assert!((out[row * outer + column] - wanted).abs() < 1e-4);
                    assert!((dot(line, weights) - sum).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn codes_are_multiplied() {
        let codes: Vec<i8> = (0..96).map(|n| (n * 37 % 255 - 127) as i8).collect();
        let query: Vec<i8> = (0..32).map(|n| (n * 11 % 255 - 127) as i8).collect();
        let mut found = Vec::new();
        dots(&query, &codes, &[2, 7, 0, u32::MAX], |at, sum| {
            found.push((at, sum))
        });
        let wanted = |row: usize| -> i32 {
            let codes = &codes[row * 32..(row + 1) * 32];
            codes
                .iter()
                .zip(&query)
                .map(|(a, b)| i32::from(*a) * i32::from(*b))
                .sum()
        };
        assert_eq!(found, [(0, wanted(2)), (2, wanted(0))]);
    }
}
