//! Why a command is not carried out. Each variant has what a reader asks for; the words are put
//! together once, where [`Failure`](crate::cli::Failure) is shown.

use std::io;
use std::path::{Path, PathBuf};

use callgate_adoption::{ListError, PackageError, PrepareError};
use callgate_call::Fault;
use callgate_client::ClientError;
use callgate_exporters::otlp::TelemetryError;
use callgate_gate::{CatalogError, TraceError};
use callgate_importer::{ApplyError, RestoreError, RunId};
use callgate_installer::InstallError;
use callgate_registry::catalog::ToolError;
use callgate_registry::config;
use callgate_registry::lock::LockError;
use callgate_registry::pack::{OwnerError, PackError, Refusal};
use callgate_registry::paths::PathsError;
use callgate_registry::project::ProjectError;
use callgate_registry::servers::ServerError;
use callgate_registry::servers::accept::AcceptError;
use callgate_registry::servers::edit::EditError;
use callgate_registry::setup::SetupError;
use callgate_registry::workspace::SourceError;
use callgate_search::SearchError;
use callgate_store::{OwnerSecretError, StoreError};
use callgate_tools::vector::IndexError;
use callgate_wires::json::JsonError;

use crate::bridge::RefusedFile;
use crate::commands::model::ModelError;
use crate::issuer::IssuerError;
use crate::pilot::PilotSettingsError;
use crate::services::ServiceEnded;

/// Why a command is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The workspace has no folders.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// The state cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing can be served.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The running gate did not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No gate answers at a socket that was named.
    #[error(
        "no gate of yours answers at {socket}: start it with `callgate serve --socket {socket}`, \
         or leave out --socket",
        socket = .0.display()
    )]
    NoGate(PathBuf),
    /// A call was lost with the gate.
    #[error("{lost} Whether the tool ran is not known: {next}")]
    CallLost {
        /// What became of the gate.
        lost: ClientError,
        /// What to do.
        next: &'static str,
    },
    /// A question, and no terminal to ask it on.
    #[error("{0} There is no terminal to ask on: say --yes to agree")]
    NobodyToAsk(String),
    /// No server of this name.
    #[error("there is no server {0}; `callgate servers` lists them")]
    NoServer(String),
    /// No secret of this name.
    #[error("there is no secret `{0}`")]
    NoSecret(String),
    /// What is no host.
    #[error("{0}")]
    Host(String),
    /// A command that is not taken behind the gate.
    #[error(transparent)]
    ServerCommand(#[from] callgate_adoption::CommandError),
    /// A package that is not installed.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// An installation that cannot be read.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// A server that is not listed.
    #[error(transparent)]
    ServerList(#[from] ListError),
    /// Servers that are not prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A server without a package.
    #[error("server `{0}` has no package")]
    NoPackage(String),
    /// Only one version of a package is installed.
    #[error("no other version of the package of `{0}` is installed")]
    NoEarlier(String),
    /// No name of a server.
    #[error("`{0}` is no name of a server: 1 to 32 letters, digits, `_` and `-`")]
    ServerName(String),
    /// No pair of a variable and its value.
    #[error("`{0}` is not NAME=VALUE")]
    EnvPair(String),
    /// The edited configuration does not parse.
    #[error(transparent)]
    Config(#[from] config::ParseError),
    /// No gate runs that could be asked.
    #[error("no gate runs here")]
    NoGateRuns,
    /// What the running gate refuses.
    #[error("{0}")]
    Gate(String),
    /// No client of this name.
    #[error("there is no client {0}")]
    UnknownClient(String),
    /// Nothing was imported that could be taken back.
    #[error("no import can be taken back")]
    NoImport,
    /// The settings were changed since.
    #[error(
        "nothing was given back: settings were changed since import {0}; `callgate restore {0} \
         --force` gives them back all the same, and keeps what stands there now beside the backups"
    )]
    RestoreChanged(RunId),
    /// An edit of a client's settings.
    #[error(transparent)]
    ClientEdit(#[from] callgate_importer::EditError),
    /// Edits that are not carried out.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Settings that are not given back.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A server whose settings do not hold.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Servers are not changed.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    /// A configuration that is not edited.
    #[error(transparent)]
    ConfigEdit(#[from] EditError),
    /// `callgate.lock`.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A kept secret.
    #[error(transparent)]
    OwnerSecret(#[from] OwnerSecretError),
    /// Nobody says where the user's settings are.
    #[error("no folder for your settings: set HOME or XDG_CONFIG_HOME to an absolute path")]
    NoHome,
    /// The user's gate does not answer once it was started.
    #[error("the gate in the background does not answer; {} says why", .0.display())]
    UserGateStart(PathBuf),
    /// The user's gate is gone and no other could be started.
    #[error("the gate in the background is gone, and no other one answers")]
    NoUserGate,
    /// A gate serves this workspace, or the socket, already.
    #[error(transparent)]
    Taken(#[from] GateTaken),
    /// A service of this process ended.
    #[error(transparent)]
    Service(#[from] ServiceEnded),
    /// `[telemetry]`.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// `[http.jwt]`.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// `[pilot]`.
    #[error(transparent)]
    Pilot(#[from] PilotSettingsError),
    /// A tool that a command makes for itself.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The same, or one of a fixture.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A tool that is asked for and not there.
    #[error("{0}; `callgate tools` lists what there is")]
    NoTool(Fault),
    /// What a built-in program of this command says.
    #[error("{0}")]
    Described(String),
    /// What a project says of itself.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// What the owner says of packs.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// A folder that is no pack.
    #[error("{}: {error}", path.display())]
    Pack {
        /// The folder.
        path: PathBuf,
        /// Why. Shown without its causes.
        error: Box<PackError>,
    },
    /// A pack that cannot be kept, or is not there.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The model for search.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An argument, which is only known to be wrong with the others.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The parent's schema file.
    #[error("schema file {}", path.display())]
    Schemas {
        /// The file.
        path: PathBuf,
        /// Why it is not taken.
        source: RefusedFile,
    },
    /// What a plugin argument names.
    #[error("plugin not loadable")]
    Plugin(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A plugin argument that names nothing.
    #[error("plugin not found: {0}")]
    NoPlugin(String),
    /// A path that cannot be written in JSON.
    #[error("{} is not UTF-8, and JSON is", .0.display())]
    NotUtf8(PathBuf),
    /// A run that there is not.
    #[error("run {0} not found")]
    NoRun(String),
    /// A log that is too large.
    #[error("{name}: a log is {bytes_max} bytes at most")]
    LongLog {
        /// Its name.
        name: String,
        /// The most.
        bytes_max: u64,
    },
    /// A log that cannot be read.
    #[error("{name}")]
    Log {
        /// Its name.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The report of a run that is none.
    #[error("{0}")]
    Report(String),
    /// A request of the pilot.
    #[error("{}: {reason}", path.display())]
    Request {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The traces of calls cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What the pilot was at. Shown without its causes.
    #[error("{0}")]
    Work(Box<dyn std::error::Error + Send + Sync>),
    /// The index for search.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A walk through the files to index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// An installed model that cannot be used.
    #[error(transparent)]
    LoadModel(#[from] callgate_search::model::ModelError),
    /// The configuration does not load.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// `--no-auth` with other machines.
    #[error("--no-auth is for this machine alone, and [http] names other hosts")]
    OpenToOthers,
    /// A port that cannot be had.
    #[error("listen on port {port}: {error}{advice}")]
    Port {
        /// The port.
        port: u16,
        /// The error of the system.
        error: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// No port to serve.
    #[error("no port")]
    NoPort,
    /// A task of a run that did not end by itself.
    #[error("a run")]
    RunTask(#[from] tokio::task::JoinError),
    /// No random numbers to make a secret of.
    #[error("no randomness")]
    Random(#[source] getrandom::Error),
    /// A file.
    #[error("{act} {}", path.display())]
    File {
        /// The verb, as in `read`.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Something else of the system.
    #[error("{act}")]
    System {
        /// The verb and its object, as in `read standard input`.
        act: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A file that is there under the name of a socket.
    #[error("{} is there and is no socket", .0.display())]
    NoSocket(PathBuf),
    /// Something that the system says all of.
    #[error(transparent)]
    Io(io::Error),
}

impl CommandError {
    /// An error of the system about a file.
    pub fn file(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { act, path, source }
    }

    /// An error of the system about something else.
    pub fn system(act: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { act, source }
    }
}

/// An argument that is none.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentError {
    /// A duration without a number.
    #[error("a duration is a number with ms, s, m, h or d")]
    Duration,
    /// A duration in a unit that is none.
    #[error("unknown unit `{0}`: use ms, s, m, h or d")]
    Unit(String),
    /// A timeout outside its range.
    #[error("a timeout is 1ms to 24h")]
    Timeout,
    /// A word that is no input.
    #[error("neither JSON nor key=value")]
    Input,
    /// The same, where the word is not shown otherwise.
    #[error("`{0}` is neither JSON nor key=value")]
    Pair(String),
    /// A text that is not JSON.
    #[error("{name} is not JSON: {source}")]
    Json {
        /// The argument.
        name: String,
        /// Where and why.
        source: JsonError,
    },
    /// A value of another type than the schema's.
    #[error("{name}: {text:?} is not {wanted}")]
    Value {
        /// The member.
        name: String,
        /// As written, cut.
        text: String,
        /// The types, in words.
        wanted: String,
    },
    /// `--only`.
    #[error("a pattern is a tool's name with * for anything, of at most {bytes_max} bytes")]
    Pattern {
        /// The longest.
        bytes_max: usize,
    },
    /// A digest.
    #[error("a digest is 64 hex digits")]
    Digest,
    /// A public key.
    #[error("a public key is 64 hex digits")]
    PublicKey,
    /// The name of a key, which becomes the name of a file.
    #[error("`{0}`: a key's name is at most 64 letters, digits, `_`, `-` and `.`")]
    KeyName(String),
    /// The name of a run.
    #[error(
        "a run's name has up to 128 letters, digits and . _ -, begins with a letter or digit, \
         and is not `last`"
    )]
    RunName,
    /// The address of a browser.
    #[error("a browser's address is ws://HOST:PORT/… or wss://…, of at most 2048 characters")]
    Browser,
    /// A size.
    #[error("a size is a number, with K, M, G or T if it is large; from 1 to 1T")]
    Size,
    /// A rate.
    #[error("a rate is such as 5/s, or 5/s,20 with a burst")]
    Rate,
    /// A tier.
    #[error("a tier is a number from 0 to 3")]
    Tier,
    /// An attempt of a run without the one before it.
    #[error("--parent-run-id goes with --attempt 2 and later, and with no other")]
    Attempt,
    /// Bounds of a policy without the policy.
    #[error("bounds go with --policy buffered or --policy streaming")]
    Bounds,
    /// A policy of runs.
    #[error(
        "--policy {name}: {reason} (--buffer-events, --buffer-bytes; --flush-count, \
         --flush-interval)"
    )]
    RunPolicy {
        /// The policy.
        name: String,
        /// What is wrong with its bounds.
        reason: &'static str,
    },
    /// A place where no file can be.
    #[error("--report {}: no file can be there", .0.display())]
    ReportPlace(PathBuf),
    /// A password where others can read it.
    #[error(
        "--proxy has no user and no password, which everybody on this machine could read: use \
         --proxy-from FILE or env:NAME"
    )]
    ProxyPassword,
    /// An address that is no proxy's. Nothing that was read is quoted.
    #[error("{place}: {reason}")]
    Proxy {
        /// The option, and where it reads.
        place: String,
        /// What is wrong with the address.
        reason: &'static str,
    },
    /// A variable of the environment.
    #[error("{option}: {variable} is not set")]
    Unset {
        /// The option.
        option: &'static str,
        /// The variable.
        variable: String,
    },
    /// A file that an option names.
    #[error("{option}: read {}", path.display())]
    File {
        /// The option.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The same, if it is too long.
    #[error("{option}: {} exceeds {bytes_max} bytes", path.display())]
    LongFile {
        /// The option.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The longest.
        bytes_max: usize,
    },
}

/// A gate that is there already.
#[derive(Debug, thiserror::Error)]
pub enum GateTaken {
    /// It serves the workspace.
    #[error(
        "another `callgate serve` (process {pid}) serves this workspace at {}; stop it, or pass \
         --socket to start one beside it",
        socket.display()
    )]
    Serves {
        /// Its process.
        pid: u32,
        /// Its socket.
        socket: PathBuf,
    },
    /// It has the workspace's lock.
    #[error(
        "another `callgate serve` (process {0}) has this workspace and does not answer; stop it, \
         or pass --socket to start one beside it"
    )]
    Silent(u32),
    /// It is not there yet.
    #[error(
        "another `callgate serve` is starting in this workspace; pass --socket to start one \
         beside it"
    )]
    Starting,
    /// It has the socket.
    #[error("another `callgate serve` has {}; stop it or pass --socket", .0.display())]
    Socket(PathBuf),
}

/// Why a pack is not installed, or not found.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Neither a folder nor a known pack.
    #[error(
        "{}: neither a folder nor a pack of the workspace: `callgate pack list` lists them",
        .0.display()
    )]
    NotFound(PathBuf),
    /// A link on the way to the installed packs.
    #[error(
        "{}: is a link: packs are installed in folders of the workspace itself",
        .0.display()
    )]
    Link(PathBuf),
    /// A pack that does not count.
    #[error("{pack} not installed: {refusal}")]
    Refused {
        /// Its name.
        pack: String,
        /// Why.
        refusal: Box<Refusal>,
    },
}
