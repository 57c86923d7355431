//! Presets and hosts for servers that are known, and cautious guesses for others. A proposal is
//! shown before it counts, and never widens what a client's own limits allow.

use std::collections::BTreeMap;
use std::path::Path;

use callgate_importer::SandboxProposal;
use callgate_installer::PackageRequest;
use callgate_registry::servers::edit::NewServer;

/// A server that is known by its package.
struct Known {
    package: &'static str,
    preset: &'static str,
    hosts: &'static [&'static str],
}

/// The server that keeps a graph of what it was told in one file.
const MEMORY: &str = "@modelcontextprotocol/server-memory";

/// The variable with the path of that file.
const MEMORY_FILE: &str = "MEMORY_FILE_PATH";

/// Packages whose needs were measured.
const KNOWN: [Known; 23] = [
    known("@modelcontextprotocol/server-everything", "pure", &[]),
    known(
        "@modelcontextprotocol/server-sequential-thinking",
        "pure",
        &[],
    ),
    known("@modelcontextprotocol/server-filesystem", "files", &[]),
    known(MEMORY, "files", &[]),
    known(
        "@modelcontextprotocol/server-github",
        "web",
        &["api.github.com:443"],
    ),
    known(
        "@upstash/context7-mcp",
        "web",
        &["context7.com:443", "mcp.context7.com:443"],
    ),
    known(
        "@notionhq/notion-mcp-server",
        "web",
        &["api.notion.com:443"],
    ),
    known("@zereight/mcp-gitlab", "web", &["gitlab.com:443"]),
    known("@sentry/mcp-server", "web", &["sentry.io:443"]),
    known("firecrawl-mcp", "web", &["api.firecrawl.dev:443"]),
    known(
        "@modelcontextprotocol/server-slack",
        "web",
        &["slack.com:443"],
    ),
    known(
        "@modelcontextprotocol/server-brave-search",
        "web",
        &["api.search.brave.com:443"],
    ),
    known("@playwright/mcp", "browser", &[]),
    known("chrome-devtools-mcp", "browser", &[]),
    known("mcp-server-time", "pure", &[]),
    known("mcp-server-git", "git", &[]),
    known("mcp-server-sqlite", "files", &[]),
    known("mcp-server-motherduck", "files", &[]),
    known("duckduckgo-mcp-server", "web", &["html.duckduckgo.com:443"]),
    known("serena-agent", "git", &[]),
    known("@modelcontextprotocol/server-postgres", "service", &[]),
    known("mongodb-mcp-server", "service", &[]),
    known("redis-mcp-server", "service", &[]),
];

const fn known(
    package: &'static str,
    preset: &'static str,
    hosts: &'static [&'static str],
) -> Known {
    Known {
        package,
        preset,
        hosts,
    }
}

/// Gives a server a preset, hosts and paths, and returns the reason.
pub fn propose(
    server: &mut NewServer,
    request: Option<&PackageRequest>,
    sandbox: Option<&SandboxProposal>,
) -> &'static str {
    let known = request.and_then(|request| {
        KNOWN
            .iter()
            .find(|known| known.package == request.spec.name)
    });
    let paths: Vec<String> = server
        .args
        .iter()
        .filter(|arg| is_path(arg))
        .cloned()
        .collect();
    let why = match known {
        Some(known) => {
            server.preset = Some(known.preset);
            server.hosts = known.hosts.iter().map(|host| (*host).to_owned()).collect();
            match known.preset {
                "files" | "git" => server.writes = paths,
                _ => server.reads = paths,
            }
            if known.preset == "service" {
                server.forward = local_ports(server);
            }
            if known.package == MEMORY && !server.env.contains_key(MEMORY_FILE) {
                // Its usual place is its package, which it can not write.
                let file = "${server:home}/memory.jsonl".to_owned();
                server.env.insert(MEMORY_FILE.to_owned(), file);
            }
            "its package is known"
        }
        None => {
            server.reads = paths;
            if request.is_none() {
                // A script brings the folder that it is in.
                server.reads.extend(script_folder(&server.command));
                server.reads.sort();
                server.reads.dedup();
            }
            "nothing is known of it: no network, what it names can be read"
        }
    };
    if let Some(sandbox) = sandbox.filter(|sandbox| sandbox.enabled) {
        server.writes.extend(sandbox.allow_write.iter().cloned());
        if let Some(domains) = &sandbox.allowed_domains {
            server
                .hosts
                .extend(domains.iter().map(|domain| format!("{domain}:443")));
        }
        return "its client's own limits, and its package";
    }
    why
}

/// The ports of this machine in addresses like `postgresql://user@localhost:5432/x`. Those at other
/// hosts can not be forwarded: the server would still ask for the other host.
fn local_ports(server: &NewServer) -> BTreeMap<String, String> {
    let mut ports = BTreeMap::new();
    for text in server.args.iter().chain(server.env.values()) {
        let Some((_, after)) = text.split_once("://") else {
            continue;
        };
        let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
        let address = authority.rsplit('@').next().unwrap_or_default();
        let Some((host @ ("localhost" | "127.0.0.1"), port)) = address.rsplit_once(':') else {
            continue;
        };
        if port.parse::<u16>().is_ok_and(|port| port > 0) {
            ports.insert(port.to_owned(), format!("{host}:{port}"));
        }
    }
    ports
}

/// Returns whether an argument names something that is there.
fn is_path(arg: &str) -> bool {
    let path = Path::new(arg);
    path.is_absolute() && path.parent().is_some() && path.exists()
}

/// The folders of absolute files that a command names, but for system programs.
fn script_folder(command: &[String]) -> Vec<String> {
    const SYSTEM: [&str; 4] = ["/usr/", "/bin/", "/sbin/", "/opt/"];
    let files = command.iter().filter(|word| is_path(word));
    let own = files.filter(|word| !SYSTEM.iter().any(|system| word.starts_with(system)));
    let folders = own.filter_map(|word| Path::new(word).parent());
    let named = folders.filter(|folder| folder.parent().is_some());
    named
        .map(|folder| folder.to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_this_machine_are_forwarded() {
        for (text, wanted) in [
            (
                "postgresql://u:p@localhost:5432/app",
                Some("localhost:5432"),
            ),
            ("redis://127.0.0.1:6379", Some("127.0.0.1:6379")),
            ("postgresql://db.internal:5432/app", None),
            ("postgresql://localhost/app", None),
            ("redis://localhost:0/1", None),
            ("localhost:5432", None),
        ] {
            let server = NewServer {
                args: vec![text.to_owned()],
                ..NewServer::default()
            };
            let ports = local_ports(&server);
            assert_eq!(ports.values().map(String::as_str).next(), wanted, "{text}");
        }
    }
}
