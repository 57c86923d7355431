//! Classification of commands. Nothing is interpreted.

use crate::model::{CommandKind, Template};

/// Shells whose option `-c` takes a program text.
const SHELLS: [&str; 7] = ["sh", "bash", "zsh", "dash", "fish", "ksh", "ash"];
const WINDOWS_SHELLS: [&str; 4] = ["cmd", "cmd.exe", "powershell", "pwsh"];
const CONTAINERS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Returns what kind of command an entry has.
pub(super) fn kind(command: &Template, args: &[Template]) -> CommandKind {
    let text = command.to_text();
    let text = text.as_str();
    let first = text.split_whitespace().next().unwrap_or_default();
    // A path may have blanks; a word without a slash is the name of a program.
    if first != text && (args.is_empty() || !first.contains('/')) {
        return CommandKind::ShellLine;
    }
    let program = base_name(text);
    let first_arg = args.first().map(Template::to_text).unwrap_or_default();
    if SHELLS.contains(&program) {
        let mut options = args.iter().map(Template::to_text);
        let is_text = options
            .by_ref()
            .take_while(|arg| arg.starts_with('-'))
            .any(|arg| !arg.starts_with("--") && arg.contains('c'));
        return match is_text {
            true => CommandKind::Shell,
            false => CommandKind::Direct,
        };
    }
    if WINDOWS_SHELLS.contains(&program.to_ascii_lowercase().as_str()) {
        return CommandKind::Shell;
    }
    let is_run = first_arg == "run" || (first_arg == "container" && args.len() > 1);
    match CONTAINERS.contains(&program) && is_run {
        true => CommandKind::Container,
        false => CommandKind::Direct,
    }
}

/// Returns whether a command starts `callgate mcp` or `callgate bridge`, behind other words too.
pub(super) fn is_ours(command: &Template, args: &[Template]) -> bool {
    let texts = std::iter::once(command).chain(args);
    let texts: Vec<String> = texts.map(Template::to_text).collect();
    // A shell line holds several words in one text.
    let words: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .collect();
    words.iter().enumerate().any(|(index, word)| {
        let word = word.trim_matches(['"', '\'']);
        base_name(word) == "callgate"
            && words[index + 1..]
                .iter()
                .take_while(|word| !word.contains("&&"))
                .any(|word| ["mcp", "bridge"].contains(&word.trim_matches(['"', '\''])))
    })
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
