//! A podman of the test's own: storage, runtime and configuration in its folder, nothing of
//! the machine's touched. The image was made by `cargo xtask test`, out of the Python here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// As containers and images are called in it.
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

#[allow(dead_code, reason = "each test file uses its own part")]
pub struct Podman {
    pub folder: PathBuf,
}

#[allow(dead_code, reason = "each test file uses its own part")]
impl Podman {
    pub fn new(folder: PathBuf) -> Self {
        std::fs::write(folder.join("containers.conf"), CONFIGURATION).unwrap();
        let podman = Self { folder };
        let image = std::env::var_os("CALLGATE_TEST_IMAGE")
            .expect("CALLGATE_TEST_IMAGE is not set: `cargo xtask test` makes it");
        podman.good(&[
            "import",
            "--quiet",
            Path::new(&image).to_str().unwrap(),
            IMAGE,
        ]);
        podman
    }

    /// Before the client's own command.
    pub fn options(&self) -> Vec<OsString> {
        ["root", "runroot"]
            .iter()
            .flat_map(|name| [format!("--{name}").into(), self.folder.join(name).into()])
            .collect()
    }

    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let own = |name: &str| std::env::var_os(name).unwrap_or_default();
        vec![
            ("PATH".into(), own("PATH")),
            ("HOME".into(), self.folder.clone().into()),
            (
                "CONTAINERS_CONF".into(),
                self.folder.join("containers.conf").into(),
            ),
        ]
    }

    pub fn run(&self, words: &[&str]) -> Output {
        Command::new("podman")
            .args(self.options())
            .args(words)
            .env_clear()
            .envs(self.env())
            .output()
            .expect("podman is installed by `cargo xtask test`")
    }

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

    /// The process of a running container.
    pub fn pid(&self, name: &str) -> u32 {
        let pid = self.good(&["inspect", "--format", "{{.State.Pid}}", name]);
        pid.trim().parse().unwrap()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.run(&["rm", "--all", "--force", "--time", "0"]);
        self.run(&["rmi", "--all", "--force"]);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
