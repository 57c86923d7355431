//! An installer in a folder of a test's own.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use callgate_installer::{
    InstallError, InstallStage, Installed, Installer, InstallerSettings, PackageLock,
    PackageRequest, PackageSource, PackageSpec, RegistrySettings,
};
use callgate_sandbox::Spawner;
use callgate_testing::{TempFolder, misbehave};

pub struct Scene {
    pub folder: TempFolder,
    pub settings: InstallerSettings,
    pub stages: Mutex<Vec<InstallStage>>,
}

impl Scene {
    pub fn new() -> Self {
        let folder = TempFolder::new();
        let spawner: Arc<Spawner> = Spawner::new(misbehave().to_owned());
        let search = std::env::var_os("PATH").unwrap();
        let mut settings = InstallerSettings::new(spawner, search, folder.join("cache"));
        // A mirror is reached by its own address and certificates.
        let variable = |name: &str| std::env::var(name).ok();
        if let Some(url) = variable("npm_config_registry") {
            settings.npm = RegistrySettings {
                url,
                archive_hosts: Vec::new(),
            };
        }
        if let Some(url) = variable("PIP_INDEX_URL") {
            settings.pypi.url = url;
        }
        settings.ca_file = variable("SSL_CERT_FILE").map(PathBuf::from);
        Self {
            folder,
            settings,
            stages: Mutex::default(),
        }
    }

    /// The same with a registry of npm of the test's own.
    pub fn with_registry(registry: &TestRegistry) -> Self {
        let mut scene = Self::new();
        scene.settings.npm = RegistrySettings {
            url: registry.url.clone(),
            archive_hosts: Vec::new(),
        };
        scene
    }

    pub fn root(&self) -> PathBuf {
        self.folder.join("server")
    }

    pub fn installer(&self) -> Installer {
        Installer::new(self.settings.clone())
    }

    fn told(&self, stage: InstallStage) {
        self.stages.lock().unwrap().push(stage);
    }

    pub async fn install(
        &self,
        request: &PackageRequest,
    ) -> Result<(Installed, PackageLock), InstallError> {
        let progress = |stage, _: &str| self.told(stage);
        self.installer()
            .install(&self.root(), request, &progress)
            .await
    }

    pub async fn install_locked(
        &self,
        request: &PackageRequest,
        lock: &PackageLock,
        source: PackageSource,
    ) -> Result<Installed, InstallError> {
        let progress = |stage, _: &str| self.told(stage);
        self.installer()
            .install_locked(&self.root(), (request, lock), source, &progress)
            .await
    }

    /// Names in the folder of installations.
    pub fn names(&self) -> Vec<String> {
        names(&self.root())
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

pub fn request(spec: &str) -> PackageRequest {
    PackageRequest::new(PackageSpec::parse(spec).unwrap())
}

const MESSAGES: [&str; 3] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
];

fn tool_names(answer: &serde_json::Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    let name = |tool: &serde_json::Value| tool["name"].as_str().unwrap().to_owned();
    tools.map(name).collect()
}

/// Starts an installed server, initializes it, and returns the names of its tools.
pub fn tools_of(installed: &Installed, args: &[&str]) -> Vec<String> {
    use std::io::{BufRead as _, Write as _};
    use std::process::{Command, Stdio};
    let mut command = Command::new(&installed.entry[0]);
    command
        .args(&installed.entry[1..])
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(&installed.env)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    for line in MESSAGES {
        writeln!(stdin, "{line}").unwrap();
    }
    let answer = lines.find_map(|line| {
        let value: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        (value["id"] == 2).then_some(value)
    });
    drop(stdin);
    let answer = answer.expect("an answer to tools/list");
    child.kill().unwrap();
    child.wait().unwrap();
    tool_names(&answer)
}

/// A registry of npm that serves packages of a test's own, for as long as it is kept.
pub struct TestRegistry {
    server: std::process::Child,
    pub url: String,
}

impl TestRegistry {
    pub fn new(packages: &serde_json::Value) -> Self {
        use std::io::BufRead as _;
        use std::process::{Command, Stdio};
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/registry.mjs");
        let mut server = Command::new("node")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = server.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, packages.to_string().as_bytes()).unwrap();
        drop(stdin);
        let mut port = String::new();
        let stdout = server.stdout.take().unwrap();
        std::io::BufReader::new(stdout)
            .read_line(&mut port)
            .unwrap();
        let url = format!("http://localhost:{}/", port.trim());
        Self { server, url }
    }
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Starts an installed server confined as servers are by default, and returns the names of its
/// tools, or what it printed on standard error.
pub async fn confined_tools_of(
    scene: &Scene,
    installed: &Installed,
    args: &[&str],
) -> Result<Vec<String>, String> {
    use callgate_call::{Ipc, Needs};
    use callgate_sandbox::Spec;
    use std::io::{BufRead as _, Read as _, Write as _};
    use std::os::fd::OwnedFd;

    let home = scene.folder.join("home");
    std::fs::create_dir_all(&home).unwrap();
    let mut argv = installed.entry.clone();
    argv.extend(args.iter().map(Into::into));
    let mut spec = Spec::new(argv, home.clone());
    spec.env = installed
        .env
        .clone()
        .into_iter()
        .map(|(n, v)| (n.into(), v))
        .collect();
    spec.env.push(("PATH".into(), "/usr/bin:/bin".into()));
    spec.env.push(("HOME".into(), home.clone().into()));
    spec.confine = Some(Arc::new(Needs {
        reads: vec![
            installed.folder.clone(),
            "/sys/devices/system/cpu".into(),
            "/sys/fs/cgroup".into(),
        ],
        writes: vec![home],
        ipc: Ipc::Private,
        ..Needs::default()
    }));
    let (stdin, mut to) = std::io::pipe().unwrap();
    let (from, stdout) = std::io::pipe().unwrap();
    let (mut errors, stderr) = std::io::pipe().unwrap();
    spec.stdin = OwnedFd::from(stdin).into();
    spec.stdout = OwnedFd::from(stdout).into();
    spec.stderr = OwnedFd::from(stderr).into();
    let mut child = scene.settings.spawner.spawn(spec).await.unwrap();
    for line in MESSAGES {
        let _ = writeln!(to, "{line}");
    }
    let tools = tokio::task::spawn_blocking(move || {
        let mut lines = std::io::BufReader::new(from).lines();
        let answer = lines.find_map(|line| {
            let value: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
            (value["id"] == 2).then_some(value)
        })?;
        Some(tool_names(&answer))
    });
    let tools = tools.await.unwrap();
    drop(to);
    child.kill();
    child.wait().await;
    tools.ok_or_else(|| {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    })
}
