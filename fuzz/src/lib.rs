//! Fuzz targets. Each is a function of bytes that panics when a property of a parser is broken,
//! not only when the parser itself panics.
//!
//! libFuzzer (`libfuzzer.rs`, `cargo xtask fuzz`) calls the same functions as the test that
//! replays the saved corpora (`tests/corpus.rs`), which needs no instrumented build. Inputs are
//! saved in `corpus/TARGET/`.

#![expect(clippy::unwrap_used, reason = "a broken property stops the target")]

mod cuts;
mod targets;

pub use targets::TARGETS;

/// A function of bytes from outside and the bound of its inputs.
pub struct Target {
    /// The name of its corpus, and of the target on the command line.
    pub name: &'static str,
    /// The parser under test and the property that holds.
    pub about: &'static str,
    /// The longest input that is generated.
    pub input_bytes_max: usize,
    /// Panics if the property is broken.
    pub run: fn(&[u8]),
}

/// Returns the target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Returns a line for each target: its name, the bound of its inputs and its property, with tabs
/// between them.
#[must_use]
pub fn list() -> String {
    let line = |target: &Target| {
        let Target {
            name,
            about,
            input_bytes_max,
            ..
        } = target;
        format!("{name}\t{input_bytes_max}\t{about}\n")
    };
    TARGETS.iter().map(line).collect()
}
