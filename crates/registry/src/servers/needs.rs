//! What a server gets: its preset, and on top of that what its table says.

use std::path::PathBuf;

use callgate_call::{
    Asker, FORWARDS_MAX, Guarantee, Guarantees, Ipc, Isolation, Needs, Network, Tier,
};

use callgate_runners::Allowed;

use crate::config::{PresetConfig, ServerConfig};
use crate::needs::{Ground, NeedsError, bounded_paths, network_of};

/// Files of the kernel that language runtimes read at their start: without them Node counts no
/// processors and DuckDB aborts.
const KERNEL_FILES: [&str; 2] = ["/sys/devices/system/cpu", "/sys/fs/cgroup"];

/// Variables by which `git` runs no hook and reads no settings but the repository's.
const GIT_VARIABLES: [(&str, &str); 5] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "core.hooksPath"),
    ("GIT_CONFIG_VALUE_0", "/dev/null"),
];

/// The variables that a preset adds.
pub fn variables_of(preset: PresetConfig) -> &'static [(&'static str, &'static str)] {
    match preset {
        PresetConfig::Git => &GIT_VARIABLES,
        PresetConfig::Base
        | PresetConfig::Pure
        | PresetConfig::Files
        | PresetConfig::Web
        | PresetConfig::Service
        | PresetConfig::Browser
        | PresetConfig::Off => &[],
    }
}

/// Returns whether a preset has a home that is kept between starts.
pub fn keeps_home(preset: PresetConfig) -> bool {
    preset != PresetConfig::Pure
}

/// The needs of a server's processes. `package` is the folder of its installed package.
pub fn needs(
    ground: &Ground,
    config: &ServerConfig,
    package: Option<PathBuf>,
) -> Result<Needs, NeedsError> {
    bounded_paths(&config.reads, &config.writes)?;
    let network = network_of(config.network.as_ref())?;
    let mut guarantees = Guarantees::default();
    let forwards = forwards(config)?;
    if network == Network::None && forwards.is_empty() {
        guarantees.require(Guarantee::NoNetwork, Asker::Engine);
    }
    if config.preset == PresetConfig::Pure {
        guarantees.require(Guarantee::NoSubprocess, Asker::Engine);
        if config.writes.is_empty() {
            guarantees.require(Guarantee::NoFilesystemWrite, Asker::Engine);
        }
    }
    let mut reads = ground.outside("reads", &config.reads)?;
    reads.extend(KERNEL_FILES.map(PathBuf::from));
    let writes = ground.outside("writes", &config.writes)?;
    Ok(Needs {
        guarantees,
        reads,
        writes,
        code: package.into_iter().collect(),
        network,
        forwards,
        unconfined: config.preset == PresetConfig::Off,
        isolation: Isolation::Worker,
        limits: config.limits.of_tree(),
        ipc: match config.preset {
            PresetConfig::Browser => Ipc::Local,
            PresetConfig::Off => Ipc::None,
            _ => Ipc::Private,
        },
        ..ground.own_needs()
    })
}

/// The ports on a server's loopback that lead elsewhere.
fn forwards(config: &ServerConfig) -> Result<Vec<(u16, String)>, NeedsError> {
    if config.forward.len() > FORWARDS_MAX {
        return Err(NeedsError::Forwards(config.forward.len()));
    }
    let forward = |(port, target): (&String, &String)| {
        let wrong = || NeedsError::Forward(format!("{port} = {target}"));
        let number: u16 = port.parse().map_err(|_| wrong())?;
        let host = Allowed::parse(std::slice::from_ref(target)).map_err(NeedsError::Host)?;
        drop(host);
        match number > 0 && !target.contains('*') {
            true => Ok((number, target.clone())),
            false => Err(wrong()),
        }
    };
    config.forward.iter().map(forward).collect()
}

/// How dangerous a tool of a server is, by what the kernel enforces: the words of the server only
/// raise it.
pub fn tier(config: &ServerConfig, definition: &serde_json::Value) -> Tier {
    let has_network = config
        .network
        .as_ref()
        .is_some_and(|network| network.allows_any());
    let enforced = match config.preset {
        PresetConfig::Off => Tier::Dangerous,
        _ if has_network || !config.forward.is_empty() => Tier::System,
        PresetConfig::Git | PresetConfig::Browser => Tier::System,
        PresetConfig::Pure if config.writes.is_empty() => Tier::Safe,
        PresetConfig::Base
        | PresetConfig::Pure
        | PresetConfig::Files
        | PresetConfig::Web
        | PresetConfig::Service => Tier::Write,
    };
    let hint = |name| {
        let hint = definition
            .get("annotations")
            .and_then(|hints| hints.get(name));
        hint.and_then(serde_json::Value::as_bool)
    };
    let reads_only = hint("readOnlyHint") == Some(true);
    let destroys = hint("destructiveHint") == Some(true) && !reads_only;
    let is_open = hint("openWorldHint") == Some(true) && !reads_only;
    match (enforced, destroys || is_open) {
        (tier, false) => tier,
        (Tier::Safe, true) => Tier::Write,
        (Tier::Write, true) => Tier::System,
        (Tier::System | Tier::Dangerous, true) => Tier::Dangerous,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::parse;

    fn server(text: &str) -> ServerConfig {
        let text = format!("[[server]]\nname = \"s\"\ncommand = [\"x\"]\n{text}");
        parse(&text).unwrap().servers.remove(0)
    }

    #[test]
    fn tiers_follow_what_is_enforced() {
        let none = json!({});
        let hints = |hints| json!({ "annotations": hints });
        let destroys = hints(json!({ "destructiveHint": true }));
        let is_open = hints(json!({ "openWorldHint": true }));
        let reads = hints(json!({ "readOnlyHint": true, "openWorldHint": true }));
        for (says, definition, tier_number) in [
            ("preset = \"pure\"", &none, 0),
            ("preset = \"pure\"", &destroys, 1),
            ("preset = \"pure\"\nwrites = [\"/x\"]", &none, 1),
            ("", &none, 1),
            ("", &is_open, 2),
            ("", &reads, 1),
            (
                "preset = \"web\"\nnetwork = { allow = [\"h:1\"] }",
                &none,
                2,
            ),
            (
                "preset = \"web\"\nnetwork = { allow = [\"h:1\"] }",
                &destroys,
                3,
            ),
            ("preset = \"web\"\nnetwork = { allow = [] }", &none, 1),
            (
                "preset = \"service\"\nforward = { \"5432\" = \"db:5432\" }",
                &none,
                2,
            ),
            ("preset = \"git\"", &none, 2),
            ("preset = \"off\"", &reads, 3),
        ] {
            let tier = tier(&server(says), definition);
            assert_eq!(tier.number(), tier_number, "{says} {definition}");
        }
    }
}
