//! `callgate doctor`: what is here, what is missing and how to get it.

use std::path::Path;
use std::process::ExitCode;

use callgate_call::{Held, Level, Needs, TreeLimits};
use callgate_client::Client;
use callgate_registry::catalog::program_of;
use callgate_registry::config::{Config, LimitsConfig, NetworkConfig, RunnerConfig};
use callgate_registry::environment::Environment;
use callgate_registry::exec;
use callgate_registry::reads::missing_reads;
use callgate_registry::setup::{Parts, warnings};
use callgate_registry::toolchains::ToolchainFolder;
use callgate_registry::trust::{Basis, InForce};
use callgate_sandbox::{
    Cgroup, Facts, SYSCALL_PROFILES, SyscallVerdict, hosts_held, limits_held, outlook,
    syscall_verdicts,
};
use callgate_store::StoreError;
use clap::Args;
use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde_json::{Map, Value, json};

use crate::cli::{Done, Place, runtime};
use crate::compose::chain;
use crate::show;

/// What this machine and workspace have, what is missing and how to get it.
#[derive(Args)]
pub struct Doctor {
    /// Lists the verdict on every system call of a confined tool, and nothing else.
    #[arg(long)]
    syscalls: bool,
}

/// Less room than this is soon none.
const STATE_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// One finding.
struct Check {
    name: &'static str,
    ok: bool,
    finding: String,
}

/// Whether records can be written.
fn state(folder: &Path) -> (bool, String) {
    let shown = folder.display();
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return (
            false,
            format!("{shown} can not be written ({error}): calls that need a record are refused"),
        );
    }
    let room = statvfs(folder).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if room < STATE_BYTES_MIN {
        let kib = room / 1024;
        return (
            false,
            format!("{shown}: {kib} KiB are left there; without room calls are refused"),
        );
    }
    (true, shown.to_string())
}

pub fn run(environment: &Environment, place: &Place, doctor: &Doctor) -> Done {
    if doctor.syscalls {
        syscalls(place.json);
        return Ok(ExitCode::SUCCESS);
    }
    let parts = super::open(environment, place)?;
    let mut checks = Vec::new();
    let mut check = |name, ok, finding: String| checks.push(Check { name, ok, finding });

    check(
        "workspace",
        true,
        parts.paths.workspace.display().to_string(),
    );
    let (ok, finding) = state(&parts.paths.state);
    check("state", ok, finding);
    let in_force = parts.in_force()?;
    let asked = Asked::by(&in_force);
    checks.extend(configuration(&parts, in_force));
    let mut check = |name, ok, finding: String| checks.push(Check { name, ok, finding });
    let verdict = parts.store.verify()?;
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
            let state = match (running, &parts.paths.gate) {
                (true, Some(gate)) => {
                    let port = gate.port.map(|port| format!(", port {port}"));
                    format!(
                        "running as process {}{}",
                        gate.pid,
                        port.unwrap_or_default()
                    )
                }
                (true, None) => "running".to_owned(),
                (false, Some(gate)) => format!("process {} does not answer", gate.pid),
                (false, None) => "not running: `callgate serve` starts it".to_owned(),
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
    checks.extend(confinement(&parts, asked));
    let toolchains = toolchains(&parts)?;
    checks.push(named_toolchains(&toolchains));

    let well = checks.iter().all(|check| check.ok);
    if place.json {
        let all: Vec<Value> = checks
            .iter()
            .map(|c| json!({ "name": c.name, "ok": c.ok, "finding": c.finding }))
            .collect();
        let readable: Vec<Value> = toolchains
            .iter()
            .map(|one| json!({ "toolchain": one.toolchain, "path": one.path }))
            .collect();
        show::json(&json!({ "ok": well, "checks": all, "toolchains": readable }));
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

/// The folders of toolchains that programs of callers may read by the configuration in force. R-42.
fn toolchains(parts: &Parts) -> Result<Vec<ToolchainFolder>, StoreError> {
    let in_force = parts.in_force()?;
    if matches!(in_force.basis, Basis::Nothing(_)) {
        return Ok(Vec::new());
    }
    let config = in_force.into_config();
    let found = exec::toolchains(parts, &config);
    Ok(found.there().cloned().collect())
}

fn named_toolchains(folders: &[ToolchainFolder]) -> Check {
    let paths: Vec<String> = folders
        .iter()
        .map(|one| one.path.display().to_string())
        .collect();
    let finding = match paths.is_empty() {
        true => "programs of exec/run, runs and terminals read none in the home".to_owned(),
        false => format!(
            "programs of exec/run, runs and terminals read {}; `[exec] toolchains = false` ends it",
            paths.join(", ")
        ),
    };
    Check {
        name: "toolchains",
        ok: true,
        finding,
    }
}

/// Prints what a confined tool may ask of the kernel. K-1.
fn syscalls(as_json: bool) {
    let (calls, last) = syscall_verdicts();
    if as_json {
        let all = calls.iter().map(|call| {
            let verdicts = SYSCALL_PROFILES.iter().zip(call.verdicts);
            let verdicts: Map<String, Value> = verdicts
                .map(|(profile, verdict)| ((*profile).to_owned(), verdict.into()))
                .collect();
            json!({
                "number": call.number,
                "name": call.name,
                "verdicts": verdicts,
                "conditions": call.conditions,
                "commands": call.commands[0],
                "commands_with_writes": call.commands[1],
            })
        });
        show::json(
            &json!({ "syscalls": all.collect::<Vec<_>>(), "others": "ENOSYS", "last": last }),
        );
        return;
    }
    let mut rows: Vec<Vec<String>> = calls.iter().map(syscall_row).collect();
    let mut others = vec![format!("others, and above {last}"), "(any)".to_owned()];
    others.extend(SYSCALL_PROFILES.map(|_| "ENOSYS".to_owned()));
    others.push(String::new());
    rows.push(others);
    let heads: Vec<&str> = ["NUMBER", "CALL"]
        .into_iter()
        .chain(SYSCALL_PROFILES)
        .chain(["PASSES"])
        .collect();
    show::table(&heads, &rows);
}

fn syscall_row(call: &SyscallVerdict) -> Vec<String> {
    let mut row = vec![call.number.to_string(), call.name.to_owned()];
    row.extend(call.verdicts.map(str::to_owned));
    let [all, with_writes] = &call.commands;
    let mut passes = call.conditions.clone();
    passes.extend((!all.is_empty()).then(|| all.join(" ")));
    passes.extend((!with_writes.is_empty()).then(|| format!("writes: {}", with_writes.join(" "))));
    row.push(passes.join("; "));
    row
}

/// What this machine has to confine with, and how far each promise would be kept for a program
/// that is started for one call.
fn confinement(parts: &Parts, asked: Asked) -> Vec<Check> {
    let facts = parts.spawner.facts_of_groups();
    let means = Check {
        name: "confinement",
        ok: facts.landlock > 0 && facts.seccomp,
        finding: format!("as {}: {}", who(parts.environment.uid), means(&facts)),
    };
    let held = outlook(&Needs::default(), &facts);
    let held = held.iter().map(|held| promise(held.name(), held));
    let mut hosts = promise("network.allow", &hosts_held(&facts));
    // Only whoever asks for it lacks it.
    hosts.ok |= !asked.hosts;
    let mut limits = promise("limits", &limits_held(LIMITS, &facts));
    limits.ok |= !asked.groups;
    let more = [hosts, limits];
    std::iter::once(means).chain(held).chain(more).collect()
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

/// What not every machine has, and tools that count ask for.
#[derive(Clone, Copy, Default)]
struct Asked {
    /// One names the hosts it may reach.
    hosts: bool,
    /// One has limits that must hold all its processes together.
    groups: bool,
}

impl Asked {
    fn by(in_force: &InForce) -> Self {
        let Some(source) = in_force.source() else {
            return Self::default();
        };
        let mut asked = Self::default();
        for tool in &source.config.tools {
            asked.hosts |= matches!(tool.network, Some(NetworkConfig::Some(_)));
            let limits = tool.runner.as_ref().and_then(RunnerConfig::limits);
            asked.groups |= limits
                .map(LimitsConfig::of_tree)
                .is_some_and(|limits| limits.whole_tree && limits.any() || limits.cpu_percent);
        }
        asked
    }
}

/// Those that hold each process at least, wherever we are.
const LIMITS: TreeLimits = TreeLimits {
    memory: true,
    processes: true,
    cpu_seconds: true,
    cpu_percent: false,
    whole_tree: true,
};

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
        groups(facts),
    ]
    .join(", ")
}

/// What groups of processes can hold.
fn groups(facts: &Facts) -> String {
    let Cgroup {
        memory,
        processes,
        cpu_share,
        cpu_time,
    } = facts.cgroup;
    let held: Vec<&str> = [
        (memory, "memory"),
        (processes, "processes"),
        (cpu_share, "processor share"),
        (cpu_time, "processor time"),
    ]
    .into_iter()
    .filter_map(|(held, word)| held.then_some(word))
    .collect();
    match held.is_empty() {
        true => "no cgroups (root, or a delegated group)".to_owned(),
        false => format!("cgroups for {}", held.join(", ")),
    }
}

/// Whether the configuration loads, whether its rules meet tools, and whether the programs it
/// names are there.
fn configuration(parts: &Parts, in_force: InForce) -> Vec<Check> {
    let check = |name, ok, finding| Check { name, ok, finding };
    let (note, well) = (in_force.note(), in_force.doubt().is_none());
    let mut checks = match (&in_force.basis, in_force.source()) {
        (Basis::Nothing(_), _) => return vec![check("configuration", false, note)],
        (_, Some(source)) => {
            let missing = missing_reads(&parts.paths, &source.config).into_iter();
            let mut checks = programs(parts, &source.config);
            checks.extend(missing.map(|finding| check("reads", false, finding)));
            checks
        }
        (_, None) => Vec::new(),
    };
    match parts.setup_in_force(in_force) {
        Ok(setup) => {
            let doubts = warnings(&setup).into_iter();
            checks.splice(0..0, doubts.map(|doubt| check("policy", false, doubt)));
            checks.insert(0, check("configuration", well, setup.note));
        }
        Err(error) => {
            let finding = format!("{note}, but does not load: {}", chain(&error));
            checks.insert(0, check("configuration", false, finding));
        }
    }
    checks
}

/// A finding for each tool, and for the planner, whose program is not there or can not be started;
/// else one for all.
fn programs(parts: &Parts, config: &Config) -> Vec<Check> {
    let planner = config.planner.tool();
    let runners = config
        .tools
        .iter()
        .map(|tool| (format!("tool `{}`", tool.name), tool))
        .chain(planner.iter().map(|tool| ("[planner]".to_owned(), tool)))
        .filter_map(|(whose, tool)| tool.runner.as_ref().map(|runner| (whose, runner)));
    let missing: Vec<Check> = runners
        .clone()
        .filter_map(|(whose, runner)| {
            let found = program_of(&parts.environment, &parts.paths.workspace, runner);
            found.err().map(|reason| Check {
                name: "program",
                ok: false,
                finding: format!("{whose}: {reason}"),
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
