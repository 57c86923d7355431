//! Settings that apply to servers but stand outside of their entries: switches, filters of tools,
//! inputs, and files beside the settings file.

use super::entry::{read_sandbox, texts};
use super::{Settings, has_extras, read_companion, steps};
use crate::clients::Extra;
use crate::find::ClientFile;
use crate::model::{
    FoundServer, Input, NotCarried, Problem, SandboxProposal, Scope, Severity, Transport,
};
use crate::node::{Node, Step};

/// Adds what stands outside of the entries to the servers.
pub(super) fn apply(file: &ClientFile, settings: &mut Settings) {
    if !has_extras(file) {
        return;
    }
    let root = settings.document.root.clone();
    match file.place.extra {
        Extra::None => {}
        Extra::ClaudeCode => claude_code(file, &root, settings),
        Extra::VsCode => vs_code(&root, settings),
        Extra::Zed => zed(&root, &mut settings.servers),
        Extra::Gemini => gemini(&root, &mut settings.servers),
        Extra::Opencode => opencode(&root, &mut settings.servers),
    }
}

fn lose(server: &mut FoundServer, field: String, severity: Severity, why: &str) {
    server.not_carried.push(NotCarried {
        field,
        why: why.to_owned(),
        severity,
    });
}

fn list(node: Option<&Node>) -> Vec<String> {
    node.and_then(texts).unwrap_or_default()
}

/// Switches by folder, and permissions of tools.
fn claude_code(file: &ClientFile, root: &Node, settings: &mut Settings) {
    claude_switches(root, &mut settings.servers);
    for path in &file.companions {
        let field = path.display().to_string();
        match read_companion(path) {
            Ok(None) => {}
            Ok(Some(node)) => {
                claude_switches(&node, &mut settings.servers);
                for server in &mut settings.servers {
                    claude_permissions(&node, &field, server);
                }
            }
            Err(()) => settings.problems.push(Problem {
                pointer: String::new(),
                text: format!("`{field}` can not be read, and may remove tools"),
                severity: Severity::Error,
            }),
        }
    }
}

fn claude_switches(root: &Node, servers: &mut [FoundServer]) {
    let folders = root.get("projects").map_or(&[][..], Node::members);
    for folder in folders {
        let off = list(folder.node.get("disabledMcpServers"));
        let off_in_project = list(folder.node.get("disabledMcpjsonServers"));
        for server in servers.iter_mut() {
            match &server.scope {
                Scope::Local(own) if own.to_str() == Some(&folder.key) => {
                    server.disabled |= off.contains(&server.name);
                }
                Scope::Project(own) if own.to_str() == Some(&folder.key) => {
                    server.disabled |=
                        off.contains(&server.name) || off_in_project.contains(&server.name);
                }
                Scope::User if off.contains(&server.name) => {
                    let field = format!("projects.{}.disabledMcpServers", folder.key);
                    let why = "switched off in one folder; behind the gate it would be on there";
                    lose(server, field, Severity::Error, why);
                }
                _ => {}
            }
        }
    }
}

/// Rules name tools `mcp__SERVER__TOOL`. Behind the gate the names are others, so that a rule that
/// denies would no longer match: it becomes part of the filter.
fn claude_permissions(root: &Node, file: &str, server: &mut FoundServer) {
    let plain = |char: char| match char.is_ascii_alphanumeric() || "-_".contains(char) {
        true => char,
        false => '_',
    };
    let name: String = server.name.chars().map(plain).collect();
    let own = format!("mcp__{name}");
    for kind in ["deny", "ask", "allow"] {
        let rules = list(root.get("permissions").and_then(|rules| rules.get(kind)));
        for rule in rules {
            let tool = match rule.strip_prefix(&own) {
                Some("" | "__*") => "*",
                Some(rest) => match rest.strip_prefix("__") {
                    Some(tool) => tool,
                    None => continue,
                },
                None if rule == "mcp__*" => "*",
                None => continue,
            };
            if kind == "deny" {
                server.filter.deny.push(tool.to_owned());
            } else {
                let why = "a rule by the tool's present name, which changes behind the gate";
                let field = format!("{file}: permissions.{kind}: {rule}");
                lose(server, field, Severity::Note, why);
            }
        }
    }
}

/// Inputs, and limits that all servers of a file share.
fn vs_code(root: &Node, settings: &mut Settings) {
    for index in 0..settings.tables.len() {
        let table = &settings.tables[index];
        let above = match table.path.split_last() {
            // `mcp.servers` as one key has no table above it.
            Some((Step::Key(key), above)) if key == "servers" => root.at(above),
            _ => None,
        };
        let Some(above) = above.filter(|_| table.is_there) else {
            continue;
        };
        let inputs = above.get("inputs").map_or(&[][..], Node::items);
        settings.inputs.extend(inputs.iter().filter_map(input));
        let Some(shared) = above.get("sandbox") else {
            continue;
        };
        let mut proposal = SandboxProposal::default();
        let mut lost = Vec::new();
        let is_read = read_sandbox(shared, &mut proposal, &mut lost);
        let of_table = |server: &&mut FoundServer| server.place.table == index;
        for server in settings.servers.iter_mut().filter(of_table) {
            if !is_read {
                lose(
                    server,
                    "sandbox".to_owned(),
                    Severity::Error,
                    "of another form",
                );
            }
            match &mut server.sandbox {
                Some(own) => {
                    let enabled = own.enabled;
                    if own.clone()
                        == (SandboxProposal {
                            enabled,
                            ..SandboxProposal::default()
                        })
                    {
                        *own = SandboxProposal {
                            enabled,
                            ..proposal.clone()
                        };
                    }
                }
                None => server.sandbox = Some(proposal.clone()),
            }
        }
    }
    for server in &mut settings.servers {
        let mut asked: Vec<String> = Vec::new();
        let values = server
            .env
            .iter()
            .chain(&server.headers)
            .map(|(_, value)| value);
        let more: Vec<_> = match &server.transport {
            Transport::Stdio { command, args, .. } => {
                std::iter::once(command).chain(args).collect()
            }
            Transport::Http { url, .. } | Transport::Sse { url } => vec![url],
            Transport::Native { .. } | Transport::Other { .. } => Vec::new(),
        };
        for piece in values.chain(more).flat_map(|value| &value.pieces) {
            if let crate::model::Piece::Input(id) = piece
                && !asked.contains(id)
            {
                asked.push(id.clone());
            }
        }
        for id in asked {
            let why = match settings.inputs.iter().find(|input| input.id == id) {
                None => "an input that the file does not describe",
                Some(input) if input.kind == "command" => "an answer by a command of the client",
                Some(_) => continue,
            };
            lose(server, format!("inputs.{id}"), Severity::Error, why);
        }
    }
}

fn input(node: &Node) -> Option<Input> {
    let text = |key: &str| node.get(key).and_then(Node::as_text).map(str::to_owned);
    Some(Input {
        id: text("id")?,
        kind: text("type").unwrap_or_default(),
        description: text("description"),
        is_password: node.get("password").and_then(Node::as_bool) == Some(true),
        default: text("default"),
        options: list(node.get("options")),
    })
}

/// Tools that profiles of agents switch off. A profile has no counterpart at the gate.
fn zed(root: &Node, servers: &mut [FoundServer]) {
    let profiles = root.at(&steps(&["agent", "profiles"]));
    for profile in profiles.map_or(&[][..], Node::members) {
        let Some(in_profile) = profile.node.get("context_servers") else {
            continue;
        };
        for server in servers.iter_mut() {
            let tools = in_profile
                .get(&server.name)
                .and_then(|node| node.get("tools"));
            let tools = tools.map_or(&[][..], Node::members);
            let off = tools
                .iter()
                .filter(|tool| tool.node.as_bool() == Some(false))
                .count();
            if off > 0 {
                let field = format!(
                    "agent.profiles.{}.context_servers.{}.tools",
                    profile.key, server.name
                );
                let why = format!("tools switched off in one profile: {off}");
                lose(server, field, Severity::Error, &why);
            }
        }
    }
}

/// Servers that the file allows or excludes by name.
fn gemini(root: &Node, servers: &mut [FoundServer]) {
    let allowed = root.at(&steps(&["mcp", "allowed"])).and_then(texts);
    let excluded = list(root.at(&steps(&["mcp", "excluded"])));
    for server in servers {
        let is_left_out = allowed
            .as_ref()
            .is_some_and(|names| !names.contains(&server.name));
        server.disabled |= is_left_out || excluded.contains(&server.name);
    }
}

/// Tools that the file switches off by pattern, such as `server_delete*`.
fn opencode(root: &Node, servers: &mut [FoundServer]) {
    let switches = root.get("tools").map_or(&[][..], Node::members);
    for server in servers.iter_mut() {
        let prefix = opencode_prefix(&server.name);
        let mut has_exception = false;
        let denied = server.filter.deny.len();
        for switch in switches {
            let is_on = switch.node.as_bool() != Some(false);
            match (switch.key.strip_prefix(&prefix), is_on) {
                (Some(tool), false) => server.filter.deny.push(tool.to_owned()),
                (Some(_), true) => has_exception = true,
                (None, false) if may_match(&switch.key, &prefix) => {
                    if switch.key.trim_matches('*').is_empty()
                        || switch.key == prefix.trim_end_matches('_').to_owned() + "*"
                    {
                        server.filter.deny.push("*".to_owned());
                    } else {
                        let field = format!("tools.{}", switch.key);
                        let why = "a pattern that begins inside of the server's name";
                        lose(server, field, Severity::Error, why);
                    }
                }
                _ => {}
            }
        }
        if has_exception && server.filter.deny.len() > denied {
            let why = "exceptions from patterns that switch tools off";
            lose(server, "tools".to_owned(), Severity::Error, why);
        }
        for agent in root.get("agent").map_or(&[][..], Node::members) {
            let tools = agent.node.get("tools").map_or(&[][..], Node::members);
            let names_server = |key: &str| key.starts_with(&prefix) || may_match(key, &prefix);
            if tools.iter().any(|tool| names_server(&tool.key)) {
                let field = format!("agent.{}.tools", agent.key);
                lose(
                    server,
                    field,
                    Severity::Error,
                    "tools switched for one agent",
                );
            }
        }
    }
}

fn opencode_prefix(name: &str) -> String {
    let plain = |char: char| match char.is_ascii_alphanumeric() || "-_".contains(char) {
        true => char,
        false => '_',
    };
    let mut prefix: String = name.chars().map(plain).collect();
    prefix.push('_');
    prefix
}

/// Returns whether a pattern with a `*` inside of the prefix may match a tool of the server.
fn may_match(pattern: &str, prefix: &str) -> bool {
    match pattern.find('*') {
        Some(star) => star < prefix.len() && prefix.starts_with(&pattern[..star]),
        None => false,
    }
}
