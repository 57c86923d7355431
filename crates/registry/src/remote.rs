//! Runners for services and containers, made from what is written of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::bounded::read_path;
use callgate_call::{Digest, Runner};
use callgate_dial::Dialer;
use callgate_runners::{
    BearerSecret, ContainerRunner, ContainerSettings, Containers, HandshakeWhen, NamedSecrets,
    Profiles, Runtime, ServiceRunner, ServiceSettings, Talking, seccomp_profile,
};
use callgate_sandbox::{SpawnError, Spec, resolve, scrubbed_env};
use callgate_store::Store;

use crate::catalog::{IMPORTS_ARGUMENT, NoProgram, UnsetVariable, child_limits, words};
use crate::config::{
    ContainerRunnerConfig, ModeConfig, RuntimeConfig, SecretsConfig, ServiceRunnerConfig,
};
use crate::environment::{Environment, Referrer};
use crate::python;

/// Variables that hold a secret wherever they are set; each also with a prefix.
const SECRETS: [(&str, &str); 6] = [
    ("OPENAI_API_KEY", "NAMEL3SS_"),
    ("ANTHROPIC_API_KEY", "NAMEL3SS_"),
    ("GEMINI_API_KEY", "NAMEL3SS_"),
    ("MISTRAL_API_KEY", "NAMEL3SS_"),
    ("DATABASE_URL", "N3_"),
    ("EDGE_KV_URL", "N3_"),
];

/// The largest such profile that is read.
const PROFILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Where runtimes put the seccomp profile that containers get by default.
const STOCK_PROFILES: [&str; 2] = [
    "/etc/containers/seccomp.json",
    "/usr/share/containers/seccomp.json",
];

/// What a client of a runtime needs of our environment, beyond what every child gets.
const CLIENT_VARIABLES: [&str; 4] = ["CONTAINERS_", "DOCKER_", "XDG_", "DBUS_SESSION_BUS_ADDRESS"];

/// The most a tool may print or answer, where nothing is said.
const OUTPUT_BYTES_DEFAULT: usize = 1024 * 1024;

/// Why a service or a container cannot be a tool's runner.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The variable of a token is not set.
    #[error("token_env: `{0}` is not set")]
    NoToken(String),
    /// The variable of a token holds something else.
    #[error("token_env: `{0}` is no token")]
    Token(String),
    /// An address that cannot be asked.
    #[error("url: {0}")]
    Url(String),
    /// A name that is no image's.
    #[error("image: `{0}` is no image")]
    Image(String),
    /// A worker without code.
    #[error("it needs `entry` (module:function), or the `command` of a worker of its own")]
    NoEntry,
    /// A command without a program.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
    /// A variable that the tool refers to.
    #[error(transparent)]
    Variable(#[from] UnsetVariable),
}

/// What services and containers are made with.
pub struct Remotes {
    pub dialer: Arc<Dialer>,
    pub containers: Arc<Containers>,
    pub secrets: Arc<NamedSecrets>,
    /// Where there is a stock profile to make them of.
    pub profiles: Option<Profiles>,
}

/// The secrets there are, by name.
pub fn named_secrets(environment: &Environment, config: &SecretsConfig) -> NamedSecrets {
    let known = SECRETS
        .iter()
        .flat_map(|(name, prefix)| [(*name).to_owned(), format!("{prefix}{name}")]);
    let pairs = known.chain(config.env.iter().cloned()).filter_map(|name| {
        let value = environment.text(&name)?.to_owned();
        Some((name, value))
    });
    NamedSecrets::new(pairs.collect())
}

/// Lays out the seccomp profiles of containers, made of the runtime's own.
pub fn profiles(store: &Store) -> Option<Profiles> {
    let stock = STOCK_PROFILES
        .iter()
        .find_map(|path| read_path(path, PROFILE_BYTES_MAX).ok())?;
    let stock = serde_json::from_slice(&stock).ok()?;
    let files = [("usual.json", true), ("without-forks.json", false)];
    let files: Option<Vec<(String, String)>> = files
        .into_iter()
        .map(|(name, may_fork)| {
            let profile = seccomp_profile(&stock, may_fork)?;
            Some((name.to_owned(), profile.to_string()))
        })
        .collect();
    let files = files?;
    let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
    let name = format!(
        "seccomp-{}",
        &Digest::of_bytes(all.as_bytes()).to_hex()[..16]
    );
    let folder = store.unpack(&name, &files).ok()?;
    Some(Profiles {
        usual: folder.join("usual.json"),
        without_forks: folder.join("without-forks.json"),
    })
}

impl Remotes {
    /// A tool at a service.
    pub fn service(
        &self,
        environment: &Environment,
        root: &Path,
        config: &ServiceRunnerConfig,
    ) -> Result<Arc<dyn Runner>, RemoteError> {
        let token = match &config.token_env {
            None => None,
            Some(name) => {
                let token = environment
                    .referred_text(name, Referrer::Tool)
                    .ok_or_else(|| RemoteError::NoToken(name.clone()))?;
                let token = BearerSecret::new(token);
                Some(token.ok_or_else(|| RemoteError::Token(name.clone()))?)
            }
        };
        let settings = ServiceSettings {
            url: config.url.clone(),
            entry: config.entry.clone(),
            tool_name: config.tool_name.clone(),
            handshake: match config.handshake {
                None => HandshakeWhen::Required,
                Some(true) => HandshakeWhen::Always,
                Some(false) => HandshakeWhen::Never,
            },
            token,
            workspace: root.to_owned(),
            output_bytes_max: config.output_bytes.unwrap_or(OUTPUT_BYTES_DEFAULT),
            secrets: Arc::clone(&self.secrets),
        };
        let runner =
            ServiceRunner::new(Arc::clone(&self.dialer), settings).map_err(RemoteError::Url)?;
        Ok(Arc::new(runner))
    }

    /// A tool in a container.
    pub fn container(
        &self,
        environment: &Environment,
        root: &Path,
        config: &ContainerRunnerConfig,
        imports: &str,
    ) -> Result<Arc<dyn Runner>, RemoteError> {
        if config.image.is_empty() || config.image.starts_with('-') {
            return Err(RemoteError::Image(config.image.clone()));
        }
        let options = config.runtime_options.iter().map(OsString::from).collect();
        let client = self.containers.client(
            runtime(environment, root, config),
            options,
            client_env(environment),
            root.to_owned(),
        );
        let settings = self.settings(environment, root, config, imports)?;
        let host = Arc::clone(&self.containers);
        Ok(ContainerRunner::new(host, client, settings))
    }

    fn settings(
        &self,
        environment: &Environment,
        root: &Path,
        config: &ContainerRunnerConfig,
        imports: &str,
    ) -> Result<ContainerSettings, RemoteError> {
        let pool = &config.pool;
        let idle_ms = pool.idle_ms.unwrap_or(5 * 60 * 1000);
        Ok(ContainerSettings {
            image: config.image.clone(),
            talking: talking(config, imports)?,
            env: declared(environment, &config.env)?,
            secrets: Arc::clone(&self.secrets),
            user: config.user.clone(),
            workspace: root.to_owned(),
            limits: child_limits(&config.limits),
            profiles: self.profiles.clone(),
            containers_max: pool.workers_max.unwrap_or(1),
            queue_max: pool.queue_max.unwrap_or(64),
            idle_max: Duration::from_millis(idle_ms),
            calls_max: pool.calls_max.unwrap_or(1000),
            output_bytes_max: config.limits.output_bytes.unwrap_or(OUTPUT_BYTES_DEFAULT),
        })
    }
}

fn talking(config: &ContainerRunnerConfig, imports: &str) -> Result<Talking, RemoteError> {
    let ContainerRunnerConfig { entry, command, .. } = config;
    match config.mode {
        ModeConfig::Oneshot => Ok(Talking::OneShot {
            command: command.iter().map(OsString::from).collect(),
            entry: entry.clone().unwrap_or_default(),
        }),
        ModeConfig::Worker if !command.is_empty() => Ok(Talking::Worker {
            command: words(command)?,
            entry: entry.clone(),
        }),
        ModeConfig::Worker => {
            let named = entry.as_ref().filter(|entry| entry.contains(':'));
            let Some(entry) = named else {
                return Err(RemoteError::NoEntry);
            };
            let interpreter = config.python.as_deref().unwrap_or("python3");
            let text = python::worker_over_stdio();
            Ok(Talking::Worker {
                command: [interpreter, "-u", "-c", &text, IMPORTS_ARGUMENT, imports]
                    .map(Into::into)
                    .to_vec(),
                entry: Some(entry.clone()),
            })
        }
    }
}

/// What a tool declares; `${NAME}` takes a variable of ours.
fn declared(
    environment: &Environment,
    env: &BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, UnsetVariable> {
    let value = |value: &str| match value.strip_prefix("${").and_then(|v| v.strip_suffix('}')) {
        None => Ok(value.to_owned()),
        Some(ours) => match environment.referred_text(ours, Referrer::Tool) {
            Some(found) => Ok(found.to_owned()),
            None => Err(UnsetVariable(ours.to_owned())),
        },
    };
    env.iter()
        .map(|(name, text)| Ok((name.clone(), value(text)?)))
        .collect()
}

fn client_env(environment: &Environment) -> Vec<(OsString, OsString)> {
    let names = environment
        .variables()
        .keys()
        .filter_map(|name| name.to_str());
    let wanted: Vec<String> = names
        .filter(|name| CLIENT_VARIABLES.iter().any(|start| name.starts_with(start)))
        .map(str::to_owned)
        .collect();
    scrubbed_env(environment.variables(), &wanted)
}

/// The one that is named; else podman, unless only docker is there.
fn runtime(environment: &Environment, root: &Path, config: &ContainerRunnerConfig) -> Runtime {
    match config.runtime {
        Some(RuntimeConfig::Podman) => Runtime::Podman,
        Some(RuntimeConfig::Docker) => Runtime::Docker,
        None if find(environment, root, Runtime::Podman).is_ok() => Runtime::Podman,
        None if find(environment, root, Runtime::Docker).is_ok() => Runtime::Docker,
        None => Runtime::Podman,
    }
}

/// The client's program, for `doctor`.
pub fn client_program(
    environment: &Environment,
    root: &Path,
    config: &ContainerRunnerConfig,
) -> Result<PathBuf, SpawnError> {
    find(environment, root, runtime(environment, root, config))
}

fn find(environment: &Environment, root: &Path, runtime: Runtime) -> Result<PathBuf, SpawnError> {
    let mut spec = Spec::new(vec![runtime.as_str().into()], root.to_owned());
    spec.env = client_env(environment);
    resolve(&spec)
}
