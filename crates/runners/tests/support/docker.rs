//! A docker of the test's own: a daemon with storage, sockets and groups of its own, without
//! bridges and rules of packet filters, ended with the test. Its programs were put in the cache by
//! `cargo xtask test`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use callgate_runners::Runtime;

use callgate_testing::podman::{IMAGE, Podman};

/// What a daemon may take to answer, and to end.
const DAEMON_MAX: Duration = Duration::from_secs(120);

/// A runtime of containers as a test uses it.
pub trait Engine {
    fn runtime(&self) -> Runtime;
    fn folder(&self) -> &Path;
    /// Before the client's own command.
    fn options(&self) -> Vec<OsString>;
    fn env(&self) -> Vec<(OsString, OsString)>;
    fn run(&self, words: &[&str]) -> Output;

    fn good(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The names of all containers, running or not.
    fn containers(&self) -> Vec<String> {
        let names = self.good(&["ps", "--all", "--format", "{{.Names}}"]);
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// The process of a running container.
    fn pid(&self, name: &str) -> u32 {
        let pid = self.good(&["inspect", "--format", "{{.State.Pid}}", name]);
        pid.trim().parse().unwrap()
    }

    /// The image by what is in it.
    fn image_by_digest(&self) -> String;
}

impl Engine for Podman {
    fn runtime(&self) -> Runtime {
        Runtime::Podman
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn options(&self) -> Vec<OsString> {
        Podman::options(self)
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        Podman::env(self)
    }

    fn run(&self, words: &[&str]) -> Output {
        Podman::run(self, words)
    }

    fn image_by_digest(&self) -> String {
        let digest = Engine::good(
            self,
            &["image", "inspect", "--format", "{{.Digest}}", IMAGE],
        );
        format!("localhost/callgate-test@{}", digest.trim())
    }
}

pub struct Docker {
    folder: PathBuf,
    /// Where its programs are.
    programs: PathBuf,
    daemon: Child,
}

impl Docker {
    pub fn new(folder: PathBuf) -> Self {
        let programs = std::env::var_os("CALLGATE_TEST_DOCKER")
            .expect("CALLGATE_TEST_DOCKER is not set: `cargo xtask test` fetches it");
        let programs = PathBuf::from(programs);
        let own = |name: &str| folder.join(name).display().to_string();
        std::fs::write(folder.join("daemon.json"), settings(&programs, &folder)).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let daemon = Command::new(programs.join("usr/sbin/dockerd"))
            .args(["--host", &format!("unix://{}", own("sock"))])
            .args(["--data-root", &own("data"), "--exec-root", &own("exec")])
            .args([
                "--pidfile",
                &own("pid"),
                "--config-file",
                &own("daemon.json"),
            ])
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .args(["--cgroup-parent", &group_of(&folder)])
            .args(["--exec-opt", "native.cgroupdriver=cgroupfs"])
            .env("PATH", search_path(&programs))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("start dockerd");
        let mut docker = Self {
            folder,
            programs,
            daemon,
        };
        docker.wait_until_it_answers();
        let image = std::env::var("CALLGATE_TEST_IMAGE")
            .expect("CALLGATE_TEST_IMAGE is not set: `cargo xtask test` makes it");
        Engine::good(&docker, &["import", &image, IMAGE]);
        docker
    }

    fn wait_until_it_answers(&mut self) {
        let until = Instant::now() + DAEMON_MAX;
        while !self.run(&["version"]).status.success() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let ended = self.daemon.try_wait().expect("look at dockerd");
            assert!(ended.is_none(), "dockerd ended: {ended:?} {}", log());
            assert!(Instant::now() < until, "dockerd does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A daemon's settings. Old ones keep a key in `/etc` unless they are told where.
fn settings(programs: &Path, folder: &Path) -> String {
    let told = Command::new(programs.join("usr/sbin/dockerd"))
        .arg("--version")
        .output()
        .expect("start dockerd");
    let told = String::from_utf8_lossy(&told.stdout);
    let version = told.strip_prefix("Docker version ").unwrap_or_default();
    let major = version
        .split('.')
        .next()
        .and_then(|text| text.parse::<u32>().ok());
    match major {
        Some(..24) => {
            let key = folder.join("key.json");
            serde_json::json!({ "deprecated-key-path": key }).to_string()
        }
        _ => "{}".to_owned(),
    }
}

/// Its groups are below one of this name, which no other daemon has.
fn group_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    format!("docker-{}", name.to_string_lossy())
}

fn search_path(programs: &Path) -> OsString {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let own = ["usr/bin", "usr/sbin"].map(|name| programs.join(name));
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let all = own
        .into_iter()
        .chain(std::env::split_paths(&usual))
        .chain(system);
    std::env::join_paths(all).unwrap()
}

impl Engine for Docker {
    fn runtime(&self) -> Runtime {
        Runtime::Docker
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn options(&self) -> Vec<OsString> {
        let host = format!("unix://{}", self.folder.join("sock").display());
        vec!["--host".into(), host.into()]
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("PATH".into(), search_path(&self.programs)),
            ("HOME".into(), self.folder.clone().into()),
        ]
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(self.programs.join("usr/bin/docker"))
            .env_clear()
            .envs(self.env())
            .args(self.options())
            .args(words)
            .output()
            .expect("start docker")
    }

    fn image_by_digest(&self) -> String {
        // One that was never in a registry has no other.
        let id = self.good(&["image", "inspect", "--format", "{{.Id}}", IMAGE]);
        id.trim().to_owned()
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        for name in self.containers() {
            self.run(&["rm", "--force", &name]);
        }
        // It ends what it has started: its containerd, and what that has.
        let pid = i32::try_from(self.daemon.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + DAEMON_MAX;
        while matches!(self.daemon.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.daemon.kill();
        remove_groups(&group_of(&self.folder));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes the empty groups that it leaves in each tree.
fn remove_groups(name: &str) {
    let mut next: Vec<PathBuf> = vec!["/sys/fs/cgroup".into()];
    while let Some(folder) = next.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name() == name {
                let _ = std::fs::remove_dir(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
            }
        }
    }
}
