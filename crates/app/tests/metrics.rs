//! `GET /metrics`: a real scrape, read by a strict little parser.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::drive::{cli, raw_exchange};
use crate::support::web::{Request, Web};
use crate::support::workspace::{SLOW, builtins, effects, trusted_with};
use crate::support::{Folder, wait_for};
use serde_json::json;

const CONFIG: &str = r#"
[builtins]
allow = ["*"]
[[tool]]
name = "fail"
runner = { kind = "python", entry = "fail:run" }

[[tool]]
name = "slow"
writes = ["."]
code = ["slow.sh"]
runner = { kind = "process", command = ["/bin/sh", "slow.sh"] }
"#;

const FAIL: &str = "def run(payload):\n    raise ValueError('no')\n";

/// The samples of a page by name and labels. Every line must be as the text form has it: each
/// family is announced once, before its samples, which stand together.
fn parsed(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut family = (String::new(), String::new());
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    assert!(page.ends_with('\n'));
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("words");
            assert!(is_name(name) && !words.is_empty(), "{line}");
            assert!(families.insert(name.to_owned()), "announced twice: {name}");
            let kind = lines.next().and_then(|next| next.strip_prefix("# TYPE "));
            let (named, kind) = kind.and_then(|kind| kind.split_once(' ')).expect("a type");
            assert_eq!(named, name);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            family = (name.to_owned(), kind.to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect("closed")),
            None => (series, ""),
        };
        let rest = name.strip_prefix(&family.0).expect("of its family");
        let parts = match family.1.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].as_slice(),
            _ => &[""],
        };
        assert!(parts.contains(&rest), "{line}");
        for label in labels.split("\",").filter(|label| !label.is_empty()) {
            let (label, word) = label.split_once("=\"").expect("a label");
            let word = word.trim_end_matches('"');
            assert!(is_name(label) && !word.contains('"'), "{line}");
        }
        let value: f64 = value.parse().expect("a number");
        let twice = samples.insert(series.to_owned(), value);
        assert_eq!(twice, None, "{line}");
    }
    samples
}

fn folder() -> Folder {
    trusted_with(&[
        ("callgate.toml", CONFIG),
        ("fail.py", FAIL),
        ("slow.sh", SLOW),
    ])
}

fn scrape(web: &Web) -> BTreeMap<String, f64> {
    let request = b"GET /metrics HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\r\n";
    let answer = raw_exchange(&web.serve.socket, request).expect("an answer");
    let text = String::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    parsed(body)
}

/// What is called is counted, by tool, wire and outcome; names that callers make up are not.
#[test]
fn a_scrape() {
    let folder = folder();
    let web = Web::start(&folder, &[]);
    for _ in 0..3 {
        web.serve
            .call(&json!({ "tool": "builtin/echo", "input": {} }));
    }
    web.serve.call(&json!({ "tool": "fail", "input": {} }));
    for name in ["made/up", "made/up2"] {
        web.serve.call(&json!({ "tool": name, "input": {} }));
    }
    let owner = cli(&folder, &["token", "owner"]).good().out;
    web.call(owner.trim(), "builtin_echo", json!({}));
    let samples = scrape(&web);
    let of = |series: &str| samples.get(series).copied();
    for (series, value) in [
        (
            "callgate_calls_total{tool=\"builtin/echo\",wire=\"gate\",outcome=\"ok\"}",
            3.0,
        ),
        (
            "callgate_calls_total{tool=\"builtin/echo\",wire=\"mcp-http\",outcome=\"ok\"}",
            1.0,
        ),
        (
            "callgate_calls_total{tool=\"fail\",wire=\"gate\",outcome=\"tool_failed\"}",
            1.0,
        ),
        (
            "callgate_calls_total{tool=\"(unknown)\",wire=\"gate\",outcome=\"unknown_tool\"}",
            2.0,
        ),
        (
            "callgate_call_duration_seconds_count{tool=\"builtin/echo\"}",
            4.0,
        ),
        (
            "callgate_call_duration_seconds_bucket{tool=\"builtin/echo\",le=\"+Inf\"}",
            4.0,
        ),
        ("callgate_calls_in_flight{tool=\"fail\"}", 0.0),
        ("callgate_workers{state=\"busy\"}", 0.0),
        ("callgate_queue", 0.0),
        ("callgate_tools", builtins() as f64 + 2.0),
        ("callgate_traces_lost_total", 0.0),
    ] {
        assert_eq!(of(series), Some(value), "{series}: {samples:#?}");
    }
    let records = of("callgate_chain_records").expect("a length");
    assert!(records >= 8.0, "{records}");
    assert!(of("process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
    assert!(of("process_open_fds").is_some_and(|open| open > 3.0));
    let made_up = samples.keys().filter(|series| series.contains("made"));
    assert_eq!(made_up.count(), 0);
    // Buckets only ever grow towards the last.
    let bucket = "callgate_call_duration_seconds_bucket{tool=\"fail\",le=\"";
    let counts: Vec<f64> = ["0.0001", "0.005", "0.1", "1", "60", "+Inf"]
        .iter()
        .map(|edge| of(&format!("{bucket}{edge}\"}}")).expect("a bucket"))
        .collect();
    assert!(
        counts.is_sorted() && counts.last() == Some(&1.0),
        "{counts:?}"
    );
}

/// A call under way is counted as such.
#[test]
fn in_flight() {
    let folder = folder();
    let web = Web::start(&folder, &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| web.serve.call(&json!({ "tool": "slow", "input": {} })));
        wait_for("the slow tool", || (effects(&folder) > 0).then_some(()));
        let series = "callgate_calls_in_flight{tool=\"slow\"}";
        assert_eq!(scrape(&web).get(series), Some(&1.0));
        folder.write("go", "");
        wait_for("its end", || {
            (scrape(&web).get(series) == Some(&0.0)).then_some(())
        });
    });
}

/// G-10: the owner's token opens it, and no other.
#[test]
fn for_the_owner_alone() {
    let folder = folder();
    let web = Web::start(&folder, &[]);
    let owner = cli(&folder, &["token", "owner"]).good().out;
    let made = cli(&folder, &["token", "create", "other", "--json"])
        .good()
        .json();
    let other = made["token"].as_str().expect("a token");
    let get = || Request::new("GET /metrics", b"").with("connection", "close");
    let page = web.send(&get().by(owner.trim()));
    assert_eq!(page.status, 200);
    assert!(parsed(&page.body).contains_key("callgate_queue"));
    assert_eq!(web.send(&get()).status, 401);
    assert_eq!(web.send(&get().by("nonsense")).status, 401);
    assert_eq!(web.send(&get().by(other)).status, 403);
    assert_eq!(
        web.send(&get().by(owner.trim()).with("host", "evil.example"))
            .status,
        403
    );
}
