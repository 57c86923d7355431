//! The release binary is what a user gets: it starts, it is small, and nobody
//! can ask it to crash.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{self, build_binary};
use crate::report::Failure;

const SIZE_BYTES_MAX: usize = 25 * 1000 * 1000;
/// The variable that arms a failpoint; its name is in every build that has them.
const FAILPOINT_VARIABLE: &str = "CALLGATE_FAILPOINT";

pub fn check(root: &Path, debug_binary: &Path) -> Result<(), Failure> {
    println!("$ cargo build --release -p callgate");
    let binary = build_binary(root, &["--release", "-p", "callgate"], "callgate")?;
    let version = command::output(Command::new(&binary).arg("--version"))?;
    let bytes = read(&binary)?;
    println!("{}, {:.1} MB", version.trim(), bytes.len() as f64 / 1e6);
    if bytes.len() >= SIZE_BYTES_MAX {
        let (size, max) = (bytes.len(), SIZE_BYTES_MAX);
        return Err(Failure::new(format!(
            "the release binary has {size} bytes, at most {max} allowed"
        )));
    }
    // Finding nothing proves something only where the same search finds it.
    if !has_failpoints(&read(debug_binary)?) {
        return Err(Failure::new(format!(
            "`{FAILPOINT_VARIABLE}` is not in the binary built with failpoints: this check is blind"
        )));
    }
    if has_failpoints(&bytes) {
        return Err(Failure::new("the release binary has failpoints in it"));
    }
    Ok(())
}

fn has_failpoints(bytes: &[u8]) -> bool {
    bytes
        .windows(FAILPOINT_VARIABLE.len())
        .any(|window| window == FAILPOINT_VARIABLE.as_bytes())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| Failure::new(format!("read {}: {source}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_anywhere() {
        assert!(has_failpoints(b"\x00\xffCALLGATE_FAILPOINT"));
        assert!(has_failpoints(b"CALLGATE_FAILPOINTS\x00"));
        assert!(!has_failpoints(b"CALLGATE_FAILPOIN"));
        assert!(!has_failpoints(b""));
    }
}
