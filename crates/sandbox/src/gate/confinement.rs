//! Turns a tool's needs into a plan, or refuses what this machine cannot enforce.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callgate_call::{
    Asker, Call, Detail, Enforcement, Fault, Guarantee, Held, Isolation, Level, Needs, Network,
    Plan, Planner, Tool,
};

use crate::Spawner;
use crate::gate::facts::Facts;
use crate::gate::file_facts::look;
use crate::gate::levels::{Files, held, hosts_held, limits_held};

/// Plans are kept at most; beyond, all are made anew.
const PLANS_MAX: usize = 1024;

type Plans = HashMap<usize, (Arc<Needs>, Result<Plan, Fault>)>;

/// Plans by what the needs say and what the machine can do. The machine is asked on first
/// need: a tool without a child costs nothing.
#[derive(Debug)]
pub struct Confinement {
    spawner: Arc<Spawner>,
    /// By the address of the needs, which are held beside so that no others can have it.
    plans: Mutex<Plans>,
}

impl Confinement {
    /// A planner for the children of `spawner`.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>) -> Self {
        Self {
            spawner,
            plans: Mutex::default(),
        }
    }

    fn planned(&self, needs: &Arc<Needs>) -> Result<Plan, Fault> {
        let key = Arc::as_ptr(needs).addr();
        if let Some((_, plan)) = self.plans().get(&key) {
            return plan.clone();
        }
        let plan = plan(needs, &self.facts(needs));
        let mut plans = self.plans();
        if plans.len() >= PLANS_MAX {
            plans.clear();
        }
        plans.insert(key, (Arc::clone(needs), plan.clone()));
        plan
    }

    /// What groups can hold is looked for where somebody asks for it.
    fn facts(&self, needs: &Needs) -> Facts {
        match needs.limits.any() {
            true => self.spawner.facts_of_groups(),
            false => self.spawner.facts(),
        }
    }

    fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Planner for Confinement {
    fn plan(&self, call: &Call, tool: &Tool) -> Result<Plan, Fault> {
        let asks = call.asks.as_deref().filter(|asks| !asks.is_empty());
        match (&tool.needs, asks) {
            (None, None) => Ok(Plan::default()),
            (None, Some(asks)) => Err(Fault::Unenforceable {
                missing: asks.iter().map(|(one, asker)| unheld(one, asker)).collect(),
            }),
            (Some(needs), None) => self.planned(needs),
            (Some(needs), Some(asks)) => {
                let mut tighter = Needs::clone(needs);
                tighter.guarantees.tighten(asks);
                tighter.isolation = apart(needs.isolation, tool);
                plan(&Arc::new(tighter), &self.facts(needs))
            }
        }
    }

    fn outlook(&self, tool: &Tool) -> Vec<Held> {
        let Some(needs) = &tool.needs else {
            return Guarantee::ALL
                .map(|one| unheld(one, Asker::Engine))
                .to_vec();
        };
        outlook(needs, &self.spawner.facts())
    }
}

/// A promise of a tool that is no child of ours.
fn unheld(guarantee: Guarantee, asker: Asker) -> Held {
    Held {
        guarantee: Some(guarantee),
        asker,
        level: Level::None,
        mechanisms: Vec::new(),
        missing: "it has no process of its own".to_owned(),
    }
}

/// A call that asks for more than others do shares no process with them. P-17.
fn apart(isolation: Isolation, tool: &Tool) -> Isolation {
    match (isolation, tool.runner.kind()) {
        (Isolation::Worker, "python") => Isolation::Call,
        (Isolation::Worker, _) => Isolation::Cold,
        (isolation, _) => isolation,
    }
}

/// How far each of the seven would be kept for a tool of these needs, asked for or not.
#[must_use]
pub fn outlook(needs: &Needs, facts: &Facts) -> Vec<Held> {
    let files = look(needs);
    let all = Guarantee::ALL.map(|one| {
        let asker = needs.guarantees.asker(one).unwrap_or(Asker::Engine);
        hold(one, asker, needs, facts, &files)
    });
    all.to_vec()
}

/// The plan of these needs on a machine of these facts.
fn plan(needs: &Arc<Needs>, facts: &Facts) -> Result<Plan, Fault> {
    let files = look(needs);
    let asked = needs.guarantees.iter();
    let held: Vec<Held> = asked
        .map(|(one, asker)| hold(one, asker, needs, facts, &files))
        .collect();
    let writes = writes(needs, facts, &files);
    let network = network(needs, facts);
    let limits = limits(needs, facts);
    let others = [writes.as_ref(), network.as_ref(), limits.as_ref()];
    let missing = missing(needs, facts, &held, others);
    let overrides = needs.unsafe_execution || needs.unconfined;
    if !missing.is_empty() && !overrides {
        return Err(Fault::Unenforceable { missing });
    }
    // Without a word on it, limits are those of each process.
    let asked = limits.iter().filter(|_| needs.limits.whole_tree);
    let all = held.iter().chain(&writes).chain(&network).chain(asked);
    let all = all.map(|held| held.level);
    let level = match needs.unconfined {
        true => Level::None,
        false => all.min().unwrap_or(Level::Enforced),
    };
    Ok(Plan {
        enforcement: Enforcement {
            level,
            detail: Some(Arc::new(Detail {
                held,
                writes,
                network,
                limits,
                isolation: needs.isolation,
                unsafe_override: needs.unconfined || !missing.is_empty(),
            })),
        },
        confinement: (!needs.unconfined).then(|| Arc::clone(needs)),
        approved: false,
    })
}

/// How one promise is kept, or is not where nothing is confined.
fn hold(one: Guarantee, asker: Asker, needs: &Needs, facts: &Facts, files: &Files) -> Held {
    lifted(held(one, asker, needs, facts, files), needs)
}

/// The same, unless nothing is confined.
fn lifted(mut held: Held, needs: &Needs) -> Held {
    if needs.unconfined {
        held.level = Level::None;
        held.mechanisms.clear();
        "its configuration says `sandbox = false`".clone_into(&mut held.missing);
    }
    held
}

/// How it is kept to its hosts and forwarded ports, where it names some.
fn network(needs: &Needs, facts: &Facts) -> Option<Held> {
    let is_limited = matches!(needs.reach(), Network::Hosts(_)) || !needs.forwarded().is_empty();
    is_limited.then(|| lifted(hosts_held(facts), needs))
}

/// How its limits hold all its processes together, where it has some.
fn limits(needs: &Needs, facts: &Facts) -> Option<Held> {
    let limits = needs.limits;
    limits
        .any()
        .then(|| lifted(limits_held(limits, facts), needs))
}

/// How it is kept to its writable paths, where no promise speaks of that.
fn writes(needs: &Needs, facts: &Facts, files: &Files) -> Option<Held> {
    let one = Guarantee::NoFilesystemWrite;
    let silent = !needs.writes.is_empty() && !needs.guarantees.requires(one);
    silent.then(|| hold(one, Asker::Engine, needs, facts, files))
}

/// What keeps the plan from being carried out as asked.
fn missing(
    needs: &Needs,
    facts: &Facts,
    held: &[Held],
    [writes, network, limits]: [Option<&Held>; 3],
) -> Vec<Held> {
    // Hosts are named to be the only ones.
    let required = limits.filter(|_| needs.limits.whole_tree);
    let weak = held.iter().chain(network).chain(required);
    let weak = weak.filter(|held| held.level < Level::Enforced);
    let mut missing: Vec<Held> = weak.cloned().collect();
    // Nothing was promised beyond its paths and its limits; but without them it would be held
    // in name only.
    let silent = limits.filter(|_| !needs.limits.whole_tree);
    let silent = writes.into_iter().chain(silent);
    missing.extend(silent.filter(|held| held.level == Level::None).cloned());
    if needs.strict && !(facts.net_namespace && facts.ipc_namespace) {
        missing.push(Held {
            missing: "`sandbox = \"strict\"` needs network and IPC namespaces".to_owned(),
            ..unheld(Guarantee::NoNetwork, Asker::Tool)
        });
    }
    missing
}
