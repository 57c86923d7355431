//! Limits that hold all processes of a child together, by groups of processes (cgroups), judged
//! by effect. Where none can be had (not root, no delegation) the tests say so and look at what
//! is left then.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::print_stdout, reason = "what is not looked at is said")]

mod support;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::Needs;
use callgate_sandbox::{Child, Ending, Facility, Limits, Spawner, SpawnerSettings, Spec, Trees};
use support::{BOTH, gone, kill, misbehave, run, spawner, tag, tagged, until};

const MIB: u64 = 1024 * 1024;

/// Processes that each take 24 MiB, and how many of them then answer: one that is killed may not
/// be dead yet, but does nothing any more.
const TAKE: &str = "import os, sys\n\
    held = []\n\
    asked, ask = os.pipe()\n\
    for _ in range(int(sys.argv[1])):\n\
    \x20r, w = os.pipe()\n\
    \x20if os.fork() == 0:\n\
    \x20\x20block = bytearray(24 << 20)\n\
    \x20\x20for at in range(0, len(block), 4096): block[at] = 1\n\
    \x20\x20os.write(w, b'x'); os.read(asked, 1)\n\
    \x20\x20os.write(w, b'y'); os.close(w)\n\
    \x20\x20import signal; signal.pause()\n\
    \x20os.close(w); held.append(r)\n\
    for r in held: os.read(r, 1)\n\
    os.write(ask, b'.' * len(held))\n\
    print(sum(os.read(r, 1) == b'y' for r in held))\n";

/// How many children it can have at a time.
const FORK: &str = "import os, signal\n\
    made = []\n\
    try:\n\
    \x20while len(made) < 64:\n\
    \x20\x20pid = os.fork()\n\
    \x20\x20if pid == 0: signal.pause()\n\
    \x20\x20made.append(pid)\n\
    except BlockingIOError: pass\n\
    print(len(made))\n";

/// Sixteen processes that do nothing but work.
const WORK: &str = "import os\n\
    for _ in range(4): os.fork()\n\
    while True: pass\n";

/// How much of a processor's time it has, over some of the time that passes.
const SHARE: &str = "import time\n\
    began, used = time.monotonic(), time.process_time()\n\
    while time.monotonic() < began + 2: pass\n\
    print((time.process_time() - used) / (time.monotonic() - began))\n";

fn python(script: &str, limits: Limits, tag: &str) -> Spec {
    let words = ["/usr/bin/python3", "-I", "-S", "-c", script, tag];
    let mut spec = Spec::new(words.iter().map(Into::into).collect(), "/".into());
    spec.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    spec.confine = Some(Arc::new(Needs::default()));
    spec.limits = limits;
    spec
}

fn memory(bytes: u64) -> Limits {
    Limits {
        address_space_bytes: Some(bytes),
        ..Limits::default()
    }
}

fn without_groups(trees: Trees) -> Arc<Spawner> {
    let settings = SpawnerSettings {
        trees,
        hidden: vec![Facility::Cgroups],
        ..SpawnerSettings::default()
    };
    Spawner::with_settings(misbehave().to_owned(), settings)
}

/// True if groups can be had for all that is tested, as they must be for root where groups can be
/// made; said where not.
fn has_groups(spawner: &Spawner) -> bool {
    let cgroup = spawner.facts_of_groups().cgroup;
    let all = cgroup.memory && cgroup.processes && cgroup.cpu_share && cgroup.cpu_time;
    let may_make = rustix::fs::access("/sys/fs/cgroup", rustix::fs::Access::WRITE_OK).is_ok();
    if rustix::process::geteuid().is_root() && may_make {
        assert!(all, "{cgroup:?}");
    } else if !all {
        println!("not looked at: this user has groups for {cgroup:?} only");
    }
    all
}

/// The groups that the nannies of a spawner have made.
fn groups(spawner: &Spawner) -> Vec<PathBuf> {
    let nannies = support::children(spawner.pid().unwrap());
    let ours = |name: &str| {
        let owner = name
            .strip_prefix("callgate-")
            .and_then(|rest| rest.split('-').next());
        owner.is_some_and(|owner| nannies.iter().any(|pid| pid.to_string() == owner))
    };
    named(&ours)
}

/// All groups below those that we are in whose name is one of ours.
fn named(ours: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = vec!["/sys/fs/cgroup".into()];
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if ours(entry.file_name().to_str().unwrap_or_default()) {
                    found.push(entry.path());
                } else {
                    next.push(entry.path());
                }
            }
        }
    }
    found
}

/// Five processes of 24 MiB each are below a limit of 100 MiB one by one, and above it together.
#[tokio::test]
async fn memory_is_held_for_the_whole_tree() {
    for trees in BOTH {
        let spawner = spawner(trees);
        if !has_groups(&spawner) {
            return;
        }
        let take = |limits| python(TAKE, limits, "5");
        let (text, exit) = run(&spawner, take(memory(100 * MIB))).await;
        assert_ne!(text.trim(), "5", "{trees:?} {exit:?}");
        // The limit of each process lets them.
        let (text, _) = run(&without_groups(trees), take(memory(100 * MIB))).await;
        assert_eq!(text.trim(), "5", "{trees:?}");
        // And so does a higher one, in the group of the first.
        let (text, _) = run(&spawner, take(memory(400 * MIB))).await;
        assert_eq!(text.trim(), "5", "{trees:?}");
    }
}

#[tokio::test]
async fn processes_are_counted_in_the_tree() {
    for trees in BOTH {
        let spawner = spawner(trees);
        if !has_groups(&spawner) {
            return;
        }
        for processes in [7, 3] {
            let limits = Limits {
                processes: Some(processes),
                ..Limits::default()
            };
            let (text, _) = run(&spawner, python(FORK, limits, "")).await;
            assert_eq!(text.trim(), (processes - 1).to_string(), "{trees:?}");
        }
        let (text, _) = run(&spawner, python(FORK, Limits::default(), "")).await;
        assert_eq!(text.trim(), "64");
    }
}

/// A tenth of a processor, measured by the tool's own clocks.
#[tokio::test]
async fn a_share_of_the_processors() {
    let spawner = spawner(Trees::Best);
    if !has_groups(&spawner) {
        return;
    }
    let limits = Limits {
        cpu_percent: Some(10),
        ..Limits::default()
    };
    let (text, _) = run(&spawner, python(SHARE, limits, "")).await;
    let share: f64 = text.trim().parse().unwrap();
    assert!(share < 0.2, "{share}");
}

/// Sixteen processes that each stay below a second are together above it. It is looked now and
/// then what they have taken, on a busy machine later; each by itself would be let sixteen.
#[tokio::test]
async fn processor_time_is_that_of_the_whole_tree() {
    for trees in BOTH {
        let spawner = spawner(trees);
        if !has_groups(&spawner) {
            return;
        }
        let limits = Limits {
            cpu_seconds: Some(1),
            ..Limits::default()
        };
        let (_, exit) = run(&spawner, python(WORK, limits, "")).await;
        assert_eq!(exit.ending, Ending::Signal(9));
        assert!(exit.cpu < Duration::from_secs(8), "{trees:?} {exit:?}");
    }
}

/// Starts a child that hangs in a group.
async fn hang(spawner: &Spawner, tag: &str) -> Child {
    let script = "import os, signal\nos.fork()\nos.write(1, b'x')\nsignal.pause()";
    let mut spec = python(script, memory(100 * MIB), tag);
    let (output, writer) = std::io::pipe().unwrap();
    spec.stdout = OwnedFd::from(writer).into();
    let child = spawner.spawn(spec).await.unwrap();
    let read = move || std::io::Read::read_exact(&mut &output, &mut [0, 0]).unwrap();
    tokio::task::spawn_blocking(read).await.unwrap();
    child
}

#[tokio::test]
async fn groups_go_with_their_nanny() {
    for trees in BOTH {
        let (spawner, tag) = (spawner(trees), tag());
        if !has_groups(&spawner) {
            return;
        }
        let child = hang(&spawner, &tag).await;
        let made = groups(&spawner);
        assert!(!made.is_empty(), "{trees:?}");
        drop(child);
        let left = || made.iter().any(|group| group.exists());
        until("its groups are gone", || !left()).await;
        assert_eq!(tagged(&tag), [0; 0]);
        // A nanny that has had its child keeps them for the next, and for no longer than itself.
        run(&spawner, python("pass", memory(100 * MIB), &tag)).await;
        let made = groups(&spawner);
        assert!(!made.is_empty(), "{trees:?}");
        drop(spawner);
        until("they are gone with the gate", || {
            made.iter().all(|group| !group.exists())
        })
        .await;
    }
}

/// Nannies that are killed can not tidy up: the next start does, and takes nothing that is in use.
#[tokio::test]
async fn what_killed_nannies_left_is_swept() {
    let (first, tag) = (spawner(Trees::Best), tag());
    if !has_groups(&first) {
        return;
    }
    let mut child = hang(&first, &tag).await;
    let (pids, left) = (tagged(&tag), groups(&first));
    assert!(pids.len() == 2 && !left.is_empty());
    for nanny in support::children(first.pid().unwrap()) {
        kill(nanny);
    }
    assert_eq!(child.wait().await.ending, Ending::Lost);
    // Its groups may be swept from here on: by any spawner, those of other tests too.
    until("its tree is gone", || gone(&pids)).await;
    let busy = hang(&first, &tag).await;
    let used = groups(&first);
    let second = spawner(Trees::Best);
    assert!(has_groups(&second));
    until("they are swept", || {
        left.iter().all(|group| !group.exists())
    })
    .await;
    assert!(!used.is_empty() && used.iter().all(|group| group.exists()));
    assert_eq!(tagged(&tag).len(), 2);
    drop(busy);
}

/// Children without limits have no group and no nanny that is in one.
#[tokio::test]
async fn who_has_no_limits_has_no_group() {
    let spawner = spawner(Trees::Best);
    for limits in [memory(200 * MIB), Limits::default()] {
        let none = limits == Limits::default();
        let script = "print([line for line in open('/proc/self/cgroup') if 'callgate-' in line])";
        let mut spec = python(script, limits, "");
        spec.confine = Some(Arc::new(Needs {
            reads: vec![PathBuf::from("/proc")],
            ..Needs::default()
        }));
        let (text, _) = run(&spawner, spec).await;
        let grouped = !none && has_groups(&spawner);
        assert_eq!(text.trim() != "[]", grouped, "{text}");
    }
    assert!(Path::new("/proc/self/cgroup").exists());
}
