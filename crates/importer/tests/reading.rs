//! What is read of each client's files.

use std::fmt::Write as _;

use callgate_importer::{
    ClientFile, CommandKind, FoundServer, Home, Severity, Template, Transport, client_names,
    file_at, find, find_in_project, read,
};
use insta::assert_snapshot;

use crate::Desk;

/// The files of a home with all that is read of them, as text.
fn described(files: &[ClientFile]) -> String {
    let mut text = String::new();
    for file in files {
        let settings = read(file).unwrap();
        writeln!(text, "== {}: {}", file.client, file.path.display()).unwrap();
        for input in &settings.inputs {
            writeln!(text, "{input:?}").unwrap();
        }
        for problem in &settings.problems {
            writeln!(
                text,
                "{:?} at `{}`: {}",
                problem.severity, problem.pointer, problem.text
            )
            .unwrap();
        }
        for server in &settings.servers {
            describe(server, &mut text);
        }
    }
    text
}

fn describe(server: &FoundServer, to: &mut String) {
    writeln!(
        to,
        "{} ({:?}) {}",
        server.name, server.scope, server.pointer
    )
    .unwrap();
    let mut line = |name: &str, value: String| writeln!(to, "  {name}: {value}").unwrap();
    match &server.transport {
        Transport::Stdio { command, args, cwd } => {
            let args: Vec<_> = args.iter().map(Template::to_text).collect();
            line("stdio", format!("{} {args:?}", command.to_text()));
            if let Some(cwd) = cwd {
                line("cwd", cwd.to_text());
            }
        }
        Transport::Http { url, or_sse } => {
            line(if *or_sse { "http or sse" } else { "http" }, url.to_text());
        }
        Transport::Sse { url } => line("sse", url.to_text()),
        other => line("transport", format!("{other:?}")),
    }
    if server.command_kind != CommandKind::Direct {
        line("kind", format!("{:?}", server.command_kind));
    }
    for (name, value) in &server.env {
        line("env", format!("{name}={}", value.to_text()));
    }
    for (name, value) in &server.headers {
        line("header", format!("{name}: {}", value.to_text()));
    }
    if let Some(file) = &server.env_file {
        line("env file", file.to_text());
    }
    if let Some(oauth) = &server.oauth {
        line("oauth", oauth.clone());
    }
    if let Some(allow) = &server.filter.allow {
        line("allow", allow.join(" "));
    }
    if !server.filter.deny.is_empty() {
        line("deny", server.filter.deny.join(" "));
    }
    if server.disabled {
        line("disabled", "yes".to_owned());
    }
    if let Some(ms) = server.start_timeout_ms {
        line("start timeout ms", ms.to_string());
    }
    if let Some(ms) = server.call_timeout_ms {
        line("call timeout ms", ms.to_string());
    }
    if let Some(sandbox) = &server.sandbox {
        line("sandbox", format!("{sandbox:?}"));
    }
    for secret in &server.secrets {
        let value = secret.value.as_ref().map(|value| value.reveal());
        line(
            "secret",
            format!("{:?} {:?} {value:?}", secret.field, secret.reason),
        );
    }
    for lost in &server.not_carried {
        line(
            "not carried",
            format!("{:?} `{}`: {}", lost.severity, lost.field, lost.why),
        );
    }
}

#[test]
fn every_field_of_every_client_is_read_or_reported() {
    let desk = Desk::full();
    let files = find(&desk.home());
    let clients: std::collections::BTreeSet<_> = files.iter().map(|file| file.client).collect();
    assert_eq!(
        clients.len(),
        client_names().len(),
        "a client without a fixture"
    );
    assert_snapshot!(desk.masked(&described(&files)));
}

#[test]
fn files_of_a_project_are_found_apart() {
    let desk = Desk::full();
    let project = desk.project();
    desk.write(
        ".claude.json",
        format!(
            r#"{{"projects": {{{:?}: {{"disabledMcpjsonServers": ["banned"]}}}}}}"#,
            project.to_str().unwrap()
        ),
    );
    let files = find_in_project(&desk.home(), &project);
    assert_snapshot!(desk.masked(&described(&files)));
}

#[test]
fn the_folder_of_claude_is_used_when_it_is_set() {
    let desk = Desk::with(
        "claude/.claude.json",
        r#"{"mcpServers": {"a": {"command": "a"}}}"#,
    );
    desk.write(
        "claude/settings.json",
        r#"{"permissions": {"deny": ["mcp__a__x"]}}"#,
    );
    let home = Home {
        claude_config_dir: Some(desk.home().home.join("claude")),
        ..desk.home()
    };
    let settings = read(&find(&home)[0]).unwrap();
    assert_eq!(settings.servers[0].filter.deny, ["x"]);
    assert!(find(&desk.home()).is_empty());
}

#[test]
fn a_filter_that_can_not_be_read_is_an_error() {
    let desk = Desk::with(".claude.json", r#"{"mcpServers": {"a": {"command": "a"}}}"#);
    desk.write(".claude/settings.json", "{ \"permissions\": ");
    let settings = read(&desk.file()).unwrap();
    assert_eq!(settings.problems[0].severity, Severity::Error);

    let desk = Desk::with(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"a": {"command": "a", "allowedTools": ["x"], "colour": 1}}}"#,
    );
    let settings = read(&desk.file()).unwrap();
    let lost: Vec<_> = settings.servers[0]
        .not_carried
        .iter()
        .map(|lost| (lost.field.as_str(), lost.severity))
        .collect();
    let expected = [
        ("allowedTools", Severity::Error),
        ("colour", Severity::Note),
    ];
    assert_eq!(lost, expected);
}

#[test]
fn our_own_entry_is_recognised() {
    for (entry, is_ours) in [
        (
            r#"{"command": "/opt/callgate", "args": ["mcp", "--client", "cursor"]}"#,
            true,
        ),
        (r#"{"command": "callgate", "args": ["bridge"]}"#, true),
        (r#"{"command": "callgate --workspace /srv mcp"}"#, true),
        (
            r#"{"command": "sh", "args": ["-c", "exec /opt/callgate mcp"]}"#,
            true,
        ),
        (
            r#"{"command": "env", "args": ["A=1", "callgate", "mcp"]}"#,
            true,
        ),
        (r#"{"command": "callgate", "args": ["serve"]}"#, false),
        (r#"{"command": "callgate-tools", "args": ["mcp"]}"#, false),
        (r#"{"command": "npx", "args": ["mcp"]}"#, false),
    ] {
        let text = format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
        let desk = Desk::with(".cursor/mcp.json", text);
        let settings = read(&desk.file()).unwrap();
        assert_eq!(settings.servers[0].is_ours, is_ours, "{entry}");
    }
}

#[test]
fn secrets_are_not_printed() {
    let desk = Desk::full();
    for file in find(&desk.home()) {
        let settings = read(&file).unwrap();
        for server in &settings.servers {
            let shown = format!("{server:?}");
            for secret in server
                .secrets
                .iter()
                .filter_map(|secret| secret.value.as_ref())
            {
                let is_oauth = server
                    .oauth
                    .as_ref()
                    .is_some_and(|oauth| oauth.contains(secret.reveal()));
                assert!(is_oauth || !shown.contains(secret.reveal()), "{shown}");
            }
        }
    }
}

#[test]
fn a_file_that_stands_elsewhere_is_one_of_a_client() {
    let desk = Desk::full();
    let home = desk.home();
    let json = desk.folder.write("else/claude_desktop_config.json", "{}");
    let toml = desk.folder.write("else/mine.toml", "");
    let other = desk.folder.write("else/mine.json", "{}");
    let shared = desk.folder.write("else/mcp.json", "{}");
    let known = home.home.join(".kiro/settings/mcp.json");
    for (path, client, expected) in [
        (&json, None, Some("claude-desktop")),
        (&json, Some("cursor"), Some("cursor")),
        (&toml, None, None),
        (&toml, Some("codex"), Some("codex")),
        (&toml, Some("cursor"), None),
        (&other, None, None),
        (&shared, None, None),
        (&shared, Some("vscode"), Some("vscode")),
        (&other, Some("vscode"), Some("vscode")),
        (&other, Some("nobody"), None),
        (&known, None, Some("kiro")),
    ] {
        let file = file_at(&home, path, client);
        assert_eq!(
            file.map(|file| file.client),
            expected,
            "{} {client:?}",
            path.display()
        );
    }
}
