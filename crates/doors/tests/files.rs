//! The workspace's files over JSON-RPC: what is read and written, and what is refused.,
//! G-9. Paths that would lead out, and sizes, are in `files_edges.rs`.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use callgate_testing::mcp::modern_call;
use callgate_testing::scripts::ONE;
use serde_json::{Value, json};

use crate::support::host::Host;
use crate::support::rpc::request;
use callgate_testing_workspace::{Folder, trusted};

fn ask(host: &mut Host, method: &str, params: Value) -> Value {
    let answer = host.ask(&request(1, method, params));
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"]),
        (&json!("2.0"), &json!(1))
    );
    answer
}

fn good(host: &mut Host, method: &str, params: Value) -> Value {
    let answer = ask(host, method, params);
    assert_eq!(answer.get("error"), None, "{method}");
    answer["result"].clone()
}

/// The code, and what is told to programs.
fn bad(host: &mut Host, method: &str, params: Value) -> (i64, Value) {
    let answer = ask(host, method, params);
    let error = &answer["error"];
    assert_eq!(answer.get("result"), None, "{method}: {answer}");
    (
        error["code"].as_i64().expect("a code"),
        error["data"].clone(),
    )
}

/// JR-18, JR-24, JR-26, JR-46, JR-47, JR-48, JR-49, JR-50, JR-51, JR-52, JR-53, JR-54, JR-55,
/// JR-56, JR-57, JR-58, JR-59, R-5, R-6: content, ranges, encodings, etags.
#[test]
fn reading() {
    let folder = Folder::new();
    folder.write("a.txt", "héllo");
    std::fs::write(folder.join("b.bin"), [0xff, 0, 1]).unwrap();
    let mut host = Host::rpc(&folder);
    let whole = good(&mut host, "files/read", json!({ "path": "a.txt" }));
    assert_eq!(whole["content"], "héllo");
    assert_eq!(
        (&whole["path"], &whole["size"]),
        (&json!("a.txt"), &json!(6))
    );
    assert_eq!(whole["encoding"], "utf-8");
    let etag = whole["etag"].as_str().unwrap().to_owned();
    assert!(etag.starts_with("b3-") && etag.len() == 35, "{etag}");
    assert!(whole["mtime"].as_str().unwrap().ends_with('Z'));
    // The same etag: nothing to send.
    let same = good(
        &mut host,
        "files/read",
        json!({ "path": "./a.txt", "etag": etag }),
    );
    assert_eq!(
        (&same["content"], &same["etag"]),
        (&Value::Null, &json!(etag))
    );
    // A range that begins and ends inside a character shrinks to whole ones.
    for (offset, length, wanted) in [
        (0, 2, "h"),
        (2, 3, "ll"),
        (1, 2, "é"),
        (5, 9, "o"),
        (9, 1, ""),
    ] {
        let params = json!({ "path": "a.txt", "offset": offset, "length": length });
        let part = good(&mut host, "files/read", params);
        assert_eq!(
            (&part["content"], &part["size"]),
            (&json!(wanted), &json!(6))
        );
    }
    // A whole number is one however it is written, and beyond the end there is nothing.
    for (offset, length, wanted) in [(2.0, 3.0, "ll"), (1e300, 1.0, ""), (5.0, 1e300, "o")] {
        let params = json!({ "path": "a.txt", "offset": offset, "length": length });
        assert_eq!(good(&mut host, "files/read", params)["content"], wanted);
    }
    let params = json!({ "path": "a.txt", "max_bytes": 5.0 });
    assert_eq!(bad(&mut host, "files/read", params).0, 1007);
    let coded = good(
        &mut host,
        "files/read",
        json!({ "path": "b.bin", "encoding": "base64" }),
    );
    assert_eq!(coded["content_base64"], "/wAB");
    let (code, data) = bad(&mut host, "files/read", json!({ "path": "b.bin" }));
    assert_eq!((code, &data["field"]), (-32602, &json!("encoding")));
    let (code, data) = bad(
        &mut host,
        "files/read",
        json!({ "path": "a.txt", "max_bytes": 5 }),
    );
    assert_eq!(
        (code, &data["bytes"], &data["max_bytes"]),
        (1007, &json!(6), &json!(5))
    );
    good(
        &mut host,
        "files/read",
        json!({ "path": "a.txt", "max_bytes": 6 }),
    );
    assert_eq!(
        bad(&mut host, "files/read", json!({ "path": "none" })).0,
        1001
    );
    assert_eq!(bad(&mut host, "files/read", json!({ "path": "." })).0, 1003);
    assert_eq!(bad(&mut host, "files/read", json!({})).0, -32602);
    assert_eq!(
        bad(&mut host, "files/read", json!({ "path": "a.txt", "x": 1 })).0,
        -32602
    );
}

/// JR-11, JR-20, JR-22, JR-60, JR-61, JR-62, JR-63, JR-64, JR-65, JR-66, JR-67, JR-68, JR-69,
/// JR-70, JR-71, JR-72, JR-73, JR-74, JR-75, R-7.
#[test]
fn writing() {
    let folder = Folder::new();
    let mut host = Host::rpc(&folder);
    let write = |host: &mut Host, more: Value| {
        let mut params = json!({ "path": "d/e/f.txt", "content": "one" });
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        ask(host, "files/write", params)
    };
    assert_eq!(
        write(&mut host, json!({ "create": false }))["error"]["code"],
        1001
    );
    assert_eq!(
        write(&mut host, json!({ "mkdirs": false }))["error"]["code"],
        1001
    );
    let gone = write(&mut host, json!({ "etag": "b3-0" }))["error"].clone();
    assert_eq!(
        (&gone["code"], &gone["data"]["etag"]),
        (&json!(1005), &Value::Null),
        "gone with its folder"
    );
    assert!(!folder.join("d").exists(), "nothing was made for nothing");
    let made = write(&mut host, json!({}))["result"].clone();
    assert_eq!(
        (&made["created"], &made["overwritten"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(folder.read("d/e/f.txt").as_deref(), Some("one"));
    let etag = made["etag"].clone();
    // There already: refused, with what is there, unless that is named.
    let taken = write(&mut host, json!({ "content": "two" }));
    assert_eq!(
        (&taken["error"]["code"], &taken["error"]["data"]["etag"]),
        (&json!(1005), &etag)
    );
    let changed = write(&mut host, json!({ "content": "two", "etag": etag }))["result"].clone();
    assert_eq!(
        (&changed["created"], &changed["overwritten"]),
        (&json!(false), &json!(true))
    );
    let stale = write(
        &mut host,
        json!({ "content": "three", "etag": etag, "overwrite": true }),
    );
    assert_eq!(stale["error"]["code"], 1005);
    assert_eq!(stale["error"]["data"]["etag"], changed["etag"]);
    assert_eq!(folder.read("d/e/f.txt").as_deref(), Some("two"));
    // Mode is kept, or set; the name is replaced, never the file that another name has too.
    let path = folder.join("d/e/f.txt");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::hard_link(&path, folder.join("other")).unwrap();
    write(&mut host, json!({ "content": "three", "overwrite": true }));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(folder.read("other").as_deref(), Some("two"));
    write(
        &mut host,
        json!({ "content": "x", "overwrite": true, "mode": 0o600 }),
    );
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    for (more, field) in [
        (json!({ "mode": 0o1777, "overwrite": true }), "mode"),
        (json!({ "content": null }), "content"),
        (json!({ "content_base64": "AA==" }), "content"),
        (
            json!({ "content": null, "content_base64": "?" }),
            "content_base64",
        ),
    ] {
        let error = write(&mut host, more)["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["field"]),
            (&json!(1003), &json!(field))
        );
    }
    let coded = json!({ "path": "g", "content_base64": "/wAB" });
    good(&mut host, "files/write", coded);
    assert_eq!(std::fs::read(folder.join("g")).unwrap(), [0xff, 0, 1]);
    let names: Vec<_> = std::fs::read_dir(folder.join("d/e")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside it");
}

/// G-9, G-9c: state, configuration and the code of tools are the gate's own.
#[test]
fn the_gate_s_own_is_refused() {
    let folder = trusted(ONE);
    symlink("callgate.toml", folder.join("alias")).unwrap();
    let mut host = Host::rpc(&folder);
    let before = folder.read("callgate.toml");
    for path in ["callgate.toml", "state/token", "state", "tool.sh", "alias"] {
        let read = bad(&mut host, "files/read", json!({ "path": path })).0;
        assert_eq!(read, 1002, "{path}");
        let params = json!({ "path": path, "content": "x", "overwrite": true });
        assert_eq!(bad(&mut host, "files/write", params).0, 1002, "{path}");
        let moved = json!({ "from": path, "to": "elsewhere" });
        if path != "alias" {
            assert_eq!(bad(&mut host, "files/move", moved).0, 1002, "{path}");
            let params = json!({ "path": path, "recursive": true });
            assert_eq!(bad(&mut host, "files/delete", params).0, 1002, "{path}");
        }
    }
    let listed = good(&mut host, "files/list", json!({}));
    let names: Vec<&str> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e["name"].as_str())
        .collect();
    assert!(
        !names.contains(&"callgate.toml") && !names.contains(&"state"),
        "{names:?}"
    );
    assert_eq!(folder.read("callgate.toml"), before);
}

/// `files/edit`: exact texts, patches, and neither where the file is another.
#[test]
fn editing() {
    let folder = Folder::new();
    folder.write("a.rs", "fn a() {}\nfn b() {}\nfn b() {}\n");
    let mut host = Host::rpc(&folder);
    let edits = json!([{ "old": "fn a", "new": "fn first" }, { "old": "fn b", "new": "fn c", "all": true }]);
    let done = good(
        &mut host,
        "files/edit",
        json!({ "path": "a.rs", "edits": edits }),
    );
    assert_eq!(done["changes"], 3);
    assert_eq!(
        folder.read("a.rs").unwrap(),
        "fn first() {}\nfn c() {}\nfn c() {}\n"
    );
    for (old, reason) in [
        ("nothing", "is not in the file"),
        ("fn c", "is in the file 2 times"),
    ] {
        let params = json!({ "path": "a.rs", "edits": [{ "old": old, "new": "x" }] });
        let (code, data) = bad(&mut host, "files/edit", params);
        assert_eq!((code, &data["field"]), (1003, &json!("edits.0.old")));
        assert!(data["reason"].as_str().unwrap().starts_with(reason));
    }
    let patch = "@@ -1,2 +1,2 @@\n-fn first() {}\n+fn one() {}\n fn c() {}\n";
    let params = json!({ "path": "a.rs", "patch": patch, "etag": done["etag"] });
    good(&mut host, "files/edit", params.clone());
    assert!(
        folder
            .read("a.rs")
            .unwrap()
            .starts_with("fn one() {}\nfn c")
    );
    assert_eq!(
        bad(&mut host, "files/edit", params).0,
        1005,
        "the etag is old"
    );
}

/// `files/list`, `files/stat`, `files/move`, `files/delete`; cursors of R-4.
#[test]
fn listing_moving_deleting() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(&format!("d/{name}"), name);
    }
    let mut host = Host::rpc(&folder);
    let params = json!({ "path": "d", "limit": 2.0 });
    let first = good(&mut host, "files/list", params);
    folder.write("d/aa", "new, before the cursor");
    let cursor = first["next_cursor"].clone();
    let next = good(
        &mut host,
        "files/list",
        json!({ "path": "d", "limit": 2, "cursor": cursor }),
    );
    assert_eq!(
        (
            next["entries"].as_array().unwrap().len(),
            &next["entries"][0]["path"]
        ),
        (1, &json!("d/c"))
    );
    assert_eq!(next["next_cursor"], Value::Null);
    // The second is base64, and still none of ours.
    for cursor in ["!", "YQ"] {
        let params = json!({ "path": "d", "cursor": cursor });
        let (code, data) = bad(&mut host, "files/list", params);
        assert_eq!((code, &data["field"]), (-32602, &json!("cursor")));
    }
    assert_eq!(
        bad(
            &mut host,
            "files/move",
            json!({ "from": "d/a", "to": "d/b" })
        )
        .0,
        1005
    );
    let moved = good(
        &mut host,
        "files/move",
        json!({ "from": "d/a", "to": "d/b", "overwrite": true }),
    );
    assert_eq!(moved["overwritten"], true);
    assert_eq!(folder.read("d/b").as_deref(), Some("a"));
    assert_eq!(
        bad(&mut host, "files/move", json!({ "from": "d", "to": "d/x" })).0,
        1003
    );
    good(
        &mut host,
        "files/move",
        json!({ "from": "d", "to": "x/y/d" }),
    );
    assert_eq!(
        bad(&mut host, "files/delete", json!({ "path": "x" })).0,
        1005
    );
    good(
        &mut host,
        "files/delete",
        json!({ "path": "x", "recursive": true }),
    );
    assert!(!folder.join("x").exists());
    assert_eq!(
        bad(&mut host, "files/delete", json!({ "path": "x" })).0,
        1001
    );
}

/// A tool of the configuration takes the place of a built-in one of its name, and no other does.
#[test]
fn a_configured_tool_takes_the_place() {
    let own = ONE.replace("name = \"one\"", "name = \"files/read\"");
    let folder = trusted(&own);
    let mut host = Host::rpc(&folder);
    let answer = good(&mut host, "files/read", json!({ "n": 1 }));
    assert_eq!(answer.get("etag"), None, "{answer}");
    folder.write("a", "x");
    assert_eq!(
        good(&mut host, "files/stat", json!({ "path": "a" }))["size"],
        1
    );
}

/// JR-46, JR-53, R-5: the same over MCP and toolhost, faults included.
#[test]
fn on_other_wires() {
    let folder = Folder::new();
    folder.write("a.txt", "héllo\n");
    let mut host = Host::rpc(&folder);
    let mut mcp = Host::mcp(&folder, &[]);
    let mut toolhost = Host::toolhost_builtins(&folder);
    for params in [
        json!({ "path": "a.txt" }),
        json!({ "path": "a.txt", "offset": 1, "length": 2 }),
        json!({ "path": "./a.txt", "encoding": "base64" }),
    ] {
        let wanted = good(&mut host, "files/read", params.clone());
        let call = modern_call(1, "files_read", &params, &json!({}));
        assert_eq!(mcp.ask(&call)["result"]["structuredContent"], wanted);
        let reply = toolhost.ask(&json!({ "aid": "AID.FILES.READ.v1", "inputs": params }));
        let output = reply["output_json"].as_str();
        let output = output.unwrap_or_else(|| panic!("{reply}"));
        assert_eq!(serde_json::from_str::<Value>(output).unwrap(), wanted);
    }
    let params = json!({ "path": "none" });
    let call = modern_call(2, "files_read", &params, &json!({}));
    assert_eq!(mcp.ask(&call)["result"]["isError"], true);
    let reply = toolhost.ask(&json!({ "aid": "AID.FILES.READ.v1", "inputs": params }));
    assert_eq!(reply["status"], "TOOL_ERROR");
}
