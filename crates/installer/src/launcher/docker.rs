//! Commands that start a server in a container.

use super::words::{FlagKind, Word, Words};
use super::{Launcher, LauncherError};

/// `docker run`, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DockerRun {
    /// The client that the command names: `docker`, `podman`, `nerdctl`.
    pub client: String,
    /// The image.
    pub image: String,
    /// Variables; without a value they come from the environment of the client.
    pub env: Vec<(String, Option<String>)>,
    /// Files of variables.
    pub env_files: Vec<String>,
    /// Values of `--volume`: `SOURCE:TARGET[:ro]`.
    pub volumes: Vec<String>,
    /// Values of `--mount`: `type=bind,src=…,dst=…`.
    pub mounts: Vec<String>,
    /// The network.
    pub network: Option<String>,
    /// The user in the container.
    pub user: Option<String>,
    /// The working folder in the container.
    pub workdir: Option<String>,
    /// The program in place of the image's own.
    pub entrypoint: Option<String>,
    /// The platform of the image.
    pub platform: Option<String>,
    /// Arguments behind the image.
    pub args: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag {
    Env,
    EnvFile,
    Volume,
    Mount,
    Network,
    User,
    Workdir,
    Entrypoint,
    Platform,
}

pub(super) fn parse(name: &str, rest: &[String]) -> Result<Launcher, LauncherError> {
    let rest = match rest {
        [first, second, rest @ ..] if first == "container" && second == "run" => rest,
        [first, rest @ ..] if first == "run" => rest,
        _ => return Ok(Launcher::Plain),
    };
    let launcher = match name {
        "podman" => "podman run",
        "nerdctl" => "nerdctl run",
        _ => "docker run",
    };
    let mut words = Words::new(launcher, rest);
    let mut run = DockerRun {
        client: name.to_owned(),
        ..DockerRun::default()
    };
    loop {
        match words.next(kind)? {
            Some(Word::Flag(flag, value)) => run.take(flag, value),
            Some(Word::Plain(image)) => {
                image.clone_into(&mut run.image);
                break;
            }
            Some(Word::End) => {}
            None => return Err(LauncherError::Nothing { launcher }),
        }
    }
    run.args = words.rest();
    Ok(Launcher::Docker(run))
}

impl DockerRun {
    fn take(&mut self, flag: Flag, value: &str) {
        let text = value.to_owned();
        match flag {
            Flag::Env => self.env.push(match value.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (text, None),
            }),
            Flag::EnvFile => self.env_files.push(text),
            Flag::Volume => self.volumes.push(text),
            Flag::Mount => self.mounts.push(text),
            Flag::Network => self.network = Some(text),
            Flag::User => self.user = Some(text),
            Flag::Workdir => self.workdir = Some(text),
            Flag::Entrypoint => self.entrypoint = Some(text),
            Flag::Platform => self.platform = Some(text),
        }
    }
}

fn kind(flag: &str) -> Option<FlagKind<Flag>> {
    Some(match flag {
        "-i" | "--interactive" | "-t" | "--tty" | "-it" | "-ti" | "--rm" | "--init" | "-q"
        | "--quiet" => FlagKind::Ignored,
        "--name" | "--pull" | "-l" | "--label" | "-a" | "--attach" => FlagKind::IgnoredValue,
        "-e" | "--env" => FlagKind::Value(Flag::Env),
        "--env-file" => FlagKind::Value(Flag::EnvFile),
        "-v" | "--volume" => FlagKind::Value(Flag::Volume),
        "--mount" => FlagKind::Value(Flag::Mount),
        "--network" | "--net" => FlagKind::Value(Flag::Network),
        "-u" | "--user" => FlagKind::Value(Flag::User),
        "-w" | "--workdir" => FlagKind::Value(Flag::Workdir),
        "--entrypoint" => FlagKind::Value(Flag::Entrypoint),
        "--platform" => FlagKind::Value(Flag::Platform),
        _ => return None,
    })
}
