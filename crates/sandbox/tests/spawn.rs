//! What a child is born with, and what is said when it is not born.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use callgate_sandbox::{Ending, Limits, SpawnError, Spawner, Spec};
use callgate_testing::is_skipped_without_root;
use serde_json::{Value, json};
use support::{BOTH, act, ask, folder, misbehave, run, spawner, tag};

fn sh(script: &str) -> Spec {
    let mut spec = Spec::new(
        vec!["sh".into(), "-c".into(), script.into()],
        PathBuf::from("/"),
    );
    spec.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    spec
}

/// The whole chain of reasons.
fn words(error: &SpawnError) -> String {
    use std::error::Error as _;
    error
        .source()
        .map_or(error.to_string(), |source| format!("{error}: {source}"))
}

async fn refusal(spawner: &Spawner, spec: Spec) -> String {
    words(&spawner.spawn(spec).await.unwrap_err())
}

#[tokio::test]
async fn exits_and_signals_are_told() {
    for trees in BOTH {
        let spawner = spawner(trees);
        for code in [0, 1, 3, 255] {
            let (_, exit) = run(&spawner, sh(&format!("exit {code}"))).await;
            assert_eq!(exit.ending, Ending::Code(code));
        }
        for signal in [9, 11, 15] {
            let (_, exit) = run(&spawner, sh(&format!("kill -{signal} $$"))).await;
            assert_eq!(exit.ending, Ending::Signal(signal), "{trees:?}");
        }
        let mut child = spawner.spawn(sh("exit 4")).await.unwrap();
        let first = child.wait().await;
        assert_eq!((first.ending, child.wait().await), (Ending::Code(4), first));
    }
}

/// A nanny that is kept serves whoever comes next, on whichever runtime, and outlives those.
#[test]
fn one_spawner_on_several_runtimes() {
    for trees in BOTH {
        let spawner = spawner(trees);
        for code in 0..3 {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let started = runtime.block_on(async {
                let child = run(&spawner, sh(&format!("exit {code}")));
                tokio::time::timeout(std::time::Duration::from_secs(60), child).await
            });
            let (_, exit) = started.expect("it is heard of");
            assert_eq!(exit.ending, Ending::Code(code), "{trees:?}");
        }
    }
}

#[tokio::test]
async fn usage_is_of_the_whole_tree() {
    let spawner = spawner(BOTH[0]);
    let (_, exit) = run(&spawner, act(&json!({ "do": "spend", "ms": 60 }), "t")).await;
    assert!(exit.cpu.as_millis() >= 60, "{exit:?}");
    let bytes = 64 << 20;
    let (_, exit) = run(
        &spawner,
        act(&json!({ "do": "take_memory", "bytes": bytes }), "t"),
    )
    .await;
    assert!(
        exit.max_rss_bytes >= bytes && exit.max_rss_bytes < 4 * bytes,
        "{exit:?}"
    );
}

/// T-12: nothing but what was handed over is open, and standard streams are always there.
#[tokio::test]
async fn descriptors_are_closed() {
    for trees in BOTH {
        let spawner = spawner(trees);
        // Ours without the mark that closes it: it must not come through.
        let leak = std::fs::File::open("/etc/passwd").unwrap();
        rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
        let seen = ask(&spawner, &json!({ "do": "fds" }), Limits::default()).await;
        let numbers: Vec<u64> = seen
            .as_array()
            .unwrap()
            .iter()
            .map(|fd| fd[0].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, [0, 1, 2], "{seen}");
        assert_eq!(seen[2][1], "/dev/null");
        drop(leak);
    }
}

/// Whatever numbers they have here, they are at theirs in the child.
#[tokio::test]
async fn descriptors_are_placed() {
    let spawner = spawner(BOTH[0]);
    let folder = folder();
    let mut spec = act(&json!({ "do": "fds" }), "t");
    for target in [31, 3, 5, 4, 12, 11] {
        let file = std::fs::File::create(folder.join(target.to_string())).unwrap();
        spec.extra.push((OwnedFd::from(file), target));
    }
    let (text, _) = run(&spawner, spec).await;
    let seen: Value = serde_json::from_str(&text).unwrap();
    let seen: Vec<_> = seen.as_array().unwrap()[3..].to_vec();
    let wanted = [3, 4, 5, 11, 12, 31]
        .map(|target| json!([target, folder.join(target.to_string()).to_str().unwrap()]));
    assert_eq!(seen, wanted);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_child_starts_clean() {
    for trees in BOTH {
        let spawner = spawner(trees);
        let mut spec = act(&json!({ "do": "self" }), "t");
        spec.cwd = PathBuf::from("/usr");
        let (text, _) = run(&spawner, spec).await;
        let seen: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(seen["blocked"], "0000000000000000");
        // Signal 13 is the test program's own doing.
        assert_eq!(seen["ignored"], "0000000000001000");
        assert_eq!(seen["no_new_privs"], "1");
        assert_eq!(seen["umask"], "077");
        assert_eq!(seen["leads_session"], true);
        assert_eq!(seen["cwd"], "/usr");
        assert_eq!(seen["core_max"], 0);
        // Its own number is the one it finds itself under.
        assert_eq!(seen["own_comm_by_pid"], "misbehave", "{trees:?}");
    }
}

#[tokio::test]
async fn the_environment_is_what_was_said() {
    let spawner = spawner(BOTH[0]);
    let mut spec = act(&json!({ "do": "env" }), "t");
    spec.env = vec![("A".into(), "1".into()), ("B".into(), "x=y".into())];
    let (text, _) = run(&spawner, spec).await;
    let seen: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(seen, json!({ "A": "1", "B": "x=y" }));
}

#[tokio::test]
async fn limits_hold() {
    let spawner = spawner(BOTH[0]);
    let limits = Limits {
        open_files: Some(64),
        ..Limits::default()
    };
    let seen = ask(&spawner, &json!({ "do": "self" }), limits).await;
    assert_eq!(seen["open_files_max"], 64);
    // More than the machine's own is lowered to it.
    let limits = Limits {
        open_files: Some(u64::MAX - 1),
        ..Limits::default()
    };
    let seen = ask(&spawner, &json!({ "do": "self" }), limits).await;
    assert!(seen["open_files_max"].as_u64().unwrap() < u64::MAX - 1);

    let mut spec = act(&json!({ "do": "take_memory", "bytes": 200 << 20 }), "t");
    spec.limits.address_space_bytes = Some(100 << 20);
    assert_eq!(run(&spawner, spec).await.1.ending, Ending::Signal(6));

    let mut spec = act(&json!({ "do": "spend", "ms": 60_000 }), "t");
    spec.limits.cpu_seconds = Some(1);
    assert_eq!(run(&spawner, spec).await.1.ending, Ending::Signal(9));

    let folder = folder();
    let path = folder.join("large");
    let mut spec = act(
        &json!({ "do": "write_file", "path": path, "bytes": 1 << 20 }),
        "t",
    );
    spec.limits.file_size_bytes = Some(1000);
    let (_, exit) = run(&spawner, spec).await;
    assert_eq!(exit.ending, Ending::Signal(25));
    assert!(path.metadata().unwrap().len() <= 1000);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_child_that_is_not_born_says_why() {
    let spawner = spawner(BOTH[0]);
    let named = |name: &str| {
        let mut spec = sh("");
        spec.argv[0] = name.into();
        spec
    };
    assert_eq!(
        refusal(&spawner, named("no-such-program")).await,
        "start `no-such-program`: not found; is it installed and on PATH?"
    );
    let text = refusal(&spawner, named("/etc/passwd")).await;
    assert!(text.contains("/etc/passwd is not executable"), "{text}");
    let mut spec = sh("");
    spec.cwd = "/no/such/folder".into();
    let text = refusal(&spawner, spec).await;
    assert!(
        text.contains("working folder /no/such/folder cannot be entered: No such file"),
        "{text}"
    );
    let mut spec = sh("");
    spec.cwd = "relative".into();
    assert!(
        refusal(&spawner, spec)
            .await
            .contains("not an absolute path")
    );
    let mut spec = sh("");
    spec.argv.push("x".repeat(1 << 20).into());
    assert!(
        refusal(&spawner, spec)
            .await
            .contains("exceed 1048576 bytes")
    );

    let folder = folder();
    for (name, content, wanted) in [
        (
            "lost",
            "#!/no/such/interpreter\n",
            "the interpreter named in the first line",
        ),
        ("blank", "echo hello\n", "no `#!` line"),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = refusal(&spawner, named(path.to_str().unwrap())).await;
        assert!(text.contains(wanted), "{text}");
    }
    std::fs::remove_dir_all(folder).unwrap();
    // After all that it goes on.
    assert_eq!(run(&spawner, sh("exit 5")).await.1.ending, Ending::Code(5));
}

/// Near the bound, where an order takes many reads.
#[tokio::test]
async fn large_orders_arrive() {
    let spawner = spawner(BOTH[0]);
    let mut spec = act(&json!({ "do": "self" }), "t");
    spec.argv.extend((0..9).map(|_| "y".repeat(100_000).into()));
    let (text, _) = run(&spawner, spec).await;
    let seen: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(seen["arg_lengths"][10], 100_000);
}

#[tokio::test]
async fn a_program_that_is_no_spawner_is_an_error() {
    let wrong = Spawner::new("/bin/true".into());
    assert!(refusal(&wrong, sh("")).await.starts_with("start "));
    let absent = Spawner::new("/no/such/program".into());
    assert!(
        refusal(&absent, sh(""))
            .await
            .contains("start the spawner /no/such/program")
    );
    assert!(misbehave().exists());
}

/// Where a process that has become somebody else may be looked into (`fs.suid_dumpable` is 1), no
/// child shares its nanny's memory on its way; it starts all the same. The setting is made to
/// look so for this spawner alone.
#[tokio::test]
async fn no_memory_is_shared_where_others_may_look() {
    if is_skipped_without_root("one file mounted on another") {
        return;
    }
    let folder = folder();
    std::fs::write(folder.join("one"), "1\n").unwrap();
    let script = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {}/one /proc/sys/fs/suid_dumpable \
         && exec {} \"$@\"' sh \"$@\"\n",
        folder.display(),
        misbehave().display()
    );
    let program = folder.join("spawner");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (program, shares) in [(misbehave().to_owned(), true), (program, false)] {
        let (spawner, tag) = (Spawner::new(program), tag());
        let (text, _) = run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
        assert_eq!(text.trim(), "{\"ok\":true}");
        let nannies = support::children(spawner.pid().unwrap());
        assert_eq!(nannies.len(), 1);
        assert_eq!(has_second_stack(nannies[0]), shares);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// True if a process has the stack on which a child that shares its memory would run: 256 KiB
/// above 64 KiB that nobody may touch.
fn has_second_stack(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let ranges: Vec<(u64, u64, bool)> = maps
        .lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(from)?, number(to)?, rest.starts_with("---p")))
        })
        .collect();
    let is_guard = |(from, to, closed): &(u64, u64, bool)| *closed && to - from == 64 << 10;
    let mut guards = ranges.iter().filter(|range| is_guard(range));
    guards.any(|(_, end, _)| {
        let above = ranges.iter().find(|(from, _, _)| from == end);
        above.is_some_and(|(from, to, _)| to - from >= 256 << 10)
    })
}
