//! The official MCP conformance suite against the fixture, behind the same gate and door as
//! every other tool. It speaks HTTP only; `mcp.rs` has the pipe.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::support::Folder;
use crate::support::drive::run_within;
use crate::support::mcp::serve_http_with;
use crate::support::outside::{modules, node};
use serde_json::Value;

const SUITE: &str = "@modelcontextprotocol/conformance/dist/index.js";

#[test]
fn revision_2025_11_25() {
    pass("2025-11-25", 83, &[]);
}

#[test]
fn revision_2026_07_28() {
    // The suite itself has no more of it than a note that it is to be written for
    // `subscriptions/listen`: `mcp_tasks.rs` has what the extension says.
    pass("2026-07-28", 196, &["tasks-status-notifications"]);
}

/// Runs every scenario of a revision, those the suite does not score included. Nothing is
/// expected to fail, and nothing may only be warned of; the suite is pinned, so that one check
/// that no longer runs shows, and so does one that is skipped.
fn pass(revision: &str, successes: usize, skipped: &[&str]) {
    let folder = Folder::new();
    let (serve, port) = serve_http_with(&folder, &["--conformance"]);
    let results = folder.join("results");
    let mut command = node(&folder);
    command
        .arg(modules().join(SUITE))
        .args(["server", "--url", &format!("http://127.0.0.1:{port}/mcp")])
        .args(["--requirements", revision, "-o"])
        .arg(&results);
    // All scenarios of a revision.
    let ran = run_within(&mut command, b"", Duration::from_secs(10 * 60));
    let mut checks = Vec::new();
    collect(&results, &mut checks);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut bad = Vec::new();
    for check in &checks {
        let status = check["status"].as_str().expect("a status");
        *counts.entry(status).or_default() += 1;
        if matches!(status, "FAILURE" | "WARNING") {
            bad.push(format!(
                "{} {}: {}",
                check["id"], status, check["errorMessage"]
            ));
        }
    }
    // Past the capture of the test's output: figures are to be seen when they are good as well.
    let _ = writeln!(std::io::stderr().lock(), "{revision}: {counts:?}");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert_eq!(
        counts.get("SUCCESS"),
        Some(&successes),
        "{counts:?} {ran:?}"
    );
    let others: Vec<&str> = checks
        .iter()
        .filter(|check| !matches!(check["status"].as_str(), Some("SUCCESS" | "INFO")))
        .filter_map(|check| check["id"].as_str())
        .collect();
    assert_eq!(others, skipped, "{counts:?}");
    assert!(ran.status.success(), "{ran:?}");
    assert!(serve.stop().success());
}

/// The checks of every `checks.json` under `folder`.
fn collect(folder: &Path, checks: &mut Vec<Value>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, checks);
        } else if path.ends_with("checks.json") {
            let text = std::fs::read(&path).expect("the suite's own file");
            let found: Vec<Value> = serde_json::from_slice(&text).expect("a list of checks");
            checks.extend(found);
        }
    }
}
