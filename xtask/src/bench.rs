//! `cargo xtask bench`: builds the program and the harness with the profile
//! `dist`, fetches and builds the servers of others it is measured against, and
//! becomes the harness. What is measured and what counts as too slow is the
//! harness's matter.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::command::{build_binary, shown};
use crate::report::Failure;
use crate::test::clients::Rivals;
use crate::test::{cache_folder, containers, model, python};

const MANIFEST: &str = "bench/Cargo.toml";
/// A package of its own, so that what it needs stays out of our lock file.
const RMCP_MANIFEST: &str = "bench/rivals/rmcp/Cargo.toml";
/// Benches with rivals that are fetched: their names begin with the first, or are the second.
const WITH_RIVALS: &str = "mcp-";
const WITH_NODE: &str = "rpc-files";
/// The bench that has ripgrep for a rival, and its package.
const WITH_RIPGREP: &str = "rpc-search";
const RIPGREP: [(&str, &str); 1] = [("rg", "ripgrep")];
/// The bench that counts instructions, and its package.
const WITH_VALGRIND: &str = "instructions";
const VALGRIND: [(&str, &str); 1] = [("valgrind", "valgrind")];
/// The bench that needs the model.
const WITH_MODEL: &str = "recall";
/// The bench that other people's launchers are in, and those with their packages.
const WITH_LAUNCHERS: &str = "confined";
const LAUNCHERS: [(&str, &str); 4] = [
    ("bwrap", "bubblewrap"),
    ("podman", "podman"),
    ("runc", "runc"),
    ("conmon", "conmon"),
];

pub fn run(root: &Path, args: &[String]) -> Result<(), Failure> {
    if !root.join(MANIFEST).exists() {
        return Err(Failure::new(format!("there is no {MANIFEST}")));
    }
    let callgate = build_binary(root, &["--profile", "dist", "-p", "callgate"], "callgate")?;
    let harness = build_binary(
        root,
        &["--profile", "dist", "--manifest-path", MANIFEST],
        "callgate-bench",
    )?;
    let mut command = Command::new(harness);
    command.arg("--callgate").arg(callgate);
    if is_named(args, has_rivals) {
        add_rivals(root, &mut command)?;
    }
    if is_named(args, |name| name == WITH_MODEL) {
        let python = python::find(python::VERSION_MIN)?;
        let package = model::set_up(root, &cache_folder()?, &python)?;
        command.arg("--model").arg(package);
    }
    if is_named(args, |name| name == WITH_RIPGREP) {
        containers::install(&RIPGREP)?;
    }
    if is_named(args, |name| name == WITH_VALGRIND) {
        containers::install(&VALGRIND)?;
    }
    // The harness leaves out what is not there, and says so.
    if is_named(args, |name| name == WITH_LAUNCHERS)
        && let Err(failure) = containers::install(&LAUNCHERS)
    {
        eprintln!("{failure}");
    }
    command.args(args).current_dir(root);
    // Replaces this process, so that the harness is alone on its core.
    let source = command.exec();
    Err(Failure::new(format!(
        "start `{}`: {source}",
        shown(&command)
    )))
}

/// True if such a bench is among those that are named, or none is.
fn is_named(args: &[String], such: impl Fn(&str) -> bool) -> bool {
    let is_name = |arg: &&String| !arg.starts_with('-') && arg.parse::<u64>().is_err();
    let mut names = args.iter().filter(is_name).peekable();
    names.peek().is_none() || names.any(|name| such(name))
}

fn has_rivals(name: &str) -> bool {
    name.starts_with(WITH_RIVALS) || name == WITH_NODE
}

fn add_rivals(root: &Path, command: &mut Command) -> Result<(), Failure> {
    let cache = cache_folder()?;
    let rivals = Rivals::set_up(root, &cache)?;
    let target = cache.join("rmcp");
    let target = target.to_string_lossy();
    let rmcp = build_binary(
        root,
        &[
            "--release",
            "--locked",
            "--manifest-path",
            RMCP_MANIFEST,
            "--target-dir",
            &target,
        ],
        "rmcp-echo",
    )?;
    command
        .arg("--rmcp")
        .arg(rmcp)
        .arg("--node")
        .arg(rivals.node)
        .arg("--typescript")
        .arg(rivals.typescript)
        .arg("--python")
        .arg(rivals.python);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_are_fetched_for_those_who_race() {
        let needs = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            is_named(&words, has_rivals)
        };
        assert!(needs(""));
        assert!(needs("--check --seed 7"));
        assert!(needs("gate mcp-http"));
        assert!(needs("rpc-exec rpc-files"));
        assert!(!needs("rpc-exec rpc-search"));
        assert!(!needs("gate --seed 7 serve"));
    }
}
