//! `mountinfo`, as far as it says what a process can reach.

/// File systems that live in memory and end with the container.
const MEMORY: [&str; 7] = [
    "tmpfs", "devpts", "mqueue", "proc", "sysfs", "cgroup", "cgroup2",
];

/// Files that runtimes put into every container.
const USUAL: [&str; 8] = [
    "/etc/group",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/run/.containerenv",
    "/run/secrets",
    "/dev/init",
];

/// Devices that take and give nothing of anybody's. Without root they are the machine's own,
/// each mounted by itself; the first also stands before files that nobody is to read.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// One mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mount {
    /// What of its file system is mounted.
    pub root: String,
    pub at: String,
    pub is_writable: bool,
    kind: String,
    options: String,
}

impl Mount {
    /// True if nothing written there outlives the container.
    pub fn is_of_memory(&self) -> bool {
        MEMORY.contains(&self.kind.as_str()) || self.is_device()
    }

    fn is_device(&self) -> bool {
        let root = self.root.strip_prefix("/dev").unwrap_or(&self.root);
        let known = |name: &str| root.strip_prefix('/') == Some(name);
        match self.at.strip_prefix("/dev/") {
            Some(at) => DEVICES.contains(&at) && known(at),
            None => self.at.starts_with("/proc/") && known("null"),
        }
    }

    /// True if every container has it.
    pub fn is_usual(&self) -> bool {
        USUAL.contains(&self.at.as_str())
    }

    /// True if it shows something of the machine that no container needs.
    pub fn is_of_host(&self) -> bool {
        self.at != "/" && !self.is_of_memory() && !self.is_usual()
    }

    /// True if this is where cgroups of the controllers are; the second version has no name.
    pub fn is_cgroup(&self, controllers: &str) -> bool {
        match controllers {
            "" => self.kind == "cgroup2",
            listed => {
                let has = |word: &str| self.options.split(',').any(|option| option == word);
                self.kind == "cgroup" && listed.split(',').all(has)
            }
        }
    }
}

/// Reads the lines; those that are none are passed over.
pub(super) fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

/// `36 35 98:0 /root /at rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn mount(line: &str) -> Option<Mount> {
    let (first, second) = line.split_once(" - ")?;
    let mut first = first.split(' ').skip(3);
    let (root, at, flags) = (first.next()?, first.next()?, first.next()?);
    let mut second = second.split(' ');
    let (kind, _, options) = (second.next()?, second.next()?, second.next()?);
    let is_read_only = |options: &str| options.split(',').any(|option| option == "ro");
    Some(Mount {
        root: plain(root),
        at: plain(at),
        is_writable: !is_read_only(flags) && !is_read_only(options),
        kind: kind.to_owned(),
        options: options.to_owned(),
    })
}

/// Blanks and backslashes are written as octal numbers.
fn plain(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "73 48 0:40 / / ro,relatime - overlay overlay rw,lowerdir=/x\n\
            76 73 0:44 / /tmp rw,nosuid shared:1 - tmpfs tmpfs rw,size=16384k\n\
            80 73 254:0 /srv/my\\040data /data rw,relatime - ext4 /dev/vda rw\n\
            81 73 254:0 /x/hosts /etc/hosts ro - ext4 /dev/vda rw\n\
            90 87 0:31 /a /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
            91 87 0:32 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n\
            nonsense\n";
        let all = mounts(text);
        assert_eq!(all.len(), 6);
        let writable: Vec<_> = all.iter().filter(|mount| mount.is_writable).collect();
        assert_eq!(writable.len(), 2);
        assert!(writable[0].is_of_memory() && !writable[1].is_of_memory());
        assert_eq!(all[2].root, "/srv/my data");
        let of_host: Vec<_> = all.iter().filter(|mount| mount.is_of_host()).collect();
        assert_eq!(of_host.len(), 1);
        assert_eq!(of_host[0].at, "/data");
        assert!(all[4].is_cgroup("cpu,cpuacct") && all[4].is_cgroup("cpu"));
        assert!(!all[4].is_cgroup("memory") && !all[4].is_cgroup(""));
        assert!(all[5].is_cgroup("") && !all[5].is_cgroup("cpu"));

        let of = |root: &str, at: &str| {
            let line = format!("1 2 0:5 {root} {at} rw - devtmpfs dev rw\n");
            mounts(&line)[0].is_of_memory()
        };
        for name in DEVICES {
            assert!(of(&format!("/{name}"), &format!("/dev/{name}")), "{name}");
        }
        assert!(of("/null", "/proc/keys") && of("/dev/null", "/dev/null"));
        assert!(!of("/sda", "/dev/sda") && !of("/sda", "/dev/null") && !of("/null", "/etc/x"));
    }
}
