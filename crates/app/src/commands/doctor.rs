//! `callgate doctor`: what is here, what is missing and how to get it.

use std::process::ExitCode;

use callgate_call::{Held, Level, Needs};
use callgate_sandbox::{Facts, hosts_held, outlook};
use clap::Args;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use crate::catalog::program_of;
use crate::cli::{Done, Place, runtime};
use crate::client::Client;
use crate::compose::{Builtins, Parts, chain, warnings};
use crate::config::{Config, NetworkConfig};
use crate::environment::Environment;
use crate::show;
use crate::trust::Found;

/// What this machine and workspace have, what is missing and how to get it.
#[derive(Args)]
pub struct Doctor {}

/// One finding.
struct Check {
    name: &'static str,
    ok: bool,
    finding: String,
}

pub fn run(environment: &Environment, place: &Place, _: &Doctor) -> Done {
    let parts = super::open(environment, place)?;
    let mut checks = Vec::new();
    let mut check = |name, ok, finding: String| checks.push(Check { name, ok, finding });

    check(
        "workspace",
        true,
        parts.paths.workspace.display().to_string(),
    );
    check("state", true, parts.paths.state.display().to_string());
    let found = Found::look(parts.environment, &parts.paths, &parts.store)
        .map_err(|error| chain(&error))?;
    let names_hosts = names_hosts(&found);
    checks.extend(configuration(&parts, found));
    let mut check = |name, ok, finding: String| checks.push(Check { name, ok, finding });
    let verdict = parts.store.verify().map_err(|error| chain(&error))?;
    match &verdict.bad {
        None => check(
            "chain",
            true,
            format!("{} records, all good", verdict.records),
        ),
        Some(bad) => check(
            "chain",
            false,
            format!("record {} is bad: {}", bad.seq, bad.reason),
        ),
    }
    match parts.paths.usable_socket() {
        Err(error) => check("gate", false, error.to_string()),
        Ok(socket) => {
            let running = runtime()?.block_on(Client::connect(socket)).is_some();
            let state = if running {
                "running"
            } else {
                "not running: `callgate serve` starts it"
            };
            check("gate", true, format!("{state} ({})", socket.display()));
        }
    }
    match python(environment) {
        Some(path) => check("python", true, path),
        None => check(
            "python",
            false,
            "no python3 on PATH: Python tools can not run".to_owned(),
        ),
    }
    let files = getrlimit(Resource::Nofile).current;
    let enough = files.is_none_or(|files| files >= 256);
    let files = files.map_or_else(|| "unlimited".to_owned(), |files| files.to_string());
    check(
        "descriptors",
        enough,
        format!("{files} (ulimit -n; 256 or more serve many calls)"),
    );
    if let Some(bytes) = getrlimit(Resource::Fsize).current {
        check(
            "file size",
            true,
            format!("limited to {bytes} bytes: the index is left to others"),
        );
    }
    checks.extend(confinement(&parts, names_hosts));

    let well = checks.iter().all(|check| check.ok);
    if place.json {
        let all: Vec<Value> = checks
            .iter()
            .map(|c| json!({ "name": c.name, "ok": c.ok, "finding": c.finding }))
            .collect();
        show::json(&json!({ "ok": well, "checks": all }));
    } else {
        let rows: Vec<Vec<String>> = checks
            .iter()
            .map(|c| {
                let mark = if c.ok { "ok" } else { "!!" };
                vec![mark.to_owned(), c.name.to_owned(), c.finding.clone()]
            })
            .collect();
        show::table(&["", "WHAT", "FINDING"], &rows);
    }
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What this machine has to confine with, and how far each promise would be kept for a program
/// that is started for one call.
fn confinement(parts: &Parts<'_>, names_hosts: bool) -> Vec<Check> {
    let facts = parts.spawner.facts();
    let means = Check {
        name: "confinement",
        ok: facts.landlock > 0 && facts.seccomp,
        finding: format!("as {}: {}", who(parts.environment.uid), means(&facts)),
    };
    let held = outlook(&Needs::default(), &facts);
    let held = held.iter().map(|held| promise(held.guarantee.name(), held));
    let mut hosts = promise("network.allow", &hosts_held(&facts));
    // Only whoever asks for it lacks it.
    hosts.ok |= !names_hosts;
    std::iter::once(means).chain(held).chain([hosts]).collect()
}

fn promise(name: &'static str, held: &Held) -> Check {
    let level = held.level.as_str();
    Check {
        name,
        ok: held.level == Level::Enforced,
        finding: match held.missing.as_str() {
            "" => format!("{level} by {}", held.mechanisms.join(", ")),
            missing => format!("{level}: needs {missing}"),
        },
    }
}

/// True if a tool that counts names the hosts it may reach.
fn names_hosts(found: &Found) -> bool {
    let Found::Trusted(source) = found else {
        return false;
    };
    let mut tools = source.config.tools.iter();
    tools.any(|tool| matches!(tool.network, Some(NetworkConfig::Some(_))))
}

fn who(uid: u32) -> String {
    match uid {
        0 => "root (children run as the owner of what they may write)".to_owned(),
        uid => format!("uid {uid}"),
    }
}

/// What is there, and for what is not, how to get it.
fn means(facts: &Facts) -> String {
    let landlock = match facts.landlock {
        0 => "no Landlock (Linux 6.2 or later; `lsm=landlock,…` among the boot parameters)".into(),
        version => format!("Landlock {version}"),
    };
    let named = |there: bool, name: &str, how: &str| match there {
        true => name.to_owned(),
        false => format!("no {name} ({how})"),
    };
    let namespaces = "root, or unprivileged user namespaces: sysctl \
        kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0";
    [
        landlock,
        named(
            facts.seccomp,
            "seccomp",
            "a kernel with SECCOMP_FILTER on x86-64 or aarch64",
        ),
        named(facts.exec_once, "exec-once", "Linux 5.6 or later"),
        named(facts.pid_namespace, "pid namespaces", "root"),
        named(facts.mount_namespace, "mount namespaces", namespaces),
        named(facts.net_namespace, "network namespaces", namespaces),
    ]
    .join(", ")
}

/// Whether the configuration loads, whether its rules meet tools, and whether the programs it
/// names are there.
fn configuration(parts: &Parts<'_>, found: Found) -> Vec<Check> {
    let check = |name, ok, finding| Check { name, ok, finding };
    let note = found.note();
    let source = match found {
        Found::Trusted(source) => source,
        Found::Missing { .. } => return vec![check("configuration", true, note)],
        Found::Untrusted { .. } | Found::Broken(_) => {
            return vec![check("configuration", false, note)];
        }
    };
    let mut checks = programs(parts, &source.config);
    match parts.setup_of(*source, Builtins::With, note) {
        Ok(setup) => {
            let doubts = warnings(&setup).into_iter();
            checks.splice(0..0, doubts.map(|doubt| check("policy", false, doubt)));
            checks.insert(0, check("configuration", true, setup.note));
        }
        Err(error) => {
            let finding = format!("trusted, but does not load: {}", chain(&error));
            checks.insert(0, check("configuration", false, finding));
        }
    }
    checks
}

/// A finding for each tool whose program is not there or can not be started; else one for all.
fn programs(parts: &Parts<'_>, config: &Config) -> Vec<Check> {
    let runners = config
        .tools
        .iter()
        .filter_map(|tool| tool.runner.as_ref().map(|runner| (&tool.name, runner)));
    let missing: Vec<Check> = runners
        .clone()
        .filter_map(|(tool, runner)| {
            let found = program_of(parts.environment, &parts.paths.workspace, runner);
            found.err().map(|reason| Check {
                name: "program",
                ok: false,
                finding: format!("tool `{tool}`: {reason}"),
            })
        })
        .collect();
    match (missing.is_empty(), runners.count()) {
        (false, _) => missing,
        (true, 0) => Vec::new(),
        (true, count) => vec![Check {
            name: "programs",
            ok: true,
            finding: format!("of {count} tools, all there"),
        }],
    }
}

fn python(environment: &Environment) -> Option<String> {
    let path = environment.text("PATH")?;
    path.split(':')
        .map(|folder| std::path::Path::new(folder).join("python3"))
        .find(|file| file.is_file())
        .map(|file| file.display().to_string())
}
