//! Parts that the tests of several crates share: temporary folders, seeded random numbers, mutated
//! bytes, values made of JSON Schemas, tools that are shell scripts, the program `misbehave`, a podman
//! of a test's own and what tests do without root. A
//! development dependency only; nothing of it is in a release.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests read their settings from the environment and run cargo and podman"
)]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

pub mod bad_input;
mod fits;
mod folder;
pub mod mcp;
mod misbehave;
mod mutate;
pub mod podman;
mod programs;
mod random;
mod root;
pub mod scripts;
pub mod shapes;
mod vectors;
mod wait;

pub use fits::fits;
pub use folder::{TempFolder, copy_program, fresh_folder};
pub use misbehave::misbehave;
pub use mutate::mutant;
pub use programs::{python, search_path};
pub use random::Random;
pub use root::is_skipped_without_root;
pub use vectors::vectors;
pub use wait::{wait_for, wait_minutes};
