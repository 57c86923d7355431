//! `[[prompt]]` and `[[resource]]` as written.

use callgate_call::Tool;
use serde::Deserialize;
use serde_json::Value;

use super::Config;

impl Config {
    /// Returns whether a prompt or a resource is given by `tool`, which has to be served for that.
    pub fn shelves(&self, tool: &Tool) -> bool {
        let prompts = self.prompts.iter().map(|prompt| &prompt.tool);
        let resources = self.resources.iter().map(|resource| &resource.tool);
        prompts
            .chain(resources)
            .flatten()
            .any(|name| [&tool.name, &tool.aid].contains(&name))
    }
}

/// A text for a model. One of `text`, `file`, `messages` and `tool` says it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptConfig {
    /// The name by which it is listed.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// A name for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Pictures, as MCP writes them.
    #[serde(default)]
    pub icons: Vec<Value>,
    /// What a client fills in.
    #[serde(default)]
    pub arguments: Vec<PromptArgumentConfig>,
    /// One message of the user's; `{name}` is the argument of that name.
    #[serde(default)]
    pub text: Option<String>,
    /// The same, in a file beside the configuration.
    #[serde(default)]
    pub file: Option<String>,
    /// The messages, where there is more than one text.
    #[serde(default)]
    pub messages: Option<Vec<MessageConfig>>,
    /// The tool that gives the messages.
    #[serde(default)]
    pub tool: Option<String>,
}

/// One argument of a prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptArgumentConfig {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub required: bool,
    /// To propose while it is typed.
    #[serde(default)]
    pub values: Vec<String>,
}

/// One message of a prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageConfig {
    /// Who speaks.
    pub role: RoleConfig,
    /// The text itself.
    pub text: String,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleConfig {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// Something to read. One of `text`, `file` and `tool` says it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceConfig {
    /// With places in braces it is a template.
    pub uri: String,
    /// The name by which it is listed.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// A name for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Pictures, as MCP writes them.
    #[serde(default)]
    pub icons: Vec<Value>,
    /// Media type of the content.
    #[serde(default)]
    pub mime_type: Option<String>,
    /// The text itself.
    #[serde(default)]
    pub text: Option<String>,
    /// A file beside the configuration.
    #[serde(default)]
    pub file: Option<String>,
    /// The tool that gives the contents.
    #[serde(default)]
    pub tool: Option<String>,
}
