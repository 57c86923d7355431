//! The path of the program `misbehave`. Cargo builds programs only for tests of their own
//! package, so tests of other crates build it themselves.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The path of `misbehave`, which is built into the target folder of the running test if it is
/// missing or older than its source.
pub fn misbehave() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("the test's own path");
        let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
        let target = profile.parent().expect("target/PROFILE");
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "--package",
            "callgate-misbehave",
            "--target-dir",
        ]);
        cargo.arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.status().expect("run cargo");
        assert!(built.success(), "{cargo:?} failed");
        profile.join("misbehave")
    })
}
