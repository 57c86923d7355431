//! The files of the project: what git tracks or would track.
//!
//! Without git, or in an archive, it is what the folder holds less build
//! output. Paths are relative to the root, with `/`, in order.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOT_OURS: [&str; 6] = [
    ".git",
    "target",
    ".cache",
    "node_modules",
    "__pycache__",
    ".venv",
];

pub struct Tree {
    root: PathBuf,
    files: Vec<String>,
}

impl Tree {
    pub fn read(root: &Path) -> Self {
        let mut files = tracked(root).unwrap_or_else(|| walk(root));
        // A file removed and not yet committed is still listed by git.
        files.retain(|path| root.join(path).is_file());
        files.sort();
        files.dedup();
        Self {
            root: root.to_path_buf(),
            files,
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// The files in `folder` (ending in `/`) at any depth, with this ending.
    pub fn under<'a>(&'a self, folder: &'a str, ending: &'a str) -> impl Iterator<Item = &'a str> {
        self.files()
            .filter(move |path| path.starts_with(folder) && path.ends_with(ending))
    }

    /// The text of a file; `None` if it is absent or not UTF-8.
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The folders of the crates, by name: `app`, `call`, …
    pub fn crates(&self) -> Vec<&str> {
        self.under("crates/", "/Cargo.toml")
            .filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
            .filter(|name| !name.contains('/'))
            .collect()
    }
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let listing = String::from_utf8(output.stdout).ok()?;
    Some(
        listing
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

fn walk(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else {
            continue;
        };
        for entry in entries.flatten() {
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
                continue;
            };
            if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
                folders.push(format!("{folder}{name}/"));
            } else if kind.is_file() {
                files.push(format!("{folder}{name}"));
            }
        }
    }
    files
}
