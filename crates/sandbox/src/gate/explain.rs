//! Explains the failure of a confined program: which access its confinement refused, and the line
//! of configuration that allows it.
//!
//! What a program prints is not trusted. It only names paths to look at (`clues.rs`); a hint is
//! given for a path that the program itself can see, that its plan refuses, and that its user could
//! otherwise use (`reach.rs`). So a hint tells a caller nothing that the program could not tell.

mod clues;
mod culprit;
mod reach;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{
    Asker, ConfinementHint, Guarantee, Needs, Network, RefusedAccess, Tool, toml_list,
};

use crate::confine::Confine;
use clues::{Clues, Line};
pub use culprit::Culprit;
use reach::{Wanted, Way};

/// Paths that are looked at for one failure.
const LOOKED_AT_MAX: usize = 96;

/// The signal of a system call that the filter ends a program for.
const SIGSYS: i32 = 31;

/// What a child may reach, kept for as long as the child to explain its failure.
#[derive(Clone, Debug)]
pub struct Reach {
    pub(crate) confine: Arc<Confine>,
    pub(crate) needs: Arc<Needs>,
    /// The file that was started.
    pub(crate) program: PathBuf,
    pub(crate) cwd: PathBuf,
    /// Where the child looks for programs.
    pub(crate) search: Option<OsString>,
}

impl Reach {
    /// Returns the hint for a program that failed, if its confinement made it fail. `printed` is
    /// the end of what it wrote to stderr, with the message of the failure.
    #[must_use]
    pub fn explain(&self, tool: &Tool, printed: &str) -> Option<ConfinementHint> {
        if self.needs.unconfined {
            return None;
        }
        if let Some(culprit) = self.culprit_of(&self.program) {
            return Some(self.hint_of_culprit(tool, &culprit));
        }
        let clues = Clues::read(printed);
        let mut looked_at = 0;
        for line in clues.refused() {
            for name in line.names() {
                looked_at += 1;
                if looked_at > LOOKED_AT_MAX {
                    return None;
                }
                if let Some(hint) = self.hint_of_name(tool, name, &line) {
                    return Some(hint);
                }
            }
        }
        let wanted = clues.network()?;
        self.hint_of_network(tool, wanted)
    }

    /// The same for a program that a guarantee stopped.
    #[must_use]
    pub fn explain_guarantee(
        &self,
        tool: &Tool,
        guarantee: Guarantee,
        printed: &str,
    ) -> Option<ConfinementHint> {
        let found = self.explain(tool, printed);
        let refused = refused_by(guarantee)?;
        // Not every worker knows whether a file was opened to be read or to be changed.
        let is_of_file = |one| matches!(one, RefusedAccess::Read | RefusedAccess::Write);
        let fits = |one: RefusedAccess| one == refused || is_of_file(one) && is_of_file(refused);
        if let Some(hint) = found.filter(|hint| fits(hint.refused)) {
            return Some(hint);
        }
        let (field, value) = match guarantee {
            Guarantee::NoFilesystemRead => ("reads", "[\"PATH\"]"),
            Guarantee::NoFilesystemWrite => ("writes", "[\"PATH\"]"),
            Guarantee::NoNetwork => ("network", "{ allow = [\"HOST:PORT\"] }"),
            _ => ("", ""),
        };
        let asked = self.asked_note(guarantee);
        let setting = match asked {
            None if !field.is_empty() => tool.setting(field, value),
            _ => None,
        };
        Some(ConfinementHint {
            refused,
            subject: None,
            setting,
            note: asked,
        })
    }

    /// The same for a program that a signal ended.
    #[must_use]
    pub fn explain_signal(&self, signal: i32) -> Option<ConfinementHint> {
        let is_filtered = signal == SIGSYS && self.confine.filter.is_some();
        is_filtered.then(|| ConfinementHint {
            refused: RefusedAccess::SystemCall,
            subject: None,
            setting: None,
            note: Some("`callgate doctor --syscalls` lists the calls that pass".to_owned()),
        })
    }

    fn hint_of_culprit(&self, tool: &Tool, culprit: &Culprit) -> ConfinementHint {
        culprit.hint(tool, self.closed_reads())
    }

    /// The hint for a path, or the name of a program, that stands beside a refusal.
    fn hint_of_name(&self, tool: &Tool, name: &str, line: &Line<'_>) -> Option<ConfinementHint> {
        let program = self.named_program(name);
        let is_program = program.is_some();
        let path = program.unwrap_or_else(|| self.cwd.join(name));
        let found = match self.way(&path) {
            Way::Open(found) => found,
            Way::LeftOut(path) => {
                let culprit = Culprit::left_out(&path, None, false);
                return Some(self.hint_of_culprit(tool, &culprit));
            }
        };
        if line.is_absence() || !self.is_visible(&path) {
            return None;
        }
        if !self.is_visible(&found) || self.is_ours(&found) {
            return None;
        }
        let exists = found.exists();
        if exists && !self.reads(&found) && self.user_may(&found, Wanted::Read) {
            return Some(self.hint_of_read(tool, &found));
        }
        if exists
            && found.is_file()
            && let Some(culprit) = self.culprit_of(&path)
        {
            return Some(self.hint_of_culprit(tool, &culprit));
        }
        // Of what can be read, only a change can have been refused. Words say so, or that it is a
        // file of the workspace, which a tool may be given.
        let may_be_given = found.starts_with(&self.cwd) && self.user_may(&found, Wanted::Read);
        let may_be_write = line.is_write() || !exists || may_be_given;
        let is_refused = may_be_write
            && !self.writes(&found)
            && (line.is_read_only() || self.user_may(&found, Wanted::Write));
        // A bare name is that of the program that states it: `sh: 1: cannot create x: …`.
        (is_refused && !is_program).then(|| self.hint_of_write(tool, &found, exists))
    }

    fn hint_of_read(&self, tool: &Tool, path: &Path) -> ConfinementHint {
        Culprit::of_read(path).hint(tool, self.closed_reads())
    }

    /// Why no setting opens further paths for reading, if none does.
    fn closed_reads(&self) -> Option<&'static str> {
        let bound = self.needs.roots.is_some();
        bound.then_some("it is outside of the `filesystem_root` and the read roots of the request")
    }

    fn hint_of_write(&self, tool: &Tool, path: &Path, exists: bool) -> ConfinementHint {
        let (setting, note) = match self.write_setting(tool, path, exists) {
            Ok(setting) => (setting, None),
            Err(note) => (None, Some(note)),
        };
        ConfinementHint {
            refused: RefusedAccess::Write,
            subject: Some(path.display().to_string()),
            setting,
            note,
        }
    }

    fn write_setting(
        &self,
        tool: &Tool,
        path: &Path,
        exists: bool,
    ) -> Result<Option<String>, String> {
        if self.is_kept(path) {
            return Err("it decides what runs, so no program may change it".to_owned());
        }
        if let Some(asked) = self.asked_note(Guarantee::NoFilesystemWrite) {
            return Err(asked);
        }
        let Ok(inside) = path.strip_prefix(&self.cwd) else {
            return Err("programs write inside the workspace and in TMPDIR".to_owned());
        };
        if let Some(roots) = &self.needs.roots
            && !path.starts_with(&roots.root)
        {
            return Err("it is outside of the `filesystem_root` of the request".to_owned());
        }
        let is_folder = exists && path.is_dir();
        let root = match inside.parent() {
            Some(parent) if !is_folder && !parent.as_os_str().is_empty() => parent,
            _ if inside.as_os_str().is_empty() => Path::new("."),
            _ => inside,
        };
        let Some(root) = root.to_str() else {
            return Ok(None);
        };
        Ok(tool.setting("writes", &toml_list(&[root.to_owned()])))
    }

    fn hint_of_network(&self, tool: &Tool, host: Option<String>) -> Option<ConfinementHint> {
        let note = |words: &str| Some(words.to_owned());
        let hint = |setting, note| {
            Some(ConfinementHint {
                refused: RefusedAccess::Network,
                subject: host.clone(),
                setting,
                note,
            })
        };
        match self.needs.reach() {
            Network::Any => None,
            Network::Hosts(_) => hint(
                None,
                note(
                    "it reaches its hosts by the proxy that HTTPS_PROXY names, and by no other way",
                ),
            ),
            Network::None => match (self.asked_note(Guarantee::NoNetwork), &host) {
                (Some(asked), _) => hint(None, Some(asked)),
                (None, Some(named)) => {
                    let list = toml_list(std::slice::from_ref(named));
                    let setting = tool.setting("network", &format!("{{ allow = {list} }}"));
                    hint(
                        setting,
                        note("the program has no network; it named this host itself"),
                    )
                }
                (None, None) => hint(
                    tool.setting("network", "{ allow = [\"HOST:PORT\"] }"),
                    note("the program has no network"),
                ),
            },
        }
    }

    /// Who asked for a promise, where that was not Callgate itself: then configuration of what the
    /// program may reach does not lift it.
    fn asked_note(&self, guarantee: Guarantee) -> Option<String> {
        let asker = self.needs.guarantees.asker(guarantee)?;
        let whose = match asker {
            Asker::Engine => return None,
            Asker::Pack => "its pack",
            Asker::Tool => "the tool's own `guarantees` or `purity`",
            Asker::User => "the caller, or an override of the project",
            Asker::Policy => "the owner's policy",
        };
        Some(format!("`{}` was asked for by {whose}", guarantee.name()))
    }
}

/// The access that a promise takes away.
fn refused_by(guarantee: Guarantee) -> Option<RefusedAccess> {
    Some(match guarantee {
        Guarantee::NoFilesystemRead => RefusedAccess::Read,
        Guarantee::NoFilesystemWrite => RefusedAccess::Write,
        Guarantee::NoNetwork => RefusedAccess::Network,
        Guarantee::NoSubprocess => RefusedAccess::Subprocess,
        Guarantee::NoEnvRead | Guarantee::NoEnvWrite | Guarantee::SecretsAllowed => return None,
    })
}
