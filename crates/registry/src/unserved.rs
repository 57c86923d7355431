//! Which built-in tools a configuration leaves out, and why. The words are those of `Unserved`.

use callgate_call::{Tool, Unserved};
use callgate_gate::Catalog;
use callgate_tools::BUILTIN_NAMES;

use crate::config::Config;

/// Notes the built-in tools that are not served.
pub fn note(catalog: &mut Catalog, config: &Config) {
    for name in BUILTIN_NAMES {
        if let Some(why) = left_out(config, name) {
            catalog.leave_out(name, why);
        }
    }
}

/// Why a built-in tool is not served over MCP unless it is named; nothing if it is served.
pub fn hidden_over_mcp(config: &Config, tool: &Tool) -> Option<Unserved> {
    if !config.builtins.hides_over_mcp(&tool.name) || config.shelves(tool) {
        return None;
    }
    Some(match is_named_untrusted(config, &tool.name) {
        true => Unserved::AwaitsTrust,
        false => Unserved::NotMcpDefault,
    })
}

fn left_out(config: &Config, name: &str) -> Option<Unserved> {
    let mut present = config.restricted.iter().map(|words| &words.builtins);
    let trusted = &config.builtins;
    if !trusted.allows(name) && is_named_untrusted(config, name) {
        Some(Unserved::AwaitsTrust)
    } else if trusted.off || present.clone().any(|words| words.off) {
        Some(Unserved::BuiltinsOff)
    } else if !trusted.allows(name) || present.any(|words| !words.allows(name)) {
        Some(Unserved::NotAllowed)
    } else {
        let is_terminal = name.starts_with("terminals/");
        let is_run = name == "runs/start";
        let off = [
            ("exec", config.exec.off && (is_run || name == "exec/run")),
            ("runs", config.runs.off && is_run),
            ("terminals", config.terminals.off && is_terminal),
        ];
        let off = off.into_iter().find(|(_, is_off)| *is_off);
        off.map(|(section, _)| Unserved::SectionOff(section))
    }
}

/// Returns whether the file that is not trusted names a tool, so that trust would serve it.
fn is_named_untrusted(config: &Config, name: &str) -> bool {
    let mut present = config.restricted.iter().map(|words| &words.builtins);
    present.len() > 0 && present.all(|words| words.names(name))
}
