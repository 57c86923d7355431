//! `cargo xtask fuzz`: builds the fuzz targets with coverage counters, runs them one after the
//! other under libFuzzer, and keeps what they find.
//!
//! The counters are rustc's own (`sancov-module`), so the stable compiler is enough. libFuzzer is
//! LLVM's (Apache-2.0 WITH LLVM-exception): its archive is taken out of Debian's package, or named
//! by `CALLGATE_LIBFUZZER`. The targets and their properties are in `fuzz/`.

mod corpus;
mod engine;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::command::{build_binary, output, shown};
use crate::report::{self, Failure};

/// Seconds for each target where none are named.
pub const SECONDS_DEFAULT: u64 = 60;
/// The longest that one input may take.
const INPUT_SECONDS_MAX: u64 = 10;
/// The most memory that a target may hold.
const MEMORY_MB_MAX: u64 = 2048;
/// Corpora, dictionaries and findings are in its folders.
const FOLDER: &str = "fuzz";
/// Names the target to the instrumented program.
const TARGET_VARIABLE: &str = "CALLGATE_FUZZ_TARGET";

#[derive(Debug, PartialEq)]
pub struct Options {
    pub target: Option<String>,
    pub seconds: u64,
    pub save: bool,
    pub list: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            target: None,
            seconds: SECONDS_DEFAULT,
            save: false,
            list: false,
        }
    }
}

pub fn run(root: &Path, options: &Options) -> Result<(), Failure> {
    if options.list {
        let program = build_binary(root, &["-p", "callgate-fuzz"], "callgate-fuzz")?;
        for target in targets(Command::new(program).arg("--list"))? {
            report::say(&format!("{:20} {}\n", target.name, target.about));
        }
        return Ok(());
    }
    let program = engine::build(root)?;
    let mut targets = targets(&mut Command::new(&program))?;
    if let Some(name) = &options.target {
        targets.retain(|target| target.name == *name);
        if targets.is_empty() {
            let words = format!("no such target: `{name}`; `cargo xtask fuzz --list` names them");
            return Err(Failure::new(words));
        }
    }
    let scratch = program.with_file_name("fuzz-runs");
    report::say(&format!("{}\n", Row::HEADER));
    let mut findings = 0;
    for target in &targets {
        let fuzzing = Fuzzing {
            root,
            program: &program,
            target,
            scratch: scratch.join(&target.name),
        };
        findings += fuzzing.run(options)?;
    }
    match findings {
        0 => Ok(()),
        1 => Err(Failure::new("1 finding")),
        _ => Err(Failure::new(format!("{findings} findings"))),
    }
}

/// A target as the program lists it: name, bound of its inputs, property.
#[derive(Debug, PartialEq)]
struct Target {
    name: String,
    input_bytes_max: String,
    about: String,
}

fn targets(command: &mut Command) -> Result<Vec<Target>, Failure> {
    command.stderr(Stdio::null());
    Ok(output(command)?.lines().filter_map(read_target).collect())
}

fn read_target(line: &str) -> Option<Target> {
    let mut columns = line.splitn(3, '\t').map(str::to_owned);
    Some(Target {
        name: columns.next()?,
        input_bytes_max: columns.next()?,
        about: columns.next()?,
    })
}

/// One target on its way.
struct Fuzzing<'a> {
    root: &'a Path,
    program: &'a Path,
    target: &'a Target,
    /// New inputs, the log, and inputs that break the target.
    scratch: PathBuf,
}

impl Fuzzing<'_> {
    /// Runs the target, reports a row, and returns the number of findings.
    fn run(&self, options: &Options) -> Result<usize, Failure> {
        let (found, broken) = (self.scratch.join("found"), self.scratch.join("broken"));
        for folder in [&found, &broken, &self.corpus()] {
            fs::create_dir_all(folder).map_err(|e| failed("create", folder, &e))?;
        }
        let log = self.scratch.join("log");
        let file = fs::File::create(&log).map_err(|e| failed("create", &log, &e))?;
        let mut command = self.command();
        command
            .arg(format!("-max_total_time={}", options.seconds))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
            .arg("-print_final_stats=1")
            .arg(format!("-artifact_prefix={}/", broken.display()));
        let dictionary = self.root.join(FOLDER).join("dictionaries");
        let dictionary = dictionary.join(format!("{}.dict", self.target.name));
        if dictionary.is_file() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        command.args([&found, &self.corpus()]).stderr(file);
        let start = Instant::now();
        let status = command
            .status()
            .map_err(|e| Failure::new(format!("start `{}`: {e}", shown(&command))))?;
        let text = fs::read(&log).map_err(|e| failed("read", &log, &e))?;
        let text = String::from_utf8_lossy(&text);
        let row = Row::read(&text);
        let seconds = start.elapsed().as_secs();
        let line = row.line(&self.target.name, seconds, status.success());
        report::say(&format!("{line}\n"));
        let findings = self.keep_findings(&broken)?;
        if !status.success() && findings == 0 {
            let words: Vec<&str> = text.lines().rev().take(12).collect();
            let words: Vec<&str> = words.into_iter().rev().collect();
            let words = format!("{} ended early:\n{}", self.target.name, words.join("\n"));
            return Err(Failure::new(words));
        }
        if options.save {
            let merged = self.scratch.join("merged");
            self.merge(&merged, &found)?;
            corpus::replace(&self.corpus(), &merged)?;
        }
        Ok(findings)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command
            .env(TARGET_VARIABLE, &self.target.name)
            .current_dir(&self.scratch)
            .arg(format!("-max_len={}", self.target.input_bytes_max))
            .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn corpus(&self) -> PathBuf {
        self.root
            .join(FOLDER)
            .join("corpus")
            .join(&self.target.name)
    }

    /// Moves inputs that break the target to `fuzz/findings/` and reports how to repeat them.
    fn keep_findings(&self, broken: &Path) -> Result<usize, Failure> {
        let mut count = 0;
        let entries = fs::read_dir(broken).map_err(|e| failed("read", broken, &e))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let place = format!("{FOLDER}/findings/{}/{name}", self.target.name);
            let kept = self.root.join(&place);
            let folder = kept.parent().unwrap_or(self.root);
            fs::create_dir_all(folder).map_err(|e| failed("create", folder, &e))?;
            fs::rename(&path, &kept).map_err(|e| failed("move", &path, &e))?;
            let target = &self.target.name;
            report::say(&format!(
                "  {name}: cargo run -p callgate-fuzz -- {target} {place}\n"
            ));
            count += 1;
        }
        Ok(count)
    }

    /// Fills `merged` with the fewest inputs that reach what the corpus and new inputs reach.
    fn merge(&self, merged: &Path, found: &Path) -> Result<(), Failure> {
        let _absent = fs::remove_dir_all(merged);
        fs::create_dir_all(merged).map_err(|e| failed("create", merged, &e))?;
        let mut command = self.command();
        command
            .arg("-merge=1")
            .args([merged, &self.corpus(), found])
            .stderr(Stdio::null());
        crate::command::run(&mut command)
    }
}

fn failed(what: &str, path: &Path, source: &std::io::Error) -> Failure {
    Failure::new(format!("{what} {}: {source}", path.display()))
}

/// What libFuzzer reported of a run.
#[derive(Debug, Default, PartialEq)]
struct Row {
    executions: u64,
    coverage: u64,
    inputs: String,
    new_inputs: u64,
}

impl Row {
    const HEADER: &str =
        "target               seconds  executions   coverage  corpus          new inputs";

    fn read(log: &str) -> Self {
        let mut row = Self::default();
        for line in log.lines() {
            if let Some((name, number)) = line.split_once(':').filter(|_| line.starts_with("stat"))
            {
                let number = number.rsplit(':').next().unwrap_or(number).trim();
                let number = number.parse().unwrap_or(0);
                match line {
                    _ if name != "stat" => {}
                    _ if line.contains("number_of_executed_units") => row.executions = number,
                    _ if line.contains("new_units_added") => row.new_inputs = number,
                    _ => {}
                }
            } else if line.starts_with('#') {
                row.read_progress(line);
            }
        }
        row
    }

    /// A line such as `#1024 NEW cov: 312 ft: 954 corp: 88/3201b exec/s: 512 …`.
    fn read_progress(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        if let Some(number) = words.next().and_then(|word| word[1..].parse().ok()) {
            self.executions = number;
        }
        while let Some(word) = words.next() {
            match word {
                "cov:" => self.coverage = words.next().and_then(|n| n.parse().ok()).unwrap_or(0),
                "corp:" => self.inputs = words.next().unwrap_or_default().to_owned(),
                _ => {}
            }
        }
    }

    fn line(&self, name: &str, seconds: u64, passed: bool) -> String {
        let Self {
            executions,
            coverage,
            inputs,
            new_inputs,
        } = self;
        let word = if passed { "" } else { "  FOUND" };
        format!(
            "{name:20} {seconds:>7}  {executions:>10}  {coverage:>9}  {inputs:<14}  {new_inputs:>10}{word}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_becomes_a_row() {
        let log = "\
INFO: seed corpus: files: 3
#4\tINITED cov: 41 ft: 42 corp: 3/12b exec/s: 0 rss: 30Mb
#2048\tNEW    cov: 57 ft: 80 corp: 9/64b lim: 8 exec/s: 1024 rss: 31Mb
#4096\tDONE   cov: 58 ft: 90 corp: 11/70b lim: 8 exec/s: 2048 rss: 31Mb
stat::number_of_executed_units: 4096
stat::new_units_added:          8
";
        let row = Row::read(log);
        let wanted = Row {
            executions: 4096,
            coverage: 58,
            inputs: "11/70b".to_owned(),
            new_inputs: 8,
        };
        assert_eq!(row, wanted);
        assert!(row.line("json", 2, false).ends_with("FOUND"));
        assert_eq!(Row::read("no such thing"), Row::default());
    }

    #[test]
    fn targets_are_lines_of_three_columns() {
        let target = read_target("json\t64\tstrict JSON: a\tb").expect("three columns");
        assert_eq!(
            (target.name.as_str(), target.about.as_str()),
            ("json", "strict JSON: a\tb")
        );
        assert_eq!(read_target("INFO: Seed: 1"), None);
    }
}
