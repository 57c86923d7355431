//! Children to start and processes to look for.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callgate_sandbox::{Child, Exit, Limits, Spawner, Spec, Trees};
use serde_json::{Value, json};

pub use callgate_testing::misbehave;

/// Both ways to own a tree. As an ordinary user they are the same.
pub const BOTH: [Trees; 2] = [Trees::Best, Trees::Subreaper];

pub fn spawner(trees: Trees) -> Arc<Spawner> {
    Spawner::with_trees(misbehave().to_owned(), trees)
}

/// A word that no other process has in its arguments.
pub fn tag() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "tag-{}-{}-",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A folder of its own that anybody may enter and write.
pub fn folder() -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    // What a killed run of the same number left behind is not ours, and need not let itself be
    // removed.
    let path = loop {
        let path = std::env::temp_dir().join(format!("callgate-sandbox-{}", tag()));
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                made.unwrap();
                break path;
            }
        }
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    path
}

/// A test program's act, marked by `tag`.
pub fn act(act: &Value, tag: &str) -> Spec {
    let argv: Vec<OsString> = vec![misbehave().into(), tag.into()];
    let mut spec = Spec::new(argv, PathBuf::from("/"));
    let (input, mut writer) = std::io::pipe().unwrap();
    write!(writer, "{act}").unwrap();
    spec.stdin = OwnedFd::from(input).into();
    spec
}

/// Runs an act to its end: what it printed, and how it ended.
pub async fn run(spawner: &Spawner, mut spec: Spec) -> (String, Exit) {
    let (mut output, writer) = std::io::pipe().unwrap();
    spec.stdout = OwnedFd::from(writer).into();
    let mut child = spawner.spawn(spec).await.unwrap();
    let exit = child.wait().await;
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    (text, exit)
}

/// As [`run`], with what it printed as JSON.
pub async fn ask(spawner: &Spawner, what: &Value, limits: Limits) -> Value {
    let mut spec = act(what, "ask");
    spec.limits = limits;
    let (text, exit) = run(spawner, spec).await;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}, {exit:?}"))
}

/// Starts an act and waits until it has `count` processes, its daemon among them.
pub async fn start(spawner: &Spawner, what: &str, tag: &str, count: usize) -> (Child, Vec<u32>) {
    let folder = folder();
    let path = folder.join("daemon");
    let what = json!({ "do": what, "path": path, "processes": 6 });
    let child = spawner.spawn(act(&what, tag)).await.unwrap();
    if what["do"] == "daemon_hang" {
        until("the daemon is one", || path.exists()).await;
    }
    // Whoever made it may take a moment to leave.
    until("all its processes are there", || tagged(tag).len() == count).await;
    std::fs::remove_dir_all(folder).unwrap();
    let pids = tagged(tag);
    assert!(pids.contains(&child.pid()), "{pids:?} {}", child.pid());
    (child, pids)
}

/// The processes with this tag, dying and dead ones excepted.
pub fn tagged(tag: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(tag))
    })
    .collect()
}

/// True if none of them is left, not even dead and unburied. Those that outlived their parent are
/// buried by the machine's first process, in its own time.
pub fn gone(pids: &[u32]) -> bool {
    let is_left = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| {
            let state = stat.rsplit(") ").next().unwrap_or_default();
            !state.starts_with("Z 1 ")
        })
    };
    !pids.iter().any(is_left)
}

/// The children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

pub fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Waits for a state, not for time.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain until {what}");
}
