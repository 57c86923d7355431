//! Files that were made to do harm, and files at the edges of each limit.

use std::fs;
use std::time::Duration;

use callgate_importer::{
    DEPTH_MAX, FILE_BYTES_MAX, FileError, ReadError, SERVERS_MAX, Severity, SyntaxError,
    find_in_project, read,
};

use crate::Desk;

const CURSOR: &str = ".cursor/mcp.json";
const CODEX: &str = ".codex/config.toml";
const GOOSE: &str = ".config/goose/config.yaml";

fn syntax_error(path: &str, content: impl AsRef<[u8]>) -> SyntaxError {
    let desk = Desk::with(path, content);
    match read(&desk.file()) {
        Err(ReadError::Syntax { source, .. }) => source,
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn a_file_is_read_up_to_its_limit() {
    for (over, is_read) in [(-1_i64, true), (0, true), (1, false)] {
        let text = r#"{"mcpServers": {"a": {"command": "a"}}}"#;
        let len = FILE_BYTES_MAX.checked_add_signed(over).unwrap() as usize;
        let text = format!("{text}{}", " ".repeat(len - text.len()));
        let desk = Desk::with(CURSOR, text);
        match read(&desk.file()) {
            Ok(settings) => assert!(is_read && settings.servers.len() == 1),
            Err(error) => {
                assert!(matches!(error, ReadError::File(FileError::TooLarge { .. })) && !is_read)
            }
        }
    }
}

#[test]
fn a_huge_file_is_not_read_at_all() {
    let desk = Desk::with(CURSOR, "{");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(desk.home().home.join(CURSOR))
        .unwrap();
    file.set_len(100 * 1024 * 1024).unwrap();
    let result = read(&desk.file());
    assert!(matches!(
        result,
        Err(ReadError::File(FileError::TooLarge { .. }))
    ));
}

#[test]
fn servers_are_read_up_to_their_number() {
    for count in [SERVERS_MAX - 1, SERVERS_MAX, SERVERS_MAX + 1] {
        let entries: Vec<_> = (0..count)
            .map(|at| format!(r#""s{at}": {{"command": "x"}}"#))
            .collect();
        let desk = Desk::with(
            CURSOR,
            format!("{{\"mcpServers\": {{{}}}}}", entries.join(",")),
        );
        let settings = read(&desk.file()).unwrap();
        assert_eq!(settings.servers.len(), count.min(SERVERS_MAX));
        let errors = settings
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error);
        assert_eq!(errors.count(), usize::from(count > SERVERS_MAX));
    }
}

#[test]
fn nesting_is_read_up_to_its_depth() {
    for (path, open, close) in [
        (CURSOR, "[", "]"),
        (GOOSE, "[", "]"),
        (CURSOR, "{\"a\":", "}"),
    ] {
        for depth in [DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, 5_000, 100_000] {
            let value = format!("{}0{}", open.repeat(depth), close.repeat(depth));
            let desk = Desk::with(path, value);
            let error = match read(&desk.file()) {
                Ok(_) => None,
                Err(ReadError::Syntax { source, .. }) => Some(source),
                Err(error) => panic!("{error:?}"),
            };
            let is_expected = match (depth <= DEPTH_MAX, error) {
                (true, None) | (false, Some(SyntaxError::TooDeep)) => true,
                // The library has limits of its own, which are not told apart.
                (false, Some(SyntaxError::Malformed { .. })) => path == GOOSE && depth > 1_000,
                _ => false,
            };
            assert!(is_expected, "{path} {open} {depth}");
        }
    }
    for depth in [10, 5_000, 100_000] {
        let value = format!("a = {}0{}", "[".repeat(depth), "]".repeat(depth));
        let desk = Desk::with(CODEX, value);
        assert_eq!(read(&desk.file()).is_ok(), depth == 10);
        // Dotted keys nest as well.
        let desk = Desk::with(CODEX, format!("{} = 1", vec!["a"; depth].join(".")));
        assert_eq!(read(&desk.file()).is_ok(), depth == 10);
        let desk = Desk::with(CODEX, format!("[{}]\nb = 1", vec!["a"; depth].join(".")));
        assert_eq!(read(&desk.file()).is_ok(), depth == 10);
    }
}

#[test]
fn aliases_of_aliases_end() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let below = level - 1;
        let names = vec![format!("*a{below}"); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{names}]\n"));
    }
    assert_eq!(syntax_error(GOOSE, text), SyntaxError::TooManyValues);
    assert!(matches!(
        syntax_error(GOOSE, "a: &a [*a]\n"),
        SyntaxError::Malformed { .. }
    ));
}

#[test]
fn broken_texts_are_refused_without_quoting_them() {
    for (path, content) in [
        (CURSOR, r#"{"mcpServers": {"a": {"command": s3cret}}}"#),
        (CURSOR, r#"{"mcpServers": "s3cret"#),
        (CURSOR, "{'s3cret': 1}"),
        (CURSOR, "{} s3cret"),
        (CURSOR, "{\"a\": s3cret\": 2}"),
        (CODEX, "a = s3cret"),
        (CODEX, "s3cret = 1\ns3cret = 2"),
        (CODEX, "[s3cret"),
        (GOOSE, "a: [s3cret"),
        (GOOSE, "a: \"s3cret"),
        (GOOSE, "a: *s3cret"),
        (GOOSE, "a: 1\n---\nb: s3cret"),
        (GOOSE, "? [s3cret]\n: 1"),
    ] {
        let error = syntax_error(path, content);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    for path in [CURSOR, CODEX, GOOSE] {
        let error = syntax_error(path, b"\xff\xfe{\x00}\x00");
        assert_eq!(error, SyntaxError::NotUtf8 { at: 0 });
        let error = syntax_error(path, b"a\xc3");
        assert_eq!(error, SyntaxError::NotUtf8 { at: 1 });
    }
}

#[test]
fn equal_keys_are_reported_and_the_last_one_counts() {
    let desk = Desk::with(
        CURSOR,
        r#"{"mcpServers": {"a": {"command": "one"}, "a": {"command": "two", "args": ["x"], "args": []}}}"#,
    );
    let settings = read(&desk.file()).unwrap();
    assert_eq!(settings.servers.len(), 1);
    assert!(
        settings
            .problems
            .iter()
            .any(|problem| problem.pointer == "/mcpServers/a")
    );
    let lost = &settings.servers[0].not_carried;
    assert!(lost.iter().any(|lost| lost.field == "args"), "{lost:?}");
}

#[test]
fn entries_of_other_kinds_are_reported() {
    for (entry, is_server) in [
        ("null", false),
        ("[]", false),
        ("\"npx\"", false),
        ("{}", false),
        (r#"{"command": 5}"#, false),
        (r#"{"command": ["a"]}"#, true),
        (r#"{"command": []}"#, false),
        (r#"{"command": "a", "args": "b"}"#, true),
        (r#"{"command": "a", "env": ["A=b"]}"#, true),
        (r#"{"type": "http"}"#, false),
    ] {
        let desk = Desk::with(CURSOR, format!("{{\"mcpServers\": {{\"a\": {entry}}}}}"));
        let settings = read(&desk.file()).unwrap();
        assert_eq!(settings.servers.len(), usize::from(is_server), "{entry}");
        assert_eq!(settings.problems.len(), usize::from(!is_server), "{entry}");
    }
    for content in [
        "[]",
        "3",
        "{\"mcpServers\": 3}",
        "{\"mcpServers\": []}",
        "{\"mcpServers\": null}",
    ] {
        let desk = Desk::with(CURSOR, content);
        assert_eq!(read(&desk.file()).unwrap().servers.len(), 0);
    }
}

#[test]
fn nothing_waits_for_a_pipe() {
    let desk = Desk::empty();
    fs::create_dir(desk.home().home.join(".cursor")).unwrap();
    let path = desk.home().home.join(CURSOR);
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &path,
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    let file = desk.file();
    let (done, is_done) = std::sync::mpsc::sync_channel(1);
    let reader = std::thread::spawn(move || done.send(read(&file)).is_ok());
    // Only a read that waits for a writer takes this long.
    let result = is_done.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(matches!(
        result,
        Err(ReadError::File(FileError::NotRegular { .. }))
    ));
    assert!(reader.join().unwrap());
}

#[test]
fn folders_and_broken_links_are_no_files() {
    let desk = Desk::empty();
    fs::create_dir_all(desk.home().home.join(CURSOR)).unwrap();
    let result = read(&desk.file());
    assert!(matches!(
        result,
        Err(ReadError::File(FileError::NotRegular { .. }))
    ));
    let desk = Desk::empty();
    fs::create_dir(desk.home().home.join(".cursor")).unwrap();
    std::os::unix::fs::symlink("mcp.json", desk.home().home.join(CURSOR)).unwrap();
    assert!(callgate_importer::find(&desk.home()).is_empty());
}

#[test]
fn a_project_does_not_lead_to_files_outside_of_it() {
    let desk = Desk::empty();
    let outside = desk.folder.write("outside.json", "{\"mcpServers\": {}}");
    fs::create_dir(desk.project()).unwrap();
    std::os::unix::fs::symlink(outside, desk.project().join(".mcp.json")).unwrap();
    let files = find_in_project(&desk.home(), &desk.project());
    assert!(matches!(
        read(&files[0]),
        Err(ReadError::LeavesProject { .. })
    ));
}

#[test]
fn a_folder_of_settings_is_searched_up_to_a_number() {
    let desk = Desk::empty();
    for at in 0..300 {
        desk.write(&format!(".config/mcp/{at}.json"), "{}");
    }
    assert_eq!(callgate_importer::find(&desk.home()).len(), 256);
}
