//! Runs one target on the files that are named: reproduces a finding without libFuzzer, with line
//! numbers and under any debugger.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a development tool: it takes arguments, reads files and reports on stdout"
)]

use std::process::ExitCode;

use callgate_fuzz::{list, target};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next();
    if name.as_deref() == Some("--list") {
        print!("{}", list());
        return ExitCode::SUCCESS;
    }
    let Some(target) = name.as_deref().and_then(target) else {
        eprintln!("usage: callgate-fuzz TARGET FILE... | --list");
        return ExitCode::from(2);
    };
    for path in args {
        let input = match std::fs::read(&path) {
            Ok(input) => input,
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        };
        println!("{}: {path}: {} bytes", target.name, input.len());
        (target.run)(&input);
    }
    ExitCode::SUCCESS
}
