//! A gate to be killed: runs one child with a daemon to its end and tells what was left,
//! starts two more, waits for the end.
//!
//! `gate TREES PATH TAG`: `best` or `subreaper`; where the daemon writes; what, after
//! `child-`, marks the children.

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
    runtime.block_on(live(trees, &args[1], &format!("child-{}", args[2])))
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
    while tagged(tag) < 3 {
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
