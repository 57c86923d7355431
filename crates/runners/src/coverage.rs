//! Promises that others keep: what is asked of a tool, set against what its service or its
//! container shows.

use std::sync::Arc;

use callgate_call::{
    Asker, Call, Detail, Enforcement, Fault, Guarantee, Guarantees, Held, Isolation, Level, Plan,
    Tool,
};

/// How far a promise is kept, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub level: Level,
    pub mechanisms: Vec<&'static str>,
    /// Empty where it is enforced.
    pub missing: String,
}

impl Kept {
    pub fn enforced(mechanisms: &[&'static str]) -> Self {
        Self {
            level: Level::Enforced,
            mechanisms: mechanisms.to_vec(),
            missing: String::new(),
        }
    }

    pub fn partial(mechanisms: &[&'static str], missing: impl Into<String>) -> Self {
        Self {
            level: Level::Partial,
            mechanisms: mechanisms.to_vec(),
            missing: missing.into(),
        }
    }

    pub fn none(missing: impl Into<String>) -> Self {
        Self {
            level: Level::None,
            mechanisms: Vec::new(),
            missing: missing.into(),
        }
    }

    pub fn held(self, guarantee: Guarantee, asker: Asker) -> Held {
        Held {
            guarantee: Some(guarantee),
            asker,
            level: self.level,
            mechanisms: self.mechanisms,
            missing: self.missing,
        }
    }
}

/// All that one call of `tool` must be held to.
pub(crate) fn wanted(call: &Call, tool: &Tool) -> Guarantees {
    let needs = tool.needs.as_ref();
    let mut wanted = needs.map_or_else(Guarantees::default, |needs| needs.guarantees.clone());
    if let Some(asks) = &call.asks {
        wanted.tighten(asks);
    }
    wanted
}

/// True if the owner lets the tool run with less than is asked for.
pub(crate) fn is_unsafe(tool: &Tool) -> bool {
    let needs = tool.needs.as_ref();
    needs.is_some_and(|needs| needs.unsafe_execution || needs.unconfined)
}

/// The plan for what is wanted, as far as it is `kept`; a refusal if that is not far enough
/// and the owner has not said that it is. TP-33, TP-34.
pub(crate) fn plan(
    tool: &Tool,
    wanted: &Guarantees,
    isolation: Isolation,
    kept: impl Fn(Guarantee) -> Kept,
) -> Result<Plan, Fault> {
    let held: Vec<Held> = wanted
        .iter()
        .map(|(guarantee, asker)| kept(guarantee).held(guarantee, asker))
        .collect();
    let short = |held: &&Held| held.level < Level::Enforced;
    let missing: Vec<Held> = held.iter().filter(short).cloned().collect();
    if !missing.is_empty() && !is_unsafe(tool) {
        return Err(Fault::Unenforceable { missing });
    }
    Ok(planned(held, isolation, !missing.is_empty()))
}

fn planned(held: Vec<Held>, isolation: Isolation, unsafe_override: bool) -> Plan {
    let level = held.iter().map(|held| held.level).min();
    let detail = Detail {
        held,
        writes: None,
        network: None,
        limits: None,
        isolation,
        unsafe_override,
    };
    Plan {
        enforcement: Enforcement {
            level: level.unwrap_or_default(),
            detail: Some(Arc::new(detail)),
        },
        ..Plan::default()
    }
}

/// What a plan would hold of all seven, asked for or not.
pub(crate) fn outlook(tool: &Tool, kept: impl Fn(Guarantee) -> Kept) -> Vec<Held> {
    let needs = tool.needs.as_ref();
    let asker = |guarantee| needs.and_then(|needs| needs.guarantees.asker(guarantee));
    Guarantee::ALL
        .into_iter()
        .map(|one| kept(one).held(one, asker(one).unwrap_or(Asker::Engine)))
        .collect()
}
