//! Other people's ways to start a confined program, each a command that runs it once. What
//! can not be had says why.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;

/// The program's name in the container's image.
const INSIDE: &str = "/true";
const IMAGE: &str = "localhost/callgate-bench:latest";

/// crun does not know every layout of cgroups, and podman's usual limits may be above ours.
const CONFIGURATION: &str = r#"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"#;

/// bubblewrap with everything unshared.
pub fn bubblewrap(program: &Path) -> Result<Command, Failure> {
    let mut command = Command::new("bwrap");
    command
        .args(["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/"])
        .arg(program);
    try_out(&mut command)?;
    Ok(command)
}

/// A podman with storage and configuration of its own, and an image that is one program.
pub struct Podman {
    folder: PathBuf,
}

impl Podman {
    /// In a folder that is gone with the bench.
    pub fn new(folder: &Path, program: &Path) -> Result<Self, Failure> {
        let podman = Self {
            folder: folder.join("podman"),
        };
        fs::create_dir(&podman.folder)?;
        fs::write(podman.folder.join("containers.conf"), CONFIGURATION)?;
        let image = podman.folder.join("image.tar");
        let (from, name) = (program.parent(), program.file_name());
        let from = from.zip(name).ok_or("a program is in a folder")?;
        try_out(
            Command::new("tar")
                .arg("--create")
                .arg("--file")
                .arg(&image)
                .arg("--directory")
                .args([from.0.as_os_str(), from.1]),
        )?;
        try_out(podman.command().arg("import").arg(&image).arg(IMAGE))?;
        try_out(&mut podman.run())?;
        Ok(podman)
    }

    /// What the container runner asks of it, once.
    pub fn run(&self) -> Command {
        let mut command = self.command();
        command.args(["run", "--rm", "--network=none", "--read-only"]);
        command.args(["--memory=64m", "--pids-limit=32", "--cap-drop=ALL"]);
        command.args(["--security-opt=no-new-privileges", "--user=65534"]);
        command.args([IMAGE, INSIDE]);
        command
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command
            .env("CONTAINERS_CONF", self.folder.join("containers.conf"))
            .arg("--root")
            .arg(self.folder.join("root"))
            .arg("--runroot")
            .arg(self.folder.join("runroot"));
        command
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Mounts of its storage would keep the folder.
        let _ = try_out(self.command().args(["rmi", "--all", "--force"]));
    }
}

/// Runs it once, quietly.
fn try_out(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("failed").to_owned();
    Err(format!("{name}: {last}").into())
}
