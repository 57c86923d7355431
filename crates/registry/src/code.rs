//! Finds what a tool's process loads as code from the workspace: the files its command or its
//! entry names, the folders they stand in, what its interpreter looks for by itself, and what the
//! tool lists in `code`. All of it is closed to callers and read-only to children. Not in here:
//! who carries that out (`needs.rs`), and the code of packs, which runs from a copy in the state.

mod guesses;
mod steps;
mod variables;
mod words;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use callgate_sandbox::real;

use crate::config::{RunnerConfig, ToolConfig};
pub use steps::names_of;
use steps::{shortened, steps_of};
pub use variables::without_data;
use words::{Word, words_of};

/// Most entries of `code`.
const LISTED_MAX: usize = 64;

/// Files and folders of code that are looked at for links out of it.
const LOOKS_MAX: usize = 10_000;

/// Entries of the workspace that are looked at for second names of files of code.
const NAMES_MAX: usize = 100_000;

/// Folders of packages: closed where something is loaded from them, and too large to look into.
const PACKAGES: [&str; 2] = [".venv", "node_modules"];

/// Files by which Node and its package managers decide what to load.
const NODE_FILES: [&str; 10] = [
    "package.json",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnp.cjs",
    ".pnp.loader.mjs",
    ".pnpmfile.cjs",
    "tsconfig.json",
    "deno.json",
    "bunfig.toml",
];

/// Files by which version managers choose the interpreter behind a name.
const VERSION_FILES: [&str; 7] = [
    ".python-version",
    ".node-version",
    ".nvmrc",
    ".tool-versions",
    "mise.toml",
    ".mise.toml",
    ".ruby-version",
];

/// What one tool loads from the workspace.
#[derive(Debug, Default)]
pub struct LoadedCode {
    /// Files and folders, absolute.
    pub paths: Vec<PathBuf>,
    /// Names where its interpreter looks for code or for what decides about code, whether or not
    /// they are there.
    pub names: Vec<PathBuf>,
    /// Files and folders that its command or its variables name, in whatever role. Closed where no
    /// tool writes there.
    pub guesses: Vec<PathBuf>,
    /// What a Python process of it may import, from the workspace's root.
    pub imports: Vec<String>,
    /// Its process is a Python that has the workspace's root, or a folder of it, on its path.
    pub is_python_program: bool,
    /// Why it is not known what it loads, and what to list.
    pub problems: Vec<String>,
    /// What is listed and not there.
    pub missing: Vec<String>,
}

impl LoadedCode {
    /// Finds the code of a tool.
    pub fn of(root: &Path, config: &ToolConfig) -> Self {
        let mut loaded = Search {
            root,
            listed: Vec::new(),
            data: data_of(root, &config.reads),
            found: Self::default(),
        };
        loaded.list(&config.code);
        let packed = config
            .bound
            .as_ref()
            .is_some_and(|bound| bound.code.is_some());
        match &config.runner {
            None | Some(RunnerConfig::Service(_)) => {}
            Some(RunnerConfig::Process { command, .. }) => loaded.command(command),
            Some(RunnerConfig::Pool { command, entry, .. }) => {
                loaded.command(command);
                loaded.guess_all(entry.as_deref().unwrap_or_default());
            }
            Some(RunnerConfig::Executor(executor)) => loaded.command(&executor.words()),
            Some(RunnerConfig::Python { entry, python, .. }) => {
                loaded.interpreter(python.as_deref());
                if !packed {
                    loaded.module(entry);
                }
            }
            Some(RunnerConfig::Node { entry, node, .. }) => {
                if let Some(node) = node {
                    loaded.program(node);
                }
                // A pack's is in the pack.
                if !packed {
                    loaded.node_entry(entry);
                }
                loaded.names(&VERSION_FILES);
            }
            Some(RunnerConfig::Container(container)) => {
                loaded.module(container.entry.as_deref().unwrap_or_default());
                loaded.files(&container.runtime_options);
            }
        }
        loaded.variables(config);
        loaded.done(config)
    }

    /// Finds the code of functions that are not registered, by the patterns of their entries.
    pub fn of_entries(
        root: &Path,
        patterns: &[String],
        python: Option<&str>,
        code: &[String],
    ) -> Self {
        let mut loaded = Search {
            root,
            listed: Vec::new(),
            data: Vec::new(),
            found: Self::default(),
        };
        loaded.list(code);
        if !patterns.is_empty() {
            loaded.interpreter(python);
        }
        for pattern in patterns {
            loaded.pattern(pattern);
        }
        loaded.done(&ToolConfig::default())
    }

    /// The text that tells a Python process what it may import: the workspace, then a line each.
    pub fn imports_text(&self, root: &str) -> String {
        let lines = self.imports.iter().map(String::as_str);
        [root]
            .into_iter()
            .chain(lines)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

struct Search<'a> {
    root: &'a Path,
    /// What `code` lists, absolute.
    listed: Vec<PathBuf>,
    /// What the tool reads as data, without links.
    data: Vec<PathBuf>,
    found: LoadedCode,
}

impl Search<'_> {
    fn problem(&mut self, words: String) {
        self.found.problems.push(words);
    }

    fn is_listed(&self, path: &Path) -> bool {
        self.listed.iter().any(|listed| path.starts_with(listed))
    }

    /// The name of a path from the workspace's root.
    fn name(&self, path: &Path) -> String {
        let name = path.strip_prefix(self.root).unwrap_or(path);
        name.to_string_lossy().into_owned()
    }

    /// A word as a path of the workspace, below its root; nothing if it leads elsewhere. Closes
    /// what a word depends on that reaches the workspace by `..` or from outside.
    fn inside(&mut self, word: &str) -> Option<PathBuf> {
        let path = self.root.join(word);
        let short = shortened(&path);
        let has_turns = path.components().any(|part| part == Component::ParentDir);
        let is_inside = |path: &PathBuf| path.starts_with(self.root) && path != self.root;
        if !has_turns && path.starts_with(self.root) {
            return Some(short).filter(is_inside);
        }
        let end = steps_of(self.root, &path).end;
        let found = [&end, &short].into_iter().find(|path| is_inside(path));
        let found = found.cloned();
        self.found.names.extend(names_of(self.root, &path));
        found
    }

    /// Returns whether a word leads to the workspace's root.
    fn is_root(&self, word: &str) -> bool {
        !word.is_empty() && steps_of(self.root, &self.root.join(word)).end == self.root
    }

    /// A path under its own name and its real one, as far as both are in the workspace. Closes all
    /// links in between.
    fn both(&mut self, path: PathBuf) -> Vec<PathBuf> {
        let steps = steps_of(self.root, &path);
        let passed = steps.passed.into_iter();
        self.found.names.extend(passed.filter(|link| *link != path));
        let mut both = vec![steps.end, path];
        both.dedup();
        both.retain(|path| path.starts_with(self.root) && path != self.root);
        both
    }

    fn add(&mut self, path: PathBuf) {
        let both = self.both(path);
        self.found.paths.extend(both);
    }

    /// Closes the name of what is not there: whoever makes it decides what runs.
    fn add_name(&mut self, path: PathBuf) {
        let both = self.both(path);
        self.found.names.extend(both);
    }

    /// `code = [...]`: a file, or a folder as `lib/**`.
    fn list(&mut self, code: &[String]) {
        if code.len() > LISTED_MAX {
            let count = code.len();
            self.problem(format!("code: {count} entries are more than {LISTED_MAX}"));
        }
        for entry in code.iter().take(LISTED_MAX) {
            let name = entry
                .strip_suffix("/**")
                .unwrap_or(entry)
                .trim_end_matches('/');
            let is_path = !name.contains(['*', '?', '[', '\n']) && !self.is_root(name);
            let Some(path) = self.inside(name).filter(|_| is_path) else {
                self.problem(format!(
                    "code: `{entry}` is neither a file of the workspace nor a folder in it such as \
                     `lib/**`"
                ));
                continue;
            };
            if !path.exists() {
                self.found.missing.push(name.to_owned());
            }
            self.found.imports.push(self.name(&path));
            let both = self.both(path.clone());
            self.listed.extend(both);
            // Closed under its name also where it is not there.
            self.found.names.push(path.clone());
            self.add(path);
        }
    }

    /// The module or package that an entry is in: one of them, whatever is beside it.
    fn module(&mut self, entry: &str) {
        let module = entry.split(':').next().unwrap_or_default();
        let (top, is_dotted) = match module.split_once('.') {
            Some((top, _)) => (top, true),
            None => (module, false),
        };
        if self.inside(top).is_none() || top.contains('\n') {
            return;
        }
        let names = [format!("{top}.py"), top.to_owned()];
        let there = |name: &&String| self.root.join(name).exists();
        let found = names
            .iter()
            .skip(usize::from(is_dotted))
            .find(there)
            .cloned();
        self.found
            .names
            .extend(names.map(|name| self.root.join(name)));
        if let Some(name) = found {
            self.add(self.root.join(&name));
            self.found.imports.push(name);
        }
    }

    /// The modules that entries of a pattern may be in.
    fn pattern(&mut self, pattern: &str) {
        let top = pattern.split([':', '.']).next().unwrap_or_default();
        if top.len() < pattern.len() && !top.contains('*') {
            // Which of the two an entry is in, it says itself.
            for name in [top.to_owned(), format!("{top}.")] {
                self.module(&name);
            }
            return;
        }
        let begin = top.split('*').next().unwrap_or_default().to_owned();
        let entries = fs::read_dir(self.root).into_iter().flatten().flatten();
        let names: Vec<String> = entries
            .take(LOOKS_MAX)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with(&begin))
            .collect();
        for name in names {
            let path = self.root.join(&name);
            let is_package = || path.join("__init__.py").is_file() || has_python(&path);
            if let Some(stem) = name.strip_suffix(".py") {
                self.module(stem);
            } else if path.is_dir() && !name.contains('.') && is_package() {
                self.module(&format!("{name}."));
            }
        }
    }

    /// The interpreter of a Python tool: that of `.venv`, or the one that is configured.
    fn interpreter(&mut self, configured: Option<&str>) {
        self.add(self.root.join(".venv"));
        self.found.names.push(self.root.join(".venv"));
        if let Some(python) = configured {
            self.program(python);
        }
        self.names(&VERSION_FILES);
    }

    /// A program of the workspace, with the folder it stands in; of one in a `bin` folder also
    /// what stands beside that, which is where interpreters have their libraries.
    fn program(&mut self, word: &str) {
        let Some(path) = self.inside(word).filter(|_| word.contains('/')) else {
            return;
        };
        if !path.exists() {
            return self.add_name(path);
        }
        for path in self.both(path) {
            let folder = path.parent().unwrap_or(self.root).to_owned();
            let above = folder.parent().filter(|above| above.starts_with(self.root));
            let prefix = above.filter(|_| folder.file_name().is_some_and(|name| name == "bin"));
            match prefix.map(Path::to_owned) {
                // An interpreter looks for its libraries and settings beside its folder.
                Some(prefix) if prefix == self.root && is_python(&path) => {
                    let name = self.name(&path);
                    self.problem(format!(
                        "{name} takes its libraries and settings from the workspace's root, which \
                         is open to callers: move its `bin` into a folder of its own"
                    ));
                    self.add(folder);
                }
                Some(prefix) if prefix != self.root && has_libraries(&prefix) => self.add(prefix),
                _ => self.script(path),
            }
        }
    }

    /// A script or program of the workspace: its folder, or itself where that is the root.
    fn script(&mut self, path: PathBuf) {
        let passed = steps_of(self.root, &path).passed.into_iter();
        // A script that asks where it is may be told the folder of any link to it.
        let links = passed.filter(|link| link.is_file());
        for folder in links.filter_map(|link| link.parent().map(Path::to_owned)) {
            self.add(folder);
        }
        for path in self.both(path) {
            let folder = path.parent().unwrap_or(self.root).to_owned();
            if let Some(packages) = packages_of(&path) {
                self.add(packages);
            } else if folder != self.root {
                self.add(folder);
            } else {
                if !self.is_listed(&path) {
                    let name = self.name(&path);
                    self.problem(format!(
                        "{name} is in the workspace's root, so it is not known what it loads: add \
                         `code = [{name:?}]` and list there whatever else it loads, such as \
                         \"lib/**\", or move it into a folder of its own"
                    ));
                }
                self.add(path);
            }
        }
    }

    /// The scripts, modules and files among the words of a command.
    fn command(&mut self, command: &[String]) {
        let Some((program, words)) = command.split_first() else {
            return;
        };
        self.program(program);
        self.guess_all(program);
        // A program of the workspace that is named without a slash is looked for in `PATH`.
        let words = words_of(program, words);
        self.found.is_python_program = words.is_python;
        for word in words.list {
            match word {
                Word::Script(word) => self.script_word(&word, words.is_node),
                Word::Module(module) => self.module(&module),
                Word::File(word) => self.files(std::slice::from_ref(&word)),
                Word::Guess(guess) => self.guess(&guess),
                Word::Variable(name, value) => self.variable(&name, &value),
                Word::SearchPath(word) => self.search_path(&word),
            }
        }
        if words.is_node || words.is_package_manager {
            self.node_packages(None);
        }
        if words.is_python || words.is_node {
            self.names(&VERSION_FILES);
        }
        if let Some(why) = words.loads_from_folder
            && self.listed.is_empty()
        {
            self.problem(format!(
                "{why} in its command loads code from the workspace's root: list it, as in \
                 `code = [{}]`",
                words.usual_code
            ));
        }
    }

    fn script_word(&mut self, word: &str, is_node: bool) {
        if self.is_root(word) {
            return self.problem(format!(
                "`{word}` runs what is in the workspace's root, which is open to callers: name a \
                 file, or move it into a folder of its own"
            ));
        }
        let ends: &[&str] = match is_node {
            true => &["", ".js", ".cjs", ".mjs", ".ts"],
            false => &[""],
        };
        for end in ends {
            let Some(path) = self.inside(&format!("{word}{end}")) else {
                continue;
            };
            if path.is_dir() {
                self.add(path.clone());
            } else if path.is_file() {
                self.script(path.clone());
            } else {
                continue;
            }
            if is_node {
                self.node_packages(path.parent().map(Path::to_owned));
            }
            return;
        }
        if let Some(path) = self.inside(word) {
            self.add_name(path);
        }
    }

    /// The files of the workspace among words, each by itself.
    fn files(&mut self, words: &[String]) {
        for word in words {
            if let Some(path) = self.inside(word).filter(|path| path.is_file()) {
                self.add(path);
            }
        }
    }

    fn node_entry(&mut self, entry: &str) {
        const ENDS: [&str; 3] = [".mjs", ".js", ".cjs"];
        let file = entry.rsplit_once(':').map_or(entry, |(file, _)| file);
        let files = match ENDS.iter().any(|end| file.ends_with(end)) {
            true => vec![file.to_owned()],
            // `folder.module`, as bindings write it.
            false => ENDS.map(|end| file.replace('.', "/") + end).to_vec(),
        };
        let paths: Vec<PathBuf> = files.iter().filter_map(|file| self.inside(file)).collect();
        for path in &paths {
            self.both(path.clone());
        }
        let found = paths.iter().find(|path| path.is_file()).cloned();
        self.found.names.extend(paths);
        let found = found.map_or_else(Vec::new, |path| self.both(path));
        for path in found {
            let folder = path.parent().unwrap_or(self.root).to_owned();
            // In the root it is alone: the worker loads nothing beside it.
            let code = match folder == self.root {
                true => path,
                false => folder.clone(),
            };
            self.found.imports.push(self.name(&code));
            self.add(code);
            self.node_packages(Some(folder));
        }
    }

    /// Where Node looks for packages and their descriptions: in the folder of the script and all
    /// above it, up to the root.
    fn node_packages(&mut self, folder: Option<PathBuf>) {
        let folder = folder.unwrap_or_else(|| self.root.to_owned());
        let root = self.root.to_owned();
        for above in folder
            .ancestors()
            .take_while(|above| above.starts_with(&root))
        {
            let packages = above.join("node_modules");
            if packages.exists() {
                self.found.imports.push(self.name(&packages));
                self.add(packages.clone());
            }
            self.found.names.push(packages);
            let files = NODE_FILES.iter().map(|name| above.join(name));
            self.found.names.extend(files);
        }
    }

    fn names(&mut self, names: &[&str]) {
        let names = names.iter().map(|name| self.root.join(name));
        self.found.names.extend(names);
    }

    fn done(mut self, config: &ToolConfig) -> LoadedCode {
        let paths = std::mem::take(&mut self.found.paths);
        self.found.paths = self.with_links(paths);
        let mut guesses = std::mem::take(&mut self.found.guesses);
        guesses.sort_unstable();
        guesses.dedup();
        self.found.guesses = self.with_links(guesses);
        if self.found.is_python_program {
            let names = self.found.paths.iter().map(|path| self.name(path));
            self.found.imports = names.filter(|name| !name.contains('\n')).collect();
        }
        let LoadedCode {
            paths,
            names,
            guesses,
            imports,
            ..
        } = &mut self.found;
        for list in [paths, names, guesses] {
            list.sort_unstable();
            list.dedup();
        }
        imports.sort_unstable();
        imports.dedup();
        for write in &config.writes {
            let path = real(&self.root.join(write));
            if path == self.root || !path.starts_with(self.root) {
                continue;
            }
            if let Some(code) = self.found.paths.iter().find(|code| path.starts_with(code)) {
                let code = self.name(code);
                self.problem(format!(
                    "writes: `{write}` is in `{code}`, which is code of this tool: let it write to \
                     another folder"
                ));
            }
        }
        self.found.problems.dedup();
        self.found
    }

    /// Adds what links in the code lead to, and further names of its files: who may write there
    /// changes the code.
    fn with_links(&mut self, mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut left = paths.clone();
        let mut seen: HashSet<PathBuf> = left.iter().cloned().collect();
        let mut twice: HashSet<(u64, u64)> = HashSet::new();
        let mut looks = 0;
        while let Some(path) = left.pop() {
            looks += 1;
            if looks > LOOKS_MAX {
                break;
            }
            let Ok(found) = path.symlink_metadata() else {
                continue;
            };
            if found.is_symlink() {
                let steps = steps_of(self.root, &path);
                self.found.names.extend(steps.passed);
                let target = steps.end;
                let known = paths.iter().any(|path| target.starts_with(path));
                if target.starts_with(self.root) && target != self.root && !known {
                    match target.exists() {
                        true => {
                            paths.push(target.clone());
                            left.push(target);
                        }
                        false => self.found.names.push(target),
                    }
                }
            } else if found.is_dir() {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                let entries = entries.take(LOOKS_MAX);
                let is_packages = is_packages(&path);
                // Of packages only links to those that stand elsewhere.
                let entries = entries.filter(|entry| {
                    let is_scope = || entry.file_name().to_string_lossy().starts_with('@');
                    let is_link = || entry.file_type().is_ok_and(|kind| kind.is_symlink());
                    !is_packages || is_link() || is_scope()
                });
                let entries = entries.map(|entry| entry.path());
                left.extend(entries.filter(|path| seen.insert(path.clone())));
            } else if found.is_file() && found.nlink() > 1 {
                twice.insert((found.dev(), found.ino()));
            }
        }
        if !twice.is_empty() {
            paths.extend(second_names(self.root, &twice));
        }
        paths
    }
}

/// What a tool reads, without links; nothing for all of the workspace.
fn data_of(root: &Path, reads: &[String]) -> Vec<PathBuf> {
    let reads = reads.iter().map(|read| real(&root.join(read)));
    let is_inside = |path: &PathBuf| path.starts_with(root) && path != root;
    reads.filter(is_inside).collect()
}

/// Returns whether a program is a Python by its name.
fn is_python(program: &Path) -> bool {
    let name = program.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with("python") || name.starts_with("pypy"))
}

/// Returns whether a folder is the home of an interpreter, as a virtual environment is.
fn has_libraries(prefix: &Path) -> bool {
    ["pyvenv.cfg", "lib", "lib64", "libexec"]
        .iter()
        .any(|name| prefix.join(name).exists())
}

/// Returns whether a folder is one of packages by its name.
fn is_packages(folder: &Path) -> bool {
    let name = folder.file_name();
    name.is_some_and(|name| PACKAGES.iter().any(|one| name == *one))
}

/// The outermost folder of packages that a path is in.
fn packages_of(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .filter(|folder| is_packages(folder))
        .last()
        .map(Path::to_owned)
}

/// Returns whether a folder has a Python file.
fn has_python(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.take(LOOKS_MAX).map(|entry| entry.path());
    names.any(|path| path.extension().is_some_and(|end| end == "py"))
}

/// All names in the workspace of files that have several.
fn second_names(root: &Path, files: &HashSet<(u64, u64)>) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut left = vec![root.to_owned()];
    let mut looks = 0;
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            looks += 1;
            if looks > NAMES_MAX {
                return names;
            }
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.is_dir() {
                left.push(entry.path());
            } else if files.contains(&(found.dev(), found.ino())) {
                names.push(entry.path());
            }
        }
    }
    names
}
