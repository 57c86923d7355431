//! `callgate trust`: the owner's word that the configuration counts as it is now.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::cli::{Done, Place};
use crate::compose::{Builtins, chain, warnings};
use crate::config::RunnerConfig;
use crate::environment::Environment;
use crate::project::{Code, code_home};
use crate::show;
use crate::trust::Found;
use crate::workspace::{CONFIG_FILE, Source};

/// Trust this workspace's configuration as it is now.
///
/// The trust covers callgate.toml and the schemas and packs it refers to, and of a namel3ss
/// project namel3ss.toml, the bindings and every file of its packs; not the code of other
/// tools. A running gate follows within a second or two.
#[derive(Args)]
pub struct Trust {
    /// Only show what would be trusted
    #[arg(long)]
    show: bool,
    /// Take the trust back: only built-in tools are served
    #[arg(long, conflicts_with = "show")]
    revoke: bool,
}

pub fn run(environment: &Environment, place: &Place, trust: &Trust) -> Done {
    let parts = super::open(environment, place)?;
    if trust.revoke {
        let was = parts
            .store
            .untrust(CONFIG_FILE)
            .map_err(|error| chain(&error))?;
        if place.json {
            show::json(&json!({ "trusted": false, "was_trusted": was }));
        } else {
            show::say(if was {
                "no longer trusted"
            } else {
                "it was not trusted"
            });
        }
        super::close(&parts);
        return Ok(ExitCode::SUCCESS);
    }
    let source =
        Source::of_workspace(environment, &parts.paths.workspace).map_err(|error| chain(&error))?;
    let (digest, file) = (source.digest, source.file.clone());
    let summary = summary(&source);
    let codes = codes(&source);
    // Nothing is trusted that would not load.
    let setup = parts
        .setup_of(source, Builtins::With, String::new())
        .map_err(|error| format!("not trusted: {}", chain(&error)))?;
    for warning in warnings(&setup) {
        show::warn(&warning);
    }
    let trusted = if trust.show {
        let found = Found::look(parts.environment, &parts.paths, &parts.store)
            .map_err(|error| chain(&error))?;
        show::say(&found.note());
        matches!(found, Found::Trusted(_))
    } else {
        parts
            .store
            .trust(CONFIG_FILE, digest)
            .map_err(|error| chain(&error))?;
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
            })).collect::<Vec<_>>(),
        }));
    } else {
        show::table(&["TOOL", "TIER", "RUNS"], &summary);
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
    source
        .config
        .tools
        .iter()
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
            vec![tool.name.clone(), tier, runs]
        })
        .collect()
}
