//! The words that start a container: everything shut that the tool does not need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use callgate_call::{Guarantee, Needs, Network};

use super::client::{Client, Runtime};
use super::shown::{Asked, MARK};
use super::{ContainerSettings, Talking};

/// Where the workspace's declared folders are, inside.
pub(super) const WORKSPACE: &str = "/workspace";

/// Who a tool is inside, unless its write folders have an owner.
const NOBODY: &str = "65534:65534";

/// Processes and threads, where nothing is said.
const PROCESSES_DEFAULT: u64 = 256;

/// What is started, and what it is to show once it runs.
pub(super) struct Start {
    pub words: Vec<OsString>,
    /// Variables that the client hands on by name, so that no list of processes shows them.
    pub env: Vec<(OsString, OsString)>,
    pub asked: Asked,
}

/// The words for a container of this name.
pub(super) fn start(
    name: &str,
    settings: &ContainerSettings,
    needs: &Needs,
    client: &Client,
) -> Start {
    let mut words = Words::default();
    let runtime = client.runtime;
    words.all(&["run", "--interactive", "--rm", "--name", name]);
    // Starting a tool fetches nothing, and what it says is kept by us alone.
    words.all(&["--pull", "never", "--log-driver", "none"]);
    words.all(&["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]);
    words.all(&[
        "--read-only",
        "--tmpfs",
        "/tmp:rw,nosuid,nodev,size=64m,mode=1777",
    ]);
    if runtime == Runtime::Podman {
        // Else `/run` and others could be written as well.
        words.all(&["--read-only-tmpfs=false"]);
    }
    if needs.network != Network::Any {
        words.all(&["--network", "none"]);
    }
    let no_forks = needs.guarantees.requires(Guarantee::NoSubprocess);
    let profile = settings.profiles.as_ref();
    if let Some(profiles) = profile {
        let path = if no_forks {
            &profiles.without_forks
        } else {
            &profiles.usual
        };
        words.pair("--security-opt", &join("seccomp=", path));
    }
    words.limits(settings);
    let mounted = words.mounts(settings, needs);
    words.user(settings, needs, runtime);
    let (env, declared) = words.environment(name, settings, needs, client);
    words.program(settings);
    Start {
        words: words.0,
        env,
        asked: Asked {
            name: name.to_owned(),
            mounted,
            declared,
            profile: profile.is_some(),
            no_forks: no_forks && profile.is_some(),
        },
    }
}

#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn all(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn pair(&mut self, flag: &str, value: &OsString) {
        self.0.push(flag.into());
        self.0.push(value.clone());
    }

    fn limits(&mut self, settings: &ContainerSettings) {
        let limits = &settings.limits;
        let processes = limits.processes.unwrap_or(PROCESSES_DEFAULT);
        self.all(&["--pids-limit", &processes.to_string()]);
        if let Some(bytes) = limits.address_space_bytes {
            self.all(&["--memory", &bytes.to_string()]);
        }
        for (name, limit) in [
            ("cpu", limits.cpu_seconds),
            ("fsize", limits.file_size_bytes),
            ("nofile", limits.open_files),
        ] {
            if let Some(limit) = limit {
                self.all(&["--ulimit", &format!("{name}={limit}:{limit}")]);
            }
        }
    }

    /// Mounts what is declared; where each is, and whether it may be written.
    fn mounts(&mut self, settings: &ContainerSettings, needs: &Needs) -> Vec<(PathBuf, bool)> {
        let mut mounted = Vec::new();
        let reads = needs.code.iter().chain(&needs.reads);
        let reads = reads.map(|path| (path, false));
        for (path, writable) in reads.chain(needs.writes.iter().map(|path| (path, true))) {
            let inside = inside(path, &settings.workspace);
            let mut volume = path.clone().into_os_string();
            volume.push(":");
            volume.push(&inside);
            volume.push(if writable { ":rw" } else { ":ro" });
            self.pair("--volume", &volume);
            mounted.push((inside, writable));
        }
        if mounted.iter().any(|(path, _)| path.starts_with(WORKSPACE)) {
            self.all(&["--workdir", WORKSPACE]);
        }
        mounted
    }

    /// P-16: the owner of what it may write, else nobody.
    fn user(&mut self, settings: &ContainerSettings, needs: &Needs, runtime: Runtime) {
        let owner = needs.writes.iter().find_map(|path| owner(path));
        let is_root = rustix::process::geteuid().is_root();
        let user = match (&settings.user, owner) {
            (Some(user), _) => user.clone(),
            (None, Some((uid, gid))) => {
                if !is_root && runtime == Runtime::Podman {
                    // Our own numbers mean the same inside.
                    self.all(&["--userns", "keep-id"]);
                }
                format!("{uid}:{gid}")
            }
            (None, None) => NOBODY.to_owned(),
        };
        self.all(&["--user", &user]);
    }

    /// Hands in what is declared and allowed; what the client gets, and all that is
    /// declared.
    fn environment(
        &mut self,
        name: &str,
        settings: &ContainerSettings,
        needs: &Needs,
        client: &Client,
    ) -> (Vec<(OsString, OsString)>, Vec<String>) {
        self.all(&["--env", &format!("{MARK}={name}")]);
        let mut env = client.env().to_vec();
        let pairs = settings.env.iter();
        let declared = pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if needs.guarantees.requires(Guarantee::NoEnvRead) {
            return (env, declared);
        }
        for (name, value) in &settings.env {
            let withheld = match needs.guarantees.secrets() {
                None => false,
                Some(allowed) => settings.secrets.is_withheld(name, value, allowed),
            };
            if withheld {
                continue;
            }
            // The client needs its own variables as they are.
            if env.iter().any(|(known, _)| known == name.as_str()) {
                self.all(&["--env", &format!("{name}={value}")]);
            } else {
                self.all(&["--env", name]);
                env.push((name.into(), value.into()));
            }
        }
        (env, declared)
    }

    fn program(&mut self, settings: &ContainerSettings) {
        match &settings.talking {
            Talking::Worker { command, .. } => {
                // An image's own entry point is for its own use.
                let mut command = command.iter();
                if let Some(program) = command.next() {
                    self.pair("--entrypoint", program);
                }
                self.0.push(OsString::from(&settings.image));
                self.0.extend(command.cloned());
            }
            Talking::OneShot { command, .. } => {
                self.0.push(OsString::from(&settings.image));
                self.0.extend(command.iter().cloned());
            }
        }
    }
}

fn join(prefix: &str, path: &Path) -> OsString {
    let mut joined = OsString::from(prefix);
    joined.push(path);
    joined
}

/// Where a path of ours is inside: below `/workspace` if it is below the workspace.
fn inside(path: &Path, workspace: &Path) -> PathBuf {
    match path.strip_prefix(workspace) {
        Ok(rest) if rest.as_os_str().is_empty() => PathBuf::from(WORKSPACE),
        Ok(rest) => Path::new(WORKSPACE).join(rest),
        Err(_) => path.to_owned(),
    }
}

fn owner(path: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::metadata(path).ok()?;
    Some((file.uid(), file.gid()))
}
