//! The home of a program that a caller runs: the caller's own, or a fresh one where what earlier
//! programs left behind must not count. R-40.

use std::sync::Arc;

use callgate_call::{Fault, Guarantee, Job, chain};
use callgate_sandbox::{Home, HomeError, Spec};

use super::{Programs, Variables, set};

const HOME: &str = "HOME";

impl Programs {
    /// The home for the program of a call. None where the owner keeps none, and where the program
    /// may know nothing of its environment.
    pub(crate) async fn home(&self, job: Job<'_>) -> Result<Option<Home>, Fault> {
        let Some(homes) = &self.homes else {
            return Ok(None);
        };
        let asks = |guarantee| {
            let needs = job.plan.confinement.as_ref();
            needs.is_some_and(|needs| needs.guarantees.requires(guarantee))
        };
        if asks(Guarantee::NoEnvRead) {
            return Ok(None);
        }
        // One that promises to write nothing leaves nothing for the next one either.
        let is_fresh = job.plan.approved || asks(Guarantee::NoFilesystemWrite);
        let (homes, caller) = (Arc::clone(homes), job.call.caller.as_str().to_owned());
        let opened = tokio::task::spawn_blocking(move || match is_fresh {
            true => homes.fresh(),
            false => homes.open(&caller),
        });
        let opened = opened.await.map_err(|_| Fault::Internal {
            message: "the task that opens a home ended early".to_owned(),
        })?;
        opened.map(Some).map_err(|error| unavailable(&error))
    }
}

/// Returns whether a call names a home of its own among its variables.
pub(crate) fn names_home(asked: &Variables<'_>) -> bool {
    asked.contains_key(HOME)
}

/// Makes a program live in a home, unless its caller has named another.
pub(crate) fn live_in(spec: &mut Spec, home: Option<&Home>, names_home: bool) {
    let Some(home) = home else { return };
    if !names_home {
        set(&mut spec.env, HOME, home.path().as_os_str());
    }
    spec.home = Some(home.path().to_owned());
}

/// Ends the use of a home, once nothing is left of its program.
pub(crate) async fn leave(home: Option<Home>) {
    if let Some(home) = home {
        // A runtime that ends does not wait for it; its next use looks again.
        let _ = tokio::task::spawn_blocking(move || home.leave()).await;
    }
}

fn unavailable(error: &HomeError) -> Fault {
    let advice = match error {
        HomeError::Full { .. } => {
            ": end the programs and terminal sessions that use it, and it is emptied"
        }
        HomeError::Make { .. } => "",
    };
    Fault::Unavailable {
        reason: format!("{}{advice}", chain(error)),
    }
}
