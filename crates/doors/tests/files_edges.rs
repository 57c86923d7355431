//! The edges of the workspace's files: paths that would lead out of it, by every method, and sizes
//! just below, at and past what is read and written..

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::host::Host;
use crate::support::rpc::{Client, request, rpc};
use callgate_testing_workspace::Folder;

/// All methods, by this path: which of their fields has it, and their params.
fn by_every_method(path: &str) -> [(&'static str, &'static str, Value); 9] {
    let written = json!({ "path": path, "content": "x", "overwrite": true });
    let edits = json!([{ "old": "s", "new": "x", "all": true }]);
    let moved = json!({ "from": "in/a", "to": path, "overwrite": true });
    [
        ("files/read", "path", json!({ "path": path })),
        ("files/write", "path", written),
        (
            "files/edit",
            "path",
            json!({ "path": path, "edits": edits }),
        ),
        ("files/list", "path", json!({ "path": path })),
        ("files/stat", "path", json!({ "path": path })),
        (
            "files/search",
            "path",
            json!({ "path": path, "query": "s" }),
        ),
        (
            "files/delete",
            "path",
            json!({ "path": path, "recursive": true }),
        ),
        ("files/move", "from", json!({ "from": path, "to": "moved" })),
        ("files/move", "to", moved),
    ]
}

/// A folder with a secret, and a workspace with ways to it.
struct Doors {
    outside: Folder,
    folder: Folder,
    links: [(&'static str, PathBuf); 5],
}

const SECRET: &str = "nobody's business";

impl Doors {
    fn new() -> Self {
        let (outside, folder) = (Folder::new(), Folder::new());
        outside.write("secret", SECRET);
        let links = [
            ("door", outside.path().to_owned()),
            ("key", outside.join("secret")),
            ("root", "/".into()),
            ("magic", "/proc/self/root".into()),
            ("loop", "loop".into()),
        ];
        let doors = Self {
            outside,
            folder,
            links,
        };
        doors.mend();
        doors
    }

    /// All is there again as it was at first.
    fn mend(&self) {
        self.folder.write("in/a", "a");
        let up = ("in/up", PathBuf::from("../.."));
        for (name, target) in self.links.iter().chain([&up]) {
            let path = self.folder.join(name);
            if path.symlink_metadata().is_ok() {
                std::fs::remove_file(&path).expect("remove a link");
            }
            symlink(target, path).expect("make a link");
        }
        let _ = std::fs::remove_file(self.folder.join("moved"));
    }

    /// Has all methods try a path; what comes of each goes to `check` with method and field.
    fn try_all(&self, client: &mut Client, path: &str, check: impl Fn(&str, &str, &Value)) {
        let before = self.outside.stamps();
        for (method, field, params) in by_every_method(path) {
            let answer = client.ask(method, params);
            check(method, field, &answer);
            let text = answer.to_string();
            assert!(!text.contains(SECRET), "{method} {path:?}: {text}");
            assert_eq!(self.outside.stamps(), before, "{method} {path:?}");
            self.mend();
        }
    }
}

/// JR-12, JR-19, R-8: out of the workspace by letters, by links, by what the kernel offers: every
/// path by every method.
#[test]
fn nothing_leads_out() {
    let doors = Doors::new();
    let mut client = rpc(&doors.folder);
    let secret = doors.outside.join("secret").display().to_string();
    let name = doors.outside.path().file_name().unwrap().to_str().unwrap();
    let beside = format!("../{name}/secret");
    let inside = doors.folder.path().display();
    for path in [
        "..",
        "../x",
        "in/../../x",
        "in/./.././../x",
        "/",
        &beside,
        &secret,
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/in/a",
        "//etc/passwd",
        &format!("{inside}/../{name}/secret"),
        &format!("{inside}-not/a"),
    ] {
        doors.try_all(&mut client, path, |method, field, answer| {
            let code = if method == "files/read" { 1002 } else { 1003 };
            let wanted = json!({ "field": field, "reason": "Path outside workspace" });
            let error = &answer["error"];
            let told = (&error["code"], &error["data"]);
            assert_eq!(told, (&json!(code), &wanted), "{method} {path:?}");
        });
    }
    for path in ["", "\0", "a\0b", "in/a\0", "\0/../../x"] {
        doors.try_all(&mut client, path, |method, field, answer| {
            let error = &answer["error"];
            let told = (&error["code"], &error["data"]["field"]);
            assert_eq!(told, (&json!(1003), &json!(field)), "{method} {path:?}");
        });
    }
    for path in [
        "door/secret",
        "door/new",
        "door/../secret",
        "root/etc/passwd",
        "root/proc/self/root/etc/passwd",
        "magic/etc/passwd",
        "in/up/x",
        "in/up/etc/passwd",
        "loop/x",
        "in/../door/secret",
    ] {
        doors.try_all(&mut client, path, |method, _, answer| {
            assert_eq!(answer["error"]["code"], 1002, "{method} {path:?}: {answer}");
        });
    }
    // A link itself is seen, moved, replaced and removed as one, and followed by nobody.
    for (path, _) in &doors.links {
        doors.try_all(&mut client, path, |method, _, answer| match method {
            "files/stat" => assert_eq!(answer["result"]["type"], "symlink", "{path}"),
            "files/delete" | "files/move" => {
                assert!(answer["result"].is_object(), "{method} {path}: {answer}");
            }
            _ => assert_eq!(answer["error"]["code"], 1002, "{method} {path}: {answer}"),
        });
    }
}

/// letters that only look like dots and slashes are letters, whichever method reads them.
#[test]
fn letters_that_look_like_others() {
    let doors = Doors::new();
    let mut client = rpc(&doors.folder);
    for path in [
        "\u{2025}/x",
        "\u{2024}\u{2024}/x",
        "\u{ff0e}\u{ff0e}/x",
        ".\u{200b}./x",
        ".\u{301}./x",
        "..\u{2215}x",
        "..\u{2044}x",
        "..\u{ff0f}x",
        "..\\x",
        "..%2fx",
        "%2e%2e/x",
        "\u{ff0f}etc\u{ff0f}passwd",
    ] {
        let place = doors.folder.join(path);
        doors.try_all(&mut client, path, |method, field, answer| {
            match (method, field) {
                ("files/write", _) | (_, "to") => {
                    assert!(answer["result"].is_object(), "{method} {path:?}: {answer}");
                    // There it is, under just this name.
                    std::fs::remove_file(&place).unwrap();
                }
                _ => assert_eq!(answer["error"]["code"], 1001, "{method} {path:?}: {answer}"),
            }
        });
    }
}

/// a link within is read through, and never written through.
#[test]
fn a_link_within() {
    let folder = Folder::new();
    folder.write("in/a", "a");
    symlink("in/a", folder.join("fine")).unwrap();
    let mut client = rpc(&folder);
    let read = client.good("files/read", json!({ "path": "fine" }));
    assert_eq!(
        (&read["path"], &read["content"]),
        (&json!("in/a"), &json!("a"))
    );
    let params = json!({ "path": "fine", "content": "x", "overwrite": true });
    assert_eq!(client.bad("files/write", params).0, 1002);
    assert_eq!(folder.read("in/a").as_deref(), Some("a"));
}

const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
const WRITE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// JR-24, R-5, R-6: content of up to 8 MiB is told at once, and its etag is of what it is.
#[test]
fn the_most_that_is_read() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    for bytes in [READ_BYTES_MAX - 1, READ_BYTES_MAX, READ_BYTES_MAX + 1] {
        let is_small = bytes <= READ_BYTES_MAX;
        for name in ["f", "same"] {
            folder.write(name, &"x".repeat(bytes));
        }
        let [etag, same] = ["f", "same"]
            .map(|name| client.good("files/stat", json!({ "path": name }))["etag"].clone());
        let kind = if is_small { "b3-" } else { "st-" };
        let is_etag = |text: &str| text.len() == 35 && text.starts_with(kind);
        assert!(etag.as_str().is_some_and(is_etag), "{bytes}: {etag}");
        // The same content has the same digest; two files are never the same.
        assert_eq!(etag == same, is_small, "{bytes}");
        for (encoding, field, length) in [
            ("utf-8", "content", bytes),
            ("base64", "content_base64", bytes.div_ceil(3) * 4),
        ] {
            let params = json!({ "path": "f", "encoding": encoding });
            let answer = client.ask("files/read", params.clone());
            if is_small {
                let told = answer["result"][field].as_str().map(str::len);
                assert_eq!(told, Some(length), "{bytes} {encoding}");
                assert_eq!(answer["result"]["etag"], etag);
            } else {
                let error = &answer["error"];
                let data = (&error["data"]["bytes"], &error["data"]["max_bytes"]);
                assert_eq!(error["code"], 1007, "{encoding}");
                assert_eq!(data, (&json!(bytes), &json!(READ_BYTES_MAX)));
            }
            // Of what is longer, as much as that at a time.
            let mut params = params;
            params["offset"] = json!(bytes.saturating_sub(READ_BYTES_MAX));
            params["length"] = json!(READ_BYTES_MAX);
            let part = client.good("files/read", params.clone());
            let told = part[field].as_str().map(str::len);
            let most = length.min(READ_BYTES_MAX.div_ceil(3) * 4);
            let most = if encoding == "utf-8" {
                bytes.min(READ_BYTES_MAX)
            } else {
                most
            };
            assert_eq!(told, Some(most), "{bytes} {encoding}");
            params["offset"] = json!(0);
            params["length"] = json!(READ_BYTES_MAX + 1);
            let answer = client.ask("files/read", params);
            assert_eq!(answer.get("result").is_some(), is_small, "{bytes}");
            // What the caller has already is not told, however large.
            let params = json!({ "path": "f", "encoding": encoding, "etag": etag });
            let known = client.good("files/read", params);
            assert_eq!((&known[field], &known["etag"]), (&Value::Null, &etag));
        }
        // Written to with the same bytes, it is the same content and another state of a file.
        folder.write("f", &"x".repeat(bytes));
        let now = client.good("files/stat", json!({ "path": "f" }))["etag"].clone();
        assert_eq!(now == etag, is_small, "{bytes}");
        let write = |etag: &Value| json!({ "path": "f", "content": "y", "etag": etag });
        if !is_small {
            let (code, data) = client.bad("files/write", write(&etag));
            assert_eq!((code, &data["etag"]), (1005, &now));
        }
        let written = client.good("files/write", write(&now));
        assert_eq!(written["overwritten"], true);
    }
}

/// JR-24, R-2, R-5: files of up to 16 MiB are edited, and what is written fits a line of as much.
#[test]
fn the_most_that_is_written() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let edit = |new: &str| json!({ "path": "f", "edits": [{ "old": "a", "new": new }] });
    for bytes in [WRITE_BYTES_MAX - 1, WRITE_BYTES_MAX, WRITE_BYTES_MAX + 1] {
        let before = format!("a{}", "x".repeat(bytes - 1));
        for (new, size) in [("b", bytes), ("bb", bytes + 1), ("", bytes - 1)] {
            folder.write("f", &before);
            let answer = client.ask("files/edit", edit(new));
            let fits = bytes.max(size) <= WRITE_BYTES_MAX;
            if fits {
                assert_eq!(answer["result"]["size"], size);
                let etag = answer["result"]["etag"].as_str();
                assert!(etag.is_some_and(|etag| etag.starts_with("st-")));
            } else {
                let error = &answer["error"];
                let told = (&error["code"], &error["data"]["max_bytes"]);
                assert_eq!(told, (&json!(1007), &json!(WRITE_BYTES_MAX)), "{bytes}");
                // The file, or what would become of it.
                let told = if bytes > WRITE_BYTES_MAX { bytes } else { size };
                assert_eq!(error["data"]["bytes"], told, "{answer}");
                assert!(folder.read("f").as_ref() == Some(&before), "{bytes}");
            }
        }
    }
    let mut host = Host::rpc(&folder);
    let params = json!({ "path": "f", "content": "", "overwrite": true });
    let around = request(1, "files/write", params).to_string().len();
    for line in [WRITE_BYTES_MAX - 1, WRITE_BYTES_MAX, WRITE_BYTES_MAX + 1] {
        let content = "y".repeat(line - around);
        let params = json!({ "path": "f", "content": content, "overwrite": true });
        let answer = host.ask(&request(1, "files/write", params));
        if line <= WRITE_BYTES_MAX {
            assert_eq!(answer["result"]["size"], content.len());
            assert!(folder.read("f") == Some(content), "{line}");
        } else {
            assert_eq!(answer["error"]["code"], 1007);
            assert_eq!(
                folder.read("f").map(|text| text.len()),
                Some(line - around - 1)
            );
        }
    }
}
