//! The prompts of a server, made of its entry in the lock. Each comes from an internal tool, so that
//! what holds for calls holds for it. U-31.

use std::sync::Arc;

use callgate_call::{Face, Prompt, PromptArgument, Source, Tool, host_name};
use callgate_runners::UpstreamPromptRunner;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ServerError;
use super::tools::{OfferedServer, full_name, is_offered};
use crate::lock::LockedDefinition;

/// Stands in front of a prompt's name in rules: `prompts/NAME`.
const PROMPTS_FOLDER: &str = "prompts/";

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
