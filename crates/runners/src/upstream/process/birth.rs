//! What a process is born with: its home, its pipes, and what confines it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use callgate_call::{Fault, Needs, chain};
use callgate_sandbox::{Home, Spec};
use tokio::net::unix::pipe;

use super::{EndCause, Parts, ShareKey};
use crate::flood::Flood;
use crate::process::confine;
use crate::upstream::HOME_PLACEHOLDER;

/// The working folder of a server without a home: every child may read it anyway.
const NO_HOME: &str = "/usr";

/// Opens the home of a process, where its server has one.
pub(super) async fn open_home(parts: &Parts, key: &ShareKey) -> Result<Option<Home>, EndCause> {
    let Some(homes) = parts.settings.home.clone() else {
        return Ok(None);
    };
    let name = key.home_name(&parts.settings.name);
    let opened = tokio::task::spawn_blocking(move || homes.open(&name)).await;
    let refused = |reason: String| EndCause::Refused(Fault::Unavailable { reason });
    match opened {
        Ok(Ok(home)) => Ok(Some(home)),
        Ok(Err(error)) => Err(refused(chain(&error))),
        Err(_) => Err(refused("the task that opens a home ended early".to_owned())),
    }
}

/// Ends the use of a home, once nothing is left of its program.
pub(in crate::upstream) async fn leave(home: Option<Home>) {
    if let Some(home) = home {
        // A runtime that ends does not wait for it; the next use looks again.
        let _ = tokio::task::spawn_blocking(move || home.leave()).await;
    }
}

/// What is to be born, our ends of its input and output, and its standard error.
pub(super) fn spec_of(
    parts: &Parts,
    home: Option<&Home>,
    needs: Option<&Arc<Needs>>,
) -> io::Result<(Spec, OwnedFd, pipe::Receiver, Flood)> {
    let settings = &parts.settings;
    let (stdin_far, stdin) = io::pipe()?;
    let (stdout, stdout_far) = io::pipe()?;
    let (stderr, stderr_far) = Flood::new()?;
    let cwd = settings.cwd.as_deref();
    let cwd = cwd.or_else(|| home.map(Home::path));
    let cwd = cwd.unwrap_or(Path::new(NO_HOME)).to_owned();
    let mut spec = Spec::new(settings.command.clone(), cwd);
    confine(&mut spec, needs, &settings.env, &settings.secrets);
    if let Some(home) = home {
        let values = spec.env.iter_mut().map(|(_, value)| value);
        let texts = spec.argv.iter_mut().chain(values);
        texts.for_each(|text| put_home(text, home.path()));
        spec.env.retain(|(name, _)| name != "HOME");
        spec.env.push(("HOME".into(), home.path().into()));
        spec.home = Some(home.path().to_owned());
    }
    spec.limits = settings.limits.clone();
    (spec.stdin, spec.stdout, spec.stderr) = (
        OwnedFd::from(stdin_far).into(),
        OwnedFd::from(stdout_far).into(),
        stderr_far.into(),
    );
    let stdin = OwnedFd::from(stdin);
    rustix::io::ioctl_fionbio(&stdin, true)?;
    let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
    Ok((spec, stdin, stdout, stderr))
}

/// Replaces what stands for the home in a word of a command or the value of a variable.
fn put_home(text: &mut OsString, home: &Path) {
    let (Some(written), Some(home)) = (text.to_str(), home.to_str()) else {
        return;
    };
    if written.contains(HOME_PLACEHOLDER) {
        *text = written.replace(HOME_PLACEHOLDER, home).into();
    }
}

pub(super) fn internal(error: &io::Error) -> Fault {
    Fault::Internal {
        message: format!("make a server's pipes: {error}"),
    }
}
