//! What the tests of containers need: podman with runc, docker, and an image with a Python in it,
//! made of the one that is here. Nothing is fetched but Debian's packages, and nothing of the
//! machine's own containers is touched: each test has a storage of its own, and a daemon of its
//! own where docker wants one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clients::{digest, failed};
use crate::command::{run_within, shown};
use crate::report::Failure;

const FOLDER: &str = "tests/container";
const SCRIPT: &str = "image.py";

/// A program and the package it comes with.
const PROGRAMS: [(&str, &str); 4] = [
    ("podman", "podman"),
    ("runc", "runc"),
    ("conmon", "conmon"),
    ("busybox", "busybox-static"),
];

/// What installing or making may take. Usual is half a minute.
const STEP_MAX: Duration = Duration::from_secs(10 * 60);

/// The image's tar, once podman is there to import it.
pub fn set_up(root: &Path, cache: &Path, python: &Path) -> Result<PathBuf, Failure> {
    let lock = cache.join("containers.lock");
    let lock = File::create(&lock).map_err(|e| failed("lock", cache, e))?;
    lock.lock().map_err(|e| failed("lock", cache, e))?;
    install(&PROGRAMS)?;
    image(root, cache, python)
}

/// Installs what is missing of these, each with the package it comes with.
pub fn install(programs: &[(&str, &str)]) -> Result<(), Failure> {
    let missing: Vec<&str> = programs
        .iter()
        .filter(|(program, _)| !is_there(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        let names: Vec<&str> = programs.iter().map(|(program, _)| *program).collect();
        println!("{}: there", names.join(", "));
        return Ok(());
    }
    let mut command = Command::new("apt-get");
    // The recommended ones would bring crun, which does not know every layout of cgroups.
    command
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive");
    println!("$ {}", shown(&command));
    run_within(&mut command, STEP_MAX)
}

fn is_there(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&folders)
        .chain(usual)
        .any(|folder| folder.join(program).is_file())
}

/// Docker's programs, in the cache: to install its package would start it.
pub fn docker(cache: &Path) -> Result<PathBuf, Failure> {
    let folder = cache.join("docker");
    if folder.is_dir() {
        println!("docker: from the cache");
        return Ok(folder);
    }
    let half = cache.join("docker.half");
    let _ = fs::remove_dir_all(&half);
    fs::create_dir_all(&half).map_err(|e| failed("create", &half, e))?;
    let mut command = Command::new("apt-get");
    command
        .args(["download", "--quiet", "docker.io", "containerd"])
        .current_dir(&half);
    println!("$ {}", shown(&command));
    run_within(&mut command, STEP_MAX)?;
    let entries = fs::read_dir(&half).map_err(|e| failed("read", &half, e))?;
    for package in entries.flatten().map(|entry| entry.path()) {
        let mut command = Command::new("dpkg");
        command.arg("--extract").arg(&package).arg(&half);
        run_within(&mut command, STEP_MAX)?;
        fs::remove_file(&package).map_err(|e| failed("remove", &package, e))?;
    }
    fs::rename(&half, &folder).map_err(|e| failed("rename", &half, e))?;
    Ok(folder)
}

/// Made once for each interpreter and script.
fn image(root: &Path, cache: &Path, python: &Path) -> Result<PathBuf, Failure> {
    let from = root.join(FOLDER);
    let made_with = python.to_string_lossy();
    let name = format!("container-{}.tar", digest(&from, &[SCRIPT], &made_with)?);
    let tar = cache.join(name);
    if tar.is_file() {
        println!("container image: from the cache");
        return Ok(tar);
    }
    let half = tar.with_extension("half");
    let mut command = Command::new(python);
    command.arg(from.join(SCRIPT)).arg(&half);
    println!("$ {}", shown(&command));
    run_within(&mut command, STEP_MAX)?;
    fs::rename(&half, &tar).map_err(|e| failed("rename", &half, e))?;
    Ok(tar)
}
