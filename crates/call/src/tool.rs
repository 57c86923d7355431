//! A named operation: what the catalog knows of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::Runner;

/// A tool as the gate holds it.
pub struct Tool {
    /// Canonical name: `files/read`.
    pub name: ToolName,
    /// `AID.FILES.READ.v1`.
    pub aid: String,
    /// One line for people and models.
    pub description: String,
    /// JSON Schema 2020-12 of the input.
    pub input_schema: Value,
    /// JSON Schema of the output, where one is promised.
    pub output_schema: Option<Value>,
    /// Free words for menus.
    pub tags: Vec<String>,
    /// How dangerous it is.
    pub tier: Tier,
    /// The longest a call may take; else the wire's default.
    pub timeout: Option<Duration>,
    /// Calls per second and caller.
    pub rate_limit: Option<RateLimit>,
    /// Calls at the same time; further ones are refused.
    pub concurrency_max: usize,
    /// A second run does no harm, so an unknown outcome may be run again.
    pub idempotent: bool,
    /// Same input, same output.
    pub deterministic: bool,
    /// What it touches, in the toolhost's words.
    pub side_effects: Vec<String>,
    /// What a strict replay needs to know beside the input, in the toolhost's words.
    pub replay_inputs: Vec<String>,
    /// Other names it answers to.
    pub aliases: Vec<String>,
    /// Paths under the workspace it may write.
    pub writes: Vec<String>,
    /// It takes and changes the slots.
    pub slots: bool,
    /// How it is carried out.
    pub runner: Arc<dyn Runner>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .field("aid", &self.aid)
            .finish()
    }
}

/// A canonical name: segments of letters, digits, `_`, `-` and `.`, joined by `/`.
pub type ToolName = String;

/// True if `name` may be a canonical name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= 128
        && name.split('/').all(|segment| {
            !segment.is_empty()
                && segment
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        })
}

/// The AID of a tool that was given none. Decision G-12.
#[must_use]
pub fn aid_of_name(name: &str) -> String {
    let upper = |segment: &str| -> String {
        segment
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect()
    };
    let segments: Vec<String> = name.split('/').map(upper).collect();
    match segments.as_slice() {
        [single] => format!("AID.TOOL.{single}.v1"),
        several => format!("AID.{}.v1", several.join(".")),
    }
}

/// How dangerous a tool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Reads at most.
    #[default]
    Safe = 0,
    /// Writes.
    Write = 1,
    /// Runs programs or reaches the network.
    System = 2,
    /// Changes what can be run.
    Dangerous = 3,
}

impl Tier {
    /// The tier of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Safe, Self::Write, Self::System, Self::Dangerous]
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// The number, as wires write it.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A token bucket: so many a second, so many at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Refill.
    pub per_second: f64,
    /// Capacity.
    pub burst: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G-12.
    #[test]
    fn aid_of_a_name() {
        assert_eq!(aid_of_name("files/read"), "AID.FILES.READ.v1");
        assert_eq!(aid_of_name("greet"), "AID.TOOL.GREET.v1");
        assert_eq!(aid_of_name("a/b-c"), "AID.A.B_C.v1");
    }

    #[test]
    fn names() {
        assert!(is_name("files/read") && is_name("builtin/echo") && is_name("a.b-c_1"));
        assert!(!is_name("") && !is_name("/a") && !is_name("a//b") && !is_name("a b"));
        assert!(!is_name(&"x".repeat(129)) && is_name(&"x".repeat(128)));
    }
}
