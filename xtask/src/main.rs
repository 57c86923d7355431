//! The project's own commands, run as `cargo xtask COMMAND`.
//!
//! What a person types is parsed here and nowhere else; each command is a
//! module. Nothing in here ships: the product's rules on child processes, the
//! clock and the environment do not bind it.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "xtask is a development tool: it runs cargo and other programs and talks on stdout"
)]

mod bench;
mod clauses;
mod command;
mod fuzz;
mod ids;
mod markdown;
mod report;
mod test;
mod tidy;
mod tree;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use report::Failure;

const HELP: &str = "\
cargo xtask COMMAND

  test [--quick] [FILTER]     format, lints, tidy, clauses, every test, the dist binary, Python
                                --quick   format, lints, tidy and unit tests only
                                FILTER    only the Rust tests whose names contain it
  tidy                        dependency table, module docs, vectors, licences, sizes, links
  clauses [--json] [--missing]
                              every clause and decision with the tests and vectors that name it
                                --missing only those that nothing names, and marks that can go
  bench [--check] [NAME...]   dist build, then the bench harness with these arguments
  fuzz [TARGET] [--seconds N] [--save] [--list]
                              runs the fuzz targets under libFuzzer, or one of them
                                --seconds N  for each target; 60 if not said
                                --save       merge new inputs into the saved corpora
                                --list       only names the targets
  help                        this text
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let request = match parse(&args) {
        Ok(request) => request,
        Err(reason) => {
            eprintln!("xtask: {reason}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match carry_out(&request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, PartialEq)]
enum Request {
    Help,
    Tidy,
    Clauses(clauses::Options),
    Test(test::Options),
    Bench(Vec<String>),
    Fuzz(fuzz::Options),
}

fn carry_out(request: &Request) -> Result<(), Failure> {
    if *request == Request::Help {
        report::say(HELP);
        return Ok(());
    }
    let root = workspace_root()?;
    match request {
        Request::Help => Ok(()),
        Request::Tidy => tidy::run(&root),
        Request::Clauses(options) => clauses::run(&root, *options),
        Request::Test(options) => test::run(&root, options),
        Request::Bench(args) => bench::run(&root, args),
        Request::Fuzz(options) => fuzz::run(&root, options),
    }
}

fn parse(args: &[String]) -> Result<Request, String> {
    let Some((command, rest)) = args.split_first() else {
        return Ok(Request::Help);
    };
    match command.as_str() {
        "help" | "--help" | "-h" => Ok(Request::Help),
        "tidy" => match rest.first() {
            None => Ok(Request::Tidy),
            Some(extra) => Err(format!("tidy takes no argument, got `{extra}`")),
        },
        "clauses" => parse_clauses(rest).map(Request::Clauses),
        "test" => parse_test(rest).map(Request::Test),
        "bench" => Ok(Request::Bench(rest.to_vec())),
        "fuzz" => parse_fuzz(rest).map(Request::Fuzz),
        other => Err(format!("no such command: `{other}`")),
    }
}

fn parse_clauses(args: &[String]) -> Result<clauses::Options, String> {
    let mut options = clauses::Options::default();
    for arg in args {
        match arg.as_str() {
            "--json" => options.json = true,
            "--missing" => options.missing_only = true,
            other => return Err(format!("clauses does not know `{other}`")),
        }
    }
    Ok(options)
}

fn parse_test(args: &[String]) -> Result<test::Options, String> {
    let mut options = test::Options::default();
    for arg in args {
        match arg.as_str() {
            "--quick" => options.quick = true,
            flag if flag.starts_with('-') => return Err(format!("test does not know `{flag}`")),
            _ if options.filter.is_some() => return Err("test takes one FILTER".into()),
            filter => options.filter = Some(filter.to_owned()),
        }
    }
    Ok(options)
}

fn parse_fuzz(args: &[String]) -> Result<fuzz::Options, String> {
    let mut options = fuzz::Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--save" => options.save = true,
            "--list" => options.list = true,
            "--seconds" => {
                let number = args.next().and_then(|number| number.parse().ok());
                let number = number.filter(|number| *number > 0);
                options.seconds = number.ok_or("--seconds takes a number from 1")?;
            }
            flag if flag.starts_with('-') => return Err(format!("fuzz does not know `{flag}`")),
            _ if options.target.is_some() => return Err("fuzz takes one TARGET".into()),
            target => options.target = Some(target.to_owned()),
        }
    }
    Ok(options)
}

/// The folder of the workspace's manifest, looked for upwards.
///
/// `cargo run` names the package's folder at run time; the path compiled in
/// would be wrong for a target folder shared between clones.
fn workspace_root() -> Result<PathBuf, Failure> {
    let start = match env::var_os("CARGO_MANIFEST_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => env::current_dir()
            .map_err(|source| Failure::new(format!("read the current folder: {source}")))?,
    };
    start
        .ancestors()
        .find(|folder| is_workspace(folder))
        .map(Path::to_path_buf)
        .ok_or_else(|| Failure::new("no workspace manifest here or in any folder above"))
}

fn is_workspace(folder: &Path) -> bool {
    fs::read_to_string(folder.join("Cargo.toml"))
        .is_ok_and(|manifest| manifest.lines().any(|line| line.trim() == "[workspace]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_become_requests() {
        let test = |quick, filter: Option<&str>| {
            Ok(Request::Test(test::Options {
                quick,
                filter: filter.map(str::to_owned),
            }))
        };
        assert_eq!(parse(&words("")), Ok(Request::Help));
        assert_eq!(parse(&words("tidy")), Ok(Request::Tidy));
        assert_eq!(parse(&words("test")), test(false, None));
        assert_eq!(
            parse(&words("test --quick lease")),
            test(true, Some("lease"))
        );
        assert_eq!(
            parse(&words("clauses --missing")),
            Ok(Request::Clauses(clauses::Options {
                json: false,
                missing_only: true
            }))
        );
        assert_eq!(
            parse(&words("bench --check echo")),
            Ok(Request::Bench(words("--check echo")))
        );
        assert_eq!(
            parse(&words("fuzz json-quick --seconds 5 --save")),
            Ok(Request::Fuzz(fuzz::Options {
                target: Some("json-quick".to_owned()),
                seconds: 5,
                save: true,
                list: false,
            }))
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "tidy now",
            "clauses --all",
            "test --fast",
            "test one two",
            "tests",
            "fuzz --seconds",
            "fuzz --seconds 0",
            "fuzz one two",
        ] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }
}
