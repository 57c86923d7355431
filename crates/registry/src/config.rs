//! `callgate.toml` as written: fields, defaults and nothing else. What they become is in
//! `catalog.rs`.

mod builtins;
mod confinement;
mod exec;
mod files;
mod http;
mod pilot;
mod planner;
mod remote;
mod restrictions;
mod runner;
mod runs;
mod search;
mod server;
mod shelf;
mod terminals;
mod tool;
mod traces;

use std::ops::Range;
use std::time::Duration;

use callgate_call::RateLimit;
use serde::Deserialize;

pub use builtins::{BuiltinsConfig, BuiltinsError};
pub use confinement::{
    GuaranteesConfig, IpcConfig, NetworkConfig, PurityConfig, SandboxConfig, StrictConfig,
};
pub use exec::ExecConfig;
pub use files::FilesConfig;
pub use http::{HttpConfig, JwtConfig, ServiceConfig};
pub use pilot::PilotConfig;
pub use planner::PlannerConfig;
pub use remote::{ContainerRunnerConfig, ModeConfig, RuntimeConfig, ServiceRunnerConfig};
pub use restrictions::Restrictions;
pub use runner::{LimitsConfig, PoolConfig, RunnerConfig};
pub use runs::{ExecutorRunnerConfig, RunPolicyError, RunsConfig, WebhookConfig};
pub use search::{SearchConfig, StoreKind};
pub use server::{
    ClientConfig, ImportedConfig, PresetConfig, ServerConfig, ServerToolConfig, ServerToolsConfig,
    ShareConfig, StartConfig,
};
pub use shelf::{MessageConfig, PromptConfig, ResourceConfig, RoleConfig};
pub use terminals::TerminalsConfig;
pub use tool::{
    IsolationConfig, RateError, RateLimitConfig, SchemaSource, TasksConfig, ToolConfig,
};
pub use traces::{TelemetryConfig, TracesConfig};

use crate::lock::ServersLock;
use crate::suggest;

/// A whole configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `[[tool]]`.
    #[serde(default, rename = "tool")]
    pub tools: Vec<ToolConfig>,
    /// `[[server]]`.
    #[serde(default, rename = "server")]
    pub servers: Vec<ServerConfig>,
    /// `[[client]]`.
    #[serde(default, rename = "client")]
    pub clients: Vec<ClientConfig>,
    /// `callgate.lock`, read beside this file; never written in it.
    #[serde(skip)]
    pub lock: ServersLock,
    /// `[[prompt]]`.
    #[serde(default, rename = "prompt")]
    pub prompts: Vec<PromptConfig>,
    /// `[[resource]]`.
    #[serde(default, rename = "resource")]
    pub resources: Vec<ResourceConfig>,
    /// Toolpack manifests (JSON) beside this file.
    #[serde(default)]
    pub toolpacks: Vec<String>,
    /// `[[policy]]`.
    #[serde(default, rename = "policy")]
    pub policies: Vec<PolicyConfig>,
    /// `[[limit]]`.
    #[serde(default, rename = "limit")]
    pub limits: Vec<LimitConfig>,
    /// `[leases]`.
    #[serde(default)]
    pub leases: LeasesConfig,
    /// `[secrets]`.
    #[serde(default)]
    pub secrets: SecretsConfig,
    /// `[toolhost]`.
    #[serde(default)]
    pub toolhost: ToolhostConfig,
    /// `[breaker]`.
    #[serde(default)]
    pub breaker: BreakerConfig,
    /// `[store]`.
    #[serde(default)]
    pub store: StoreConfig,
    /// `[traces]`.
    #[serde(default)]
    pub traces: TracesConfig,
    /// `[telemetry]`.
    #[serde(default)]
    pub telemetry: TelemetryConfig,
    /// `[http]`.
    #[serde(default)]
    pub http: HttpConfig,
    /// `[service]`.
    #[serde(default)]
    pub service: ServiceConfig,
    /// `[pilot]`.
    #[serde(default)]
    pub pilot: PilotConfig,
    /// `[planner]`.
    #[serde(default)]
    pub planner: PlannerConfig,
    /// `[exec]`.
    #[serde(default)]
    pub exec: ExecConfig,
    /// `[files]`.
    #[serde(default)]
    pub files: FilesConfig,
    /// `[runs]`.
    #[serde(default)]
    pub runs: RunsConfig,
    /// `[search]`.
    #[serde(default)]
    pub search: SearchConfig,
    /// `[terminals]`.
    #[serde(default)]
    pub terminals: TerminalsConfig,
    /// `[builtins]`.
    #[serde(default)]
    pub builtins: BuiltinsConfig,
    /// What forms of this configuration that are not trusted take away; never written.
    #[serde(skip)]
    pub restricted: Vec<Restrictions>,
}

/// A rate for tools that have none of their own, as built-in ones.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitConfig {
    #[serde(default)]
    tools: Vec<String>,
    per_second: f64,
    burst: u32,
}

/// A `[[limit]]` that could never let a call through.
#[derive(Debug, thiserror::Error)]
#[error("limit")]
pub struct LimitError(#[source] RateError);

impl LimitConfig {
    /// Which tools, by patterns over names and AIDs, and how often.
    pub fn read(&self) -> Result<(&[String], RateLimit), LimitError> {
        let rate = RateLimitConfig {
            per_second: self.per_second,
            burst: self.burst,
        };
        let rate = rate.read().map_err(LimitError)?;
        Ok((&self.tools, rate))
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Patterns over names and AIDs; none means every tool.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Patterns over callers; none means every caller.
    #[serde(default)]
    pub callers: Vec<String>,
    /// What becomes of a call that fits.
    pub decision: DecisionConfig,
    /// With `ask`: the clients of these callers may ask their users, whatever the tier (G-6).
    #[serde(default)]
    pub approve_by_client: bool,
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionConfig {
    /// The call runs.
    Allow,
    /// The call is refused.
    Deny,
    /// The call waits for an approval.
    Ask,
}

/// `[leases]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeasesConfig {
    /// From this tier on a call must bring a lease; absent: never (G-5).
    #[serde(default)]
    pub enforce_from_tier: Option<u64>,
    /// `_lease.issue` and `_lease.gc` on the toolhost's pipe (T-15).
    #[serde(default)]
    pub in_band: bool,
}

/// `[secrets]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretsConfig {
    /// Variables whose values are never stored, logged or answered.
    #[serde(default)]
    pub env: Vec<String>,
}

/// `[toolhost]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolhostConfig {
    /// `ok` is false beside a failing status (T-6).
    #[serde(default)]
    pub strict_ok: bool,
}

/// `[breaker]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakerConfig {
    /// Consecutive failures that open it; 0 turns it off.
    #[serde(default = "five")]
    pub failures_max: u32,
    /// How long it stays open.
    #[serde(default = "thirty_seconds")]
    pub open_ms: u64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures_max: five(),
            open_ms: thirty_seconds(),
        }
    }
}

fn five() -> u32 {
    5
}

fn thirty_seconds() -> u64 {
    30_000
}

/// `[store]`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// What an answer survives.
    #[serde(default)]
    pub durability: DurabilityConfig,
    /// Idempotency keys kept at most.
    #[serde(default)]
    pub keys_max: Option<u64>,
    /// How long a key is kept.
    #[serde(default)]
    pub key_life_ms: Option<u64>,
    /// All that streamed runs keep.
    #[serde(default)]
    pub runs_max_bytes: Option<u64>,
}

impl StoreConfig {
    /// How long a key is kept.
    pub fn key_life(&self) -> Option<Duration> {
        self.key_life_ms.map(Duration::from_millis)
    }
}

/// What an answer survives (G-8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityConfig {
    /// The death of any process.
    #[default]
    Process,
    /// The loss of power.
    Power,
}

/// A text that is no configuration: line, column, the line itself and what is wrong in it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

/// Reads a configuration.
pub fn parse(text: &str) -> Result<Config, ParseError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let words = explain(error.message(), key_of(text, error.span()));
        ParseError(error.to_string().replace(error.message(), &words))
    })
}

/// The reader's message for people: a word nobody knows with the nearest one that is known, a
/// value of the wrong type with what it should have been.
pub fn explain(message: &str, key: Option<&str>) -> String {
    if message.starts_with("unknown field `") || message.starts_with("unknown variant `") {
        let mut words = message.split('`').skip(1).step_by(2);
        let unknown = words.next().unwrap_or_default();
        return format!("{message}{}", suggest::question(unknown, words));
    }
    let wrong = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|kind| message.strip_prefix(kind))
        .and_then(|rest| rest.rsplit_once(", expected "));
    let Some((value, wanted)) = wrong else {
        return message.to_owned();
    };
    // The reader says `string "soon"` or `` integer `5` ``: the value is what is quoted.
    let value = match value.split_once(['"', '`']) {
        Some((_, rest)) if value.ends_with('"') => format!("\"{rest}"),
        Some((_, rest)) => rest.trim_end_matches('`').to_owned(),
        None => format!("a {value}"),
    };
    let is_tier = matches!(key, Some("tier" | "enforce_from_tier"));
    let wanted = match wanted {
        "u64" if is_tier => "a number from 0 to 3",
        "u64" | "u32" | "usize" => "a whole number of 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        other => other.trim_start_matches("struct "),
    };
    let key = key.map_or_else(String::new, |key| format!("{key}: "));
    format!("{key}{value} is not {wanted}")
}

/// The key whose value begins where the reader stopped; `None` where that is no plain value,
/// because the place is then only near the one that is wrong.
fn key_of(text: &str, span: Option<Range<usize>>) -> Option<&str> {
    let start = span?.start;
    if text.get(start..)?.starts_with(['{', '[']) {
        return None;
    }
    let before = text.get(..start)?.trim_end().strip_suffix('=')?;
    let from = before.rfind(['\n', '{', ',']).map_or(0, |at| at + 1);
    Some(before[from..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    const HELLO: &str = include_str!("../../../examples/hello/callgate.toml");

    const EVERYTHING: &str = r#"
toolpacks = ["pack.json"]
[[prompt]]
name = "p"
arguments = [{ name = "a", required = true, values = ["b"] }]
messages = [{ role = "user", text = "{a}" }]
[[resource]]
uri = "notes://{day}"
name = "r"
mime_type = "text/plain"
tool = "a/b"
[leases]
enforce_from_tier = 1
in_band = true
[secrets]
env = ["TOKEN"]
[toolhost]
strict_ok = true
[breaker]
failures_max = 0
open_ms = 5
[store]
durability = "power"
keys_max = 7
key_life_ms = 9
[http]
port = 1
hosts = ["h"]
[http.jwt]
issuer = "https://i"
audience = "a"
algorithms = ["ES256"]
scopes = { "x y" = ["tools:*"] }
rate = { per_second = 1, burst = 1 }
[service]
path = "/run"
allow_entries = ["tools.*"]
python = "python3"
[[policy]]
tools = ["a*"]
callers = ["uid:*"]
decision = "ask"
[[limit]]
tools = ["a*"]
per_second = 5
burst = 10
[[tool]]
name = "a/b"
aliases = ["c"]
input_schema = "in.json"
output_schema = { type = "object" }
rate_limit = { per_second = 5, burst = 10 }
concurrency_max = 2
idempotent = true
slots = true
writes = ["out"]
reads = ["data"]
code = ["lib/**"]
network = { allow = ["h:1"] }
guarantees = { no_subprocess = true, secrets_allowed = ["K"] }
purity = "impure"
sandbox = "strict"
allow_unsafe_execution = true
isolation = "cold"
runner = { kind = "pool", command = ["x"], env = { A = "${B}" }, limits = { memory_bytes = 1 }, pool = { workers_max = 1 } }
[[tool]]
name = "s"
runner = { kind = "service", url = "http://h/t", tool_name = "t", handshake = true, token_env = "T" }
[[tool]]
name = "k"
runner = { kind = "container", image = "i", mode = "oneshot", runtime = "docker", runtime_options = ["--x"], user = "1:1" }
"#;

    const WORDS: [&[u8]; 20] = [
        b"[",
        b"]",
        b"[[tool]]\n",
        b"=",
        b"\"",
        b"'",
        b"\n",
        b"#",
        b"{",
        b"}",
        b"name = \"x\"\n",
        b"true",
        b"-1",
        b"1e9",
        b"\xff",
        b"\0",
        b"[leases]\n",
        b"[[policy]]\n",
        b"nan",
        b"99999999999999999999",
    ];

    /// 100,000 mutations: none panics, and what is accepted reads the same when its table is
    /// written and read again.
    #[test]
    fn mutations() {
        let mut random = Random::new("configurations");
        let seeds = [HELLO.as_bytes(), EVERYTHING.as_bytes()];
        let mut accepted = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &seeds, &WORDS);
            let Ok(text) = std::str::from_utf8(&bytes) else {
                continue;
            };
            let Ok(config) = parse(text) else { continue };
            let table: toml::Table = toml::from_str(text).unwrap();
            let again = parse(&toml::to_string(&table).unwrap()).unwrap();
            assert_eq!(format!("{again:?}"), format!("{config:?}"), "{text}");
            accepted += 1;
        }
        eprintln!("configurations: {accepted} accepted");
        assert!(accepted > 0);
    }

    /// A mistake is told with its line, its column and the line itself.
    #[test]
    fn mistakes_are_placed() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        let told = error("[[tool]]\nname = \"a\"\nteir = 1\n");
        assert!(
            told.contains("line 3, column 1") && told.contains("teir = 1"),
            "{told}"
        );
        let told = error("[breaker]\nopen_ms = \"soon\"\n");
        assert!(told.contains("line 2, column 11"), "{told}");
    }

    /// A word nobody knows comes with the nearest that is known; a bad value is quoted with its
    /// key and what it should have been.
    #[test]
    fn mistakes_are_explained() {
        let tool = "[[tool]]\nname = \"a\"\n";
        for (text, words) in [
            (format!("{tool}teir = 1\n"), "did you mean `tier`?"),
            ("[laeses]\n".to_owned(), "did you mean `leases`?"),
            (
                "[[policy]]\ndecision = \"alow\"\n".to_owned(),
                "did you mean `allow`?",
            ),
            (
                format!("{tool}runner = {{ kind = \"proces\", command = [\"x\"] }}\n"),
                "did you mean `process`?",
            ),
            (
                format!("{tool}runner = {{ kind = \"process\", comand = [\"x\"] }}\n"),
                "did you mean `command`?",
            ),
            (
                "[breaker]\nopen_ms = \"soon\"\n".to_owned(),
                "\nopen_ms: \"soon\" is not a whole number",
            ),
            (
                "[breaker]\nopen_ms = -1\n".to_owned(),
                "\nopen_ms: -1 is not a whole number",
            ),
            (
                "[leases]\nin_band = 1\n".to_owned(),
                "\nin_band: 1 is not true or false",
            ),
            (
                format!("{tool}rate_limit = {{ burst = 1, per_second = \"x\" }}\n"),
                "\nper_second: \"x\" is not a number",
            ),
            (
                format!("{tool}slots = \"a \\\" b, expected c\"\n"),
                "\nslots: \"a \\\" b, expected c\" is not true or false",
            ),
            (
                format!("{tool}runner = {{ kind = \"process\", command = \"x\" }}\n"),
                "\"x\" is not a list",
            ),
            (
                format!("{tool}runner = {{ kind = \"process\", command = [5] }}\n"),
                "5 is not a string",
            ),
        ] {
            let told = parse(&text).unwrap_err().to_string();
            assert!(told.contains(words), "{words}: {told}");
        }
    }
}
