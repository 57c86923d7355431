//! The layers of BERT, for one text at a time.

use super::DIMENSIONS as WIDE;
use super::tensors::Tensors;
use crate::simd::{Panels, dot};

const LAYERS: usize = 6;
const HEADS: usize = 12;
const HEAD: usize = WIDE / HEADS;
const INNER: usize = 4 * WIDE;
const EPSILON: f32 = 1e-12;

pub struct Bert {
    words: Vec<f32>,
    places: Vec<f32>,
    kind: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    query: Panels,
    key: Panels,
    value: Panels,
    joined: Panels,
    joined_norm: Norm,
    up: Panels,
    down: Panels,
    norm: Norm,
}

impl Bert {
    /// `None` if a tensor is missing or of another size.
    pub fn new(all: &Tensors) -> Option<Self> {
        let words = all.get("embeddings.word_embeddings.weight")?.clone();
        let places = all.get("embeddings.position_embeddings.weight")?.clone();
        let kinds = all.get("embeddings.token_type_embeddings.weight")?;
        let whole = |numbers: &[f32]| !numbers.is_empty() && numbers.len().is_multiple_of(WIDE);
        (whole(&words) && whole(&places) && whole(kinds)).then_some(())?;
        Some(Self {
            kind: kinds[..WIDE].to_vec(),
            words,
            places,
            norm: Norm::new(all, "embeddings.LayerNorm")?,
            layers: (0..LAYERS)
                .map(|at| Layer::new(all, at))
                .collect::<Option<_>>()?,
        })
    }

    /// The vector of these tokens, of length 1.
    pub fn embed(&self, tokens: &[u32]) -> Vec<f32> {
        let mut rows = self.start(tokens);
        let mut room = Room::default();
        for layer in &self.layers {
            layer.pass(&mut rows, &mut room);
        }
        let mut mean = vec![0.0; WIDE];
        for row in rows.chunks_exact(WIDE) {
            mean.iter_mut()
                .zip(row)
                .for_each(|(sum, value)| *sum += value);
        }
        let length = dot(&mean, &mean).sqrt().max(f32::MIN_POSITIVE);
        mean.iter_mut().for_each(|value| *value /= length);
        mean
    }

    fn start(&self, tokens: &[u32]) -> Vec<f32> {
        let mut rows = Vec::with_capacity(tokens.len() * WIDE);
        let line = |table: &[f32], at: usize| -> Vec<f32> {
            let from = at * WIDE;
            table
                .get(from..from + WIDE)
                .map_or_else(|| vec![0.0; WIDE], <[f32]>::to_vec)
        };
        for (place, token) in tokens.iter().enumerate() {
            let (word, place) = (
                line(&self.words, *token as usize),
                line(&self.places, place),
            );
            let sum = word.iter().zip(&place).zip(&self.kind);
            rows.extend(sum.map(|((word, place), kind)| word + place + kind));
        }
        self.norm.apply(&mut rows);
        rows
    }
}

/// What a layer writes on its way, kept for the next.
#[derive(Default)]
struct Room {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    mixed: Vec<f32>,
    out: Vec<f32>,
    wide: Vec<f32>,
}

impl Layer {
    fn new(all: &Tensors, at: usize) -> Option<Self> {
        let name = |rest: &str| format!("encoder.layer.{at}.{rest}");
        let panels = |rest: &str, inner: usize, outer: usize| {
            let weights = all.get(&format!("{}.weight", name(rest)))?;
            let bias = all.get(&format!("{}.bias", name(rest)))?;
            let fits = weights.len() == inner * outer && bias.len() == outer;
            fits.then(|| Panels::new(weights, bias, inner))
        };
        Some(Self {
            query: panels("attention.self.query", WIDE, WIDE)?,
            key: panels("attention.self.key", WIDE, WIDE)?,
            value: panels("attention.self.value", WIDE, WIDE)?,
            joined: panels("attention.output.dense", WIDE, WIDE)?,
            joined_norm: Norm::new(all, &name("attention.output.LayerNorm"))?,
            up: panels("intermediate.dense", WIDE, INNER)?,
            down: panels("output.dense", INNER, WIDE)?,
            norm: Norm::new(all, &name("output.LayerNorm"))?,
        })
    }

    fn pass(&self, rows: &mut [f32], room: &mut Room) {
        self.query.times(rows, &mut room.query);
        self.key.times(rows, &mut room.key);
        self.value.times(rows, &mut room.value);
        attend(&room.query, &room.key, &room.value, &mut room.mixed);
        self.joined.times(&room.mixed, &mut room.out);
        add(rows, &room.out);
        self.joined_norm.apply(rows);
        self.up.times(rows, &mut room.wide);
        room.wide.iter_mut().for_each(|value| *value = gelu(*value));
        self.down.times(&room.wide, &mut room.out);
        add(rows, &room.out);
        self.norm.apply(rows);
    }
}

fn add(rows: &mut [f32], more: &[f32]) {
    rows.iter_mut()
        .zip(more)
        .for_each(|(value, more)| *value += more);
}

/// Each token's mix of the others' values, head by head.
fn attend(query: &[f32], key: &[f32], value: &[f32], mixed: &mut Vec<f32>) {
    let tokens = query.len() / WIDE;
    mixed.clear();
    mixed.resize(query.len(), 0.0);
    let scale = 1.0 / (HEAD as f32).sqrt();
    // bound: `TOKENS_MAX`
    let mut weights = vec![0.0_f32; tokens];
    for head in 0..HEADS {
        let part = |token: usize| token * WIDE + head * HEAD..token * WIDE + (head + 1) * HEAD;
        for token in 0..tokens {
            let asked = &query[part(token)];
            for (other, weight) in weights.iter_mut().enumerate() {
                *weight = dot(asked, &key[part(other)]) * scale;
            }
            soften(&mut weights);
            let out = &mut mixed[part(token)];
            for (other, weight) in weights.iter().enumerate() {
                let values = &value[part(other)];
                out.iter_mut()
                    .zip(values)
                    .for_each(|(sum, value)| *sum += weight * value);
            }
        }
    }
}

/// Weights that add up to 1.
fn soften(weights: &mut [f32]) {
    let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for weight in weights.iter_mut() {
        *weight = (*weight - most).exp();
        sum += *weight;
    }
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// x times the share of a normal distribution below x.
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// Abramowitz and Stegun 7.1.26: within 1.5e-7.
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let sum = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_8) * t - 0.284_496_74) * t
        + 0.254_829_6)
        * t;
    (1.0 - sum * (-x * x).exp()).copysign(x)
}

/// Each row to mean 0 and spread 1, then weighed.
struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Norm {
    fn new(all: &Tensors, name: &str) -> Option<Self> {
        let tensor = |rest: &str| all.get(&format!("{name}.{rest}")).cloned();
        let (weight, bias) = (tensor("weight")?, tensor("bias")?);
        (weight.len() == WIDE && bias.len() == WIDE).then_some(Self { weight, bias })
    }

    fn apply(&self, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(WIDE) {
            let mean = row.iter().sum::<f32>() / WIDE as f32;
            let spread = row
                .iter()
                .map(|value| (value - mean) * (value - mean))
                .sum::<f32>();
            let scale = 1.0 / (spread / WIDE as f32 + EPSILON).sqrt();
            let weights = self.weight.iter().zip(&self.bias);
            for (value, (weight, bias)) in row.iter_mut().zip(weights) {
                *value = (*value - mean) * scale * weight + bias;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (x, wanted) in [
            (0.0, 0.0),
            (1.0, 0.841_344_7),
            (-1.0, -0.158_655_3),
            (3.0, 2.995_950_3),
        ] {
            assert!((gelu(x) - wanted).abs() < 1e-5, "{x}");
        }
        let mut weights = [1.0, 1.0, f32::NEG_INFINITY];
        soften(&mut weights);
        assert_eq!(weights, [0.5, 0.5, 0.0]);
    }
}
