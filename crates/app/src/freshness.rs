//! Keeps the search index up to what the files are, while the gate runs: what changes is told by
//! the kernel and looked at a moment later. Where there is no index nothing is done.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Cancel, Secrets};
use callgate_search::SearchError;
use callgate_tools::files::Files;
use callgate_tools::vector::{self, Changed, Scope, Watcher};

use callgate_registry::setup::Parts;
use tokio::task::JoinHandle;

use crate::compose::chain;

/// How often is looked at what the kernel has told. Saves that come together are one.
const TICK: Duration = Duration::from_millis(200);

/// Vectors that are made and put together.
const EMBEDDED_AT_ONCE: usize = 8;

/// After so long is looked again for pieces without vectors, which another process may have put.
const EMBED_AGAIN: Duration = Duration::from_secs(30);
/// Changes that wait for another process; of more, all is looked at.
const LEFT_MAX: usize = 1024;
/// Between tries while another process indexes or has the index locked, or descriptors are short.
const PAUSE: Duration = Duration::from_secs(1);

/// Never ends. Dropped, it stops what is under way.
pub async fn keep(parts: Arc<Parts>) -> Infallible {
    let parts = &*parts;
    let cancel = Cancel::new();
    let _stops = cancel.clone().drop_guard();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut watcher: Option<Watcher> = None;
    let mut left: Vec<Changed> = Vec::new();
    let mut rest = Duration::ZERO;
    // Beside the rest: a file that is saved meanwhile does not wait for a model.
    let mut embedding: Option<JoinHandle<Embedded>> = None;
    loop {
        tick.tick().await;
        if !parts.engine.is_there() {
            watcher = None;
            continue;
        }
        match &mut watcher {
            Some(watcher) => {
                for one in watcher.changed() {
                    if !left.contains(&one) {
                        left.push(one);
                    }
                }
                if left.len() > LEFT_MAX {
                    left = vec![Changed::all()];
                }
            }
            None => left = vec![Changed::all()],
        }
        if let Some(done) = embedding.take_if(|task| task.is_finished())
            && !matches!(done.await, Ok(Embedded::Some))
        {
            // Whether something is left to embed is a look at all pieces, and not for every tick.
            rest = EMBED_AGAIN;
        }
        if left.is_empty() {
            rest = rest.saturating_sub(TICK);
            if rest.is_zero() && embedding.is_none() {
                embedding = embed(parts, &cancel);
            }
            continue;
        }
        rest = Duration::ZERO;
        let Ok((files, secrets)) = parts.workspace_files() else {
            continue;
        };
        let known = match watcher.take() {
            Some(watcher) => watcher,
            None => match Watcher::new(&parts.paths.workspace) {
                Ok(watcher) => watcher,
                Err(error) => {
                    tracing::warn!(%error, "watch the workspace");
                    return std::future::pending().await;
                }
            },
        };
        let (state, cancel) = (parts.paths.state.clone(), cancel.clone());
        let changed = std::mem::take(&mut left);
        let work = move || freshen((&files, &secrets), &state, known, changed, &cancel);
        // The watcher went into it, and comes back with what could not be done yet.
        if let Ok((known, undone)) = tokio::task::spawn_blocking(work).await {
            watcher = Some(known);
            if !undone.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
            left = undone;
        }
    }
}

/// What came of embedding.
enum Embedded {
    /// Vectors were made, or another process was in the way: there may be more to do.
    Some,
    Nothing,
}

/// A few vectors, where somebody has begun with them.
fn embed(parts: &Parts, cancel: &Cancel) -> Option<JoinHandle<Embedded>> {
    let engine = Arc::clone(&parts.engine);
    let store = parts.vector_store().ok()?;
    let cancel = cancel.clone();
    let work = move || match engine.wants_vectors() {
        true => match engine.embed_some(EMBEDDED_AT_ONCE, &cancel)? {
            0 => store.take_over(false, &cancel),
            made => Ok(made),
        },
        false => Ok(0),
    };
    Some(tokio::task::spawn_blocking(move || match work() {
        Ok(0) => Embedded::Nothing,
        Ok(_) | Err(SearchError::Locked) => Embedded::Some,
        Err(error) => {
            tracing::debug!(error = chain(&error), "embed");
            Embedded::Nothing
        }
    }))
}

fn freshen(
    (files, secrets): (&Arc<Files>, &Secrets),
    state: &std::path::Path,
    mut watcher: Watcher,
    changed: Vec<Changed>,
    cancel: &Cancel,
) -> (Watcher, Vec<Changed>) {
    let mut undone = Vec::new();
    for one in changed {
        // Before it is read, so that nothing is missed in between.
        if one.deep {
            watcher.watch(files, &one);
        }
        let scope = Scope {
            from: one.from(),
            deep: one.deep,
        };
        match vector::index((files, secrets), state, scope, cancel, &mut |_| {}) {
            Ok(_) => {}
            Err(error) if error.is_passing() => undone.push(one),
            Err(_) if cancel.is_cancelled() => {}
            Err(error) => tracing::warn!(error = chain(&error), "index"),
        }
    }
    (watcher, undone)
}
