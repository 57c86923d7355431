//! The Node SDK where it can run: a copy of its sources beside the packages that its lock file
//! pins, since Node looks for packages beside the program. The clone itself gets none.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients;
use crate::report::Failure;

const SOURCES: &str = "sdk/node";
/// What its tests read beyond it, at the same distance.
const VECTORS: &str = "vectors/stream";
const STAGE: &str = "target/node-sdk";

pub struct NodeSdk {
    folder: PathBuf,
}

impl NodeSdk {
    /// Takes the packages from the cache, or fetches them, and copies the sources as they are.
    pub fn set_up(root: &Path, cache: &Path) -> Result<Self, Failure> {
        let _lock = clients::lock(cache)?;
        let modules = clients::npm(&root.join(SOURCES), cache, "the Node SDK's packages (npm)")?;
        let stage = root.join(STAGE);
        if stage.exists() {
            fs::remove_dir_all(&stage).map_err(|e| failed("remove", &stage, e))?;
        }
        let folder = stage.join(SOURCES);
        for part in ["", "src", "tests"] {
            copy_files(&root.join(SOURCES).join(part), &folder.join(part))?;
        }
        copy_files(&root.join(VECTORS), &stage.join(VECTORS))?;
        let link = folder.join("node_modules");
        symlink(modules, &link).map_err(|e| failed("link", &link, e))?;
        Ok(Self { folder })
    }

    pub fn export(&self, command: &mut Command) {
        command.env("CALLGATE_TEST_NODE_SDK", &self.folder);
    }

    /// Its own tests, one file after the other: they look at memory.
    pub fn tests(&self, node: &Path) -> Command {
        let mut command = Command::new(node);
        command
            .args(["--test", "--test-concurrency=1", "--test-reporter=tap"])
            .arg("tests/*.test.ts")
            .current_dir(&self.folder);
        command
    }
}

/// What the output of `node --test` says.
#[derive(Debug, Default, PartialEq)]
pub struct NodeWatch {
    pub passed: usize,
    /// Skipped, or left to do.
    pub skipped: usize,
}

impl NodeWatch {
    pub fn see(&mut self, line: &str) {
        let count = |word: &str| {
            let rest = line.strip_prefix("# ")?.strip_prefix(word)?;
            rest.trim_start().parse::<usize>().ok()
        };
        self.passed += count("pass").unwrap_or(0);
        self.skipped += count("skipped").or_else(|| count("todo")).unwrap_or(0);
    }
}

/// The files of a folder, without its folders.
fn copy_files(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to).map_err(|e| failed("create", to, e))?;
    for entry in fs::read_dir(from).map_err(|e| failed("read", from, e))? {
        let path = entry.map_err(|e| failed("read", from, e))?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            fs::copy(&path, to.join(name)).map_err(|e| failed("copy", &path, e))?;
        }
    }
    Ok(())
}

fn failed(what: &str, path: &Path, error: std::io::Error) -> Failure {
    Failure::new(format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let mut watch = NodeWatch::default();
        for line in [
            "# tests 4",
            "# pass 3",
            "# skipped 1",
            "# todo 0",
            "ok 1 - pass 9",
        ] {
            watch.see(line);
        }
        assert_eq!(
            watch,
            NodeWatch {
                passed: 3,
                skipped: 1
            }
        );
    }
}
