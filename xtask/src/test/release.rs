//! The check of the binary that packages have, built with the profile `dist`: it starts, it is
//! small, and it has no failpoints. Not here: the profile `release`, which links in pieces and
//! may be larger.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::command::{self, build_binary, cargo};
use crate::report::Failure;

const SIZE_BYTES_MAX: usize = 32 * 1000 * 1000;
/// The variable that arms a failpoint; its name is in every build that has them.
const FAILPOINT_VARIABLE: &str = "CALLGATE_FAILPOINT";

const BUILD: [&str; 4] = ["--profile", "dist", "-p", "callgate"];

/// A build that goes on beside the tests, which wait more than they work, and gives way to
/// them. Dropped, it is ended.
pub struct Build {
    cargo: Child,
}

impl Build {
    pub fn begin(root: &Path) -> Result<Self, Failure> {
        let plain = cargo(root, ["build", "--quiet"]);
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"])
            .arg(plain.get_program())
            .args(plain.get_args())
            .args(BUILD)
            .current_dir(root)
            // A group of its own: the compiler ends with its cargo.
            .process_group(0)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => nice.env(name, value),
                None => nice.env_remove(name),
            };
        }
        let cargo = nice
            .spawn()
            .map_err(|source| Failure::new(format!("start `nice cargo build`: {source}")))?;
        Ok(Self { cargo })
    }

    /// Waits for it, and judges what it made.
    pub fn check(mut self, root: &Path, debug_binary: &Path) -> Result<(), Failure> {
        // Whatever came of it: cargo is asked again, and says by itself what went wrong.
        let _ended = self.cargo.wait();
        check(root, debug_binary)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if matches!(self.cargo.try_wait(), Ok(None)) {
            let group = format!("-{}", self.cargo.id());
            let _ended = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _reaped = self.cargo.wait();
        }
    }
}

fn check(root: &Path, debug_binary: &Path) -> Result<(), Failure> {
    println!("$ cargo build {}", BUILD.join(" "));
    let binary = build_binary(root, &BUILD, "callgate")?;
    let version = command::output(Command::new(&binary).arg("--version"))?;
    let bytes = read(&binary)?;
    println!("{}, {:.1} MB", version.trim(), bytes.len() as f64 / 1e6);
    if bytes.len() >= SIZE_BYTES_MAX {
        let (size, max) = (bytes.len(), SIZE_BYTES_MAX);
        return Err(Failure::new(format!(
            "the dist binary has {size} bytes, at most {max} allowed"
        )));
    }
    // Finding nothing proves something only where the same search finds it.
    if !has_failpoints(&read(debug_binary)?) {
        return Err(Failure::new(format!(
            "`{FAILPOINT_VARIABLE}` is not in the binary built with failpoints: this check is blind"
        )));
    }
    if has_failpoints(&bytes) {
        return Err(Failure::new("the dist binary has failpoints in it"));
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
