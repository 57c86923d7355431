//! The vectors of the contracts.

use std::path::{Path, PathBuf};

/// The folder of the vectors.
pub fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}
