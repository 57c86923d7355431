//! Variables and further names in a command: which of them are code. Variables that are known to
//! name code are held to more than others.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use callgate_sandbox::real;

use super::Search;
use super::guesses::{Guess, guesses_in};
use crate::config::{RunnerConfig, ToolConfig};

/// Variables that name code: paths, or options with paths in them.
const CODE_VARIABLES: [&str; 39] = [
    "AWKLIBPATH",
    "AWKPATH",
    "BASH_ENV",
    "CLASSPATH",
    "DOTNET_STARTUP_HOOKS",
    "ENV",
    "GEM_HOME",
    "GEM_PATH",
    "GUILE_LOAD_PATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JULIA_LOAD_PATH",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "MAKEFILES",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RUBYLIB",
    "RUBYOPT",
    "R_LIBS",
    "R_PROFILE_USER",
    "TCLLIBPATH",
    "ZDOTDIR",
];

impl Search<'_> {
    /// Paths of the workspace in the variables of a tool.
    pub(super) fn variables(&mut self, config: &ToolConfig) {
        let Some(env) = config.runner.as_ref().and_then(RunnerConfig::env) else {
            return;
        };
        for (name, value) in env {
            self.variable(name, value);
            self.guess_all(value);
            for part in value.split([':', '=', ' ', ';']) {
                self.guess_all(part);
            }
        }
    }

    /// Paths of the workspace in a variable that names code.
    pub(super) fn variable(&mut self, name: &str, value: &str) {
        if !CODE_VARIABLES.contains(&name) {
            return;
        }
        for part in value.split([':', '=', ' ', ';']) {
            // An empty part of a search path is the current folder.
            let is_empty = part.is_empty() && value.contains(':') && name.ends_with("PATH");
            if is_empty || self.is_root(part) {
                self.problem(format!(
                    "env: {name} names the workspace's root, which is open to callers: name a \
                     folder in it"
                ));
            } else if let Some(path) = self.inside(part) {
                if path.is_file() {
                    self.script(path);
                } else if path.exists() {
                    self.add(path);
                } else {
                    self.add_name(path);
                }
            }
        }
    }

    /// A folder that modules are searched in, as after `-I`.
    pub(super) fn search_path(&mut self, word: &str) {
        if self.is_root(word) && self.listed.is_empty() {
            self.problem(format!(
                "`-I{word}` searches the workspace's root, which is open to callers, for code: \
                 name a folder in it, or list the code, as in `code = [\"lib/**\"]`"
            ));
        } else if let Some(path) = self.inside(word) {
            self.add_name(path);
        }
    }

    /// Whatever the parts of a word name in the workspace.
    pub(super) fn guess_all(&mut self, word: &str) {
        for guess in guesses_in(word) {
            self.guess(&guess);
        }
    }

    /// What a part of a word names in the workspace: a file with its folder, or a folder.
    pub(super) fn guess(&mut self, guess: &Guess) {
        let Some(path) = self.inside(&guess.path) else {
            return;
        };
        if path.is_file() && is_program(&path) {
            return self.script(path);
        }
        let end = real(&path);
        if guess.is_plain && self.data.iter().any(|data| end.starts_with(data)) {
            return;
        }
        let is_there = path.symlink_metadata().is_ok();
        if is_there {
            let is_file = path.is_file();
            for path in self.both(path) {
                let folder = path.parent().filter(|folder| *folder != self.root);
                let code = match folder.filter(|_| is_file) {
                    Some(folder) => folder.to_owned(),
                    None => path,
                };
                self.found.guesses.push(code);
            }
        } else if guess.is_name && guess.path.contains(['/', '.']) {
            // A text may leave the ending of a module away: `require('./lib/x')`.
            let folder = path.parent().filter(|folder| *folder != self.root);
            if let Some(folder) = folder.filter(|folder| !guess.is_plain && folder.is_dir()) {
                let folder = folder.to_owned();
                let both = self.both(folder);
                self.found.guesses.extend(both);
            }
            self.add_name(path);
        }
    }
}

/// Returns whether a file may be run as it is.
fn is_program(path: &Path) -> bool {
    let may_run = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
    may_run || begins_with_program(path).unwrap_or_default()
}

/// Returns whether a file names the program that runs it.
fn begins_with_program(path: &Path) -> std::io::Result<bool> {
    let mut begin = [0; 2];
    fs::File::open(path)?.read_exact(&mut begin)?;
    Ok(begin == *b"#!")
}

/// What of a path is neither written by a tool nor holds what is.
pub fn without_data(path: PathBuf, data: &[PathBuf]) -> Vec<PathBuf> {
    let end = real(&path);
    if data.iter().any(|data| end.starts_with(data)) {
        return Vec::new();
    }
    if !data.iter().any(|data| data.starts_with(&end)) {
        return vec![path];
    }
    let entries = fs::read_dir(&path).into_iter().flatten().flatten();
    let parts = entries.flat_map(|entry| without_data(entry.path(), data));
    parts.collect()
}
