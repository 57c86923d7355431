//! `callgate trust`: the owner's word that the configuration counts as it is now.

use std::collections::BTreeMap;
use std::process::ExitCode;

use callgate_call::visible;
use callgate_registry::candidate::{Candidate, CandidateError};
use callgate_registry::config::{
    IpcConfig, NetworkConfig, PresetConfig, RunnerConfig, SandboxConfig, ServerConfig, ToolConfig,
};
use callgate_registry::declared::Declarations;
use callgate_registry::environment::Environment;
use callgate_registry::needs::missing_code;
use callgate_registry::project::{Code, code_home};
use callgate_registry::reads::missing_reads;
use callgate_registry::setup::{Parts, warnings};
use callgate_registry::trust::{Basis, is_trusted, revoke};
use callgate_registry::workspace::{Source, SourceError};
use clap::Args;
use serde_json::json;

use crate::cli::{Done, Place};
use crate::commands::describe::declarations;
use crate::compose::chain;
use crate::show;

/// Trust this workspace's configuration as it is now.
///
/// The trust covers callgate.toml and the schemas and packs it refers to, and of a namel3ss
/// project namel3ss.toml, the bindings and every file of its packs; not the code of other
/// tools. A copy of all that is kept in the state, and stays in force when the files change or
/// go, until you trust them again. Where the files are gone, that is what is recorded. A running
/// gate follows within a second or two.
#[derive(Args)]
pub struct Trust {
    /// Only show what would be trusted
    #[arg(long)]
    show: bool,
    /// Take the trust back and delete the copy: only built-in tools are served
    #[arg(long, conflicts_with = "show")]
    revoke: bool,
}

pub fn run(environment: &Environment, place: &Place, trust: &Trust) -> Done {
    let parts = super::open(environment, place)?;
    if trust.revoke {
        let was = revoke(&parts.paths, &parts.store)?;
        let words = match was {
            true => "no longer trusted",
            false => "it was not trusted",
        };
        untrusted(place, &parts, was, words);
        return Ok(ExitCode::SUCCESS);
    }
    let candidate = match Candidate::read(&parts, Declarations::default()) {
        Ok(candidate) => candidate,
        Err(SourceError::Missing(_)) if is_trusted(&parts.paths, &parts.store)? => {
            if trust.show {
                let in_force = parts.in_force()?;
                show::say(&in_force.note());
            } else {
                let was = revoke(&parts.paths, &parts.store)?;
                let words = "recorded that the configuration is removed: only built-in tools are \
                             served";
                untrusted(place, &parts, was, words);
            }
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(chain(&error).into()),
    };
    let (declared, doubts) = declarations(&parts, candidate.source());
    doubts.iter().for_each(|doubt| show::warn(doubt));
    let candidate = match declared.is_empty() {
        true => candidate,
        false => Candidate::read(&parts, declared)?,
    };
    match candidate.refuse_unlisted(&parts) {
        Err(CandidateError::Unlisted(lines)) if trust.show => {
            lines.iter().for_each(|line| show::warn(line));
        }
        refused => refused.map_err(not_trusted)?,
    }
    let source = candidate.source();
    let missing = missing_code(&parts.paths.workspace, &source.config);
    missing.iter().for_each(|line| show::warn(line));
    for tool in unchecked(source) {
        show::warn(&format!(
            "tool `{tool}` has no input_schema: whatever its caller sends reaches it"
        ));
    }
    let (digest, file) = (source.digest, source.file.clone());
    let missing = missing_reads(&parts.paths, &source.config);
    let summary = summary(source);
    let codes = codes(source);
    let checked = candidate.check(&parts).map_err(not_trusted)?;
    for warning in warnings(&checked.setup).iter().chain(&missing) {
        show::warn(warning);
    }
    let trusted = if trust.show {
        let in_force = parts.in_force()?;
        show::say(&in_force.note());
        matches!(in_force.basis, Basis::Files(_))
    } else {
        checked
            .trust(&parts)
            .map_err(|error| format!("not trusted: {}", chain(&error)))?;
        let home = code_home(environment, &parts.paths.workspace);
        let store = &parts.store;
        store.sweep_unpacked(home.as_deref(), Code::FOLDERS, &codes);
        true
    };
    if place.json {
        show::json(&json!({
            "file": file,
            "digest": digest.to_hex(),
            "trusted": trusted,
            "tools": summary.iter().map(|row| json!({
                "name": row[0], "tier": row[1].parse::<u8>().ok(), "runs": row[2],
                "grants": row[3],
            })).collect::<Vec<_>>(),
        }));
    } else {
        let seen = |row: &Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect();
        let rows: Vec<Vec<String>> = summary.iter().map(seen).collect();
        show::table(&["TOOL", "TIER", "RUNS", "GRANTS"], &rows);
        if !trust.show {
            show::say(&format!(
                "trusted {} ({})",
                file.display(),
                &digest.to_hex()[..16]
            ));
        }
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

/// The words for a configuration that is refused.
fn not_trusted(error: CandidateError) -> String {
    match error {
        CandidateError::Unlisted(lines) => {
            let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
            format!("not trusted:{lines}")
        }
        CandidateError::Setup(error) => format!("not trusted: {}", chain(&error)),
    }
}

/// Says that nothing is trusted any longer.
fn untrusted(place: &Place, parts: &Parts, was: bool, words: &str) {
    if place.json {
        show::json(&json!({ "trusted": false, "was_trusted": was }));
    } else {
        show::say(words);
    }
    super::close(parts);
}

/// The folders of code its packs need.
fn codes(source: &Source) -> Vec<String> {
    let bound = source
        .config
        .tools
        .iter()
        .filter_map(|tool| tool.bound.as_ref());
    bound
        .filter_map(|bound| bound.code.as_ref().map(|code| code.folder()))
        .collect()
}

/// What each tool would run, so that the owner sees what the word is given for.
fn summary(source: &Source) -> Vec<Vec<String>> {
    let tools = source.config.tools.iter();
    let servers = source.config.servers.iter().map(server_row);
    tools
        .map(|tool| {
            let runs = match &tool.runner {
                Some(
                    RunnerConfig::Process { command, .. } | RunnerConfig::Pool { command, .. },
                ) => command.join(" "),
                Some(RunnerConfig::Executor(executor)) => executor.words().join(" "),
                Some(RunnerConfig::Python { entry, .. }) => format!("python {entry}"),
                Some(RunnerConfig::Node { entry, .. }) => format!("node {entry}"),
                Some(RunnerConfig::Service(service)) => format!("service {}", service.url),
                Some(RunnerConfig::Container(container)) => {
                    format!("container {}", container.image)
                }
                None => "nothing".to_owned(),
            };
            let pack = tool
                .bound
                .as_ref()
                .and_then(|bound| bound.origin.pack.clone());
            let runs = match pack {
                Some(pack) => format!("{runs} of pack {} {}", pack.id, pack.version),
                None => runs,
            };
            let tier = tool
                .tier
                .map_or_else(|| "-".to_owned(), |tier| tier.to_string());
            vec![tool.name.clone(), tier, runs, grants(tool)]
        })
        .chain(servers)
        .collect()
}

/// What a server would run, and what it may do. Its tools are those of `callgate.lock`, which the
/// trust covers too.
fn server_row(server: &ServerConfig) -> Vec<String> {
    let first = server.package.iter().chain(&server.command);
    let words: Vec<&str> = first.chain(&server.args).map(String::as_str).collect();
    let list = |word: &str, list: &[String]| {
        (!list.is_empty()).then(|| format!("{word} {}", list.join(" ")))
    };
    let network = match &server.network {
        Some(NetworkConfig::All(true)) => Some("network".to_owned()),
        Some(NetworkConfig::Some(hosts)) => list("network", &hosts.allow),
        Some(NetworkConfig::All(false)) | None => None,
    };
    let forward: Vec<String> = server.forward.values().cloned().collect();
    let env: Vec<String> = server.env.keys().cloned().collect();
    let is_open = server.preset == PresetConfig::Off;
    let all = [
        list("writes", &server.writes),
        list("reads", &server.reads),
        network,
        list("forward", &forward),
        list("env", &env),
        is_open.then(|| "no sandbox".to_owned()),
        server.disabled.then(|| "disabled".to_owned()),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    let grants = if all.is_empty() {
        "-".to_owned()
    } else {
        all.join("; ")
    };
    vec![
        format!("{}/*", server.name),
        "-".to_owned(),
        format!("server {}", words.join(" ")),
        grants,
    ]
}

/// The tools that take any input.
fn unchecked(source: &Source) -> Vec<&str> {
    let tools = source.config.tools.iter();
    let tools = tools.filter(|tool| tool.input_schema.is_none() && tool.bound.is_none());
    tools.map(|tool| tool.name.as_str()).collect()
}

/// What a tool may do beyond what any may, by its `[[tool]]` or its function.
fn grants(tool: &ToolConfig) -> String {
    let list = |word: &str, list: &[String]| {
        (!list.is_empty()).then(|| format!("{word} {}", list.join(" ")))
    };
    let network = match &tool.network {
        Some(NetworkConfig::All(true)) => Some("network".to_owned()),
        Some(NetworkConfig::Some(hosts)) => list("network", &hosts.allow),
        Some(NetworkConfig::All(false)) | None => None,
    };
    let env = tool.runner.as_ref().and_then(RunnerConfig::env);
    let env: Vec<String> = env.into_iter().flat_map(BTreeMap::keys).cloned().collect();
    let flag = |is: bool, word: &str| is.then(|| word.to_owned());
    let open = matches!(tool.sandbox, Some(SandboxConfig::Is(false)));
    let all = [
        list("writes", &tool.writes),
        list("reads", &tool.reads),
        network,
        list("env", &env),
        list("code", &tool.code),
        flag(tool.ipc == IpcConfig::Local, "ipc"),
        flag(open, "no sandbox"),
        flag(tool.allow_unsafe_execution, "unsafe execution"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    match all.is_empty() {
        true => "-".to_owned(),
        false => all.join("; "),
    }
}
