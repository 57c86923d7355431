//! How far each promise is kept: a table of needs and facts, nothing else. No I/O.

use callgate_call::{Asker, Guarantee, Held, Isolation, Level, Needs, TreeLimits};

use crate::gate::compile;
use crate::gate::facts::Facts;
use crate::gate::filter::Sockets;

/// Landlock from this version on also holds truncation.
const TRUNCATE: u8 = 3;

/// Landlock from this version on also holds TCP.
const TCP: u8 = 4;

/// What of a tool's files bears on its promises; looked at when it is first planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Why a writable root reaches further than its path says: files with several links.
    pub links: Option<String>,
    /// The gate's own things that lie inside a writable root and are there.
    pub kept: Vec<String>,
    /// Those that are links or not there yet, so that nothing can be mounted on them.
    pub absent: Vec<String>,
    /// Why a readable path shows processes.
    pub proc: Option<String>,
    /// Why a readable path shows what is the gate's.
    pub shown: Option<String>,
}

/// How one promise is kept.
pub(crate) fn held(
    guarantee: Guarantee,
    asker: Asker,
    needs: &Needs,
    facts: &Facts,
    files: &Files,
) -> Held {
    let (level, mechanisms, missing) = match guarantee {
        Guarantee::NoFilesystemRead => read(facts, files),
        Guarantee::NoFilesystemWrite => write(needs, facts, files),
        Guarantee::NoNetwork => network(needs, facts),
        Guarantee::NoSubprocess => subprocess(facts),
        Guarantee::NoEnvRead | Guarantee::SecretsAllowed => env_read(facts, files),
        Guarantee::NoEnvWrite => env_write(needs),
    };
    Held {
        guarantee: Some(guarantee),
        asker,
        level,
        mechanisms,
        missing,
    }
}

/// How a tool's limits hold all its processes together.
#[must_use]
pub fn limits_held(limits: TreeLimits, facts: &Facts) -> Held {
    let (level, mechanisms, missing) = bounds(limits, facts);
    Held {
        guarantee: None,
        asker: Asker::Tool,
        level,
        mechanisms,
        missing,
    }
}

/// How a tool that names its hosts is kept to them.
#[must_use]
pub fn hosts_held(facts: &Facts) -> Held {
    let (level, mechanisms, missing) = hosts(facts);
    Held {
        guarantee: Some(Guarantee::NoNetwork),
        asker: Asker::Tool,
        level,
        mechanisms,
        missing,
    }
}

type How = (Level, Vec<&'static str>, String);

fn enforced(mechanisms: &[&'static str]) -> How {
    (Level::Enforced, mechanisms.to_vec(), String::new())
}

fn partial(mechanisms: &[&'static str], missing: impl Into<String>) -> How {
    (Level::Partial, mechanisms.to_vec(), missing.into())
}

fn none(missing: impl Into<String>) -> How {
    (Level::None, Vec::new(), missing.into())
}

const NO_LANDLOCK: &str = "Landlock (Linux 6.2 or later, and `landlock` among the security \
modules the kernel starts with)";

const NO_NETWORK: &str = "a network namespace for `network.allow` (as root, or with unprivileged \
user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
kernel.apparmor_restrict_unprivileged_userns=0)";

const NO_CGROUP: &str = "a cgroup of its own (as root, or in a delegated group: \
systemd-run --user --scope -p Delegate=yes)";

fn read(facts: &Facts, files: &Files) -> How {
    if facts.landlock == 0 {
        return none(NO_LANDLOCK);
    }
    match others(facts, files).or(shown(facts, files)) {
        Some(reason) => partial(&["landlock"], reason),
        None => enforced(&["landlock"]),
    }
}

/// Why other processes can be seen. In a pid namespace with a `/proc` of its own they cannot.
fn others<'a>(facts: &Facts, files: &'a Files) -> Option<&'a str> {
    let own = facts.pid_namespace && facts.mount_namespace;
    files.proc.as_deref().filter(|_| !own)
}

/// Why what is the gate's can be seen.
fn shown<'a>(facts: &Facts, files: &'a Files) -> Option<&'a str> {
    files.shown.as_deref().filter(|_| !facts.mount_namespace)
}

fn write(needs: &Needs, facts: &Facts, files: &Files) -> How {
    let mut by = match facts.landlock {
        0 => return none(NO_LANDLOCK),
        _ => vec!["landlock"],
    };
    let mut missing = Vec::new();
    if facts.landlock < TRUNCATE {
        missing.push("Landlock 3 (Linux 6.2): files can be truncated".to_owned());
    }
    if facts.seccomp {
        by.push("seccomp");
    } else {
        missing.push("seccomp: rights, owners and times of files can be changed".to_owned());
    }
    missing.extend(files.links.clone());
    if !files.kept.is_empty() {
        if facts.mount_namespace {
            by.push("mountns");
        } else {
            let kept = files.kept.join(", ");
            missing.push(format!("a mount namespace: {kept} can be changed"));
        }
    }
    if !needs.writes.is_empty() && !files.absent.is_empty() {
        let absent = files.absent.join(", ");
        missing.push(format!("{absent} in place: it can be made, or is a link"));
    }
    if missing.is_empty() {
        enforced(&by)
    } else {
        partial(&by, missing.join("; "))
    }
}

fn network(needs: &Needs, facts: &Facts) -> How {
    match compile::sockets(needs, facts) {
        Sockets::Local => return enforced(&["seccomp", "netns", "mountns"]),
        Sockets::Listening => return enforced(&["seccomp", "netns"]),
        Sockets::None | Sockets::Inet => {}
    }
    let namespace = facts.net_namespace && (needs.strict || !facts.seccomp);
    match (facts.seccomp, namespace) {
        (true, false) => enforced(&["seccomp"]),
        (true, true) => enforced(&["seccomp", "netns"]),
        (false, true) => partial(&["netns"], "seccomp: Unix sockets can be reached"),
        (false, false) if facts.landlock >= TCP => {
            partial(&["landlock"], "seccomp: all but TCP can be reached")
        }
        (false, false) => none("seccomp"),
    }
}

/// How it is kept to the hosts it names. What goes around the proxy has nowhere to go but to
/// Unix sockets, which are in no network.
fn hosts(facts: &Facts) -> How {
    let mut by = match facts.net_namespace && facts.net_listener {
        false => return none(NO_NETWORK),
        true => vec!["netns", "proxy"],
    };
    if !facts.seccomp {
        return partial(&by, "seccomp: Unix sockets can be reached");
    }
    by.push("seccomp");
    if facts.landlock >= TCP {
        by.push("landlock");
    }
    enforced(&by)
}

/// Limits of each process hold everywhere, those of all together by a group.
fn bounds(limits: TreeLimits, facts: &Facts) -> How {
    let TreeLimits {
        memory,
        processes,
        cpu_seconds,
        cpu_percent,
        ..
    } = limits;
    let cgroup = facts.cgroup;
    let words: Vec<&str> = [
        ("memory_bytes", memory && !cgroup.memory),
        ("processes", processes && !cgroup.processes),
        ("cpu_seconds", cpu_seconds && !cgroup.cpu_time),
        ("cpu_percent", cpu_percent && !cgroup.cpu_share),
    ]
    .into_iter()
    .filter_map(|(word, open)| open.then_some(word))
    .collect();
    if words.is_empty() && facts.landlock > 0 {
        return enforced(&["cgroup"]);
    }
    if words.is_empty() {
        return partial(
            &["cgroup"],
            format!("{NO_LANDLOCK}: it could leave its group"),
        );
    }
    let missing = format!("{NO_CGROUP}, for {}", words.join(", "));
    // Nothing else knows a share.
    if cpu_percent && !cgroup.cpu_share {
        return none(missing);
    }
    partial(
        &["rlimit"],
        format!("{missing}: each of its processes is held, not all together"),
    )
}

fn subprocess(facts: &Facts) -> How {
    match (facts.seccomp, facts.exec_once) {
        (true, true) => enforced(&["seccomp", "exec-once"]),
        (true, false) => partial(
            &["seccomp"],
            "exec-once (Linux 5.6): it can become another program",
        ),
        (false, _) => none("seccomp"),
    }
}

/// Its own environment is what we give it; that of others is in `/proc`.
fn env_read(facts: &Facts, files: &Files) -> How {
    const ENV: &str = "environment";
    match (facts.landlock, others(facts, files)) {
        (0, _) => partial(&[ENV], format!("{NO_LANDLOCK}: `/proc` can be read")),
        (_, Some(reason)) => partial(&[ENV], reason),
        (_, None) if files.proc.is_some() => enforced(&[ENV, "landlock", "pidns"]),
        (_, None) => enforced(&[ENV, "landlock"]),
    }
}

/// A process can always change its own; what counts is who gets to see that.
fn env_write(needs: &Needs) -> How {
    match needs.isolation {
        Isolation::Cold | Isolation::Call => enforced(&["process"]),
        Isolation::Worker => partial(
            &["process"],
            "a worker that serves one call after another: set `isolation = \"call\"`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cgroup;

    const ALL: Facts = Facts {
        landlock: 7,
        seccomp: true,
        exec_once: true,
        identity: true,
        pid_namespace: true,
        pid_namespace_by_user: false,
        mount_namespace: true,
        net_namespace: true,
        net_listener: true,
        ipc_namespace: true,
        by_user_namespace: false,
        cgroup: Cgroup {
            memory: true,
            processes: true,
            cpu_share: true,
            cpu_time: true,
        },
    };

    fn levels(needs: &Needs, facts: &Facts, files: &Files) -> String {
        let level = |one| held(one, Asker::Tool, needs, facts, files).level.as_str();
        Guarantee::ALL.map(level).join(" ")
    }

    /// The whole table, a row for each way in which a machine may be less.
    #[test]
    fn levels_follow_from_the_facts() {
        use crate::Facility::{Landlock, MountNamespaces, Seccomp};
        let (needs, files) = (Needs::default(), Files::default());
        for (facts, wanted) in [
            (
                ALL,
                "enforced enforced enforced enforced enforced enforced enforced",
            ),
            (
                ALL.without(&[MountNamespaces]),
                "enforced enforced enforced enforced enforced enforced enforced",
            ),
            (
                ALL.without(&[Landlock]),
                "none none enforced enforced partial enforced partial",
            ),
            (
                ALL.without(&[Seccomp]),
                "enforced partial partial none enforced enforced enforced",
            ),
            (
                Facts {
                    landlock: 2,
                    exec_once: false,
                    ..ALL
                },
                "enforced partial enforced partial enforced enforced enforced",
            ),
            (
                Facts::default(),
                "none none none none partial enforced partial",
            ),
        ] {
            assert_eq!(levels(&needs, &facts, &files), wanted, "{facts:?}");
        }
    }

    /// Hosts alone need a network of its own; the rest is what keeps it there.
    #[test]
    fn hosts_need_a_network_of_its_own() {
        use crate::Facility::{Landlock, NetNamespaces, Seccomp, UserNamespaces};
        let user = Facts {
            by_user_namespace: true,
            ..ALL
        };
        let deaf = Facts {
            net_listener: false,
            ..ALL
        };
        for (facts, wanted) in [
            (ALL, "enforced netns proxy seccomp landlock"),
            (ALL.without(&[Landlock]), "enforced netns proxy seccomp"),
            (ALL.without(&[Seccomp]), "partial netns proxy"),
            (ALL.without(&[NetNamespaces]), "none"),
            (user, "enforced netns proxy seccomp landlock"),
            (user.without(&[UserNamespaces]), "none"),
            (deaf, "none"),
        ] {
            let held = hosts_held(&facts);
            let words = [&[held.level.as_str()], &*held.mechanisms]
                .concat()
                .join(" ");
            assert_eq!(words, wanted, "{facts:?}");
            assert_eq!(held.missing.is_empty(), held.level == Level::Enforced);
        }
    }

    /// Limits hold a tree by a group that it can not leave.
    #[test]
    fn limits_need_a_group() {
        use crate::Facility::{Cgroups, Landlock};
        let memory = TreeLimits {
            memory: true,
            ..TreeLimits::default()
        };
        let share = TreeLimits {
            cpu_percent: true,
            ..memory
        };
        let no_share = Facts {
            cgroup: Cgroup {
                cpu_share: false,
                ..ALL.cgroup
            },
            ..ALL
        };
        for (limits, facts, wanted) in [
            (memory, ALL, "enforced cgroup"),
            (share, ALL, "enforced cgroup"),
            (memory, no_share, "enforced cgroup"),
            (share, no_share, "none"),
            (memory, ALL.without(&[Cgroups]), "partial rlimit"),
            (share, ALL.without(&[Cgroups]), "none"),
            (memory, ALL.without(&[Landlock]), "partial cgroup"),
        ] {
            let held = limits_held(limits, &facts);
            let words = [&[held.level.as_str()], &*held.mechanisms]
                .concat()
                .join(" ");
            assert_eq!(words, wanted, "{limits:?} {facts:?}");
            assert_eq!(held.missing.is_empty(), held.level == Level::Enforced);
        }
    }

    #[test]
    fn files_weaken_promises() {
        let needs = Needs {
            writes: vec!["/w".into()],
            isolation: Isolation::Worker,
            ..Needs::default()
        };
        let kept = Files {
            kept: vec!["callgate.toml".to_owned()],
            ..Files::default()
        };
        let write = |facts: &Facts, files: &Files| {
            let how = held(
                Guarantee::NoFilesystemWrite,
                Asker::Tool,
                &needs,
                facts,
                files,
            );
            (how.level, how.mechanisms.join(" "), how.missing)
        };
        assert_eq!(
            write(&ALL, &kept),
            (
                Level::Enforced,
                "landlock seccomp mountns".to_owned(),
                String::new()
            )
        );
        let (level, _, missing) = write(&ALL.without(&[crate::Facility::MountNamespaces]), &kept);
        assert_eq!(level, Level::Partial);
        assert_eq!(missing, "a mount namespace: callgate.toml can be changed");
        let linked = Files {
            links: Some("out/x has 2 links".to_owned()),
            ..Files::default()
        };
        assert_eq!(write(&ALL, &linked).0, Level::Partial);
        let env = held(
            Guarantee::NoEnvWrite,
            Asker::Tool,
            &needs,
            &ALL,
            &Files::default(),
        );
        assert_eq!(env.level, Level::Partial);
    }
}
