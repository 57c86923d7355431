//! `callgate toolhost` and `callgate tool_exec`, also under the names `toolhost`,
//! `machina_toolhost` and `machina_cli`. Their argument rules are the contract's, not clap's.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use callgate_call::{Caller, Cancel};
use callgate_doors::pipe::{PipeReader, PipeWriter, write_all};
use callgate_doors::toolhost::{self, Answered, Host};
use callgate_gate::Gate;
use callgate_registry::config::Config;
use callgate_registry::environment::Environment;
use callgate_registry::paths::Paths;
use callgate_registry::paths::PathsError;
use callgate_registry::setup::{Builtins, Parts};
use callgate_registry::workspace::Source;
use callgate_wires::toolhost::{
    CLIENT_TIMEOUT_MS_DEFAULT, Entry, Reply, TIMEOUT_MARGIN_MS, TIMEOUT_SECONDS_DEFAULT,
};

use crate::cli::{init_log, runtime};
use crate::compose::{self, NoState, chain};
use crate::error::CommandError;
use crate::show;

const USAGE: &str = "\
usage: callgate toolhost --list PLUGIN
       callgate toolhost --run PLUGIN AID      one request on stdin, one reply on stdout
       callgate toolhost --serve PLUGIN        one request a line, one reply a line

PLUGIN is a folder with callgate.toml or toolpack.json, such a file itself, or the word
`builtin`. Its folder is the workspace; --workspace DIR says it for `builtin`. That and
--state DIR may come anywhere.";

const TOOL_EXEC_USAGE: &str = "\
usage: callgate tool_exec AID [--workspace DIR] [--state DIR]
       one request on stdin, one reply on stdout; the workspace is MACHINA_ROOT if that is set";

/// A longer timeout than this is a slip.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Usage, unknown mode, missing AID.
const EXIT_USAGE: u8 = 2;
/// A plugin that does not load. T-21.
const EXIT_PLUGIN: u8 = 3;

/// `toolhost MODE PLUGIN …`. Checked in the contract's order: arguments, plugin, mode, AID.
pub fn main(environment: &Environment, words: &[OsString]) -> ExitCode {
    let Words { place, rest, help } = Words::of(words);
    if help {
        show::data(&format!("{USAGE}\n"));
        return ExitCode::SUCCESS;
    }
    let [mode, plugin, rest @ ..] = rest.as_slice() else {
        show::say(USAGE);
        return ExitCode::from(EXIT_USAGE);
    };
    init_log(environment);
    let listing = environment.of_no_tool();
    let loading = match mode.to_str() {
        Some("--list") => &listing,
        _ => environment,
    };
    let (parts, setup, options) = match load_plugin(loading, &place, plugin) {
        Ok(loaded) => loaded,
        Err(error) => return refuse(Entry::Run, &chain(&error), EXIT_PLUGIN),
    };
    let gate = compose::gate(&parts, setup);
    let host = host(environment, options);
    let code = match (mode.to_str(), rest.first().and_then(|aid| aid.to_str())) {
        (Some("--list"), _) => print(&toolhost::list(&gate), 0),
        (Some("--run"), Some(aid)) => once(&gate, &host, Entry::Run, aid),
        (Some("--run"), None) => refuse(Entry::Run, "missing aid", EXIT_USAGE),
        (Some("--serve"), _) => serve(&parts, &gate, &for_serve(environment, host)),
        _ => {
            let error = format!("unknown mode: {}", mode.to_string_lossy());
            refuse(Entry::Run, &error, EXIT_USAGE)
        }
    };
    close(&parts);
    code
}

/// `tool_exec AID`: the tools of the workspace, its configuration trusted or not counted.
pub fn tool_exec(environment: &Environment, words: &[OsString]) -> ExitCode {
    let Words {
        mut place,
        rest,
        help,
    } = Words::of(words);
    if help {
        show::data(&format!("{TOOL_EXEC_USAGE}\n"));
        return ExitCode::SUCCESS;
    }
    let Some(aid) = rest.first().and_then(|aid| aid.to_str()) else {
        show::say(TOOL_EXEC_USAGE);
        return ExitCode::from(EXIT_USAGE);
    };
    init_log(environment);
    if let (None, Some(root)) = (&place.workspace, environment.os("MACHINA_ROOT")) {
        place.workspace = Some(PathBuf::from(root));
    }
    let (parts, setup, options) = match load_workspace(environment, &place) {
        Ok(loaded) => loaded,
        Err(error) => return refuse(Entry::ToolExec, &chain(&error), EXIT_PLUGIN),
    };
    let gate = compose::gate(&parts, setup);
    let host = for_tool_exec(environment, host(environment, options));
    let code = once(&gate, &host, Entry::ToolExec, aid);
    close(&parts);
    code
}

/// The words without the two flags every subcommand takes.
struct Words {
    place: ToolhostPlace,
    rest: Vec<OsString>,
    help: bool,
}

/// Where things are, as far as the command line says.
#[derive(Default)]
pub struct ToolhostPlace {
    pub workspace: Option<PathBuf>,
    pub state: Option<PathBuf>,
}

impl Words {
    fn of(words: &[OsString]) -> Self {
        let mut place = ToolhostPlace::default();
        let mut rest = Vec::new();
        let mut help = false;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let (flag, value) = match text.split_once('=') {
                Some((flag, value)) => (flag, Some(OsString::from(value))),
                None => (text.as_ref(), None),
            };
            let target = match flag {
                "--workspace" => &mut place.workspace,
                "--state" => &mut place.state,
                "--help" | "-h" => {
                    help = true;
                    continue;
                }
                _ => {
                    rest.push(word.clone());
                    continue;
                }
            };
            *target = value.or_else(|| words.next().cloned()).map(PathBuf::from);
        }
        Self { place, rest, help }
    }
}

impl ToolhostPlace {
    fn paths(
        &self,
        environment: &Environment,
        workspace: Option<&Path>,
    ) -> Result<Paths, PathsError> {
        let workspace = workspace
            .or(self.workspace.as_deref())
            .unwrap_or_else(|| Path::new("."));
        Paths::new(environment, workspace, self.state.as_deref(), None)
    }
}

/// What a configuration says of this wire.
#[derive(Default)]
pub struct Options {
    strict_ok: bool,
    in_band_leases: bool,
}

impl Options {
    fn of(source: &Source) -> Self {
        Self {
            strict_ok: source.config.toolhost.strict_ok,
            in_band_leases: source.config.leases.in_band,
        }
    }
}

/// Loads the workspace of `tool_exec`.
fn load_workspace(
    environment: &Environment,
    place: &ToolhostPlace,
) -> Result<(Parts, callgate_gate::Setup, Options), CommandError> {
    let paths = place.paths(environment, None)?;
    let parts = compose::open(environment, paths, NoState::Borne)?;
    let options = parts.in_force()?.source().map(Options::of);
    let setup = super::setup(&parts)?;
    Ok((parts, setup, options.unwrap_or_default()))
}

/// Loads what the plugin argument names; naming it on the command line is trust. T-11, T-21.
pub fn load_plugin(
    environment: &Environment,
    place: &ToolhostPlace,
    plugin: &OsStr,
) -> Result<(Parts, callgate_gate::Setup, Options), CommandError> {
    let open = |paths: Paths, config: &Config| {
        compose::open_for(environment, paths, config, NoState::Borne)
            .map_err(|error| CommandError::Plugin(Box::new(error)))
    };
    if plugin == "builtin" {
        let parts = open(place.paths(environment, None)?, &Config::default())?;
        let setup = parts.builtins()?;
        return Ok((parts, setup, Options::default()));
    }
    let path = environment.current_dir.join(plugin);
    if !path.exists() {
        return Err(CommandError::NoPlugin(
            plugin.to_string_lossy().into_owned(),
        ));
    }
    let source = Source::of_plugin(&path).map_err(|error| CommandError::Plugin(Box::new(error)))?;
    let root = if path.is_dir() {
        path.as_path()
    } else {
        source.root.as_path()
    };
    let parts = open(place.paths(environment, Some(root))?, &source.config)?;
    let options = Options::of(&source);
    let setup = parts
        .setup_of(source, Builtins::Without, String::new())
        .map_err(|error| CommandError::Plugin(Box::new(error)))?;
    Ok((parts, setup, options))
}

/// The host's settings out of the environment. T-2, T-22.
fn host(environment: &Environment, options: Options) -> Host {
    let default_timeout = Duration::from_secs(TIMEOUT_SECONDS_DEFAULT);
    Host {
        caller: Caller::uid(environment.uid),
        default_timeout: seconds(environment).unwrap_or(default_timeout),
        timeout_max: None,
        strict_ok: options.strict_ok,
        in_band_leases: options.in_band_leases,
        stop: Cancel::new(),
    }
}

/// `MACHINA_TOOLHOST_TIMEOUT`, if it makes sense.
fn seconds(environment: &Environment) -> Option<Duration> {
    let text = environment.text("MACHINA_TOOLHOST_TIMEOUT")?;
    let seconds = text.trim().parse::<f64>().ok()?;
    let timeout = Duration::try_from_secs_f64(seconds).ok()?;
    Some(timeout).filter(|timeout| !timeout.is_zero() && *timeout <= TIMEOUT_MAX)
}

/// The deadlines of `--serve`: its client kills the host when it gives up, and then makes the call
/// again without a key, so a late tool is answered before that. T-2.
fn for_serve(environment: &Environment, host: Host) -> Host {
    let margin = |ms: u64| Duration::from_millis(ms.saturating_sub(TIMEOUT_MARGIN_MS).max(1));
    let patience = environment
        .text("MACHINA_TOOLHOST_TIMEOUT_MS")
        .and_then(|text| text.trim().parse::<u64>().ok())
        .map(margin)
        .filter(|timeout| *timeout <= TIMEOUT_MAX);
    let default_timeout = match (patience, seconds(environment)) {
        // The client says nothing, so it is one that waits as long as the original does.
        (None, None) => margin(CLIENT_TIMEOUT_MS_DEFAULT),
        _ => host.default_timeout,
    };
    Host {
        default_timeout,
        timeout_max: patience,
        ..host
    }
}

/// The deadlines of `tool_exec`: its client gives up after `MACHINA_TOOLHOST_TIMEOUT` itself, or
/// after the default, and kills the process, whose call then has no end. T-2.
fn for_tool_exec(environment: &Environment, host: Host) -> Host {
    let margin = (host.default_timeout / 10).min(Duration::from_millis(TIMEOUT_MARGIN_MS));
    let limit = host.default_timeout - margin;
    Host {
        default_timeout: limit,
        timeout_max: seconds(environment).map(|_| limit),
        ..host
    }
}

fn once(gate: &Gate, host: &Host, entry: Entry, aid: &str) -> ExitCode {
    let answered = runtime().and_then(|runtime| {
        runtime.block_on(async {
            let mut stdin = PipeReader::new(std::io::stdin().as_fd())
                .map_err(CommandError::system("open standard input"))?;
            let stopping = stop_on_signal(host.stop.clone());
            // The signal arm is never ready: it stops the host, which ends by itself. Biased so that
            // signals are watched for before a call starts.
            tokio::select! {
                biased;
                never = stopping => match never {},
                answered = toolhost::run_once(gate, host, entry, aid, &mut stdin) => {
                    answered.map_err(CommandError::system("read standard input"))
                }
            }
        })
    });
    match answered {
        Ok(Answered { bytes, code }) => print_reply(entry, bytes, code),
        Err(error) => refuse(entry, &chain(&error), EXIT_PLUGIN),
    }
}

fn serve(parts: &Parts, gate: &Gate, host: &Host) -> ExitCode {
    let served = runtime().and_then(|runtime| {
        runtime.block_on(async {
            let mut stdin = PipeReader::new(std::io::stdin().as_fd())
                .map_err(CommandError::system("open standard input"))?;
            let stdout = PipeWriter::new(std::io::stdout().as_fd())
                .map_err(CommandError::system("open standard output"))?;
            let stopping = stop_on_signal(host.stop.clone());
            // The signal arm and `tend` are never ready, so no answer is cut off. Biased so that
            // signals are watched for before a call starts.
            tokio::select! {
                biased;
                never = stopping => match never {},
                served = toolhost::serve(gate, host, &mut stdin, &stdout) => {
                    served.map_err(CommandError::system("serve"))
                }
                never = super::tend(&parts.store) => match never {},
            }
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show::complain(&chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Ends the call under way, so that its end is recorded, and then the host.
async fn stop_on_signal(stop: Cancel) -> Infallible {
    if let Ok(mut signals) = super::StopSignals::watch() {
        signals.next().await;
        stop.cancel();
    }
    std::future::pending().await
}

fn close(parts: &Parts) {
    if let Err(error) = parts.store.close() {
        tracing::warn!(error = chain(&error), "close the store");
    }
}

/// Prints a refusal the way the entry words it. T-20.
fn refuse(entry: Entry, error: &str, code: u8) -> ExitCode {
    let with_status = entry == Entry::ToolExec;
    let mut bytes = Vec::new();
    Reply::Refused {
        error,
        detail: None,
        extra: Vec::new(),
        with_status,
    }
    .write(&mut bytes);
    print_reply(entry, bytes, code)
}

/// One JSON object; `tool_exec` ends its line.
fn print_reply(entry: Entry, mut bytes: Vec<u8>, code: u8) -> ExitCode {
    if entry == Entry::ToolExec {
        bytes.push(b'\n');
    }
    print(&bytes, code)
}

fn print(bytes: &[u8], code: u8) -> ExitCode {
    match write_all(std::io::stdout().as_fd(), bytes) {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}
