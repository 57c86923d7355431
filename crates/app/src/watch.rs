//! A configuration that changes while it is served: looked at now and then, and put in place
//! once it is trusted. What it restricts is put in place at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callgate_call::Digest;
use callgate_gate::{ConfigurationStatus, Gate, Setup};
use callgate_registry::config::Restrictions;
use callgate_registry::setup::{Parts, warnings};
use callgate_registry::trust::{Basis, InForce, declared, unreadable_state_doubt};
use callgate_registry::workspace::{CONFIG_FILE, Memo, digest_now};
use callgate_store::StoreError;

use crate::compose::chain;
use crate::show;

/// How often the configuration is looked at.
const TICK: Duration = Duration::from_secs(1);

/// What a change of configuration or trust shows in.
#[derive(PartialEq, Eq)]
struct Seen {
    config: Option<(SystemTime, u64)>,
    digest: Option<Digest>,
    trusted: Option<Digest>,
}

/// The configuration as it was when it was last put in place.
pub struct Watched {
    seen: Seen,
    /// The restrictions of untrusted files that are in place.
    restrictions: Vec<Restrictions>,
}

impl Seen {
    fn look(parts: &Parts, memo: &mut Memo) -> Result<Self, StoreError> {
        let file = parts.paths.workspace.join(CONFIG_FILE);
        let config = std::fs::metadata(&file)
            .ok()
            .and_then(|meta| meta.modified().ok().map(|at| (at, meta.len())));
        // The digest covers the files it refers to as well; they are few and small, or packs.
        let declared = declared(&parts.paths, &parts.store)?;
        let root = &parts.paths.workspace;
        let digest = digest_now(&parts.environment, root, declared, memo);
        let trusted = parts.store.trusted(CONFIG_FILE)?;
        Ok(Self {
            config,
            digest,
            trusted,
        })
    }
}

impl Watched {
    /// How things are now.
    pub fn now(parts: &Parts) -> Result<Self, StoreError> {
        Ok(Self {
            seen: Seen::look(parts, &mut Memo::default())?,
            restrictions: parts.in_force()?.restrictions,
        })
    }

    /// Reloads the configuration when it or the trust in it changes, and tells `then` whether
    /// trust was taken back.
    pub async fn follow(
        mut self,
        parts: Arc<Parts>,
        gate: Arc<Gate>,
        then: impl Fn(bool),
    ) -> Infallible {
        let (parts, gate) = (&*parts, &*gate);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut memo = Memo::default();
        loop {
            tick.tick().await;
            let Ok(seen) = Seen::look(parts, &mut memo) else {
                continue; // the state can not be read just now: nothing is known to have changed
            };
            if seen == self.seen {
                continue;
            }
            let revoked = self.seen.trusted.is_some() && seen.trusted.is_none();
            match parts.in_force() {
                Ok(in_force) => {
                    self.seen = seen;
                    match revoked {
                        true => withdraw(parts, gate, in_force, "trust was taken back"),
                        false => self.reload(parts, gate, in_force),
                    }
                }
                // The next tick tries again.
                Err(error) => {
                    let why = chain(&error);
                    keep(gate, &why, Some(unreadable_state_doubt()));
                }
            }
            then(revoked);
        }
    }

    /// Puts a new trusted configuration in place, and restrictions of one that is not trusted;
    /// anything else keeps the old one and says why, in the log and in the gate's status.
    fn reload(&mut self, parts: &Parts, gate: &Gate, in_force: InForce) {
        let (note, restrictions) = (in_force.note(), in_force.restrictions.clone());
        let (doubt, doubt_if_kept) = (in_force.doubt(), in_force.doubt_if_kept());
        match in_force.basis {
            // A key or a permission is gone, which is the owner's doing as much as a trust is.
            _ if in_force.is_withdrawn() => withdraw(parts, gate, in_force, &note),
            Basis::Files(_) => {
                if let Some(doubts) = put(parts, gate, in_force) {
                    show::say(&format!("reloaded: {note}"));
                    doubts.iter().for_each(|doubt| show::warn(doubt));
                }
            }
            Basis::Copy(_) | Basis::Builtins => {
                // Another setup has new workers, which an edit that restricts nothing need not cost.
                if restrictions != self.restrictions && put(parts, gate, in_force).is_none() {
                    return;
                }
                show::complain(&format!("kept the old configuration: {note}"));
                gate.set_status(ConfigurationStatus { note, doubt });
            }
            Basis::Nothing(reason) => return keep(gate, &reason, Some(doubt_if_kept)),
        }
        self.restrictions = restrictions;
    }
}

/// The owner's word was taken back: what is left without it, is served.
fn withdraw(parts: &Parts, gate: &Gate, in_force: InForce, why: &str) {
    let closed = Parts::closed(&in_force);
    match parts.setup_in_force(in_force) {
        Ok(setup) => {
            gate.replace(setup);
            show::say(&format!("{why}: only built-in tools are served"));
        }
        Err(error) => {
            let reason = format!("{why}: {}", chain(&error));
            gate.replace(Setup {
                note: format!("nothing is served: {reason}"),
                ..closed
            });
            show::complain(&reason);
        }
    }
}

/// Leaves the configuration in place that is there, and says why: in the log once, in the gate's
/// status until the next attempt.
fn keep(gate: &Gate, reason: &str, doubt: Option<String>) {
    let note = format!("kept the old configuration: {reason}");
    if gate.note() != note {
        show::complain(&note);
    }
    gate.set_status(ConfigurationStatus { note, doubt });
}

/// Puts a configuration in force in place; gives its doubtful rules. One that does not hold
/// together leaves the old one in place.
fn put(parts: &Parts, gate: &Gate, in_force: InForce) -> Option<Vec<String>> {
    let doubt_if_kept = in_force.doubt_if_kept();
    match parts.setup_in_force(in_force) {
        Ok(setup) => {
            let doubts = warnings(&setup);
            gate.replace(setup);
            Some(doubts)
        }
        Err(error) => {
            keep(gate, &chain(&error), Some(doubt_if_kept));
            None
        }
    }
}
