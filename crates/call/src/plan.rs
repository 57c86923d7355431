//! What the kernel is asked to hold a tool to, and how far that was enforced.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{Asker, Call, Fault, Guarantee, Guarantees, Tool};

/// How far a promise about a running tool is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing holds the tool to it.
    #[default]
    None,
    /// Some ways around it remain.
    Partial,
    /// The kernel enforces it now, for this call.
    Enforced,
}

impl Level {
    /// The word in replies, traces and the chain.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Enforced => "enforced",
        }
    }
}

/// What a tool's child needs to work, and what it must be kept from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Needs {
    /// The promises. Those of the engine (P-10) are in here like all others.
    pub guarantees: Guarantees,
    /// Further paths it may read, absolute; its own code and the system's programs and
    /// libraries need no mention.
    pub reads: Vec<PathBuf>,
    /// Paths it may write, absolute.
    pub writes: Vec<PathBuf>,
    /// Its own code, absolute: readable even where nothing else is.
    pub code: Vec<PathBuf>,
    /// What is the gate's and not to be changed, absolute: read-only inside a writable path.
    pub kept: Vec<PathBuf>,
    /// What is the gate's and not even to be read, absolute: state, sockets, and for configured
    /// tools the configuration.
    pub hidden: Vec<PathBuf>,
    /// Where it is kept within its workspace; nothing said lets it read all of that.
    pub roots: Option<Roots>,
    /// Whom it may reach.
    pub network: Network,
    /// Ports of the loopback in its own network that lead to a host and port elsewhere, whatever
    /// protocol is spoken: `(5432, "db.example.com:5432")`. At most [`FORWARDS_MAX`], each port
    /// once. Of no effect beside [`Network::Any`].
    pub forwards: Vec<(u16, String)>,
    /// Runs even where a promise cannot be kept; recorded as an override.
    pub unsafe_execution: bool,
    /// Not confined at all; recorded as an override.
    pub unconfined: bool,
    /// Network and IPC namespaces too, as a second layer behind the filter.
    pub strict: bool,
    /// What one call leaves behind for the next.
    pub isolation: Isolation,
    /// Which of its limits are limits on all its processes together.
    pub limits: TreeLimits,
    /// What of the means by which its processes talk to each other is its own.
    pub ipc: Ipc,
    /// Folders of which its view has nothing but what it may reach otherwise, absolute: the
    /// owner's home. Where the machine can not do that, what is in them is refused as usual.
    pub covered: Vec<PathBuf>,
}

/// Ports that can be forwarded for one tool.
pub const FORWARDS_MAX: usize = 16;

/// The means by which a tool's processes talk to each other beyond pipes, as far as the machine
/// can make them private.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ipc {
    /// None.
    #[default]
    None,
    /// Shared memory and `/proc`; without network also Unix sockets that listen and connect to
    /// nothing. Reaches nobody else.
    Private,
    /// Also a loopback and Unix sockets that connect, in a view that has only what the tool may
    /// read. A socket of others in there can be reached, before Landlock 9.
    Local,
}

/// Which of a tool's limits are limits on all its processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TreeLimits {
    /// Their memory.
    pub memory: bool,
    /// How many they are.
    pub processes: bool,
    /// The processor time they take in all.
    pub cpu_seconds: bool,
    /// Their share of the processors.
    pub cpu_percent: bool,
    /// Where they can not be held together the tool does not run.
    pub whole_tree: bool,
}

impl TreeLimits {
    /// True if there are any.
    #[must_use]
    pub fn any(self) -> bool {
        self.memory || self.processes || self.cpu_seconds || self.cpu_percent
    }
}

impl Needs {
    /// The same with nothing outside `roots`: writes stay inside the first of them, reads inside
    /// any. What was not allowed before is not allowed by being named here.
    #[must_use]
    pub fn within(&self, roots: &Roots) -> Self {
        let write = std::slice::from_ref(&roots.root);
        Self {
            reads: roots.readable(&self.reads),
            writes: narrowed(&self.writes, write),
            roots: Some(roots.clone()),
            ..self.clone()
        }
    }

    /// The ports that are forwarded after all: a promise outranks what the tool declares.
    #[must_use]
    pub fn forwarded(&self) -> &[(u16, String)] {
        let has_own_network = *self.reach() != Network::Any;
        match has_own_network && !self.guarantees.requires(Guarantee::NoNetwork) {
            true => &self.forwards,
            false => &[],
        }
    }

    /// Whom it may reach after all: a promise outranks what it declares.
    #[must_use]
    pub fn reach(&self) -> &Network {
        if self.guarantees.requires(Guarantee::NoNetwork) {
            &Network::None
        } else {
            &self.network
        }
    }
}

/// Where a call is to be kept, beyond what its tool declares. Absolute paths without links. TP-12.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Roots {
    /// Writes stay inside; reads may be here.
    pub root: PathBuf,
    /// Reads may be here too.
    pub reads: Vec<PathBuf>,
}

impl Roots {
    /// What of `paths` may be read.
    #[must_use]
    pub fn readable(&self, paths: &[PathBuf]) -> Vec<PathBuf> {
        let write = std::slice::from_ref(&self.root);
        narrowed(paths, &[write, &self.reads].concat())
    }
}

/// What is in both: each path of `allowed` that lies in a root, and each root that lies in one.
fn narrowed(allowed: &[PathBuf], roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut both = Vec::new();
    for path in allowed {
        for root in roots {
            if path.starts_with(root) {
                both.push(path.clone());
            } else if root.starts_with(path) {
                both.push(root.clone());
            }
        }
    }
    both.sort();
    both.dedup();
    both
}

/// Whom a tool may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Network {
    /// Nobody.
    #[default]
    None,
    /// These hosts alone, by a proxy that resolves their names: `api.example.com:443`.
    Hosts(Vec<String>),
    /// Everybody; Unix sockets stay shut.
    Any,
}

/// What keeps one call of a tool from the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// A program of its own for each call.
    #[default]
    Cold,
    /// A fork of a preloaded interpreter for each call.
    Call,
    /// Nothing: one worker serves many.
    Worker,
}

impl Isolation {
    /// The word in configuration, replies and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Call => "call",
            Self::Worker => "worker",
        }
    }
}

/// What confined a tool, as replies and records report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// The weakest level among what was asked for; `none` where nothing confines.
    pub level: Level,
    /// The same in detail, where anything was asked for.
    pub detail: Option<Arc<Detail>>,
}

impl Enforcement {
    /// True if the owner's override let the call through.
    #[must_use]
    pub fn is_override(&self) -> bool {
        self.detail.as_ref().is_some_and(|d| d.unsafe_override)
    }
}

/// How each promise of a plan is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Each promise asked for, in order.
    pub held: Vec<Held>,
    /// How it is kept to its writable paths, where it has some and no promise speaks of it.
    pub writes: Option<Held>,
    /// How it is kept to its hosts, where it has some.
    pub network: Option<Held>,
    /// How its limits hold all its processes together, where it has some.
    pub limits: Option<Held>,
    /// What keeps one call from the next.
    pub isolation: Isolation,
    /// An override of the owner let the call through with less than was asked for.
    pub unsafe_override: bool,
}

/// One promise and how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which; nothing for its limits, which are none of the seven.
    pub guarantee: Option<Guarantee>,
    /// Who asked for it.
    pub asker: Asker,
    /// How far it is kept.
    pub level: Level,
    /// By what: `landlock`, `seccomp`, `exec-once`, `netns` …
    pub mechanisms: Vec<&'static str>,
    /// What keeps it from being enforced; empty where it is.
    pub missing: String,
}

impl Held {
    /// What it is called where it is reported.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.guarantee.map_or("limits", Guarantee::name)
    }
}

/// A tool's confinement, decided before anything runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What carrying out this plan will enforce.
    pub enforcement: Enforcement,
    /// What whoever makes the child is to do; nothing for a tool that has none.
    pub confinement: Option<Arc<Needs>>,
    /// The call is carried out because somebody approved it: what earlier calls left behind must
    /// not decide what this one does.
    pub approved: bool,
}

/// Turns a tool's needs into a plan, or refuses what this machine cannot enforce.
pub trait Planner: Send + Sync {
    /// The plan for one call of `tool`. What the call itself asks for can only tighten.
    fn plan(&self, call: &Call, tool: &Tool) -> Result<Plan, Fault>;

    /// What a plan for `tool` would enforce, and for what it would be refused: one entry for
    /// each of the seven, asked for or not.
    fn outlook(&self, tool: &Tool) -> Vec<Held>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TP-12: roots narrow and never widen.
    #[test]
    fn roots_narrow() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let needs = Needs {
            reads: paths(&["/data", "/app/in"]),
            writes: paths(&["/app", "/var/out"]),
            ..Needs::default()
        };
        let roots = Roots {
            root: "/app/sub".into(),
            reads: paths(&["/data/one", "/etc"]),
        };
        let kept = needs.within(&roots);
        assert_eq!(kept.writes, paths(&["/app/sub"]));
        assert_eq!(kept.reads, paths(&["/data/one"]));
        let wide = Roots {
            root: "/".into(),
            reads: Vec::new(),
        };
        let mut sorted = needs.clone();
        sorted.reads.sort();
        sorted.roots = Some(wide.clone());
        assert_eq!(needs.within(&wide), sorted);
        let sibling = Roots {
            root: "/application".into(),
            reads: Vec::new(),
        };
        assert_eq!(needs.within(&sibling).writes, Vec::<PathBuf>::new());
    }
}
