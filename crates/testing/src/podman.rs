//! A podman of the test's own: storage, runtime and configuration in its folder, nothing of
//! the machine's touched. The image was made by `cargo xtask test`, out of the Python here.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The name of the image in a [`Podman`].
pub const IMAGE: &str = "localhost/callgate-test:latest";

/// crun does not know this machine's cgroups, and podman's usual limits are above ours.
const CONFIGURATION: &str = r#"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"#;

/// A podman with storage of its own. Removes its containers and files when it is dropped.
pub struct Podman {
    /// The folder that holds its storage and configuration.
    pub folder: PathBuf,
    /// The user that runs it, if it is not the test's own user.
    uid: Option<u32>,
}

impl Podman {
    /// A podman of the test's own user in `folder`.
    pub fn new(folder: PathBuf) -> Self {
        Self::of(folder, None)
    }

    /// A podman of the user `uid`, who may have no subordinate uids (`/etc/subuid`).
    pub fn of(folder: PathBuf, uid: Option<u32>) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(folder.join("containers.conf"), CONFIGURATION).unwrap();
        for name in ["root", "runroot", "run"] {
            let path = folder.join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&path, uid, uid).unwrap();
        }
        std::os::unix::fs::chown(&folder, uid, uid).unwrap();
        let image = std::env::var_os("CALLGATE_TEST_IMAGE")
            .expect("CALLGATE_TEST_IMAGE is not set: `cargo xtask test` makes it");
        // The cache is its owner's.
        std::fs::copy(image, folder.join("image.tar")).unwrap();
        let podman = Self { folder, uid };
        let tar = podman.folder.join("image.tar");
        podman.good(&["import", "--quiet", tar.to_str().unwrap(), IMAGE]);
        std::fs::remove_file(tar).unwrap();
        podman
    }

    /// The options that stand before podman's own command and select this storage.
    pub fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = ["root", "runroot"]
            .iter()
            .flat_map(|name| [format!("--{name}").into(), self.folder.join(name).into()])
            .collect();
        if self.uid.is_some() {
            options.extend(["--storage-driver", "vfs"].map(OsString::from));
        }
        options
    }

    /// The environment that podman runs in.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let own = |name: &str| std::env::var_os(name).unwrap_or_default();
        let inside = |name: &str| self.folder.join(name).into_os_string();
        vec![
            ("PATH".into(), own("PATH")),
            ("HOME".into(), self.folder.clone().into()),
            ("XDG_RUNTIME_DIR".into(), inside("run")),
            ("CONTAINERS_CONF".into(), inside("containers.conf")),
        ]
    }

    /// A command that runs `program` as this podman's user.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.env())
            .current_dir(&self.folder);
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// Runs podman with `words` and returns its output.
    pub fn run(&self, words: &[&str]) -> Output {
        self.command(Path::new("podman"))
            .args(self.options())
            .args(words)
            .output()
            .expect("podman is installed by `cargo xtask test`")
    }

    /// Runs podman with `words`, which must succeed, and returns its standard output.
    pub fn good(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The names of all containers, running or not.
    pub fn containers(&self) -> Vec<String> {
        let names = self.good(&["ps", "--all", "--format", "{{.Names}}"]);
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// The process id of a running container.
    pub fn pid(&self, name: &str) -> u32 {
        let pid = self.good(&["inspect", "--format", "{{.State.Pid}}", name]);
        pid.trim().parse().unwrap()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.run(&["rm", "--all", "--force", "--time", "0"]);
        self.run(&["rmi", "--all", "--force"]);
        if self.uid.is_some() {
            // A process that keeps the user's namespace.
            self.run(&["system", "migrate"]);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
