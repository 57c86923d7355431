//! The binary: arguments, environment, composition and commands. The only crate that reads
//! arguments and the environment of the process, and the only one that knows all the others.

mod ask;
mod bridge;
mod cli;
mod clock;
mod commands;
mod compose;
mod environment;
mod error;
mod freshness;
mod issuer;
mod mcp;
mod pilot;
mod services;
mod show;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use callgate_registry::environment::Environment;

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
    let environment = environment::read();
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
fn arm_failpoint(environment: &Environment) {
    if let Some(text) = environment.text("CALLGATE_FAILPOINT") {
        // The importer has points of its own: its `*` is not that of the store.
        let is_armed = match text.strip_prefix("importer:") {
            Some(text) => callgate_importer::arm_from(text),
            None => callgate_store::failpoint::arm_from(text),
        };
        assert!(is_armed, "not a crash point: {text}");
    }
}

#[cfg(not(feature = "failpoints"))]
fn arm_failpoint(_: &Environment) {}
