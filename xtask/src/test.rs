//! `cargo xtask test`: everything that must hold, in order, stopping at the
//! first step that does not.
//!
//! It finds or fetches by itself what the tests need. The tests read these
//! variables: `CALLGATE_CACHE` (a folder outside the clone),
//! `CALLGATE_TEST_PYTHON` (an interpreter, not a shim) and, as root only,
//! `CALLGATE_TEST_UID` (a user to drop to); those that drive MCP clients also
//! `CALLGATE_TEST_NODE`, `CALLGATE_TEST_MODULES` and
//! `CALLGATE_TEST_CLIENT_PYTHON`; those of the Node SDK `CALLGATE_TEST_NODE_SDK`
//! (a copy of it with its packages); those of containers `CALLGATE_TEST_IMAGE`
//! and `CALLGATE_TEST_DOCKER`; those of search `CALLGATE_TEST_MODEL_PACKAGE` and
//! `CALLGATE_TEST_CHROMA`; that of pip `CALLGATE_TEST_WHEELS`.
//! The Python tests read `CALLGATE_BIN` besides.

mod chroma;
pub mod clients;
pub mod containers;
pub mod model;
mod node_sdk;
pub mod python;
mod release;
mod skips;
mod types;
mod wheels;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::{self, Watched, cargo, shown};
use crate::report::Failure;
use crate::{clauses, tidy};
use clients::Clients;
use node_sdk::{NodeSdk, NodeWatch};
use skips::{PythonWatch, RustWatch};

/// One build of the workspace serves lints, tests and the Python tests: a
/// package built alone would get other features and be built again.
const FAILPOINTS: [&str; 2] = ["--features", "callgate/failpoints"];

/// Nobody's: no account is needed to drop to a number.
const UNPRIVILEGED_UID: &str = "64123";

/// Tests of one program at the same time: they wait more than they work, for children, clocks
/// and disks.
const THREADS: &str = "4";

#[derive(Debug, Default, PartialEq)]
pub struct Options {
    pub quick: bool,
    pub filter: Option<String>,
}

pub fn run(root: &Path, options: &Options) -> Result<(), Failure> {
    let mut needs = Needs::find()?;
    let mut steps = Steps::default();
    let ended = run_steps(root, options, &mut needs, &mut steps);
    steps.summarise(ended.is_ok());
    ended
}

fn run_steps(
    root: &Path,
    options: &Options,
    needs: &mut Needs,
    steps: &mut Steps,
) -> Result<(), Failure> {
    let rust_tests = |needs: &Needs| rust_tests(root, options, needs);
    if options.filter.is_some() {
        steps.take("clients", || needs.fetch(root))?;
        steps.take("containers", || needs.make_image(root))?;
        steps.take("model", || needs.fetch_model(root))?;
        steps.take("programs", || needs.install_programs(root))?;
        return steps.take("tests", || rust_tests(needs));
    }
    steps.take("format", || {
        show_and_run(cargo(root, ["fmt", "--all", "--check"]))
    })?;
    steps.take("lints", || lints(root, &[]))?;
    if options.quick {
        steps.take("tidy", || tidy::run(root))?;
        steps.take("model", || needs.fetch_model(root))?;
        return steps.take("unit tests", || rust_tests(needs));
    }
    steps.take("lints with failpoints", || lints(root, &FAILPOINTS))?;
    steps.take("tidy", || tidy::run(root))?;
    let to_mend = clauses::Options {
        missing_only: true,
        ..clauses::Options::default()
    };
    steps.take("clauses", || clauses::run(root, to_mend))?;
    steps.take("clients", || needs.fetch(root))?;
    steps.take("containers", || needs.make_image(root))?;
    steps.take("model", || needs.fetch_model(root))?;
    steps.take("programs", || needs.install_programs(root))?;
    steps.take("Python types", || types::check(root, &needs.cache))?;
    steps.take("build of the tests", || {
        let mut build = cargo(root, ["test", "--workspace", "--no-run"]);
        build.args(FAILPOINTS);
        show_and_run(build)
    })?;
    let release = release::Build::begin(root)?;
    steps.take("tests", || rust_tests(needs))?;
    steps.take("Python tests", || python_tests(root, needs))?;
    steps.take("Node tests", || node_tests(needs))?;
    steps.take("dist binary", || release.check(root, &debug_binary(root)?))
}

/// The steps taken so far and what each took.
#[derive(Default)]
struct Steps {
    taken: Vec<(&'static str, Duration)>,
}

impl Steps {
    fn take(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        println!("\n== {name}");
        let start = Instant::now();
        let ended = step();
        self.taken.push((name, start.elapsed()));
        ended
    }

    fn summarise(&self, passed: bool) {
        println!("\n== summary");
        for (index, (name, took)) in self.taken.iter().enumerate() {
            let is_last = index + 1 == self.taken.len();
            let word = if is_last && !passed { "FAILED" } else { "ok" };
            println!("{name:24} {word:6} {:7.1} s", took.as_secs_f64());
        }
        let total: Duration = self.taken.iter().map(|(_, took)| *took).sum();
        let word = if passed { "ok" } else { "FAILED" };
        println!("{:24} {word:6} {:7.1} s", "all", total.as_secs_f64());
    }
}

/// What the tests need and this machine must give.
struct Needs {
    cache: PathBuf,
    python: PathBuf,
    unprivileged_uid: Option<&'static str>,
    clients: Option<Clients>,
    node_sdk: Option<NodeSdk>,
    image: Option<PathBuf>,
    docker: Option<PathBuf>,
    model: Option<PathBuf>,
    chroma: Option<PathBuf>,
    wheels: Option<PathBuf>,
}

impl Needs {
    fn find() -> Result<Self, Failure> {
        let cache = cache_folder()?;
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let unprivileged_uid = is_root.then_some(UNPRIVILEGED_UID);
        Ok(Self {
            cache,
            python: python::find(python::VERSION_MIN)?,
            unprivileged_uid,
            clients: None,
            node_sdk: None,
            image: None,
            docker: None,
            model: None,
            chroma: None,
            wheels: None,
        })
    }

    fn fetch(&mut self, root: &Path) -> Result<(), Failure> {
        self.clients = Some(Clients::set_up(root, &self.cache)?);
        self.node_sdk = Some(NodeSdk::set_up(root, &self.cache)?);
        Ok(())
    }

    /// The full-screen programs that the tests drive, and those that people build and browse
    /// with.
    fn install_programs(&mut self, root: &Path) -> Result<(), Failure> {
        self.wheels = Some(wheels::set_up(root, &self.cache, &self.python)?);
        containers::install(&[
            ("vim", "vim"),
            ("less", "less"),
            ("top", "procps"),
            ("git", "git"),
            ("make", "make"),
            ("go", "golang-go"),
            ("chromium", "chromium"),
        ])
    }

    fn make_image(&mut self, root: &Path) -> Result<(), Failure> {
        self.image = Some(containers::set_up(root, &self.cache, &self.python)?);
        self.docker = Some(containers::docker(&self.cache)?);
        Ok(())
    }

    fn fetch_model(&mut self, root: &Path) -> Result<(), Failure> {
        self.model = Some(model::set_up(root, &self.cache, &self.python)?);
        self.chroma = Some(chroma::set_up(root, &self.cache)?);
        Ok(())
    }

    fn export(&self, command: &mut Command) {
        command
            .env("CALLGATE_CACHE", &self.cache)
            .env("CALLGATE_TEST_PYTHON", &self.python);
        match self.unprivileged_uid {
            Some(uid) => command.env("CALLGATE_TEST_UID", uid),
            None => command.env_remove("CALLGATE_TEST_UID"),
        };
        if let Some(clients) = &self.clients {
            clients.export(command);
        }
        if let Some(sdk) = &self.node_sdk {
            sdk.export(command);
        }
        if let Some(image) = &self.image {
            command.env("CALLGATE_TEST_IMAGE", image);
        }
        if let Some(docker) = &self.docker {
            command.env("CALLGATE_TEST_DOCKER", docker);
        }
        if let Some(model) = &self.model {
            command.env("CALLGATE_TEST_MODEL_PACKAGE", model);
        }
        if let Some(chroma) = &self.chroma {
            command.env("CALLGATE_TEST_CHROMA", chroma);
        }
        if let Some(wheels) = &self.wheels {
            command.env("CALLGATE_TEST_WHEELS", wheels);
        }
    }
}

/// A folder outside the clone for what is fetched or built once.
pub fn cache_folder() -> Result<PathBuf, Failure> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = folder("CALLGATE_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("callgate-ci")))
        .or_else(|| Some(folder("HOME")?.join(".cache/callgate-ci")))
        .ok_or_else(|| {
            Failure::new("no place for a cache: set CALLGATE_CACHE, XDG_CACHE_HOME or HOME")
        })?;
    fs::create_dir_all(&cache)
        .map_err(|source| Failure::new(format!("create {}: {source}", cache.display())))?;
    Ok(cache)
}

fn lints(root: &Path, features: &[&str]) -> Result<(), Failure> {
    let mut command = cargo(root, ["clippy", "--workspace", "--all-targets"]);
    command.args(features).args(["--", "-D", "warnings"]);
    show_and_run(command)
}

fn rust_tests(root: &Path, options: &Options, needs: &Needs) -> Result<(), Failure> {
    // All that fails is told at once.
    let mut command = cargo(root, ["test", "--workspace", "--no-fail-fast"]);
    command.args(FAILPOINTS).env("RUST_TEST_THREADS", THREADS);
    if options.quick {
        command.args(["--lib", "--bins"]);
    }
    command.args(&options.filter);
    needs.export(&mut command);
    let mut watch = RustWatch::default();
    println!("$ {}", shown(&command));
    command::run_watched(&mut command, Watched::Stdout, |line| watch.see(line))?;
    println!("{} tests passed", watch.passed);
    if watch.passed == 0 {
        return Err(Failure::new("no test was run"));
    }
    if !watch.without_root.is_empty() {
        println!("{} of them skipped: needs root", watch.without_root.len());
    }
    skips::judge_without_root(&watch.without_root, &skips::needing_root(root))?;
    skips::judge(&watch.skipped, watch.skipped_count, &skips::listed(root))
}

fn python_tests(root: &Path, needs: &Needs) -> Result<(), Failure> {
    let mut command = python::unittest(root, &needs.python);
    needs.export(&mut command);
    command.env("CALLGATE_BIN", debug_binary(root)?);
    let mut watch = PythonWatch::default();
    println!("$ {}", shown(&command));
    // unittest reports on stderr.
    command::run_watched(&mut command, Watched::Stderr, |line| watch.see(line))?;
    if watch.run == 0 {
        return Err(Failure::new("no Python test was run"));
    }
    skips::judge(&watch.skipped, watch.skipped_count, &skips::listed(root))
}

fn node_tests(needs: &Needs) -> Result<(), Failure> {
    let (Some(clients), Some(sdk)) = (&needs.clients, &needs.node_sdk) else {
        return Err(Failure::new("Node was not fetched"));
    };
    let mut command = sdk.tests(clients.node());
    let mut watch = NodeWatch::default();
    println!("$ {}", shown(&command));
    command::run_watched(&mut command, Watched::Stdout, |line| watch.see(line))?;
    match (watch.passed, watch.skipped) {
        (0, _) => Err(Failure::new("no Node test was run")),
        (_, 0) => Ok(()),
        (_, skipped) => Err(Failure::new(format!("{skipped} Node tests were skipped"))),
    }
}

/// The binary that `cargo test` has built for the integration tests.
fn debug_binary(root: &Path) -> Result<PathBuf, Failure> {
    let mut command = cargo(root, ["metadata", "--format-version", "1", "--no-deps"]);
    let listing: Value = serde_json::from_str(&command::output(&mut command)?)
        .map_err(|error| Failure::new(format!("`cargo metadata` is not JSON: {error}")))?;
    let folder = listing["target_directory"].as_str().unwrap_or("target");
    let binary = Path::new(folder).join("debug/callgate");
    if !binary.is_file() {
        return Err(Failure::new(format!(
            "no {}: the tests should have built it",
            binary.display()
        )));
    }
    Ok(binary)
}

fn show_and_run(mut command: Command) -> Result<(), Failure> {
    println!("$ {}", shown(&command));
    command::run(&mut command)
}
