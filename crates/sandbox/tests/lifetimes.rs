//! Trees end with their child, their gate and their spawner, and nothing is left.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use callgate_sandbox::{Ending, Trees};
use callgate_testing::is_skipped_without_root;
use serde_json::{Value, json};
use support::{
    BOTH, act, children, folder, gone, kill, misbehave, run, spawner, start, tag, tagged, until,
};

/// P-7: the daemon is gone, and buried, when the end is told.
#[tokio::test]
async fn a_daemon_ends_with_its_call() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        for what in ["daemon", "chain"] {
            for _ in 0..5 {
                let (text, exit) = run(&spawner, act(&json!({ "do": what }), &tag)).await;
                assert_eq!(
                    (text.trim(), exit.ending),
                    (&*format!("{{\"{what}\":true}}"), Ending::Code(0))
                );
                assert_eq!(tagged(&tag), [0; 0], "{trees:?} {what}");
            }
        }
    }
}

/// P-7.
#[tokio::test]
async fn killing_ends_the_whole_tree() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let (mut child, pids) = start(&spawner, "daemon_hang", &tag, 2).await;
        child.kill();
        assert_eq!(child.wait().await.ending, Ending::Signal(9));
        assert!(gone(&pids), "{trees:?}");
        let (child, pids) = start(&spawner, "daemon_hang", &tag, 2).await;
        drop(child);
        until("a dropped child's tree is gone", || gone(&pids)).await;
    }
}

/// A tree that grows while it is being killed.
#[tokio::test]
async fn a_fork_bomb_ends() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let (mut child, pids) = start(&spawner, "bomb", &tag, 64).await;
        child.kill();
        assert_eq!(child.wait().await.ending, Ending::Signal(9));
        assert!(gone(&pids), "{trees:?}");
        let mut child = spawner
            .spawn(act(&json!({ "do": "bomb", "processes": 7 }), &tag))
            .await
            .unwrap();
        child.kill();
        child.wait().await;
        assert_eq!(tagged(&tag), [0; 0], "{trees:?}");
    }
}

#[tokio::test]
async fn a_hundred_at_once() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let mut children = Vec::new();
        for _ in 0..100 {
            children.push(
                spawner
                    .spawn(act(&json!({ "do": "hang" }), &tag))
                    .await
                    .unwrap(),
            );
        }
        let pids = tagged(&tag);
        assert_eq!(pids.len(), 100);
        for child in children.iter().take(50) {
            child.kill();
        }
        for child in children.iter_mut().take(50) {
            assert_eq!(child.wait().await.ending, Ending::Signal(9));
        }
        assert_eq!(tagged(&tag).len(), 50);
        drop(children);
        until("all are gone", || gone(&pids)).await;
        until("their nannies too", || {
            support::children(spawner.pid().unwrap()).is_empty()
        })
        .await;
    }
}

/// Sixty requests at the same time, before the first is answered.
#[tokio::test]
async fn requests_may_come_all_at_once() {
    let (spawner, tag) = (spawner(Trees::Best), tag());
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..60 {
        let (spawner, tag) = (std::sync::Arc::clone(&spawner), tag.clone());
        starts.spawn(async move {
            let what = json!({ "do": "print", "text": number.to_string() });
            let (text, exit) = run(&spawner, act(&what, &tag)).await;
            assert_eq!((text, exit.ending), (number.to_string(), Ending::Code(0)));
        });
    }
    starts.join_all().await;
}

#[tokio::test]
async fn a_killed_spawner_takes_its_trees_and_is_replaced() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let (mut child, mut pids) = start(&spawner, "daemon_hang", &tag, 2).await;
        let old = spawner.pid().unwrap();
        pids.extend(children(old));
        pids.push(old);
        kill(old);
        assert_eq!(child.wait().await.ending, Ending::Lost);
        until("tree, nanny and spawner are gone", || gone(&pids)).await;
        let (text, exit) = run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
        assert_eq!(
            (text.trim(), exit.ending),
            ("{\"ok\":true}", Ending::Code(0))
        );
        assert_ne!(spawner.pid(), Some(old));
    }
}

/// An idle spawner that died is found dead by the next request.
#[tokio::test]
async fn a_spawner_that_died_idle_is_replaced() {
    let (spawner, tag) = (spawner(Trees::Best), tag());
    run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
    let old = spawner.pid().unwrap();
    kill(old);
    // Not only on its way: its socket is closed, and whoever asks is told that it died.
    until("it is dead", || {
        let stat = std::fs::read_to_string(format!("/proc/{old}/stat"));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    })
    .await;
    let (_, exit) = run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
    assert_eq!(exit.ending, Ending::Code(0));
    assert!(gone(&[old]), "and buried");
}

#[tokio::test]
async fn a_killed_nanny_takes_its_tree() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let (mut child, pids) = start(&spawner, "daemon_hang", &tag, 2).await;
        let nannies = children(spawner.pid().unwrap());
        assert_eq!(nannies.len(), 1);
        kill(nannies[0]);
        assert_eq!(child.wait().await.ending, Ending::Lost);
        until("its tree is gone", || gone(&pids) && gone(&nannies)).await;
        let (_, exit) = run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
        assert_eq!(exit.ending, Ending::Code(0));
    }
}

/// One nanny after the other child; what the first one took is not the second one's.
#[tokio::test]
async fn a_nanny_serves_one_child_after_the_other() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let bytes = 64 << 20;
        let hungry = json!({ "do": "take_memory", "bytes": bytes });
        let (_, exit) = run(&spawner, act(&hungry, &tag)).await;
        assert!(exit.max_rss_bytes >= bytes, "{exit:?}");
        let nannies = children(spawner.pid().unwrap());
        assert_eq!(nannies.len(), 1);
        for what in ["daemon", "ok", "chain"] {
            let (_, exit) = run(&spawner, act(&json!({ "do": what }), &tag)).await;
            assert_eq!(exit.ending, Ending::Code(0));
            assert!(exit.max_rss_bytes < bytes, "{exit:?}");
            assert_eq!(tagged(&tag), [0; 0], "{trees:?} {what}");
        }
        assert_eq!(children(spawner.pid().unwrap()), nannies, "{trees:?}");
        // Three nulls, the lifeline, the signals, the leash: nothing of the children's.
        until("it has only its own", || descriptors(nannies[0]) == 6).await;
    }
}

/// Of many that were busy at once some stay, and those not for long.
#[tokio::test]
async fn few_nannies_stay() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let mut running = Vec::new();
        for _ in 0..20 {
            let (input, writer) = std::io::pipe().unwrap();
            let mut spec = act(&json!({ "do": "ok" }), &tag);
            spec.stdin = std::os::fd::OwnedFd::from(input).into();
            running.push((spawner.spawn(spec).await.unwrap(), writer));
        }
        assert_eq!(children(spawner.pid().unwrap()).len(), 20);
        for (mut child, writer) in running {
            drop(writer);
            child.wait().await;
        }
        until("all but some have left", || {
            children(spawner.pid().unwrap()).len() == 8
        })
        .await;
        until("all have left", || {
            children(spawner.pid().unwrap()).is_empty()
        })
        .await;
        let (_, exit) = run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
        assert_eq!(exit.ending, Ending::Code(0), "{trees:?}");
    }
}

/// A nanny that died while it had nothing to do is not missed.
#[tokio::test]
async fn a_nanny_that_died_idle_is_replaced() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
        let nannies = children(spawner.pid().unwrap());
        kill(nannies[0]);
        until("it is gone", || gone(&nannies)).await;
        let (_, exit) = run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
        assert_eq!(exit.ending, Ending::Code(0), "{trees:?}");
    }
}

#[tokio::test]
async fn a_dropped_spawner_is_gone() {
    let (spawner, tag) = (spawner(Trees::Best), tag());
    run(&spawner, act(&json!({ "do": "ok" }), &tag)).await;
    let pid = spawner.pid().unwrap();
    drop(spawner);
    assert!(gone(&[pid]));
}

/// What a gate has open does not come through to those who outlive it.
#[tokio::test]
async fn spawner_and_nannies_hold_only_their_own() {
    let leak = std::fs::File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        let (_child, _) = start(&spawner, "hang", &tag, 1).await;
        let pid = spawner.pid().unwrap();
        // A child may run before those who made it have closed what was for it alone. The socket,
        // two nulls, two ends of the lifeline, the signals.
        until("the spawner has only its own", || descriptors(pid) == 6).await;
        // Three nulls, the lifeline, the signals, the leash.
        let nanny = children(pid)[0];
        until("the nanny has only its own", || descriptors(nanny) == 6).await;
        assert_eq!(std::fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
        assert_eq!(
            std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(),
            PathBuf::from("/")
        );
    }
    drop(leak);
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

/// A process that uses the sandbox, in a folder where its user may run it.
struct Gate {
    process: std::process::Child,
    told: Value,
    folder: PathBuf,
}

impl Gate {
    /// `limits` go before it, as commands of the shell.
    fn start(trees: &str, uid: u32, limits: &str, tag: &str) -> Self {
        Self::start_as(trees, uid, limits, tag, None)
    }

    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "a gate to be killed is not a tool"
    )]
    fn start_as(trees: &str, uid: u32, limits: &str, tag: &str, what: Option<&str>) -> Self {
        let folder = folder();
        let program = folder.join("misbehave");
        // Not by ourselves: what another thread starts meanwhile would have it open for writing,
        // and nobody may run what is.
        let copied = std::process::Command::new("cp")
            .args([misbehave(), &program])
            .status();
        assert!(copied.unwrap().success());
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!("{limits} exec \"$0\" gate {trees} \"$1\" {tag}");
        let mut process = std::process::Command::new("/bin/sh")
            .arg("-c")
            .arg(script)
            .args([&program, &what.map_or(folder.join("daemon"), PathBuf::from)])
            .uid(uid)
            .gid(uid)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        std::io::BufReader::new(stdout)
            .read_line(&mut line)
            .unwrap();
        let told = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self {
            process,
            told,
            folder,
        }
    }

    fn number(&self, name: &str) -> u32 {
        u32::try_from(self.told[name].as_u64().unwrap()).unwrap()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn killed_gate(trees: &str, uid: u32, limits: &str) {
    let tag = tag();
    let gate = Gate::start(trees, uid, limits, &tag);
    // P-7 as that user, with those limits: nothing was left when the end was told.
    assert_eq!(gate.number("left"), 0, "{trees} {uid}");
    let spawner = gate.number("spawner");
    let children_tag = format!("child-{tag}");
    until("the daemon's maker has left", || {
        tagged(&children_tag).len() == 3
    })
    .await;
    let mut pids = tagged(&children_tag);
    let status = std::fs::read_to_string(format!("/proc/{spawner}/status")).unwrap();
    assert!(status.contains(&format!("Uid:\t{uid}\t")), "{status}");
    pids.extend(children(spawner));
    pids.push(spawner);
    drop(gate);
    until("tree, nannies and spawner are gone", || gone(&pids)).await;
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[tokio::test]
async fn a_killed_gate_takes_everything() {
    for trees in ["best", "subreaper"] {
        killed_gate(trees, rustix::process::geteuid().as_raw(), "").await;
    }
}

/// T-12: as a user of its own, within the limits that are named there.
#[tokio::test]
async fn an_ordinary_user_within_limits() {
    // Nobody else's here: all tasks of a user count, those of other tests too.
    let uid = if is_root() {
        64_223
    } else {
        rustix::process::geteuid().as_raw()
    };
    let limits = "ulimit -v 1048576; ulimit -n 64; ulimit -f 8192;";
    // The number of tasks counts all of a user's, so that only a user of its own has 16.
    let tasks = if is_root() {
        "prlimit --nproc=16 --pid $$;"
    } else {
        ""
    };
    killed_gate("best", uid, &format!("{limits} {tasks}")).await;
}

/// T-12: at the limit of tasks a start is refused in words, and the spawner goes on.
#[tokio::test]
async fn no_more_processes_is_a_refusal() {
    // Root has no such limit to run into, and another user's count is not ours alone.
    if is_skipped_without_root("a user of its own") {
        return;
    }
    let limit = "prlimit --nproc=4 --pid $$;";
    // A user each: who is dead and not buried yet still counts.
    for (uid, trees) in [(64_224, "best"), (64_225, "subreaper")] {
        let gate = Gate::start_as(trees, uid, limit, &tag(), Some("crowd"));
        let error = gate.told["error"].as_str().unwrap();
        assert!(
            error.contains("no more processes allowed (fork)"),
            "{error}"
        );
        assert_eq!(gate.told["again"], "Code(0)");
        let spawner = gate.number("spawner");
        drop(gate);
        until("the spawner is gone", || gone(&[spawner])).await;
    }
}

/// A signal goes to the child itself, and what it leaves goes with it; one that comes late harms
/// nobody, least of all the next child.
#[tokio::test]
async fn signals_reach_the_child() {
    for trees in BOTH {
        let spawner = spawner(trees);
        let tag = tag();
        let script = format!("trap 'exit 7' TERM; sh -c 'sleep 543210; :' {tag} & wait");
        let sh = |script: &str| {
            let argv = ["/bin/sh", "-c", script].map(std::ffi::OsString::from);
            callgate_sandbox::Spec::new(argv.to_vec(), "/".into())
        };
        let mut child = spawner.spawn(sh(&script)).await.unwrap();
        until("it waits", || tagged(&tag).len() == 2).await;
        child.signal(15);
        assert_eq!(child.wait().await.ending, Ending::Code(7), "{trees:?}");
        assert!(tagged(&tag).is_empty(), "{trees:?}");
        for _ in 0..20 {
            let mut child = spawner.spawn(sh("exit 3")).await.unwrap();
            child.signal(0);
            assert_eq!(child.wait().await.ending, Ending::Code(3), "{trees:?}");
        }
    }
}
