//! A gate to be killed: runs one child with a daemon to its end and tells what was left,
//! starts two more, waits for the end.
//!
//! `gate TREES PATH TAG`: `best` or `subreaper`; where the daemon writes, or `crowd`; what,
//! after `child-`, marks the children.

use std::io::Write as _;
use std::path::PathBuf;

use callgate_sandbox::{Spawner, Spec, Trees};
use serde_json::{Value, json};

/// Runs until killed.
pub fn run() -> ! {
    let args: Vec<String> = std::env::args().skip(2).collect();
    let trees = if args[0] == "best" {
        Trees::Best
    } else {
        Trees::Subreaper
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let tag = format!("child-{}", args[2]);
    runtime.block_on(async {
        match args[1].as_str() {
            "crowd" => crowd(trees, &tag).await,
            path => live(trees, path, &tag).await,
        }
    })
}

/// For a user who may have four processes: a second child is one too many, until the first
/// has gone.
async fn crowd(trees: Trees, tag: &str) -> ! {
    let spawner = Spawner::with_trees(PathBuf::from("/proc/self/exe"), trees);
    let mut first = spawner
        .spawn(spec(&json!({ "do": "hang" }), tag))
        .await
        .expect("a child");
    let error = spawner.spawn(spec(&json!({ "do": "ok" }), tag)).await.err();
    first.kill();
    first.wait().await;
    // The nanny itself takes a moment longer than its report.
    let again = loop {
        match spawner.spawn(spec(&json!({ "do": "ok" }), tag)).await {
            Ok(mut child) => break child.wait().await,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    };
    println!(
        "{}",
        json!({
            "error": error.map(|error| error.to_string()),
            "again": format!("{:?}", again.ending),
            "spawner": spawner.pid(),
        })
    );
    std::future::pending().await
}

async fn live(trees: Trees, path: &str, tag: &str) -> ! {
    let spawner = Spawner::with_trees(PathBuf::from("/proc/self/exe"), trees);
    let mut short = spawner
        .spawn(spec(&json!({ "do": "daemon" }), tag))
        .await
        .expect("a child");
    short.wait().await;
    let left = tagged(tag);
    let mut children = Vec::new();
    for act in [
        json!({ "do": "daemon_hang", "path": path }),
        json!({ "do": "hang" }),
    ] {
        children.push(spawner.spawn(spec(&act, tag)).await.expect("a child"));
    }
    // The daemon writes its file when it is one.
    while !std::path::Path::new(path).exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    println!("{}", json!({ "left": left, "spawner": spawner.pid() }));
    std::future::pending().await
}

fn spec(act: &Value, tag: &str) -> Spec {
    let own = std::fs::read_link("/proc/self/exe").expect("own path");
    let mut spec = Spec::new(vec![own.into(), tag.into()], PathBuf::from("/"));
    let (input, mut writer) = std::io::pipe().expect("a pipe");
    write!(writer, "{act}").expect("room in the pipe");
    spec.stdin = std::os::fd::OwnedFd::from(input).into();
    spec
}

/// How many processes have the tag in their arguments.
fn tagged(tag: &str) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(tag))
        .count()
}
