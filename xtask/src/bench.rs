//! `cargo xtask bench`: builds what is measured and what measures, in release,
//! and becomes the harness. What is measured and what counts as too slow is the
//! harness's matter.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::command::{build_binary, shown};
use crate::report::Failure;

const MANIFEST: &str = "bench/Cargo.toml";

pub fn run(root: &Path, args: &[String]) -> Result<(), Failure> {
    if !root.join(MANIFEST).exists() {
        return Err(Failure::new(format!("there is no {MANIFEST}")));
    }
    let callgate = build_binary(root, &["--release", "-p", "callgate"], "callgate")?;
    let harness = build_binary(
        root,
        &["--release", "--manifest-path", MANIFEST],
        "callgate-bench",
    )?;
    let mut command = Command::new(harness);
    command
        .arg("--callgate")
        .arg(callgate)
        .args(args)
        .current_dir(root);
    // Replaces this process, so that the harness is alone on its core.
    let source = command.exec();
    Err(Failure::new(format!(
        "start `{}`: {source}",
        shown(&command)
    )))
}
