//! The MCP clients and the conformance suite that tests drive, with the Node and the Python
//! they need: fetched from the npm and PyPI registries as `tests/clients/` pins them by hash,
//! into the cache folder, and taken from there the next time.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::python;
use crate::command::{run_within, shown};
use crate::report::Failure;

const FOLDER: &str = "tests/clients";
const CLIENTS: &str = "Python MCP clients (PyPI)";
/// In a folder that is whole.
const MARK: &str = "complete";
/// `mcp` and `fastmcp` want it.
const PYTHON_MIN: (u32, u32) = (3, 10);
/// What one fetch may take. Usual is a minute or two.
const FETCH_MAX: Duration = Duration::from_secs(10 * 60);

/// Where it all is.
pub struct Clients {
    node: PathBuf,
    modules: PathBuf,
    python: PathBuf,
}

impl Clients {
    /// Takes what is in the cache, and fetches what is not.
    pub fn set_up(root: &Path, cache: &Path) -> Result<Self, Failure> {
        let from = root.join(FOLDER);
        let _lock = lock(cache)?;
        let modules = npm(
            &from,
            cache,
            "Node 22, MCP clients, conformance suite (npm)",
        )?;
        let python = venv(&from, cache, CLIENTS)?;
        Ok(Self {
            node: modules.join(".bin/node"),
            modules,
            python,
        })
    }

    pub fn node(&self) -> &Path {
        &self.node
    }

    pub fn export(&self, command: &mut Command) {
        command
            .env("CALLGATE_TEST_NODE", &self.node)
            .env("CALLGATE_TEST_MODULES", &self.modules)
            .env("CALLGATE_TEST_CLIENT_PYTHON", &self.python);
    }
}

/// The servers of others that the bench measures against.
pub struct Rivals {
    pub node: PathBuf,
    /// A folder with its packages beside its program.
    pub typescript: PathBuf,
    /// The clients' interpreter: FastMCP is both.
    pub python: PathBuf,
}

impl Rivals {
    /// Takes what is in the cache, and fetches what is not.
    pub fn set_up(root: &Path, cache: &Path) -> Result<Self, Failure> {
        const PROGRAM: &str = "echo.mjs";
        let from = root.join("bench/rivals/typescript");
        let _lock = lock(cache)?;
        let modules = npm(&from, cache, "Node 22, the TypeScript SDK's server (npm)")?;
        let typescript = modules
            .parent()
            .ok_or_else(|| Failure::new("modules without a folder"))?;
        // Node looks for packages beside the program; it may have changed, they have not.
        fs::copy(from.join(PROGRAM), typescript.join(PROGRAM))
            .map_err(|e| failed("copy", &from, e))?;
        Ok(Self {
            node: modules.join(".bin/node"),
            typescript: typescript.to_path_buf(),
            python: venv(&root.join(FOLDER), cache, CLIENTS)?,
        })
    }
}

/// Another clone's command may be at it; its fetch is bounded as ours is.
pub(super) fn lock(cache: &Path) -> Result<File, Failure> {
    let lock = File::create(cache.join("clients.lock")).map_err(|e| failed("lock", cache, e))?;
    lock.lock().map_err(|e| failed("lock", cache, e))?;
    Ok(lock)
}

/// The folder of the npm packages that `from` pins, Node among them.
pub(super) fn npm(from: &Path, cache: &Path, what: &str) -> Result<PathBuf, Failure> {
    let pins = ["package.json", "package-lock.json"];
    let folder = cache.join(format!("npm-{}", digest(from, &pins, "")?));
    made_once(&folder, what, || {
        for name in pins {
            fs::copy(from.join(name), folder.join(name)).map_err(|e| failed("copy", from, e))?;
        }
        let mut command = Command::new("npm");
        // Nothing of what is fetched is run by fetching it.
        command
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .args(["--loglevel", "error"])
            .current_dir(&folder);
        fetch(&mut command)
    })?;
    Ok(folder.join("node_modules"))
}

/// The interpreter of a virtual environment with the packages that `from` pins.
pub(super) fn venv(from: &Path, cache: &Path, what: &str) -> Result<PathBuf, Failure> {
    let base = python::find(PYTHON_MIN)?;
    let pins = from.join("requirements.txt");
    let made_with = base.to_string_lossy();
    let folder = cache.join(format!(
        "python-{}",
        digest(from, &["requirements.txt"], &made_with)?
    ));
    let python = folder.join("bin/python");
    made_once(&folder, what, || {
        fetch(Command::new(&base).args(["-m", "venv"]).arg(&folder))?;
        let mut command = Command::new(&python);
        command
            .args(["-m", "pip", "install", "--quiet", "--no-input"])
            .args(["--disable-pip-version-check", "--no-compile", "--no-deps"])
            .args([
                "--require-hashes",
                "--only-binary",
                ":all:",
                "--requirement",
            ])
            .arg(&pins);
        fetch(&mut command)
    })?;
    Ok(python)
}

/// Makes a folder unless it is there whole; what an earlier run left half made goes first.
pub(super) fn made_once(
    folder: &Path,
    what: &str,
    make: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mark = folder.join(MARK);
    if mark.is_file() {
        println!("{what}: from the cache");
        return Ok(());
    }
    println!("{what}: fetching, once");
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| failed("remove", folder, e))?;
    }
    fs::create_dir_all(folder).map_err(|e| failed("create", folder, e))?;
    make()?;
    fs::write(&mark, "").map_err(|e| failed("write", &mark, e))
}

pub(super) fn fetch(command: &mut Command) -> Result<(), Failure> {
    println!("$ {}", shown(command));
    run_within(command, FETCH_MAX)
}

/// Names what was made of these files, by these means.
pub(super) fn digest(folder: &Path, names: &[&str], means: &str) -> Result<String, Failure> {
    let mut hasher = DefaultHasher::new();
    means.hash(&mut hasher);
    for name in names {
        let path = folder.join(name);
        let bytes = fs::read(&path).map_err(|e| failed("read", &path, e))?;
        bytes.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

pub(super) fn failed(verb: &str, path: &Path, source: std::io::Error) -> Failure {
    Failure::new(format!("{verb} {}: {source}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_is_made_once() {
        let name = format!("callgate-xtask-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = fs::remove_dir_all(&folder);
        let broken = made_once(&folder, "a test", || {
            fs::write(folder.join("half"), "").expect("the folder is there");
            Err(Failure::new("no network"))
        });
        assert!(broken.is_err());
        let mut made = 0;
        for _ in 0..2 {
            let make = || {
                assert!(!folder.join("half").exists(), "cleared first");
                made += 1;
                Ok(())
            };
            made_once(&folder, "a test", make).expect("nothing fails");
        }
        assert_eq!(made, 1);
        fs::remove_dir_all(&folder).expect("it was made");
    }

    #[test]
    fn other_pins_have_another_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let of = |names: &[&str], means| digest(&folder, names, means).expect("our own sources");
        assert_eq!(of(&["main.rs"], ""), of(&["main.rs"], ""));
        assert_ne!(of(&["main.rs"], ""), of(&["test.rs"], ""));
        assert_ne!(of(&["main.rs"], ""), of(&["main.rs"], "python"));
    }
}
