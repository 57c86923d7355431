//! `files/search`, and the owner's lists of what `files/*` may reach. R-8, JR-165.

use std::os::unix::fs::symlink;

use callgate_testing::scripts::ONE;
use serde_json::{Value, json};

use crate::support::host::Host;
use callgate_testing_workspace::{Folder, trusted, trusted_with};

fn ask(host: &mut Host, method: &str, params: Value) -> Value {
    host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

fn search(host: &mut Host, params: Value) -> Value {
    let answer = ask(host, "files/search", params);
    assert_eq!(answer.get("error"), None);
    answer["result"].clone()
}

/// `path:line:column`, or the path alone.
fn places(result: &Value) -> Vec<String> {
    let matches = result["matches"].as_array().expect("matches");
    let place = |one: &Value| {
        let path = one["path"].as_str().expect("a path");
        match one["line"].as_u64() {
            None => path.to_owned(),
            Some(line) => format!("{path}:{line}:{}", one["column"]),
        }
    };
    matches.iter().map(place).collect()
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("{answer}"))
}

fn tree() -> Folder {
    let folder = Folder::new();
    for (name, text) in [
        ("a.rs", "fn main() {}\n// needle\n"),
        ("b/c.rs", "NEEDLE needle\nx.y\nneedle again\n"),
        ("b/c.txt", "a needle é\n"),
        ("b.rs", "nothing\n"),
        ("out/made.rs", "needle\n"),
        ("b/skip/deep.rs", "needle\n"),
        ("b/keep.log", "needle\n"),
        ("b/other.log", "needle\n"),
        (".hidden/h.rs", "needle\n"),
        (".git/config", "needle\n"),
        (".gitignore", "/out\n*.log\n"),
        ("b/.gitignore", "skip/\n!keep.log\n"),
    ] {
        folder.write(name, text);
    }
    std::fs::write(folder.join("bin"), b"needle\n\0needle\n").expect("write a file");
    folder
}

/// lines by a pattern, as ripgrep finds them, in the order of paths.
#[test]
fn lines() {
    let folder = tree();
    let mut host = Host::rpc(&folder);
    let result = search(&mut host, json!({ "query": "needle" }));
    assert_eq!(
        places(&result),
        [
            "a.rs:2:4",
            "b/c.rs:1:8",
            "b/c.rs:3:1",
            "b/c.txt:1:3",
            "b/keep.log:1:1"
        ]
    );
    assert_eq!(
        (&result["next_cursor"], &result["skipped"]),
        (&Value::Null, &json!(0))
    );
    assert_eq!(result["matches"][3]["text"], "a needle é");
    let of = |host: &mut Host, more: Value| {
        let mut params = json!({ "query": "needle" });
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        places(&search(host, params))
    };
    assert_eq!(
        of(
            &mut host,
            json!({ "query": "^NEEDLE", "case_sensitive": false })
        ),
        ["b/c.rs:1:1", "b/c.rs:3:1", "b/keep.log:1:1"]
    );
    assert_eq!(
        of(&mut host, json!({ "query": "x.y", "literal": true })),
        ["b/c.rs:2:1"]
    );
    assert_eq!(
        of(&mut host, json!({ "query": "x\\.y|main" })),
        ["a.rs:1:4", "b/c.rs:2:1"]
    );
    assert_eq!(
        of(&mut host, json!({ "path": "b", "glob": ["*.rs"] })),
        ["b/c.rs:1:8", "b/c.rs:3:1"]
    );
    assert_eq!(of(&mut host, json!({ "path": "b/c.txt" })), ["b/c.txt:1:3"]);
    assert_eq!(
        of(&mut host, json!({ "path": "b", "glob": ["!c.*"] })),
        ["b/keep.log:1:1"]
    );
    let all = of(
        &mut host,
        json!({ "hidden": true, "ignored": true, "glob": ["*.rs"] }),
    );
    assert_eq!(
        all,
        [
            ".hidden/h.rs:1:1",
            "a.rs:2:4",
            "b/c.rs:1:8",
            "b/c.rs:3:1",
            "b/skip/deep.rs:1:1",
            "out/made.rs:1:1"
        ]
    );
    // Files alone.
    assert_eq!(
        places(&search(&mut host, json!({ "glob": ["*.rs"] }))),
        ["a.rs", "b/c.rs", "b.rs"]
    );
    assert_eq!(
        places(&search(
            &mut host,
            json!({ "glob": ["b/**"], "query": null })
        )),
        ["b/c.rs", "b/c.txt", "b/keep.log"]
    );
}

/// pages make up the whole, also while files come and go; what is wrong is said.
#[test]
fn pages_and_refusals() {
    let folder = tree();
    let mut host = Host::rpc(&folder);
    let whole = places(&search(&mut host, json!({ "query": "needle" })));
    for limit in 1..=6 {
        let (mut cursor, mut found) = (Value::Null, Vec::new());
        loop {
            let params = json!({ "query": "needle", "limit": limit, "cursor": cursor });
            let page = search(&mut host, params);
            assert!(places(&page).len() <= limit);
            found.extend(places(&page));
            cursor = page["next_cursor"].clone();
            if cursor.is_null() {
                break;
            }
            folder.write("a.aaa", "needle\n");
        }
        assert_eq!(found, whole, "{limit}");
        std::fs::remove_file(folder.join("a.aaa")).ok();
    }
    let mut names = Vec::new();
    let mut cursor = Value::Null;
    for _ in 0..3 {
        let page = search(
            &mut host,
            json!({ "glob": ["*.rs"], "limit": 1, "cursor": cursor }),
        );
        names.extend(places(&page));
        cursor = page["next_cursor"].clone();
    }
    assert_eq!(
        (names, cursor),
        (
            vec!["a.rs".into(), "b/c.rs".into(), "b.rs".into()],
            Value::Null
        )
    );
    for (field, params) in [
        ("cursor", json!({ "query": "x", "cursor": "?" })),
        ("query", json!({ "query": "(" })),
        ("glob", json!({ "query": "x", "glob": ["{a"] })),
        ("limit", json!({ "query": "x", "limit": 1001 })),
        ("query", json!({ "query": "(?:a{1000}){1000}{1000}" })),
    ] {
        let answer = ask(&mut host, "files/search", params);
        assert_eq!(
            (code(&answer), &answer["error"]["data"]["field"]),
            (-32602, &json!(field))
        );
    }
    assert_eq!(code(&ask(&mut host, "files/search", json!({}))), 1003);
    assert_eq!(
        code(&ask(
            &mut host,
            "files/search",
            json!({ "query": "x", "path": "../" })
        )),
        1003
    );
    assert_eq!(
        code(&ask(
            &mut host,
            "files/search",
            json!({ "query": "x", "path": "none" })
        )),
        1001
    );
}

/// G-9c, R-8: neither links nor the gate's own; long lines and large files are bounded.
#[test]
fn what_is_not_searched() {
    let outside = Folder::new();
    outside.write("secret", "needle\n");
    let folder = trusted(&format!("{ONE}# needle\n"));
    symlink(outside.path(), folder.join("door")).unwrap();
    symlink(outside.join("secret"), folder.join("file")).unwrap();
    symlink("real", folder.join("alias")).unwrap();
    folder.write("real", &format!("{}needle\n", "x".repeat(5000)));
    // What a link says is left out is not asked.
    outside.write("rules", "real\n");
    symlink(outside.join("rules"), folder.join(".gitignore")).unwrap();
    let large = std::fs::File::create(folder.join("zlarge")).unwrap();
    large.set_len(33 << 20).unwrap();
    let mut host = Host::rpc(&folder);
    let params = json!({ "query": "needle", "hidden": true, "ignored": false });
    let result = search(&mut host, params);
    assert_eq!(places(&result), ["real:1:5001"]);
    assert_eq!(result["matches"][0]["text"], "needle");
    assert_eq!(result["skipped"], 1);
    let names = places(&search(&mut host, json!({ "glob": ["*"] })));
    assert!(
        !names.iter().any(|name| name.starts_with("state")
            || name == "callgate.toml"
            || name == "tool.sh"
            || name == "door"
            || name == "file"),
        "{names:?}"
    );
    let answer = ask(
        &mut host,
        "files/search",
        json!({ "query": "x", "path": "door" }),
    );
    assert_eq!(code(&answer), 1002);
    let answer = ask(
        &mut host,
        "files/search",
        json!({ "query": "x", "path": "state" }),
    );
    assert_eq!(code(&answer), 1002);
}

const LISTS: &str =
    "[files]\nallow = [\"src/**\", \"*.md\"]\ndeny = [\"**/.env\", \"src/private/**\"]\n";

/// JR-12, JR-165, R-8: by every method, however the path is spelt, and by links.
#[test]
fn lists() {
    let folder = trusted_with(&[
        ("callgate.toml", LISTS),
        ("src/a.rs", "needle"),
        ("src/.env", "needle"),
        ("src/private/key", "needle"),
        ("README.md", "needle"),
        ("other/x", "needle"),
    ]);
    symlink("private/key", folder.join("src/alias")).unwrap();
    symlink("../other", folder.join("src/door")).unwrap();
    symlink("src/a.rs", folder.join("link")).unwrap();
    let mut host = Host::rpc(&folder);
    for path in [
        "src/.env",
        "src/private/key",
        "other/x",
        "src/alias",
        "src/door/x",
        "src/../other/x",
        "./src/./.env",
        "src/private/none",
        "none",
        "src/door/none",
    ] {
        for (method, params) in [
            ("files/read", json!({ "path": path })),
            (
                "files/write",
                json!({ "path": path, "content": "x", "overwrite": true }),
            ),
            (
                "files/edit",
                json!({ "path": path, "edits": [{ "old": "n", "new": "x" }] }),
            ),
            ("files/delete", json!({ "path": path })),
            ("files/move", json!({ "from": path, "to": "src/moved" })),
            (
                "files/move",
                json!({ "from": "src/a.rs", "to": path, "overwrite": true }),
            ),
        ] {
            let by_link = path == "src/alias";
            if by_link && matches!(method, "files/delete" | "files/move") {
                continue; // The link itself is in the list.
            }
            let answer = ask(&mut host, method, params);
            assert_eq!(code(&answer), 1002, "{method} {path}: {answer}");
        }
        if path != "src/alias" {
            let answer = ask(&mut host, "files/stat", json!({ "path": path }));
            assert_eq!(code(&answer), 1002, "{path}");
        }
    }
    for path in ["src/a.rs", "README.md", "./src/a.rs", "link"] {
        let answer = ask(&mut host, "files/read", json!({ "path": path }));
        assert_eq!(answer["result"]["content"], "needle", "{path}: {answer}");
    }
    let made = ask(
        &mut host,
        "files/write",
        json!({ "path": "src/new/b", "content": "x" }),
    );
    assert_eq!(made["result"]["created"], true);
    let made = ask(
        &mut host,
        "files/write",
        json!({ "path": "new/b", "content": "x" }),
    );
    assert_eq!(code(&made), 1002);
    assert!(!folder.join("new").exists());
    let made = ask(
        &mut host,
        "files/write",
        json!({ "path": "src/door/new/b", "content": "x" }),
    );
    assert_eq!(code(&made), 1002);
    assert!(!folder.join("other/new").exists());
    assert_eq!(
        code(&ask(&mut host, "files/read", json!({ "path": "src/none" }))),
        1001
    );
    // A folder does not take along what may not be reached.
    for (from, to) in [
        ("src/private", "src/open"),
        ("other", "src/other"),
        ("src", "x.md"),
    ] {
        let answer = ask(&mut host, "files/move", json!({ "from": from, "to": to }));
        assert_eq!(code(&answer), 1002, "{from}");
        let answer = ask(
            &mut host,
            "files/delete",
            json!({ "path": from, "recursive": true }),
        );
        assert_eq!(code(&answer), 1002, "{from}");
    }
    folder.write("src/sub/.env", "x");
    let answer = ask(
        &mut host,
        "files/move",
        json!({ "from": "src/sub", "to": "src/sub2" }),
    );
    assert_eq!(code(&answer), 1002);
    let names = |host: &mut Host, path: &str| -> Vec<String> {
        let listed = ask(host, "files/list", json!({ "path": path }));
        let entries = listed["result"]["entries"].as_array().unwrap().clone();
        entries
            .iter()
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&mut host, "."), ["README.md", "other", "src"]);
    assert_eq!(names(&mut host, "other"), [""; 0]);
    assert_eq!(
        names(&mut host, "src"),
        ["a.rs", "alias", "door", "new", "private", "sub"]
    );
    let found = search(&mut host, json!({ "query": "needle", "hidden": true }));
    assert_eq!(places(&found), ["README.md:1:1", "src/a.rs:1:1"]);
    assert_eq!(folder.read("src/private/key").as_deref(), Some("needle"));
}
