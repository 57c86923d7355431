//! What is counted of calls, for whoever scrapes. A call costs a few additions to numbers of its
//! tool's own; names come from the catalog alone, so their number is bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use callgate_call::{Call, Enforcement, Fault, Level, Output, Wire};

use crate::catalog::Entry;
use crate::invoke::Gate;
use crate::setup::Setup;

/// Tools whose numbers are kept apart, over all reloads; later ones share one name.
const TOOLS_MAX: usize = 4096;

/// Where calls of tools that are none are counted. No tool can have such a name.
const UNKNOWN: &str = "(unknown)";
/// Where calls of code that is allowed and not registered are counted.
const UNREGISTERED: &str = "(unregistered)";
/// Where calls of tools beyond the bound are counted.
const OTHERS: &str = "(others)";

/// Upper edges of the buckets of durations, in microseconds; one more is for all others.
pub const DURATION_EDGES_US: [u64; 12] = [
    100, 500, 1000, 5000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 10_000_000,
    60_000_000,
];

const WIRES: [Wire; 10] = [
    Wire::Toolhost,
    Wire::Gate,
    Wire::Mcp,
    Wire::McpHttp,
    Wire::Bridge,
    Wire::Tool,
    Wire::Service,
    Wire::Rpc,
    Wire::RpcHttp,
    Wire::Pilot,
];

/// How a call can end: `ok`, or the kind of its fault.
const OUTCOMES: [&str; 25] = [
    "ok",
    "unknown_tool",
    "bad_request",
    "bad_input",
    "bad_value",
    "not_found",
    "denied",
    "needs_approval",
    "needs_input",
    "lease_required",
    "lease_rejected",
    "conflict",
    "outcome_unknown",
    "rate_limited",
    "breaker_open",
    "unavailable",
    "unenforceable",
    "guarantee_blocked",
    "too_large",
    "timeout",
    "crash",
    "bad_output",
    "tool_failed",
    "cancelled",
    "internal",
];

const LEVELS: [Level; 3] = [Level::None, Level::Partial, Level::Enforced];

/// The numbers of one tool.
#[derive(Default)]
pub(crate) struct Tally {
    ended: [[AtomicU64; OUTCOMES.len()]; WIRES.len()],
    durations: [AtomicU64; DURATION_EDGES_US.len() + 1],
    duration_us: AtomicU64,
    levels: [AtomicU64; LEVELS.len()],
    replayed: AtomicU64,
    in_flight: AtomicU64,
}

/// A call that is counted as under way while this lives.
pub(crate) struct InFlight<'a>(&'a Tally);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tally {
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    pub(crate) fn end(
        &self,
        call: &Call,
        result: &Result<Output, Fault>,
        replayed: bool,
        enforcement: &Enforcement,
        took_us: u64,
    ) {
        let add = |number: &AtomicU64, more| number.fetch_add(more, Ordering::Relaxed);
        let kind = result.as_ref().map_or_else(Fault::kind, |_| OUTCOMES[0]);
        let at = OUTCOMES.iter().position(|known| *known == kind);
        if let (Some(outcome), Some(wire)) = (at, WIRES.iter().position(|one| *one == call.wire)) {
            add(&self.ended[wire][outcome], 1);
        }
        let bucket = DURATION_EDGES_US.partition_point(|edge| *edge < took_us);
        add(&self.durations[bucket], 1);
        add(&self.duration_us, took_us);
        if replayed {
            add(&self.replayed, 1);
        } else if let Some(level) = LEVELS.iter().position(|one| *one == enforcement.level) {
            add(&self.levels[level], 1);
        }
    }
}

/// The numbers of all tools.
#[derive(Default)]
pub(crate) struct Tallies(Mutex<HashMap<String, Arc<Tally>>>);

impl Tallies {
    fn of(&self, name: &str) -> Arc<Tally> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = match all.len() >= TOOLS_MAX && !all.contains_key(name) {
            true => OTHERS,
            false => name,
        };
        if let Some(known) = all.get(name) {
            return Arc::clone(known);
        }
        Arc::clone(all.entry(name.to_owned()).or_default())
    }
}

/// What is known of one tool's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolNumbers {
    /// Its name in the catalog, or one in parentheses for those without.
    pub tool: String,
    /// Calls by wire and outcome, without the zeros.
    pub ended: Vec<(&'static str, &'static str, u64)>,
    /// Calls that took at most each edge of `DURATION_EDGES_US`, and all.
    pub durations: Vec<u64>,
    /// All durations together.
    pub duration_us: u64,
    /// Calls that ran or were refused, by how far their tool was held.
    pub levels: Vec<(&'static str, u64)>,
    /// Calls that an earlier one answered.
    pub replayed: u64,
    /// Calls under way.
    pub in_flight: u64,
}

impl Tally {
    fn read(&self, tool: &str) -> ToolNumbers {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let mut ended = Vec::new();
        for (wire, outcomes) in WIRES.iter().zip(&self.ended) {
            let counts = OUTCOMES
                .iter()
                .zip(outcomes)
                .map(|(word, n)| (*word, get(n)));
            let counts = counts.filter(|(_, count)| *count > 0);
            ended.extend(counts.map(|(word, count)| (wire.as_str(), word, count)));
        }
        let mut sum = 0;
        let mut up_to = |number: &AtomicU64| {
            sum += get(number);
            sum
        };
        ToolNumbers {
            tool: tool.to_owned(),
            ended,
            durations: self.durations.iter().map(&mut up_to).collect(),
            duration_us: get(&self.duration_us),
            levels: LEVELS
                .iter()
                .zip(&self.levels)
                .map(|(one, n)| (one.as_str(), get(n)))
                .collect(),
            replayed: get(&self.replayed),
            in_flight: get(&self.in_flight),
        }
    }
}

impl Gate {
    /// Where a call is counted.
    pub(crate) fn tally(&self, setup: &Setup, found: &Result<&Entry, Fault>) -> Arc<Tally> {
        let Ok(entry) = found else {
            return self.tallies.of(UNKNOWN);
        };
        let find = || {
            // A tool that a request made narrower is still the catalog's.
            let registered = setup.catalog.find(&entry.tool.name).is_ok();
            self.tallies.of(if registered {
                &entry.tool.name
            } else {
                UNREGISTERED
            })
        };
        Arc::clone(entry.tally.get_or_init(find))
    }

    /// Traces that did not reach whoever they were to be handed to.
    #[must_use]
    pub fn spans_dropped(&self) -> u64 {
        self.spans.as_ref().map_or(0, |spans| spans.dropped())
    }

    /// The numbers of every tool that was called, by name.
    #[must_use]
    pub fn tool_numbers(&self) -> Vec<ToolNumbers> {
        let all = self
            .tallies
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut numbers: Vec<ToolNumbers> = all.iter().map(|(name, one)| one.read(name)).collect();
        numbers.sort_by(|a, b| a.tool.cmp(&b.tool));
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tool's names beyond the bound share one.
    #[test]
    fn names_are_bounded() {
        let tallies = Tallies::default();
        for number in 0..TOOLS_MAX + 10 {
            tallies.of(&format!("t{number}"));
        }
        assert_eq!(tallies.0.lock().unwrap().len(), TOOLS_MAX + 1);
        assert!(Arc::ptr_eq(&tallies.of("x"), &tallies.of("y")));
        assert!(!Arc::ptr_eq(&tallies.of("t1"), &tallies.of("t2")));
    }

    /// At, below and past an edge.
    #[test]
    fn buckets() {
        let bucket = |us: u64| DURATION_EDGES_US.partition_point(|edge| *edge < us);
        assert_eq!((bucket(0), bucket(100), bucket(101)), (0, 0, 1));
        assert_eq!((bucket(60_000_000), bucket(60_000_001)), (11, 12));
    }
}
