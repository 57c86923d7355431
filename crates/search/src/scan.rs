//! Vectors, compared with eight bits a number; what comes first is compared again in full. Among
//! many, only those are compared at all that may be near by a first look (`sketch`). No graph: a
//! filter makes a scan faster and never loses what passes it, and what is put or removed costs
//! next to nothing.

#[cfg(test)]
mod recall;

use std::collections::HashMap;

use crate::lexical::Best;
use crate::simd::{dot, dots};
use crate::sketch::Sketch;
use crate::slots::Mask;

/// A piece that has no vector.
pub const NO_ROW: u32 = u32::MAX;
/// So many are compared by their codes without a first look.
const DIRECT_MAX: usize = 8192;
/// Shorter vectors are compared without one too: bits say little of them.
const SKETCHED_DIMENSIONS_MIN: usize = 128;
/// So many that may be nearest are compared to know how near the nearest are.
const FIRST: usize = 512;
/// How far a product of codes may be off, in steps of both scales: three standard deviations of
/// what rounding takes away, once for each of two that are compared.
const ROUNDING: f32 = 2.0 * 3.0 * 0.289;
/// Numbers of a vector.
pub const DIMENSIONS_MAX: usize = 4096;

/// Vectors of one model, or of one namespace.
#[derive(Default)]
pub struct Space {
    /// Numbers of each; 0 while there is none.
    pub dimensions: usize,
    rows: HashMap<[u8; 16], u32>,
    codes: Vec<i8>,
    /// What a code of 1 stands for, once the vector has length 1.
    scales: Vec<f32>,
    /// A first look at them, where there are many.
    sketch: Sketch,
}

impl Space {
    /// The row of what has this hash.
    pub fn row(&self, hash: &[u8; 16]) -> u32 {
        self.rows.get(hash).copied().unwrap_or(NO_ROW)
    }

    /// Takes a vector in. One of another length than the rest comes when those are no more.
    pub fn add(&mut self, hash: [u8; 16], vector: &[f32]) -> u32 {
        if vector.is_empty() {
            return NO_ROW;
        }
        if vector.len() != self.dimensions {
            *self = Self {
                dimensions: vector.len(),
                ..Self::default()
            };
        }
        let (codes, scale) = coded(vector);
        let row = self.row(&hash);
        if row != NO_ROW {
            let at = row as usize;
            let from = at * self.dimensions;
            self.codes[from..from + self.dimensions].copy_from_slice(&codes);
            self.scales[at] = scale;
            if at < self.sketch.len() {
                let unit: Vec<f32> = codes.iter().map(|code| f32::from(*code) * scale).collect();
                self.sketch.put(at, &unit);
            }
            return row;
        }
        let row = u32::try_from(self.scales.len()).unwrap_or(NO_ROW);
        self.rows.insert(hash, row);
        self.codes.extend_from_slice(&codes);
        self.scales.push(scale);
        row
    }

    /// To be called once all is added.
    pub fn settle(&mut self) {
        let (rows, width) = (self.scales.len(), self.dimensions);
        if rows <= DIRECT_MAX || width < SKETCHED_DIMENSIONS_MIN {
            return;
        }
        let (codes, scales) = (&self.codes, &self.scales);
        self.sketch.follow(width, rows, |row, unit| {
            let (codes, scale) = (&codes[row * width..(row + 1) * width], scales[row]);
            unit.clear();
            unit.extend(codes.iter().map(|code| f32::from(*code) * scale));
        });
    }

    /// The pieces in `mask` among which the `k` nearest are, the nearest first as it seems, and
    /// `most` at most. `rows` has the row of each piece.
    pub fn near(
        &self,
        to: &[f32],
        rows: &[u32],
        mask: &Mask,
        k: usize,
        most: usize,
    ) -> Vec<(u32, f32)> {
        let scan = Scan::new(self, to, rows);
        let is_sketched = self.sketch.len() == self.scales.len();
        let mut near = if is_sketched && mask.count() > DIRECT_MAX {
            scan.compared(scan.possible(mask, k).into_iter(), most)
        } else {
            let slots = mask.iter().map(|slot| slot as u32);
            scan.compared(slots.filter(|slot| rows[*slot as usize] != NO_ROW), most)
        };
        let least = scan.least(&near, k);
        near.retain(|(_, score)| *score >= least);
        near
    }
}

/// One query on its way.
struct Scan<'a> {
    space: &'a Space,
    rows: &'a [u32],
    unit: Vec<f32>,
    codes: Vec<i8>,
    scale: f32,
}

impl<'a> Scan<'a> {
    fn new(space: &'a Space, to: &[f32], rows: &'a [u32]) -> Self {
        let (codes, scale) = coded(to);
        Self {
            space,
            rows,
            unit: unit(to),
            codes,
            scale,
        }
    }

    /// The pieces among which the `k` nearest are, by a first look.
    fn possible(&self, mask: &Mask, k: usize) -> Vec<u32> {
        let may = self.space.sketch.at_most(&self.unit);
        // bound: the pieces in memory
        let mut all: Vec<(u32, f32)> = Vec::with_capacity(mask.count());
        mask.each(|slot| {
            // A piece without a vector has no row.
            if let Some(may) = may.get(self.rows[slot] as usize) {
                all.push((slot as u32, *may));
            }
        });
        let mut first = Best::new(FIRST.max(2 * k));
        all.iter().for_each(|(slot, may)| first.see(*slot, *may));
        let first = first.done();
        let first = self.compared(first.iter().map(|(slot, _)| *slot), k);
        let least = self.least(&first, k);
        let left = all.iter().filter(|(_, may)| *may >= least);
        left.map(|(slot, _)| *slot).collect()
    }

    /// The `most` nearest of some pieces, by their codes.
    fn compared(&self, slots: impl Iterator<Item = u32>, most: usize) -> Vec<(u32, f32)> {
        let slots: Vec<u32> = slots.collect();
        let rows: Vec<u32> = slots.iter().map(|slot| self.rows[*slot as usize]).collect();
        let mut best = Best::new(most);
        dots(&self.codes, &self.space.codes, &rows, |at, product| {
            let row_scale = self.space.scales[rows[at] as usize];
            best.see(slots[at], product as f32 * self.scale * row_scale);
        });
        best.done()
    }

    /// What a piece must have to be among the `k` nearest, when these were found.
    fn least(&self, found: &[(u32, f32)], k: usize) -> f32 {
        match found.get(k.max(1) - 1) {
            None => f32::NEG_INFINITY,
            Some((slot, score)) => {
                let row = self.rows[*slot as usize] as usize;
                score - ROUNDING * (self.scale + self.space.scales[row])
            }
        }
    }
}

/// Codes of the vector at length 1, and what a code of 1 stands for.
fn coded(vector: &[f32]) -> (Vec<i8>, f32) {
    let unit = unit(vector);
    let largest = largest(&unit);
    if largest == 0.0 {
        return (vec![0; vector.len()], 0.0);
    }
    let code = |value: &f32| (value / largest * 127.0).round() as i8;
    (unit.iter().map(code).collect(), largest / 127.0)
}

/// The vector at length 1; zeros where it has no direction. Its largest number is made 1 first:
/// squares of very small and very large ones are none that can be told apart.
fn unit(vector: &[f32]) -> Vec<f32> {
    let largest = largest(vector);
    if largest == 0.0 {
        return vec![0.0; vector.len()];
    }
    let mut unit: Vec<f32> = vector.iter().map(|value| value / largest).collect();
    let length = dot(&unit, &unit).sqrt();
    unit.iter_mut().for_each(|value| *value /= length);
    unit
}

fn largest(vector: &[f32]) -> f32 {
    let larger = |most: f32, value: &f32| most.max(value.abs());
    vector.iter().fold(0.0, larger)
}

/// How alike two vectors are, from -1 to 1; 0 where one has no direction.
#[must_use]
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    dot(&unit(a), &unit(b)).clamp(-1.0, 1.0)
}

/// A vector as it is kept.
#[must_use]
pub fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// The same, read.
#[must_use]
pub fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    let (fours, _) = bytes.as_chunks::<4>();
    fours.iter().map(|four| f32::from_le_bytes(*four)).collect()
}
