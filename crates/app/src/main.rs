//! The binary: arguments, environment, configuration and composition. The only crate that
//! reads any of the three, and the only one that knows all the others.

mod bounds;
mod bridge;
mod catalog;
mod cli;
mod client;
mod clock;
mod code;
mod commands;
mod compose;
mod config;
mod declared;
mod entries;
mod environment;
mod exec;
mod freshness;
mod issuer;
mod mcp;
mod needs;
mod node;
mod notify;
mod pack;
mod paths;
mod pilot;
mod plain;
mod project;
mod python;
mod reads;
mod remote;
mod runs;
mod search;
mod shelf;
mod show;
mod suggest;
mod telemetry;
mod terminals;
mod toolchains;
mod trust;
mod unserved;
mod watch;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = environment::arguments();
    // The spawner must stay small: no runtime, no parser, nothing before this.
    if args
        .get(1)
        .is_some_and(|word| word == callgate_sandbox::SPAWNER_ARG)
    {
        return callgate_sandbox::spawner_main();
    }
    // A file-size limit must come back as an error of that write, not as a death (T-12).
    callgate_sandbox::ignore_file_size_signal();
    let environment = environment::Environment::read();
    arm_failpoint(&environment);
    let code = match Role::of(&args) {
        Role::Toolhost(rest) => commands::toolhost::main(&environment, rest),
        Role::ToolExec(rest) => commands::toolhost::tool_exec(&environment, rest),
        Role::Bridge(rest) => commands::bridge::main(&environment, rest),
        Role::MachinaCli(rest) => commands::machina::main(&environment, rest),
        Role::Callgate => cli::main(&environment, &args),
    };
    match show::all_told() {
        true => code,
        false => ExitCode::FAILURE,
    }
}

/// Which program we are asked to be: by our own name, or by the first word.
enum Role<'a> {
    Toolhost(&'a [OsString]),
    ToolExec(&'a [OsString]),
    Bridge(&'a [OsString]),
    MachinaCli(&'a [OsString]),
    Callgate,
}

impl<'a> Role<'a> {
    fn of(args: &'a [OsString]) -> Self {
        let name = args
            .first()
            .map(std::path::Path::new)
            .and_then(|path| path.file_name());
        let first = args.get(1).and_then(|word| word.to_str());
        let after = |from: usize| args.get(from..).unwrap_or_default();
        match (name.and_then(|name| name.to_str()), first) {
            (Some("toolhost" | "machina_toolhost"), _) => Self::Toolhost(after(1)),
            (Some("machina_cli"), Some("tool_exec")) => Self::ToolExec(after(2)),
            (Some("machina_cli"), _) => Self::MachinaCli(after(1)),
            (_, Some("toolhost")) => Self::Toolhost(after(2)),
            (_, Some("tool_exec")) => Self::ToolExec(after(2)),
            (_, Some("bridge")) => Self::Bridge(after(2)),
            _ => Self::Callgate,
        }
    }
}

#[cfg(feature = "failpoints")]
fn arm_failpoint(environment: &environment::Environment) {
    if let Some(text) = environment.text("CALLGATE_FAILPOINT") {
        assert!(
            callgate_store::failpoint::arm_from(text),
            "not a crash point: {text}"
        );
    }
}

#[cfg(not(feature = "failpoints"))]
fn arm_failpoint(_: &environment::Environment) {}
