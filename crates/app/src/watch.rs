//! A configuration that changes while it is served: looked at now and then, and put in place
//! once it is trusted.

use std::time::{Duration, SystemTime};

use callgate_call::Digest;
use callgate_gate::Gate;
use callgate_store::StoreError;

use crate::compose::{Builtins, Parts, chain, warnings};
use crate::show;
use crate::trust::Found;
use crate::workspace::{CONFIG_FILE, Memo, SourceError, digest_now};

/// How often the configuration is looked at.
const TICK: Duration = Duration::from_secs(1);

/// What a change of configuration or trust shows in.
#[derive(PartialEq, Eq)]
pub struct Watched {
    config: Option<(SystemTime, u64)>,
    digest: Option<Digest>,
    trusted: Option<Digest>,
}

impl Watched {
    /// How things are now.
    pub fn now(parts: &Parts<'_>) -> Result<Self, StoreError> {
        Self::look(parts, &mut Memo::default())
    }

    fn look(parts: &Parts<'_>, memo: &mut Memo) -> Result<Self, StoreError> {
        let file = parts.paths.workspace.join(CONFIG_FILE);
        let config = std::fs::metadata(&file)
            .ok()
            .and_then(|meta| meta.modified().ok().map(|at| (at, meta.len())));
        // The digest covers the files it refers to as well; they are few and small, or packs.
        let digest = digest_now(parts.environment, &parts.paths.workspace, memo);
        let trusted = parts.store.trusted(CONFIG_FILE)?;
        Ok(Self {
            config,
            digest,
            trusted,
        })
    }

    /// Reloads the configuration when it or the trust in it changes, and tells `then` whether
    /// trust was taken back.
    pub async fn follow(mut self, parts: &Parts<'_>, gate: &Gate, then: &dyn Fn(bool)) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut memo = Memo::default();
        loop {
            tick.tick().await;
            let Ok(seen) = Self::look(parts, &mut memo) else {
                continue; // the state can not be read just now: nothing is known to have changed
            };
            if seen == self {
                continue;
            }
            let revoked = self.trusted.is_some() && seen.trusted.is_none();
            self = seen;
            if revoked {
                withdraw(parts, gate, "trust was taken back");
            } else {
                reload(parts, gate);
            }
            then(revoked);
        }
    }
}

/// The owner's word was taken back: only the built-in tools are left.
fn withdraw(parts: &Parts<'_>, gate: &Gate, why: &str) {
    match parts.builtins() {
        Ok(setup) => {
            gate.replace(setup);
            show::say(&format!("{why}: only built-in tools are served"));
        }
        Err(error) => show::complain(&format!("reload: {}", chain(&error))),
    }
}

/// Puts a new trusted configuration in place; anything else keeps the old one and says why.
fn reload(parts: &Parts<'_>, gate: &Gate) {
    let found = match Found::look(parts.environment, &parts.paths, &parts.store) {
        Ok(found) => found,
        Err(error) => return show::complain(&format!("reload: {}", chain(&error))),
    };
    let note = found.note();
    match found {
        Found::Trusted(source) => match parts.setup_of(*source, Builtins::With, note.clone()) {
            Ok(setup) => {
                let doubts = warnings(&setup);
                gate.replace(setup);
                show::say(&format!("reloaded: {note}"));
                doubts.iter().for_each(|doubt| show::warn(doubt));
            }
            Err(error) => {
                show::complain(&format!("kept the old configuration: {}", chain(&error)));
            }
        },
        // A key or a permission is gone, which is the owner's doing as much as a trust is.
        Found::Broken(SourceError::Refused { refusal, .. }) if refusal.owners => {
            withdraw(parts, gate, &note);
        }
        Found::Missing { .. } => show::complain(&format!(
            "{CONFIG_FILE} is gone, and what it said still counts: \
             `callgate trust --revoke` or another start ends that"
        )),
        Found::Untrusted { .. } | Found::Broken(_) => {
            show::complain(&format!("kept the old configuration: {note}"));
        }
    }
}
