//! Environment and working folder as they were when the program read them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use callgate_call::bounded;

/// The environment as it was at the start.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// The working folder; if it is gone, a name under which nothing is found either.
    pub current_dir: PathBuf,
    /// Our own program, for the spawner.
    pub program: PathBuf,
    /// Our effective uid.
    pub uid: u32,
    /// What the command may run, and so which variables must be set that configuration refers to.
    tools_run: ToolsRun,
}

/// Which tools a command may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ToolsRun {
    /// The command runs no tool, or only looks at what there is of them.
    Nothing,
    /// The command runs built-in tools.
    Builtins,
    /// The command may run any tool.
    All,
}

/// Who refers to a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Referrer {
    /// A tool of the configuration: `${NAME}` in its `env`, or its `token_env`.
    Tool,
    /// What built-in tools use.
    Builtin,
}

impl Environment {
    /// The environment of a program that may run any tool.
    pub fn new(variables: BTreeMap<OsString, OsString>, current_dir: PathBuf, uid: u32) -> Self {
        Self {
            variables,
            current_dir,
            program: PathBuf::from("/proc/self/exe"),
            uid,
            tools_run: ToolsRun::All,
        }
    }

    /// The home of our user by the system's own list, whatever `HOME` says; none where a user is
    /// known by other means only.
    pub fn user_home(&self) -> Option<PathBuf> {
        /// A longer list is that of a machine whose users are elsewhere.
        const LIST_BYTES_MAX: u64 = 4 * 1024 * 1024;
        let list = bounded::read_path_text("/etc/passwd", LIST_BYTES_MAX).ok()?;
        let uid = self.uid.to_string();
        let fields = |line: &str| {
            let mut fields = line.split(':').skip(2);
            let is_ours = fields.next() == Some(&uid);
            let home = fields.nth(2).filter(|home| home.starts_with('/'));
            is_ours.then(|| home.map(PathBuf::from)).flatten()
        };
        list.lines().find_map(fields)
    }

    /// The same for a command that runs no tool: what configuration refers to need not be set.
    pub fn of_no_tool(&self) -> Self {
        let tools_run = ToolsRun::Nothing;
        Self {
            tools_run,
            ..self.clone()
        }
    }

    /// The same for a command that runs built-in tools alone: what other tools refer to need not be
    /// set.
    pub fn of_builtins(&self) -> Self {
        let tools_run = ToolsRun::Builtins;
        Self {
            tools_run,
            ..self.clone()
        }
    }

    /// Returns a variable that configuration refers to. `None` if it must be set and is not; a
    /// command that does not run who refers to it gets a word in its place.
    pub fn referred(&self, name: &str, by: Referrer) -> Option<&OsStr> {
        const UNUSED: &str = "unset";
        let least = match by {
            Referrer::Tool => ToolsRun::All,
            Referrer::Builtin => ToolsRun::Builtins,
        };
        let unused = || (self.tools_run < least).then_some(OsStr::new(UNUSED));
        self.os(name).or_else(unused)
    }

    /// The same, as text.
    pub fn referred_text(&self, name: &str, by: Referrer) -> Option<&str> {
        self.referred(name, by).and_then(OsStr::to_str)
    }

    /// All variables.
    pub fn variables(&self) -> &BTreeMap<OsString, OsString> {
        &self.variables
    }

    /// A variable that is set and not empty.
    pub fn os(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|v| !v.is_empty())
    }

    /// Returns the folder that a variable names. A relative path names none: it would be another
    /// folder wherever the program is started.
    pub fn folder(&self, name: &str) -> Option<&Path> {
        self.os(name)
            .map(Path::new)
            .filter(|path| path.is_absolute())
    }

    /// The same, as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.os(name).and_then(OsStr::to_str)
    }
}
