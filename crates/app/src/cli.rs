//! The command line for people.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use callgate_call::Fault;
use callgate_registry::environment::Environment;
use callgate_registry::paths::{Paths, PathsError};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use serde_json::{Value, json};

use crate::commands;
use crate::compose::chain;
use crate::error::CommandError;
use crate::show;

/// The tool runtime that can prove what happened.
///
/// Every call is checked, leased, confined, run at most once and recorded in a hash chain anyone can
/// verify. With no configuration the built-in tools are served; tools of your own come from
/// `callgate.toml`, once you have said `callgate trust`.
#[derive(Parser)]
#[command(
    name = "callgate",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    place: Place,
}

/// Where things are; the same for every subcommand.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// The workspace: where callgate.toml is and tools run
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = ".",
        hide_default_value = true
    )]
    pub workspace: PathBuf,
    /// Where state is kept, instead of the user's state folder [env: CALLGATE_STATE]
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// The gate's socket, instead of the usual place; `serve` makes its folder (0700) if need be
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print data as JSON; what goes wrong as well
    #[arg(long, global = true)]
    pub json: bool,
}

impl Place {
    /// The folders this names.
    pub fn paths(&self, environment: &Environment) -> Result<Paths, PathsError> {
        let (state, socket) = (self.state.as_deref(), self.socket.as_deref());
        let paths = Paths::new(environment, &self.workspace, state, socket)?;
        Ok(paths.with_gate(socket))
    }
}

#[derive(Subcommand)]
enum Command {
    /// Start the workspace's gate and serve calls until stopped
    Serve(commands::serve::Serve),
    /// Serve MCP on standard input and output
    Mcp(commands::mcp::Mcp),
    /// Serve JSON-RPC on standard input and output
    Rpc(commands::rpc::Rpc),
    /// List, start, attach and end terminal sessions of the running gate
    Term(commands::term::Term),
    /// Call a tool and print its output
    Call(commands::call::CallTool),
    /// Run an executor: keep what it streams, show how far it is, say how it ended
    Run(Box<commands::run::Run>),
    /// List streamed runs, show them, follow and export their events
    Runs(commands::runs::Runs),
    /// List, get, verify and collect artifacts of streamed runs
    Artifacts(commands::artifacts::Artifacts),
    /// List the tools, or show one
    Tools(commands::tools::Tools),
    /// Take the MCP servers of your clients behind the gate
    Import(commands::import::Import),
    /// Give the settings of your clients back as they were before an import
    Restore(commands::import::Restore),
    /// Put an MCP server behind the gate
    Add(commands::add::Add),
    /// Take an MCP server away from the gate
    Remove(commands::add::Remove),
    /// List the MCP servers behind the gate, look at what they define, allow them more
    Servers(commands::servers::Servers),
    /// Keep values that servers refer to, list their names, remove them
    Secrets(commands::secrets::Secrets),
    /// Grant, list and revoke single-use leases
    Lease(commands::lease::Lease),
    /// Make, list and revoke tokens for callers over HTTP
    Token(commands::token::Token),
    /// List calls that wait for a person, and decide
    Approvals(commands::approvals::Approvals),
    /// List plans, show them, tick tasks off
    Plan(commands::plan::Plan),
    /// Index the workspace's files for search
    Index(commands::index::Index),
    /// Find pieces of the workspace by words and by meaning
    Search(commands::search::Search),
    /// Install the model that finds by meaning
    Model(commands::model::ModelParts),
    /// Run towards a goal, step by step, each a call through the gate
    Pilot(commands::pilot::PilotCommand),
    /// Replay a run of the pilot and name the first difference
    Replay(commands::replay::Replay),
    /// Make, check, sign, verify, install, list and remove packs of tools
    Pack(commands::pack::Pack),
    /// Print what the functions of a Python module declare with @tool
    Describe(commands::describe::Describe),
    /// Trust this workspace's configuration as it is now
    Trust(commands::trust::Trust),
    /// Show, verify and export the chain of what happened
    Audit(commands::audit::Audit),
    /// Show what is known of a call: stages, enforcement, facts, last words
    Trace(commands::trace::Trace),
    /// What this machine and workspace have, what is missing and how to get it
    Doctor(commands::doctor::Doctor),
    /// Serve the toolhost contract: --list, --run or --serve PLUGIN
    #[command(disable_help_flag = true)]
    Toolhost(Rest),
    /// Run one tool by its AID: request on stdin, reply on stdout
    #[command(name = "tool_exec", disable_help_flag = true)]
    ToolExec(Rest),
    /// Run one request of the tool protocol: request on stdin, reply on stdout
    Tool(commands::tool::Tool),
    /// Serve MCP for the tools of a parent process: SOCKET SCHEMA
    #[command(disable_help_flag = true)]
    Bridge(Rest),
    /// Print the entry of an MCP client that reaches the tools by a bridge
    BridgeConfig(commands::bridge_config::BridgeConfig),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Taken as it is, before this parser is reached.
#[derive(Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// What a command comes to: its exit code, or why it was not carried out.
pub type Done = Result<ExitCode, Failure>;

/// Why a command was not carried out: words for the person and, with `--json`, the form that
/// the faults of calls have.
#[derive(Debug)]
pub struct Failure {
    kind: &'static str,
    words: String,
    data: Value,
    code: u8,
}

impl Failure {
    /// The same with better words.
    pub fn in_words(self, words: String) -> Self {
        Self { words, ..self }
    }

    /// The same with another exit code than 1.
    pub fn exiting(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The exit code, and the reason on stderr or as one object on stdout.
    fn show(&self, place: &Place) -> ExitCode {
        if place.json {
            let fault = json!({ "kind": self.kind, "message": self.words, "data": self.data });
            show::json(&json!({ "ok": false, "fault": fault }));
        } else {
            show::complain(&self.words);
        }
        ExitCode::from(self.code)
    }
}

impl From<String> for Failure {
    /// What no call's fault is about, such as a state that does not open.
    fn from(words: String) -> Self {
        Self {
            kind: "command_failed",
            words,
            data: json!({}),
            code: 1,
        }
    }
}

impl<E: Into<CommandError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::from(chain(&error.into()))
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self {
            kind: fault.kind(),
            words: fault.to_string(),
            data: fault.data(),
            code: 1,
        }
    }
}

/// Parses the arguments and carries the command out.
pub fn main(environment: &Environment, args: &[OsString]) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    init_log(environment);
    let place = &cli.place;
    let done = match cli.command {
        Command::Serve(serve) => commands::serve::run(environment, place, &serve),
        Command::Mcp(mcp) => commands::mcp::run(environment, place, &mcp),
        Command::Rpc(rpc) => commands::rpc::run(environment, place, &rpc),
        Command::Term(term) => commands::term::run(environment, place, &term),
        Command::Call(call) => commands::call::run(environment, place, &call),
        Command::Run(run) => commands::run::run(environment, place, &run),
        Command::Runs(runs) => commands::runs::run(environment, place, &runs),
        Command::Artifacts(artifacts) => commands::artifacts::run(environment, place, &artifacts),
        Command::Tools(tools) => commands::tools::run(environment, place, &tools),
        Command::Import(import) => commands::import::run(environment, place, &import),
        Command::Restore(args) => commands::import::run_restore(environment, place, &args),
        Command::Add(add) => commands::add::run(environment, place, &add),
        Command::Remove(remove) => commands::add::remove(environment, place, &remove),
        Command::Servers(servers) => commands::servers::run(environment, place, &servers),
        Command::Secrets(secrets) => commands::secrets::run(environment, place, &secrets),
        Command::Lease(lease) => commands::lease::run(environment, place, &lease),
        Command::Token(token) => commands::token::run(environment, place, &token),
        Command::Approvals(approvals) => commands::approvals::run(environment, place, &approvals),
        Command::Plan(plan) => commands::plan::run(environment, place, &plan),
        Command::Index(index) => commands::index::run(environment, place, &index),
        Command::Search(search) => commands::search::run(environment, place, &search),
        Command::Model(model) => commands::model::run(environment, place, &model),
        Command::Pilot(pilot) => commands::pilot::run(environment, place, &pilot),
        Command::Replay(replay) => commands::replay::run(environment, place, &replay),
        Command::Pack(pack) => commands::pack::run(environment, place, &pack),
        Command::Describe(describe) => commands::describe::run(environment, place, &describe),
        Command::Trust(trust) => commands::trust::run(environment, place, &trust),
        Command::Audit(audit) => commands::audit::run(environment, place, &audit),
        Command::Trace(trace) => commands::trace::run(environment, place, &trace),
        Command::Doctor(doctor) => commands::doctor::run(environment, place, &doctor),
        Command::Tool(tool) => commands::tool::run(environment, place, &tool),
        Command::BridgeConfig(config) => commands::bridge_config::run(environment, place, &config),
        Command::Toolhost(_) | Command::ToolExec(_) | Command::Bridge(_) => Err(
            "put `toolhost`, `tool_exec` and `bridge` first: callgate toolhost …"
                .to_owned()
                .into(),
        ),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "callgate", &mut script);
            show::data(&String::from_utf8_lossy(&script));
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|failure| failure.show(place))
}

/// Logs go to stderr when `CALLGATE_LOG` names a level.
pub fn init_log(environment: &Environment) {
    let level = environment
        .text("CALLGATE_LOG")
        .and_then(|text| text.parse().ok());
    if let Some(level) = level {
        let level: tracing::Level = level;
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .init();
    }
}

/// A single-threaded runtime: two cores serve tools better than each other.
pub fn runtime() -> Result<tokio::runtime::Runtime, CommandError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::system("start the runtime"))
}
