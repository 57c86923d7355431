//! What a running container shows: read from the kernel's files about its first process, not
//! from the flags it was started with. A runtime may ignore a flag, and some do (P-12).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use callgate_call::bounded::{read_path, read_path_text};
use callgate_call::{Guarantee, Isolation};
use serde_json::Value;

use super::mounts::{Mount, mounts};
use crate::coverage::Kept;

/// The largest file that is read of a process: it can make its own environment as large as its
/// memory.
const PROC_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The variable by which a container's first process is known to be ours.
pub(super) const MARK: &str = "CALLGATE_CONTAINER";

/// What the runtime says of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inspected {
    pub pid: u32,
    /// The image's own digest.
    pub image: String,
}

impl Inspected {
    /// Reads what `container inspect` printed; nothing while it does not run.
    pub fn read(printed: &[u8]) -> Option<Self> {
        let all: Value = serde_json::from_slice(printed).ok()?;
        let container = all.get(0)?;
        if container.pointer("/State/Running") != Some(&Value::Bool(true)) {
            return None;
        }
        let pid = container.pointer("/State/Pid")?.as_u64()?;
        let pid = u32::try_from(pid).ok().filter(|&pid| pid > 0)?;
        let image = container.get("Image")?.as_str()?.to_owned();
        Some(Self { pid, image })
    }
}

/// What was asked of the runtime, against which is read.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub name: String,
    /// Where folders of ours are mounted, and whether they may be written.
    pub mounted: Vec<(PathBuf, bool)>,
    /// Variables that were declared for the tool: `NAME=value`.
    pub declared: Vec<String>,
    /// A seccomp profile of ours that keeps sockets to families of the namespace.
    pub profile: bool,
    /// The same profile lets nothing fork.
    pub no_forks: bool,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Asked({})", self.name)
    }
}

/// What its first process shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// The image's own digest.
    pub image: String,
    pub uid: u32,
    pub has_capabilities: bool,
    pub no_new_privs: bool,
    pub filtered: bool,
    /// Which namespaces are its own: mount, network, pid.
    pub own: [bool; 3],
    pub interfaces: Vec<String>,
    pub mounts: Vec<Mount>,
    /// The names of declared variables that it was handed.
    pub handed: Vec<String>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    /// The folders of its cgroups.
    pub cgroups: Vec<PathBuf>,
}

impl Shown {
    /// Reads all of it. The error says why it can not be seen.
    pub fn read(inspected: &Inspected, asked: &Asked) -> Result<Self, String> {
        let process = PathBuf::from(format!("/proc/{}", inspected.pid));
        let seen = |error: io::Error| format!("its process can not be looked at: {error}");
        let environ = read_path(process.join("environ"), PROC_BYTES_MAX).map_err(seen)?;
        let mark = format!("{MARK}={}", asked.name);
        if !holds(&environ, &mark) {
            return Err("its process is not of this machine".to_owned());
        }
        let status = read_path_text(process.join("status"), PROC_BYTES_MAX).map_err(seen)?;
        let field = |name: &str| field(&status, name).unwrap_or_default();
        let capabilities = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"];
        let own = |name: &str| -> Result<bool, String> {
            let theirs = fs::read_link(process.join("ns").join(name)).map_err(seen)?;
            let ours = fs::read_link(Path::new("/proc/self/ns").join(name)).map_err(seen)?;
            Ok(theirs != ours)
        };
        let text = |name: &str| read_path_text(process.join(name), PROC_BYTES_MAX).map_err(seen);
        let groups = Groups::read(&text("cgroup")?);
        Ok(Self {
            image: inspected.image.clone(),
            uid: field("Uid:").parse().unwrap_or_default(),
            has_capabilities: capabilities
                .iter()
                .any(|name| u64::from_str_radix(field(name), 16) != Ok(0)),
            no_new_privs: field("NoNewPrivs:") == "1",
            filtered: field("Seccomp:") == "2",
            own: [own("mnt")?, own("net")?, own("pid")?],
            interfaces: interfaces(&text("net/dev")?),
            mounts: mounts(&text("mountinfo")?),
            handed: handed(&environ, &asked.declared),
            memory_bytes: groups.limit("memory", "memory.limit_in_bytes", "memory.max"),
            processes: groups.limit("pids", "pids.max", "pids.max"),
            cgroups: groups.folders(),
        })
    }

    /// How far it keeps one promise.
    pub fn kept(&self, one: Guarantee, asked: &Asked, isolation: Isolation) -> Kept {
        if let Some(reason) = self.open() {
            return Kept::none(reason);
        }
        match one {
            Guarantee::NoFilesystemRead => self.no_read(asked),
            Guarantee::NoFilesystemWrite => self.no_write(),
            Guarantee::NoNetwork => self.no_network(asked),
            Guarantee::NoSubprocess if asked.no_forks && self.filtered => {
                Kept::partial(&["seccomp profile"], "exec in place stays possible")
            }
            Guarantee::NoSubprocess => Kept::none("it was started without a profile for it"),
            Guarantee::NoEnvRead => self.no_env_read(),
            Guarantee::NoEnvWrite if isolation == Isolation::Cold => {
                Kept::enforced(&["process per call"])
            }
            Guarantee::NoEnvWrite => {
                Kept::partial(&[], "one process serves many calls: isolation = \"cold\"")
            }
            // What it may not have was not handed in.
            Guarantee::SecretsAllowed => Kept::enforced(&["environment", "pid namespace"]),
        }
    }

    /// What would make everything else worthless.
    fn open(&self) -> Option<&'static str> {
        match self {
            Self {
                own: [false, _, _], ..
            }
            | Self {
                own: [_, _, false], ..
            } => Some("it has no namespaces of its own"),
            Self {
                has_capabilities: true,
                ..
            } => Some("it has capabilities"),
            Self {
                no_new_privs: false,
                ..
            } => Some("it may gain privileges"),
            _ => None,
        }
    }

    fn no_network(&self, asked: &Asked) -> Kept {
        let [_, own, _] = self.own;
        if !own || self.interfaces != ["lo"] {
            return Kept::none("it has a network");
        }
        if !asked.profile || !self.filtered {
            let missing = "sockets outside the namespace (vsock) are not filtered";
            return Kept::partial(&["network namespace"], missing);
        }
        Kept::enforced(&["network namespace", "seccomp profile"])
    }

    fn no_write(&self) -> Kept {
        let writable: Vec<&str> = self
            .mounts
            .iter()
            .filter(|mount| mount.is_writable && !mount.is_of_memory())
            // Root's own files that some runtimes leave writable: to root.
            .filter(|mount| self.uid == 0 || !mount.is_usual())
            .map(|mount| mount.at.as_str())
            .collect();
        if writable.is_empty() {
            return Kept::enforced(&["read-only mounts"]);
        }
        Kept::none(format!("it may write {}", writable.join(", ")))
    }

    fn no_read(&self, asked: &Asked) -> Kept {
        let foreign: Vec<&str> = self
            .mounts
            .iter()
            .filter(|mount| mount.is_of_host())
            .map(|mount| mount.at.as_str())
            .filter(|at| !asked.mounted.iter().any(|(path, _)| path == Path::new(at)))
            .collect();
        if foreign.is_empty() {
            return Kept::enforced(&["mount namespace"]);
        }
        Kept::none(format!("it sees {} of this machine", foreign.join(", ")))
    }

    fn no_env_read(&self) -> Kept {
        match self.handed.first() {
            None => Kept::enforced(&["environment", "pid namespace"]),
            Some(name) => Kept::none(format!("`{name}` is in its environment")),
        }
    }

    /// TP-83, for people.
    pub fn words(&self) -> String {
        let network = match self.interfaces.as_slice() {
            [only] if only == "lo" => "no network".to_owned(),
            more => format!("network {}", more.join(" ")),
        };
        let write = self.no_write();
        let files = match write.missing.as_str() {
            "" => "read-only".to_owned(),
            missing => missing.to_owned(),
        };
        let limit = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
        let capabilities = if self.has_capabilities { "some" } else { "no" };
        format!(
            "verified: {network}, {files}, memory {}, pids {}, user {}, {capabilities} capabilities",
            limit(self.memory_bytes),
            limit(self.processes),
            self.uid
        )
    }
}

/// The first word of a line of `status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()
}

/// True if the variable is there with this value.
fn holds(environ: &[u8], variable: &str) -> bool {
    let mut variables = environ.split(|&byte| byte == 0);
    variables.any(|one| one == variable.as_bytes())
}

fn handed(environ: &[u8], declared: &[String]) -> Vec<String> {
    let there = declared.iter().filter(|variable| holds(environ, variable));
    there
        .filter_map(|variable| Some(variable.split_once('=')?.0.to_owned()))
        .collect()
}

/// The interfaces that `net/dev` lists, below its two lines of headings.
fn interfaces(table: &str) -> Vec<String> {
    let rows = table.lines().skip(2);
    rows.filter_map(|row| Some(row.split_once(':')?.0.trim().to_owned()))
        .collect()
}

/// The cgroups of a process, as folders: of the first version for each controller, of the
/// second for all.
struct Groups {
    by_controller: Vec<(String, PathBuf)>,
}

impl Groups {
    fn read(cgroup: &str) -> Self {
        let Ok(mountinfo) = fs::read_to_string("/proc/self/mountinfo") else {
            return Self {
                by_controller: Vec::new(),
            };
        };
        let mounts = mounts(&mountinfo);
        let by_controller = cgroup
            .lines()
            .filter_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controller, path) = (parts.next()?, parts.next()?);
                let mount = mounts.iter().find(|mount| mount.is_cgroup(controller))?;
                let inside = path.strip_prefix(mount.root.trim_end_matches('/'))?;
                let folder = Path::new(&mount.at).join(inside.trim_start_matches('/'));
                Some((controller.to_owned(), folder))
            })
            .collect();
        Self { by_controller }
    }

    /// A limit, from whichever version has the controller.
    fn limit(&self, controller: &str, first: &str, second: &str) -> Option<u64> {
        /// What the first version says for "no limit" is just below this.
        const UNLIMITED: u64 = 1 << 60;
        let is = |listed: &str| listed.split(',').any(|word| word == controller);
        let find = |wanted: &dyn Fn(&str) -> bool, file: &str| {
            let (_, folder) = self
                .by_controller
                .iter()
                .find(|(listed, _)| wanted(listed))?;
            let text = read_path_text(folder.join(file), PROC_BYTES_MAX).ok()?;
            text.trim().parse().ok().filter(|&limit| limit < UNLIMITED)
        };
        find(&is, first).or_else(|| find(&|listed: &str| listed.is_empty(), second))
    }

    fn folders(self) -> Vec<PathBuf> {
        self.by_controller
            .into_iter()
            .map(|(_, folder)| folder)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_call::Level;

    /// A container as it should be.
    fn tight() -> (Shown, Asked) {
        let shown = Shown {
            uid: 65534,
            no_new_privs: true,
            filtered: true,
            own: [true; 3],
            interfaces: vec!["lo".to_owned()],
            mounts: mounts(
                "1 0 0:1 / / ro,relatime - overlay overlay rw\n\
                 2 1 0:2 / /tmp rw,nosuid - tmpfs tmpfs rw\n\
                 3 1 254:0 /x/hosts /etc/hosts ro - ext4 /dev/vda rw\n",
            ),
            ..Shown::default()
        };
        let asked = Asked {
            profile: true,
            no_forks: true,
            ..Asked::default()
        };
        (shown, asked)
    }

    fn levels(shown: &Shown, asked: &Asked) -> Vec<Level> {
        Guarantee::ALL
            .map(|one| shown.kept(one, asked, Isolation::Worker).level)
            .to_vec()
    }

    /// P-12: what is shown decides, not what was asked for.
    #[test]
    fn levels_follow_what_is_shown() {
        use Level::{Enforced, None, Partial};
        let (shown, asked) = tight();
        let usual = [
            Enforced, Enforced, Enforced, Partial, Enforced, Partial, Enforced,
        ];
        assert_eq!(levels(&shown, &asked), usual);
        let cold = shown.kept(Guarantee::NoEnvWrite, &asked, Isolation::Cold);
        assert_eq!(cold.level, Enforced);

        for change in [
            |shown: &mut Shown| shown.has_capabilities = true,
            |shown: &mut Shown| shown.no_new_privs = false,
            |shown: &mut Shown| shown.own[0] = false,
            |shown: &mut Shown| shown.own[2] = false,
        ] {
            let mut open = shown.clone();
            change(&mut open);
            assert_eq!(levels(&open, &asked), [None; 7]);
        }
        let with = |change: &dyn Fn(&mut Shown), one: Guarantee| {
            let mut other = shown.clone();
            change(&mut other);
            other.kept(one, &asked, Isolation::Worker).level
        };
        let network = Guarantee::NoNetwork;
        assert_eq!(with(&|s| s.interfaces.push("eth0".into()), network), None);
        assert_eq!(with(&|s| s.own[1] = false, network), None);
        assert_eq!(with(&|s| s.filtered = false, network), Partial);
        assert_eq!(with(&|s| s.filtered = false, Guarantee::NoSubprocess), None);
        let root = |s: &mut Shown| s.mounts[0].is_writable = true;
        assert_eq!(with(&root, Guarantee::NoFilesystemWrite), None);
        let home = |s: &mut Shown| s.mounts[2].at = "/home".into();
        assert_eq!(with(&home, Guarantee::NoFilesystemRead), None);
        let key = |s: &mut Shown| s.handed.push("KEY".into());
        assert_eq!(with(&key, Guarantee::NoEnvRead), None);
    }

    #[test]
    fn what_the_runtime_says() {
        let running = br#"[{"Image":"sha256:aa","State":{"Running":true,"Pid":7}}]"#;
        let wanted = Inspected {
            pid: 7,
            image: "sha256:aa".to_owned(),
        };
        assert_eq!(Inspected::read(running), Some(wanted));
        for other in [
            r#"[{"Image":"a","State":{"Running":false,"Pid":0}}]"#,
            r#"[{"Image":"a","State":{"Running":true,"Pid":0}}]"#,
            "[]",
            "{}",
            "",
        ] {
            assert_eq!(Inspected::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn tables_of_the_kernel() {
        let table = "Inter-|\n face |bytes\n    lo:  0 0\n  eth0: 1 2\n";
        assert_eq!(interfaces(table), ["lo", "eth0"]);
        assert_eq!(field("Name:\tx\nUid:\t5\t6\n", "Uid:"), Some("5"));
        let declared = ["A=1", "B=2=3", "C=1", "A="].map(str::to_owned);
        assert_eq!(handed(b"A=1\0B=2=3\0C=10\0\0", &declared), ["A", "B"]);
        // Our own process has cgroups of some kind, wherever this runs.
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let folders = Groups::read(&own).folders();
        assert!(folders.iter().all(|folder| folder.is_dir()), "{folders:?}");
    }
}
