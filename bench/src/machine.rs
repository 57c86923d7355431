//! How fast the machine itself was meanwhile. A neighbour on the same core makes every
//! instruction dearer, ours as well as this one's.

use std::hint::black_box;

use crate::cpu;
use crate::figure::{Figure, median, number};

const TIMES: usize = 5_000;
const TEXT: &str = r#"{"query":"rows where id = 1f2e3d","limit":17,"tags":["new","old"],"page":3}"#;

/// One sample: CPU of a fixed piece of work, in microseconds.
pub fn sample() -> f64 {
    let before = cpu::thread();
    for _ in 0..TIMES {
        let value: serde_json::Value = serde_json::from_str(black_box(TEXT)).unwrap_or_default();
        black_box(value.to_string());
    }
    cpu::micros_each(cpu::thread() - before, TIMES)
}

/// What the samples say.
pub fn figure(samples: &[f64]) -> Figure {
    let best = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let worst = samples.iter().copied().fold(0.0, f64::max);
    Figure::new(
        "machine: CPU of a fixed piece of work",
        median(samples),
        "µs",
    )
    .beside(format!(
        "best {}, worst {}; the figures above move with it",
        number(best),
        number(worst)
    ))
}
