//! The folder that a program begins in where its caller names one: inside the workspace, and the
//! one that was found there, whatever has its name once the program is born.

use std::path::{Path, PathBuf};

use callgate_call::Fault;
use callgate_sandbox::Folder;
use rustix::fs::OFlags;
use serde_json::Value;

use super::bad;
use crate::files::place::{Ground, Outside};

/// Where a program begins.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) path: PathBuf,
    /// Nothing for the workspace itself, which is its owner's to move.
    pub(crate) folder: Option<Folder>,
}

impl Start {
    /// The folder that was asked for, else the workspace.
    pub(crate) fn find(
        ground: &Ground,
        workspace: &Path,
        asked: Option<&str>,
    ) -> Result<Self, Fault> {
        let Some(asked) = asked else {
            return Ok(Self {
                path: workspace.to_owned(),
                folder: None,
            });
        };
        let path = ground.within(asked, Outside::BadValue);
        let path = path.map_err(|fault| fault.with("field", "cwd"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match ground.find(&path, flags) {
            Ok((found, real)) => Ok(Self {
                path: workspace.join(real),
                folder: Some(Folder::new(found).map_err(|_| bad("cwd", "can not be entered"))?),
            }),
            Err(Fault::NotFound { .. }) => Err(bad("cwd", "no such folder")),
            // A link that leads out is outside too.
            Err(Fault::Denied { about, .. }) if reason_of(&about).contains("link") => {
                Err(bad("cwd", "Path outside workspace"))
            }
            Err(fault) => Err(fault.with("field", "cwd")),
        }
    }
}

fn reason_of(about: &callgate_call::About) -> &str {
    let reason = about.as_ref().and_then(|about| about.get("reason"));
    reason.and_then(Value::as_str).unwrap_or_default()
}
