//! The tools of a server, made of its entry in the lock. What else it has is in `shelf`.

use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Digest, Face, Needs, RateLimit, Runner, ServerTool, Tier, Tool, fits, fits_any, is_name,
};
use callgate_runners::{Upstream, UpstreamRunner};
use serde_json::{Value, json};

use super::ServerError;
use super::needs::tier;
use crate::config::{Config, RateError, ServerConfig, ServerToolConfig};
use crate::lock::{LockedDefinition, LockedServer};

/// Longest name of a tool.
const NAME_BYTES_MAX: usize = 128;

/// Why a tool of a server is not offered, and so the server is not.
#[derive(Debug, thiserror::Error)]
pub enum ServerToolError {
    /// Something else has its name.
    #[error("its tool `{0}` has a name that another tool has: set `prefix`")]
    Taken(String),
    /// Another prompt has its name.
    #[error("its prompt `{0}` has a name that something else has: set `prefix`")]
    PromptTaken(String),
    /// Another resource has its address.
    #[error("its resource `{0}` has an address that a resource of another server has")]
    AddressTaken(String),
    /// No such tier.
    #[error("tool {pattern:?}: tier {tier} is not a number from 0 to 3")]
    Tier {
        /// The pattern.
        pattern: String,
        /// As written.
        tier: u64,
    },
    /// A rate that lets nothing through.
    #[error("tool {pattern:?}")]
    Rate {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: RateError,
    },
}

/// A server with all that its tools are made of.
#[derive(Clone, Copy)]
pub struct OfferedServer<'a> {
    /// The whole configuration.
    pub config: &'a Config,
    /// Its table.
    pub server: &'a ServerConfig,
    /// Its entry in the lock.
    pub locked: &'a LockedServer,
    /// Its processes.
    pub upstream: &'a Arc<Upstream>,
    /// The needs of its processes.
    pub needs: &'a Arc<Needs>,
}

impl OfferedServer<'_> {
    /// The tools that the server offers.
    pub fn tools(self) -> Result<Vec<Tool>, ServerError> {
        let tools = self.locked.tools.iter();
        let offered = tools.filter(|tool| is_offered(self.server, &tool.name));
        let make = |locked: &LockedDefinition| {
            let runner = UpstreamRunner::new(Arc::clone(self.upstream), &locked.name);
            self.tool(["", &locked.name], &locked.definition, Arc::new(runner))
        };
        offered.map(make).collect()
    }

    /// A tool for one thing that the server has. The owner's rules mean it by `folder` and `name`
    /// together; the folder is empty for tools.
    pub(super) fn tool(
        self,
        [folder, name]: [&str; 2],
        definition: &Value,
        runner: Arc<dyn Runner>,
    ) -> Result<Tool, ServerError> {
        let Self { config, server, .. } = self;
        let local = format!("{folder}{name}");
        let words = OwnersWords::of(server, &local)?;
        let full = full_name(server, [folder, name]);
        let sees = |allow: &[String], deny: &[String]| {
            fits_any(allow, &[&full, &local])
                && (deny.is_empty() || !fits_any(deny, &[&full, &local]))
        };
        let clients = config
            .clients
            .iter()
            .filter(|client| client.servers.contains(&server.name))
            .filter(|client| sees(&client.allow, &client.deny))
            .map(|client| client.name.clone());
        let origin = ServerTool {
            server: server.name.clone(),
            clients: clients.collect(),
            name: local,
            definition: definition.clone(),
        };
        let tool = Tool::new(&full, runner);
        Ok(described(tool, server, origin, words, self.needs))
    }
}

/// A tool with all that the server and its owner say of it.
fn described(
    tool: Tool,
    server: &ServerConfig,
    origin: ServerTool,
    words: OwnersWords,
    needs: &Arc<Needs>,
) -> Tool {
    let definition = &origin.definition;
    let text = |name: &str| {
        definition
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let hinted = definition
        .pointer("/annotations/title")
        .and_then(Value::as_str);
    let icons = definition.get("icons").and_then(Value::as_array);
    let schema = definition
        .get("inputSchema")
        .filter(|schema| schema.is_object());
    let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
    Tool {
        description: words
            .description
            .or_else(|| text("description"))
            .unwrap_or_default(),
        face: Face {
            title: text("title").or_else(|| hinted.map(str::to_owned)),
            icons: icons.cloned().unwrap_or_default(),
        },
        input_schema: schema
            .cloned()
            .unwrap_or_else(|| json!({ "type": "object" })),
        output_schema: definition.get("outputSchema").cloned(),
        tier: words.tier.unwrap_or_else(|| tier(server, definition)),
        timeout: ms(server.timeout_ms),
        timeout_cap: ms(server.timeout_max_ms),
        rate_limit: words.rate_limit,
        idempotent: words.idempotent,
        writes: server.writes.clone(),
        tags: vec![format!("server.{}", server.name)],
        gives_content: true,
        needs: Some(Arc::clone(needs)),
        of_server: Some(Arc::new(origin)),
        ..tool
    }
}

/// Returns whether the filter of a server lets a tool through.
pub fn is_offered(server: &ServerConfig, tool: &str) -> bool {
    let denied = |pattern: &String| fits(pattern, tool);
    fits_any(&server.tools.allow, &[tool]) && !server.tools.deny.iter().any(denied)
}

/// Our name for a tool of a server, or for a tool that stands for something else of it, which has a
/// `folder` in front of its name. Where characters have to be replaced or the name to be cut, it
/// ends in a piece of the digest of the tool's own name, so that no other tool of the server has
/// it, and it stays when others come and go. U-4.
pub(super) fn full_name(server: &ServerConfig, [folder, tool]: [&str; 2]) -> String {
    const DIGEST_DIGITS: usize = 8;
    let prefix = server.prefix.as_deref().unwrap_or(&server.name);
    let joint = if prefix.is_empty() { "" } else { "/" };
    let plain = format!("{prefix}{joint}{folder}{tool}");
    if is_name(&plain) && !tool.contains('/') {
        return plain;
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let tool_text: String = tool
        .chars()
        .map(|c| if is_known(c) { c } else { '_' })
        .collect();
    let digest = Digest::of_bytes(tool.as_bytes()).to_hex();
    let name = format!("{prefix}{joint}{folder}{tool_text}");
    // All of it is ASCII.
    let kept = &name[..name.len().min(NAME_BYTES_MAX - DIGEST_DIGITS - 1)];
    format!("{kept}_{}", &digest[..DIGEST_DIGITS])
}

/// What the owner says of one tool.
#[derive(Default)]
struct OwnersWords {
    tier: Option<Tier>,
    idempotent: bool,
    description: Option<String>,
    rate_limit: Option<RateLimit>,
}

impl OwnersWords {
    /// The settings of all patterns that fit a tool; of two the longer pattern counts.
    fn of(server: &ServerConfig, tool: &str) -> Result<Self, ServerToolError> {
        let mut fitting: Vec<(&String, &ServerToolConfig)> = server
            .overrides
            .iter()
            .filter(|(pattern, _)| fits(pattern, tool))
            .collect();
        fitting.sort_by_key(|(pattern, _)| pattern.len());
        let mut words = Self::default();
        for (pattern, config) in fitting {
            if let Some(number) = config.tier {
                let tier = Tier::from_number(number).ok_or_else(|| ServerToolError::Tier {
                    pattern: pattern.clone(),
                    tier: number,
                })?;
                words.tier = Some(tier);
            }
            if let Some(rate) = config.rate_limit {
                let rate = rate.read().map_err(|source| {
                    let pattern = pattern.clone();
                    ServerToolError::Rate { pattern, source }
                })?;
                words.rate_limit = Some(rate);
            }
            words.idempotent = config.idempotent.unwrap_or(words.idempotent);
            if config.description.is_some() {
                words.description.clone_from(&config.description);
            }
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn server(text: &str) -> ServerConfig {
        let text = format!("[[server]]\nname = \"s\"\ncommand = [\"x\"]\n{text}");
        parse(&text).unwrap().servers.remove(0)
    }

    /// U-3, U-4.
    #[test]
    fn names_carry_the_server() {
        let full_name = |server: &ServerConfig, tool: &str| full_name(server, ["", tool]);
        let plain = server("");
        assert_eq!(full_name(&plain, "create_issue"), "s/create_issue");
        let odd = full_name(&plain, "a b:c");
        assert!(is_name(&odd) && odd.starts_with("s/a_b_c_"), "{odd}");
        assert_ne!(odd, full_name(&plain, "a:b c"));
        assert!(is_name(&full_name(&plain, "a/b")) && full_name(&plain, "a/b") != "s/a/b");
        assert_eq!(full_name(&server("prefix = \"gh\""), "t"), "gh/t");
        assert_eq!(full_name(&server("prefix = \"\""), "t"), "t");
        let long = |last: char| full_name(&plain, &format!("{}{last}", "x".repeat(200)));
        assert!(is_name(&long('a')) && long('a') != long('b') && long('a').len() <= 128);
        let odd = full_name(&plain, "日本");
        assert!(is_name(&odd) && odd != full_name(&plain, "中国"), "{odd}");
    }

    #[test]
    fn filters() {
        let some = server("tools = { allow = [\"get_*\", \"x\"], deny = [\"get_secret\"] }");
        let offered = ["get_a", "x", "get_secret", "y"].map(|tool| is_offered(&some, tool));
        assert_eq!(offered, [true, true, false, false]);
        assert!(is_offered(&server(""), "anything"));
    }

    #[test]
    fn the_longer_pattern_counts() {
        let some = server(
            "[server.tool.\"*\"]\ntier = 3\nidempotent = true\n\
             [server.tool.\"get_*\"]\ntier = 0\ndescription = \"Gets.\"\n",
        );
        let words = OwnersWords::of(&some, "get_x").unwrap();
        assert_eq!((words.tier, words.idempotent), (Some(Tier::Safe), true));
        assert_eq!(words.description.as_deref(), Some("Gets."));
        let words = OwnersWords::of(&some, "put").unwrap();
        assert_eq!(
            (words.tier, words.description),
            (Some(Tier::Dangerous), None)
        );
        let wrong = server("[server.tool.\"*\"]\ntier = 4\n");
        assert!(OwnersWords::of(&wrong, "x").is_err());
    }
}
