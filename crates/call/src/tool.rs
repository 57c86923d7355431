//! A named operation: what the catalog knows of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Digest, Needs, Origin, Runner, Unserved};

/// Calls at the same time of a tool that does not say.
const CONCURRENCY_MAX_DEFAULT: usize = 1024;
/// How long progress keeps a call alive.
const TIMEOUT_CAP_DEFAULT: Duration = Duration::from_secs(3600);

/// A tool as the gate holds it.
#[derive(Clone)]
pub struct Tool {
    /// Canonical name: `files/read`.
    pub name: ToolName,
    /// `AID.FILES.READ.v1`.
    pub aid: String,
    /// One line for people and models.
    pub description: String,
    /// What its pack says is its version.
    pub version: Option<String>,
    /// JSON Schema 2020-12 of the input.
    pub input_schema: Value,
    /// JSON Schema of the output, where one is promised.
    pub output_schema: Option<Value>,
    /// Free words for menus.
    pub tags: Vec<String>,
    /// How dangerous it is.
    pub tier: Tier,
    /// The longest a call may take; else the wire's default.
    pub timeout: Option<Duration>,
    /// The longest a call may take that shows progress; an hour if it does not say.
    pub timeout_cap: Option<Duration>,
    /// Calls per second and caller.
    pub rate_limit: Option<RateLimit>,
    /// Calls at the same time; further ones are refused.
    pub concurrency_max: usize,
    /// A second run does no harm, so an unknown outcome may be run again.
    pub idempotent: bool,
    /// Same input, same output.
    pub deterministic: bool,
    /// What it touches, in the toolhost's words.
    pub side_effects: Vec<String>,
    /// What a strict replay needs to know beside the input, in the toolhost's words.
    pub replay_inputs: Vec<String>,
    /// Other names it answers to.
    pub aliases: Vec<String>,
    /// Paths under the workspace it may write.
    pub writes: Vec<String>,
    /// It takes and changes the slots.
    pub slots: bool,
    /// How it is shown to models and people.
    pub face: Face,
    /// Its output is a list of content blocks and more, as MCP has them, not plain JSON.
    pub gives_content: bool,
    /// Its output lists what can be read further, as `resources` and `run`; wires that have links
    /// show them.
    pub gives_resources: bool,
    /// The reason why a built-in tool is not served over MCP unless a client's scope names it. G-14.
    pub hidden_over_mcp: Option<Unserved>,
    /// Prompts or resources lead to it, and no list of tools has it.
    pub is_internal: bool,
    /// It runs what its caller names, so that how a call ends says nothing of the tool: no breaker
    /// counts it. G-7.
    pub runs_callers_code: bool,
    /// The name it was declared by, where wires that take no blanks know it by another.
    pub declared: Option<String>,
    /// Whether a long call may be left running and asked after later.
    pub tasks: Tasks,
    /// What its child needs and is kept from; nothing for a tool that has no child.
    pub needs: Option<Arc<Needs>>,
    /// It is described in a toolpack's manifest, which has its `confinement` too.
    pub in_toolpack: bool,
    /// Where it was found, for a tool of a pack or a binding.
    pub origin: Option<Arc<Origin>>,
    /// The code it runs, as its runner names it: `module:function`.
    pub entry: Option<String>,
    /// What is told after calls of it, to those who listen.
    pub tells: Vec<Notification>,
    /// The MCP server that has it, for a tool of somebody else's server.
    pub of_server: Option<Arc<ServerTool>>,
    /// How it is carried out.
    pub runner: Arc<dyn Runner>,
}

impl Tool {
    /// A safe tool that takes any object; what is known further is set afterwards.
    #[must_use]
    pub fn new(name: &str, runner: Arc<dyn Runner>) -> Self {
        Self {
            name: name.to_owned(),
            aid: aid_of_name(name),
            description: String::new(),
            version: None,
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            tags: Vec::new(),
            tier: Tier::Safe,
            timeout: None,
            timeout_cap: None,
            rate_limit: None,
            concurrency_max: CONCURRENCY_MAX_DEFAULT,
            idempotent: false,
            deterministic: false,
            side_effects: Vec::new(),
            replay_inputs: Vec::new(),
            aliases: Vec::new(),
            writes: Vec::new(),
            slots: false,
            face: Face::default(),
            gives_content: false,
            gives_resources: false,
            hidden_over_mcp: None,
            is_internal: false,
            runs_callers_code: false,
            declared: None,
            tasks: Tasks::default(),
            needs: None,
            in_toolpack: false,
            origin: None,
            entry: None,
            tells: Vec::new(),
            of_server: None,
            runner,
        }
    }

    /// The name it was declared by: what its code, other hosts and people know it by.
    #[must_use]
    pub fn declared_name(&self) -> &str {
        self.declared.as_deref().unwrap_or(&self.name)
    }

    /// The names by which the owner's rules mean it.
    #[must_use]
    pub fn rule_names(&self) -> [&str; 3] {
        [&self.name, &self.aid, self.declared_name()]
    }

    /// The longest a call may take while it shows progress, where one sign of life may be
    /// `timeout` from the next.
    #[must_use]
    pub fn cap(&self, timeout: Duration) -> Duration {
        self.timeout_cap.unwrap_or(TIMEOUT_CAP_DEFAULT).max(timeout)
    }
}

/// The origin of a tool that an MCP server of somebody else has.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTool {
    /// The server's name in the configuration.
    pub server: String,
    /// The tool's name at the server.
    pub name: String,
    /// The definition that the server lists. MCP clients receive it under our name for the tool,
    /// with our metadata added.
    pub definition: Value,
    /// The clients (`callgate mcp --client NAME`) that see the tool.
    pub clients: Vec<String>,
}

/// A kind of event, as those who listen get it.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// `planner/plan_updated`.
    pub name: &'static str,
    /// JSON Schema of its body.
    pub schema: Value,
}

/// What menus show of a tool, a prompt or a resource beside its name and description.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Face {
    /// A name for people.
    pub title: Option<String>,
    /// Pictures, as MCP writes them: `src`, `mimeType`, `sizes`.
    pub icons: Vec<Value>,
}

/// Whether a call may become a task that its caller asks after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tasks {
    /// When it takes long and the caller knows tasks.
    #[default]
    Allowed,
    /// Callers that do not know tasks are refused.
    Required,
    /// The caller always waits.
    Forbidden,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .field("aid", &self.aid)
            .finish()
    }
}

/// A canonical name: segments of letters, digits, `_`, `-` and `.`, joined by `/`.
pub type ToolName = String;

/// True if `name` may be a canonical name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= 128
        && name.split('/').all(|segment| {
            !segment.is_empty()
                && segment
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        })
}

/// The AID of a tool that was given none. Decision G-12.
#[must_use]
pub fn aid_of_name(name: &str) -> String {
    let upper = |segment: &str| -> String {
        segment
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect()
    };
    let segments: Vec<String> = name.split('/').map(upper).collect();
    match segments.as_slice() {
        [single] => format!("AID.TOOL.{single}.v1"),
        several => format!("AID.{}.v1", several.join(".")),
    }
}

/// Most characters of a name that hosts of models accept.
const HOST_NAME_MAX: usize = 64;

/// The name hosts of models accept: at most 64 of `[A-Za-z0-9_-]`. It depends on nothing but
/// the canonical name, so that it stays when tools come and go; a name that had to be cut ends
/// in a piece of the whole name's digest.
#[must_use]
pub fn host_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if plain.len() <= HOST_NAME_MAX {
        return plain;
    }
    let digest = Digest::of_bytes(name.as_bytes()).to_hex();
    format!("{}_{}", &plain[..HOST_NAME_MAX - 9], &digest[..8])
}

/// How dangerous a tool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Reads at most.
    #[default]
    Safe = 0,
    /// Writes.
    Write = 1,
    /// Runs programs or reaches the network.
    System = 2,
    /// Changes what can be run.
    Dangerous = 3,
}

impl Tier {
    /// The tier of a number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Safe, Self::Write, Self::System, Self::Dangerous]
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// The number, as wires write it.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// A token bucket: so many a second, so many at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Refill.
    pub per_second: f64,
    /// Capacity.
    pub burst: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G-12.
    #[test]
    fn aid_of_a_name() {
        assert_eq!(aid_of_name("files/read"), "AID.FILES.READ.v1");
        assert_eq!(aid_of_name("greet"), "AID.TOOL.GREET.v1");
        assert_eq!(aid_of_name("a/b-c"), "AID.A.B_C.v1");
    }

    #[test]
    fn names_for_hosts() {
        assert_eq!(host_name("files/read"), "files_read");
        assert_eq!(host_name("a.b/c-d"), "a_b_c-d");
        let at = "x".repeat(64);
        assert_eq!(host_name(&at), at);
        let (long, other) = ("x".repeat(65), format!("{}y", "x".repeat(64)));
        assert_eq!(host_name(&long).len(), 64);
        assert_ne!(host_name(&long), host_name(&other));
    }

    #[test]
    fn names() {
        assert!(is_name("files/read") && is_name("builtin/echo") && is_name("a.b-c_1"));
        assert!(!is_name("") && !is_name("/a") && !is_name("a//b") && !is_name("a b"));
        assert!(!is_name(&"x".repeat(129)) && is_name(&"x".repeat(128)));
    }
}
