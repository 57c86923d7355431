//! Edits of each client's files: what leaves, what stays, and how the text looks.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use callgate_importer::{
    ClientFile, Edit, EditError, Selection, TextEditError, Transport, find, find_in_project,
    plan_beside, plan_replace, read,
};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{Desk, own_entry};

fn replace(file: &ClientFile) -> Edit {
    let settings = read(file).unwrap();
    plan_replace(file, &settings, &Selection::All, &own_entry(file.client)).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn servers_leave_and_one_entry_stays() {
    let desk = Desk::full();
    let mut shown = String::new();
    for file in find(&desk.home()) {
        writeln!(shown, "{}", replace(&file).diff()).unwrap();
    }
    assert_snapshot!(desk.masked(&shown));
}

#[test]
fn an_entry_is_put_beside_the_servers() {
    let desk = Desk::full();
    let mut files = find(&desk.home());
    files.extend(find_in_project(&desk.home(), &desk.project()));
    let mut shown = String::new();
    for file in files {
        let settings = read(&file).unwrap();
        let edit = plan_beside(&file, &settings, &own_entry(file.client)).unwrap();
        writeln!(shown, "{}", edit.diff()).unwrap();
    }
    assert_snapshot!(desk.masked(&shown));
}

/// Parses a file as its client does, by other parsers than those of the crate.
fn parsed(path: &str, content: &str) -> Value {
    let content = content.trim_start_matches('\u{feff}');
    if path.ends_with(".toml") {
        return serde_json::to_value(toml::from_str::<toml::Table>(content).unwrap()).unwrap();
    }
    // Plain JSON has to stay plain.
    serde_json::from_str(content).unwrap_or_else(|_| {
        let plain = without_extensions(content);
        serde_json::from_str(&plain).unwrap_or_else(|error| panic!("{path}: {error}\n{plain}"))
    })
}

/// Returns JSON without comments and trailing commas.
fn without_extensions(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        let rest = &text[at..];
        let skipped = match char {
            '"' => {
                let mut is_escaped = false;
                let end = rest[1..].find(|char| {
                    let is_end = char == '"' && !is_escaped;
                    is_escaped = char == '\\' && !is_escaped;
                    is_end
                });
                let len = end.unwrap() + 2;
                plain.push_str(&rest[..len]);
                len
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").unwrap() + 2,
            '}' | ']' => {
                let len = plain.trim_end().trim_end_matches(',').len();
                if plain.trim_end().ends_with(',') {
                    plain.truncate(len);
                }
                plain.push(char);
                1
            }
            _ => {
                plain.push(char);
                char.len_utf8()
            }
        };
        let end = at + skipped;
        while chars.offset() < end {
            chars.next();
        }
    }
    plain
}

/// Every fixture, with each line end and with a byte order mark.
#[test]
fn everything_but_the_servers_stays_as_it_was() {
    for (has_crlf, has_bom) in [(false, false), (true, false), (false, true), (true, true)] {
        let desk = Desk::full();
        for file in find(&desk.home()) {
            let mut content = std::fs::read_to_string(&file.path).unwrap();
            if has_crlf {
                content = content.replace('\n', "\r\n");
            }
            if has_bom {
                content.insert(0, '\u{feff}');
            }
            std::fs::write(&file.path, &content).unwrap();
            let path = file.path.display().to_string();
            let settings = read(&file).unwrap_or_else(|error| panic!("{path}: {error:?}"));
            let edit = replace(&file);
            let after = text(&edit.after);
            assert_eq!(after.starts_with('\u{feff}'), has_bom, "{path}");
            let lone = after.replace("\r\n", "").contains('\n');
            assert_eq!(lone, !has_crlf && after.contains('\n'), "{path}");
            assert_eq!(
                edit.removed.len() + natives(&settings.servers),
                settings.servers.len()
            );
            if path.ends_with(".yaml") {
                // Everything but the lines of servers, in order.
                let kept = |text: &str| -> Vec<String> {
                    let lines = text.lines().map(|line| line.trim_end().to_owned());
                    let kept = |line: &String| line.contains('#') || !line.starts_with(' ');
                    lines
                        .filter(|line| !line.is_empty() && kept(line))
                        .collect()
                };
                assert_eq!(kept(&content), kept(after), "{path}");
                continue;
            }
            let mut before = parsed(&path, &content);
            let mut after = parsed(&path, after);
            let mut own = 0;
            for at in &edit.removed {
                let (table, _) = at.rsplit_once('/').unwrap();
                let table = after.pointer_mut(table).unwrap();
                own += usize::from(table.as_object_mut().unwrap().remove("callgate").is_some());
                let (table, name) = at.rsplit_once('/').unwrap();
                let name = name.replace("~1", "/").replace("~0", "~");
                let table = before.pointer_mut(table).unwrap();
                table.as_object_mut().unwrap().remove(&name).unwrap();
            }
            if edit.removed.is_empty() {
                continue;
            }
            assert!(own >= 1, "{path}");
            assert_eq!(before, after, "{path}");
        }
    }
}

fn natives(servers: &[callgate_importer::FoundServer]) -> usize {
    let stays = |transport: &Transport| {
        matches!(
            transport,
            Transport::Native { .. } | Transport::Other { .. }
        )
    };
    servers
        .iter()
        .filter(|server| stays(&server.transport))
        .count()
}

#[test]
fn an_edit_can_be_made_again() {
    let desk = Desk::full();
    for file in find(&desk.home()) {
        let first = replace(&file);
        std::fs::write(&file.path, &first.after).unwrap();
        let second = replace(&file);
        assert_eq!(
            text(&first.after),
            text(&second.after),
            "{}",
            file.path.display()
        );
        let settings = read(&file).unwrap();
        let ours = settings.servers.iter().filter(|server| server.is_ours);
        assert!(ours.count() >= 1, "{}", file.path.display());
        let beside = plan_beside(&file, &settings, &own_entry(file.client)).unwrap();
        assert!(beside.is_empty(), "{}", beside.diff());
    }
}

#[test]
fn only_the_selected_servers_leave() {
    let text =
        r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}}}"#;
    for (selected, left) in [
        (vec!["/mcpServers/a"], vec!["callgate", "b", "c"]),
        (vec!["/mcpServers/b"], vec!["a", "callgate", "c"]),
        (vec!["/mcpServers/c"], vec!["a", "b", "callgate"]),
        (
            vec!["/mcpServers/a", "/mcpServers/c"],
            vec!["callgate", "b"],
        ),
        (
            vec!["/mcpServers/b", "/mcpServers/c"],
            vec!["a", "callgate"],
        ),
        (vec![], vec!["a", "b", "c", "callgate"]),
    ] {
        for text in [
            text.to_owned(),
            text.replace(", \"", ",\n  \""),
            text.replace("}}}", "},}}"),
        ] {
            let desk = Desk::with(".cursor/mcp.json", &text);
            let file = desk.file();
            let settings = read(&file).unwrap();
            let pointers = selected.iter().map(|at| (*at).to_owned()).collect();
            let selection = Selection::Only(pointers);
            let edit = plan_replace(&file, &settings, &selection, &own_entry("cursor")).unwrap();
            std::fs::write(&file.path, &edit.after).unwrap();
            let names: Vec<_> = read(&file).unwrap().servers;
            let names: Vec<_> = names.iter().map(|server| server.name.as_str()).collect();
            assert_eq!(names, left, "{text}");
        }
    }
}

#[test]
fn tables_that_are_not_there_are_made() {
    for (path, before, after) in [
        (
            ".cursor/mcp.json",
            "",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "// nothing yet\n",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "{\n  \"mcpServers\": null\n}",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".continue/config.json",
            "{\"a\": 1}",
            json!({"a": 1, "experimental": {"modelContextProtocolServers": [0]}}),
        ),
        (
            ".cursor/mcp.json",
            "{}",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "{\n}\n",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "{ // none\n}\n",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "{ /* none */ }",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "{\"mcpServers\": {}}",
            json!({"mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "{\"a\": 1}",
            json!({"a": 1, "mcpServers": {"callgate": 0}}),
        ),
        (
            ".cursor/mcp.json",
            "{\n  \"a\": 1, // one\n}",
            json!({"a": 1, "mcpServers": {"callgate": 0}}),
        ),
        (
            ".config/Code/User/settings.json",
            "{\n \"a\": 1 // one\n}",
            json!({"a": 1, "mcp": {"servers": {"callgate": 0}}}),
        ),
        (
            ".codex/config.toml",
            "",
            json!({"mcp_servers": {"callgate": 0}}),
        ),
        (
            ".codex/config.toml",
            "a = 1",
            json!({"a": 1, "mcp_servers": {"callgate": 0}}),
        ),
        (
            ".codex/config.toml",
            "[a]\nb = 1\n",
            json!({"a": {"b": 1}, "mcp_servers": {"callgate": 0}}),
        ),
        (
            ".codex/config.toml",
            "[mcp_servers]\n",
            json!({"mcp_servers": {"callgate": 0}}),
        ),
        (
            ".codex/config.toml",
            "mcp_servers = {}\n",
            json!({"mcp_servers": {"callgate": 0}}),
        ),
        (
            ".codex/config.toml",
            "mcp_servers = {callgate = {command = \"callgate\", args = [\"mcp\"]}}\n",
            json!({"mcp_servers": {"callgate": 0}}),
        ),
    ] {
        let desk = Desk::with(path, before);
        let file = desk.file();
        let settings = read(&file).unwrap();
        let edit = plan_beside(&file, &settings, &own_entry(file.client))
            .unwrap_or_else(|error| panic!("{before}: {error:?}"));
        let mut found = parsed(path, text(&edit.after));
        for at in [
            "/mcpServers/callgate",
            "/mcp/servers/callgate",
            "/mcp_servers/callgate",
        ] {
            if let Some(own) = found.pointer_mut(at) {
                assert_eq!(own["command"], "/opt/callgate");
                *own = json!(0);
            }
        }
        if let Some(own) = found.pointer_mut("/experimental/modelContextProtocolServers/0") {
            assert_eq!(own["transport"]["command"], "/opt/callgate");
            *own = json!(0);
        }
        assert_eq!(found, after, "{}", text(&edit.after));
    }
}

#[test]
fn yaml_tables_that_are_empty_are_filled() {
    for before in [
        "a: 1\n",
        "a: 1",
        "extensions: {} # none\na: 1\n",
        "a: 1\nextensions:\n",
        "a: 1\nextensions: {}",
        "extensions:\n  x:\n    type: stdio\n    cmd: x\na: 1",
        "",
        "# nothing yet\n",
    ] {
        let desk = Desk::with(".config/goose/config.yaml", before);
        let file = desk.file();
        let edit = replace(&file);
        std::fs::write(&file.path, &edit.after).unwrap();
        let settings = read(&file).unwrap();
        let names: Vec<_> = settings.servers.iter().map(|server| &server.name).collect();
        assert_eq!(names, ["callgate"], "{}", text(&edit.after));
        assert_eq!(text(&edit.after).contains("a: 1"), before.contains("a: 1"));
        assert_eq!(text(&edit.after).contains('#'), before.contains('#'));
    }
}

#[test]
fn toml_servers_leave_in_every_form() {
    for before in [
        "mcp_servers = { a = { command = \"a\" }, b = { command = \"b\" } }\nx = 1\n",
        "mcp_servers.a.command = \"a\"\nmcp_servers.b.command = \"b\"\nx = 1\n",
        "x = 1\n[mcp_servers]\na = { command = \"a\" }\nb.command = \"b\"\n",
        "x = 1\n[mcp_servers.a]\ncommand = \"a\"\n[y]\nz = 1\n[mcp_servers.b]\ncommand = \"b\"\n",
        "x = 1\n\n[mcp_servers]\n\n[mcp_servers.a]\ncommand = '''a'''\n",
    ] {
        let desk = Desk::with(".codex/config.toml", before);
        let file = desk.file();
        let edit = replace(&file);
        let found = parsed("a.toml", text(&edit.after));
        let names: Vec<_> = found["mcp_servers"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["callgate"], "{}", text(&edit.after));
        assert_eq!(found["x"], 1);
        let beside = plan_beside(&file, &read(&file).unwrap(), &own_entry("codex")).unwrap();
        let found = parsed("a.toml", text(&beside.after));
        assert!(
            found["mcp_servers"]["a"].is_object() && found["mcp_servers"]["callgate"].is_object()
        );
    }
}

#[test]
fn what_can_not_be_edited_is_refused() {
    let taken = r#"{"mcpServers": {"callgate": {"command": "other"}, "a": {"command": "a"}}}"#;
    let desk = Desk::with(".cursor/mcp.json", taken);
    let file = desk.file();
    let settings = read(&file).unwrap();
    let beside = plan_beside(&file, &settings, &own_entry("cursor"));
    assert!(matches!(beside, Err(EditError::NameTaken { at }) if at == "/mcpServers/callgate"));
    let unknown = Selection::Only(BTreeSet::from(["/mcpServers/b".to_owned()]));
    let unknown = plan_replace(&file, &settings, &unknown, &own_entry("cursor"));
    assert!(matches!(unknown, Err(EditError::UnknownServer { at }) if at == "/mcpServers/b"));

    for (path, content) in [
        (
            ".cursor/mcp.json",
            r#"{"mcpServers": {"a": {"command": "a"}}, "mcpServers": {}}"#,
        ),
        (".cursor/mcp.json", r#"{"mcpServers": []}"#),
        (
            ".config/goose/config.yaml",
            "extensions: {a: {type: stdio, cmd: a}}\n",
        ),
        (
            ".config/goose/config.yaml",
            "x: &x\n  a: {type: stdio, cmd: a}\nextensions: *x\n",
        ),
    ] {
        let desk = Desk::with(path, content);
        let file = desk.file();
        let settings = read(&file).unwrap();
        let edit = plan_replace(&file, &settings, &Selection::All, &own_entry(file.client));
        let Err(EditError::Text { source, .. }) = edit else {
            panic!("{content}: {edit:?}");
        };
        let is_expected = matches!(
            source,
            TextEditError::Ambiguous { .. }
                | TextEditError::NoTable { .. }
                | TextEditError::Form { .. }
                | TextEditError::Unverified
        );
        assert!(is_expected);
    }
}

#[test]
fn a_difference_shows_no_secret() {
    let desk = Desk::full();
    for file in find(&desk.home()) {
        let settings = read(&file).unwrap();
        let shown = replace(&file).diff();
        let secrets = settings.servers.iter().flat_map(|server| &server.secrets);
        for secret in secrets.filter_map(|secret| secret.value.as_ref()) {
            assert!(!shown.contains(secret.reveal()), "{shown}");
        }
    }
}

/// An entry for all sessions serves those of a folder too.
#[test]
fn servers_of_a_folder_have_an_entry_there_only_if_there_is_no_other() {
    let local =
        r#""projects": {"/srv/app": {"mcpServers": {"b": {"command": "b"}}}, "/x": {"y": 1}}"#;
    for (user, expected) in [
        (
            r#""mcpServers": {"a": {"command": "a"}}, "#,
            ["/mcpServers/callgate"],
        ),
        (
            "\"mcpServers\": {}, ",
            ["/projects/~1srv~1app/mcpServers/callgate"],
        ),
        ("", ["/projects/~1srv~1app/mcpServers/callgate"]),
    ] {
        let desk = Desk::with(".claude.json", format!("{{{user}{local}}}"));
        let file = desk.file();
        let edit = replace(&file);
        std::fs::write(&file.path, &edit.after).unwrap();
        let settings = read(&file).unwrap();
        let pointers: Vec<_> = settings
            .servers
            .iter()
            .map(|server| server.pointer.as_str())
            .collect();
        assert_eq!(pointers, expected);
    }
}
