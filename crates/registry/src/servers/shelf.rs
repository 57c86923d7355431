//! The prompts and resources of a server, made of its entry in the lock. Each prompt comes from an
//! internal tool, and all resources come from one, so that what holds for calls holds for them.
//! U-31, U-32.

use std::sync::Arc;

use callgate_call::{
    AddressSpace, Face, Prompt, PromptArgument, Resource, Source, Tool, host_name,
};
use callgate_runners::{UpstreamPromptRunner, UpstreamResourceRunner, upstream_address};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ServerError;
use super::tools::{OfferedServer, full_name, is_offered};
use crate::lock::{LockedDefinition, LockedResource};

/// Stands in front of a prompt's name in rules: `prompts/NAME`.
const PROMPTS_FOLDER: &str = "prompts/";

/// The name in rules of what reads resources.
const RESOURCES_TOOL: [&str; 2] = ["resources/", "read"];

/// The resources of a server.
pub struct ServerResources {
    /// The internal tool that reads them.
    pub tool: Tool,
    /// Those that are listed.
    pub resources: Vec<Resource>,
    /// The templates.
    pub templates: Vec<Resource>,
    /// All addresses, listed or not.
    pub space: AddressSpace,
}

/// The beginning of our addresses for resources of a server. Schemes have no `_`, and names of
/// servers no `.`.
fn prefix_of(server: &str) -> String {
    format!("callgate+{}:", server.replace('_', "."))
}

/// The members of a resource's definition that are used here.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceMembers {
    #[serde(default)]
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    mime_type: Option<String>,
}

/// The members of a prompt's definition that are used here.
#[derive(Deserialize)]
struct PromptMembers {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    arguments: Option<Vec<ArgumentMembers>>,
}

#[derive(Deserialize)]
struct ArgumentMembers {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    required: Option<bool>,
}

impl OfferedServer<'_> {
    /// The prompts that the server offers, each with its internal tool. A definition that is none
    /// is left out.
    pub fn prompts(self) -> Result<Vec<(Tool, Prompt)>, ServerError> {
        let prompts = self.locked.prompts.iter();
        let is_offered = |prompt: &&LockedDefinition| {
            is_offered(self.server, &format!("{PROMPTS_FOLDER}{}", prompt.name))
        };
        let made = prompts
            .filter(is_offered)
            .map(|locked| self.prompt(locked).transpose());
        made.flatten().collect()
    }

    /// The resources of the server; none where it listed neither resources nor templates.
    pub fn resources(self) -> Result<Option<ServerResources>, ServerError> {
        let lists = [&self.locked.resources, &self.locked.templates];
        let is_empty = lists.iter().all(|list| list.is_empty());
        if is_empty || !is_offered(self.server, &RESOURCES_TOOL.concat()) {
            return Ok(None);
        }
        let prefix = prefix_of(&self.server.name);
        let runner = UpstreamResourceRunner::new(Arc::clone(self.upstream), &prefix);
        let definition = json!({ "description": "Reads a resource of the server" });
        let tool = self.tool(RESOURCES_TOOL, &definition, Arc::new(runner))?;
        let tool = Tool {
            input_schema: json!({
                "type": "object",
                "properties": { "uri": { "type": "string" } },
                "required": ["uri"],
            }),
            gives_content: false,
            is_internal: true,
            ..tool
        };
        let [resources, templates] = lists.map(|list| {
            list.iter()
                .map(|one| resource(one, &prefix, &tool))
                .collect()
        });
        let space = AddressSpace {
            tool: tool.name.clone(),
            prefix,
        };
        Ok(Some(ServerResources {
            tool,
            resources,
            templates,
            space,
        }))
    }

    fn prompt(self, locked: &LockedDefinition) -> Result<Option<(Tool, Prompt)>, ServerError> {
        let Ok(members) = PromptMembers::deserialize(&locked.definition) else {
            return Ok(None);
        };
        let runner = UpstreamPromptRunner::new(Arc::clone(self.upstream), &locked.name);
        let name = [PROMPTS_FOLDER, &locked.name];
        let tool = self.tool(name, &locked.definition, Arc::new(runner))?;
        let arguments = members.arguments.unwrap_or_default();
        let tool = Tool {
            input_schema: schema_of(&arguments),
            output_schema: None,
            gives_content: false,
            is_internal: true,
            ..tool
        };
        let arguments = arguments.into_iter().map(|argument| PromptArgument {
            name: argument.name,
            description: argument.description.unwrap_or_default(),
            required: argument.required.unwrap_or_default(),
            values: Vec::new(),
        });
        let prompt = Prompt {
            name: host_name(&full_name(self.server, ["", &locked.name])),
            description: members.description.unwrap_or_default(),
            face: Face {
                title: members.title,
                icons: Vec::new(),
            },
            arguments: arguments.collect(),
            source: Source::Tool(tool.name.clone()),
            definition: Some(locked.definition.clone()),
        };
        Ok(Some((tool, prompt)))
    }
}

fn resource(locked: &LockedResource, prefix: &str, tool: &Tool) -> Resource {
    let members = ResourceMembers::deserialize(&locked.definition).unwrap_or_default();
    Resource {
        uri: upstream_address(prefix, &locked.uri),
        name: members.name,
        description: members.description.unwrap_or_default(),
        face: Face {
            title: members.title,
            icons: Vec::new(),
        },
        mime_type: members.mime_type,
        source: Source::Tool(tool.name.clone()),
        definition: Some(locked.definition.clone()),
    }
}

/// The schema of the arguments of a prompt, which are texts.
fn schema_of(arguments: &[ArgumentMembers]) -> Value {
    let properties = arguments.iter().map(|argument| {
        let about = argument.description.as_deref().unwrap_or_default();
        let schema = json!({ "type": "string", "description": about });
        (argument.name.clone(), schema)
    });
    let properties: Map<String, Value> = properties.collect();
    let required = arguments
        .iter()
        .filter(|argument| argument.required == Some(true));
    let required: Vec<&str> = required.map(|argument| argument.name.as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U-32: no two servers share an address, but for those of user interfaces.
    #[test]
    fn addresses_carry_the_server() {
        let address = |server: &str, uri: &str| upstream_address(&prefix_of(server), uri);
        assert_eq!(address("a_b", "file:///x"), "callgate+a.b:file:///x");
        assert_eq!(address("a-b", "file:///x"), "callgate+a-b:file:///x");
        assert_eq!(address("a", "ui://board"), "ui://board");
    }

    #[test]
    fn arguments_become_a_schema() {
        let definition = json!({ "name": "p", "arguments": [
            { "name": "who", "description": "To greet.", "required": true },
            { "name": "how", "later": 1 },
        ] });
        let members = PromptMembers::deserialize(&definition).unwrap();
        assert_eq!(
            schema_of(&members.arguments.unwrap()),
            json!({
                "type": "object",
                "properties": {
                    "who": { "type": "string", "description": "To greet." },
                    "how": { "type": "string", "description": "" },
                },
                "required": ["who"],
            })
        );
        for wrong in [json!({ "arguments": {} }), json!({ "arguments": [{}] })] {
            assert!(PromptMembers::deserialize(&wrong).is_err(), "{wrong}");
        }
    }
}
