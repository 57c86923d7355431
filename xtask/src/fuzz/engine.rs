//! libFuzzer, and the program that has it and all targets in it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{built_binary, cargo, output, run_within, shown};
use crate::report::Failure;
use crate::test::cache_folder;

/// Names an archive of libFuzzer that is there already.
const ARCHIVE_VARIABLE: &str = "CALLGATE_LIBFUZZER";
/// Debian's packages with the archive, newest first.
const PACKAGES: [&str; 2] = ["libfuzzer-19-dev", "libfuzzer-14-dev"];
const ARCHIVE: &str = "libFuzzer.a";
/// What fetching the package may take. Usual is a second.
const FETCH_MAX: Duration = Duration::from_secs(120);

/// Coverage counters on edges, with tables of their places and of the values compared.
const COUNTERS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1";

/// Builds the instrumented program and returns its path.
pub fn build(root: &Path) -> Result<PathBuf, Failure> {
    let archive = archive()?;
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = cargo(root, ["rustc", "--message-format=json-render-diagnostics"]);
    // For a named target, so that build scripts and macros are not instrumented.
    command
        .args(["--package", "callgate-fuzz", "--bin", "callgate-libfuzzer"])
        .args(["--features", "libfuzzer", "--profile", "fuzz"])
        .args(["--target", &host()?, "--"])
        .arg(format!("-Clink-arg={}", archive.display()))
        .arg("-Clink-arg=-lstdc++")
        .env("RUSTFLAGS", format!("{flags} {COUNTERS}"));
    built_binary(&mut command, "callgate-libfuzzer")
}

/// The target that the compiler builds for by itself.
fn host() -> Result<String, Failure> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::new("`rustc -vV` names no host"))
}

fn archive() -> Result<PathBuf, Failure> {
    if let Some(path) = env::var_os(ARCHIVE_VARIABLE) {
        return Ok(PathBuf::from(path));
    }
    let folder = cache_folder()?.join("libfuzzer");
    let archive = folder.join(ARCHIVE);
    if archive.is_file() {
        return Ok(archive);
    }
    fs::create_dir_all(&folder).map_err(|e| super::failed("create", &folder, &e))?;
    for package in PACKAGES {
        if let Some(unpacked) = fetch(package, &folder) {
            fs::rename(&unpacked, &archive).map_err(|e| super::failed("move", &unpacked, &e))?;
            return Ok(archive);
        }
    }
    Err(Failure::new(format!(
        "no libFuzzer: none of Debian's packages {} can be had. Set {ARCHIVE_VARIABLE} to the \
         path of libFuzzer.a, or of clang's libclang_rt.fuzzer",
        PACKAGES.join(", ")
    )))
}

/// Unpacks a package without installing it, which would bring clang along. Returns the archive.
fn fetch(package: &str, folder: &Path) -> Option<PathBuf> {
    let mut download = Command::new("apt-get");
    download.args(["download", "--quiet", package]);
    download.current_dir(folder).stderr(Stdio::null());
    println!("$ {}", shown(&download));
    run_within(&mut download, FETCH_MAX).ok()?;
    let entries = fs::read_dir(folder).ok()?;
    let file = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))?;
    let unpacked = folder.join("unpacked");
    let mut extract = Command::new("dpkg");
    extract.arg("--extract").arg(&file).arg(&unpacked);
    run_within(&mut extract, FETCH_MAX).ok()?;
    let _gone = fs::remove_file(&file);
    let versions = fs::read_dir(unpacked.join("usr/lib")).ok()?;
    versions
        .flatten()
        .map(|entry| entry.path().join("lib").join(ARCHIVE))
        .find(|path| path.is_file())
}
