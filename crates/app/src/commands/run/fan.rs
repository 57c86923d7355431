//! Fan-out: which of the targets that runs enqueue are run as well.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use callgate_call::{Digest, canonical_json};
use serde_json::Value;
use tokio::sync::Notify;

/// Bytes of all that waits; what would be more is left out.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How far it may go.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Steps away from the first run; 0: nothing is run but that.
    pub depth: u32,
    /// Runs in all, the first one counted.
    pub runs_max: usize,
}

/// A run that another has asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub target: String,
    pub params: Value,
    pub source: Option<String>,
    pub category: Option<String>,
    /// Steps away from the first run.
    pub depth: u32,
    bytes: usize,
}

/// What became of all that was enqueued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// To be run, or run.
    pub taken: usize,
    /// The same target with the same params was there before.
    pub repeated: u64,
    /// More steps away than was asked for.
    pub too_deep: u64,
    /// More runs, or more bytes, than there may be.
    pub beyond: u64,
    /// Not to be run by anybody.
    pub unusable: u64,
}

/// The targets of all runs of one command.
pub struct Fan {
    bounds: Bounds,
    state: Mutex<State>,
    /// Rung when there is more to run.
    pub news: Notify,
}

#[derive(Default)]
struct State {
    /// Those that run, by id, and how far they are from the first.
    depths: HashMap<String, u32>,
    known: HashSet<Digest>,
    waiting: VecDeque<Child>,
    bytes: usize,
    tally: Tally,
    is_closed: bool,
}

impl Fan {
    pub fn new(bounds: Bounds) -> Self {
        let (state, news) = (Mutex::default(), Notify::new());
        Self {
            bounds,
            state,
            news,
        }
    }

    /// The first run is that of a target too.
    pub fn begin(&self, target: &str, params: &Value) {
        self.state().known.insert(key(target, params));
    }

    /// A run is about to begin.
    pub fn runs(&self, run_id: &str, depth: u32) {
        self.state().depths.insert(run_id.to_owned(), depth);
    }

    /// A run is over: nothing more comes of it.
    pub fn ended(&self, run_id: &str) {
        self.state().depths.remove(run_id);
    }

    /// An `enqueue` event of a run. ST-39.
    pub fn offer(&self, run_id: &str, line: &[u8]) {
        if self.bounds.depth == 0 {
            return;
        }
        let offered = read(line);
        let mut state = self.state();
        let depth = state.depths.get(run_id).map_or(0, |depth| depth + 1);
        let Some(mut child) = offered else {
            state.tally.unusable += 1;
            return;
        };
        child.depth = depth;
        if state.take(child, self.bounds) {
            drop(state);
            self.news.notify_one();
        }
    }

    /// The next to be run.
    pub fn next(&self) -> Option<Child> {
        let mut state = self.state();
        let child = state.waiting.pop_front()?;
        state.bytes -= child.bytes;
        Some(child)
    }

    /// Nothing more is run.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.tally.taken -= state.waiting.len();
        state.tally.beyond += state.waiting.len() as u64;
        state.waiting.clear();
        state.bytes = 0;
    }

    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    pub fn tally(&self) -> Tally {
        self.state().tally
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in it is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// True if it is to be run.
    fn take(&mut self, child: Child, bounds: Bounds) -> bool {
        if child.depth > bounds.depth {
            self.tally.too_deep += 1;
            return false;
        }
        let key = key(&child.target, &child.params);
        if self.known.contains(&key) {
            self.tally.repeated += 1;
            return false;
        }
        // The first run is one of them.
        let is_full = self.tally.taken + 1 >= bounds.runs_max;
        if is_full || self.is_closed || self.bytes + child.bytes > WAITING_BYTES_MAX {
            self.tally.beyond += 1;
            return false;
        }
        self.known.insert(key);
        self.bytes += child.bytes;
        self.tally.taken += 1;
        self.waiting.push_back(child);
        true
    }
}

/// What an event asks for; nothing if no executor could be given it. A target is a script, never
/// an option of the executor.
fn read(line: &[u8]) -> Option<Child> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    let payload = &mut event["payload"];
    let target = payload["target"].as_str()?.to_owned();
    if target.is_empty() || target.starts_with('-') || target.contains('\0') {
        return None;
    }
    let text = |name: &str| payload[name].as_str().map(str::to_owned);
    Some(Child {
        source: text("source"),
        category: text("category"),
        target,
        params: payload["params"].take(),
        depth: 0,
        bytes: line.len(),
    })
}

/// What two runs have in common that are the same.
fn key(target: &str, params: &Value) -> Digest {
    let mut bytes = target.as_bytes().to_vec();
    bytes.push(0);
    canonical_json(params, &mut bytes);
    Digest::of_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn offer(fan: &Fan, run: &str, target: &str, params: Value) {
        let payload = json!({ "target": target, "params": params });
        let event = json!({ "type": "enqueue", "payload": payload });
        fan.offer(run, event.to_string().as_bytes());
    }

    #[test]
    fn bounds_and_repeats() {
        let fan = Fan::new(Bounds {
            depth: 2,
            runs_max: 4,
        });
        fan.begin("a.js", &json!({ "x": 1, "y": 2 }));
        fan.runs("root", 0);
        fan.runs("near", 1);
        fan.runs("far", 2);
        offer(&fan, "root", "a.js", json!({ "y": 2, "x": 1 })); // the first itself
        offer(&fan, "root", "a.js", json!({ "x": 2 }));
        offer(&fan, "near", "a.js", json!({ "x": 2.0 })); // the same number
        offer(&fan, "near", "b.js", json!({ "x": 2 }));
        offer(&fan, "far", "c.js", json!(null));
        for target in ["", "-c", "a\0b"] {
            offer(&fan, "root", target, json!({}));
        }
        fan.offer("root", b"no event");
        offer(&fan, "root", "d.js", json!({}));
        offer(&fan, "root", "e.js", json!({}));
        let tally = Tally {
            taken: 3,
            repeated: 2,
            too_deep: 1,
            beyond: 1,
            unusable: 4,
        };
        assert_eq!(fan.tally(), tally);
        let next = || fan.next().map(|child| (child.target, child.depth));
        assert_eq!(next(), Some(("a.js".to_owned(), 1)));
        assert_eq!(next(), Some(("b.js".to_owned(), 2)));
        fan.close();
        assert_eq!(next(), None);
        assert_eq!(fan.tally().taken, 2);
    }

    #[test]
    fn nothing_without_depth() {
        let fan = Fan::new(Bounds {
            depth: 0,
            runs_max: 9,
        });
        fan.runs("root", 0);
        offer(&fan, "root", "a.js", json!({}));
        assert_eq!((fan.next(), fan.tally()), (None, Tally::default()));
    }

    /// G-1b: runs that differ in an integer that a double does not hold are two.
    #[test]
    fn neighbouring_integers_are_not_repeats() {
        let fan = Fan::new(Bounds {
            depth: 2,
            runs_max: 4,
        });
        fan.runs("root", 0);
        let ids = [9_007_199_254_740_992_u64, 9_007_199_254_740_993];
        for id in ids.into_iter().chain(ids) {
            offer(&fan, "root", "a.js", json!({ "id": id }));
        }
        let taken = std::iter::from_fn(|| fan.next()).map(|child| child.params["id"].clone());
        assert_eq!(taken.collect::<Vec<_>>(), ids.map(|id| json!(id)));
    }
}
