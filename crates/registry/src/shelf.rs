//! Prompts and resources out of configuration.

use std::collections::HashSet;

use callgate_call::{Face, Prompt, PromptArgument, Resource, Shelf, Source};
use callgate_gate::Catalog;
use callgate_tools::runs::{ARTIFACT_TEMPLATE, RUN_TEMPLATE};
use serde_json::{Value, json};

use crate::config::{Config, MessageConfig, PromptConfig, ResourceConfig, RoleConfig};

/// What a configuration has beside its tools. The error is in words for people.
pub fn shelf(config: &mut Config, catalog: &Catalog) -> Result<Shelf, String> {
    let mut shelf = Shelf::default();
    let mut names = HashSet::new();
    for config in std::mem::take(&mut config.prompts) {
        let about = format!("prompt `{}`", config.name);
        if !names.insert(config.name.clone()) {
            return Err(format!("{about} is there twice"));
        }
        let prompt = prompt(config, catalog).map_err(|reason| format!("{about}: {reason}"))?;
        shelf.prompts.push(prompt);
    }
    let mut uris = HashSet::new();
    for config in std::mem::take(&mut config.resources) {
        let about = format!("resource `{}`", config.uri);
        if !uris.insert(config.uri.clone()) {
            return Err(format!("{about} is there twice"));
        }
        let resource = resource(config, catalog).map_err(|reason| format!("{about}: {reason}"))?;
        if resource.uri.contains('{') {
            shelf.templates.push(resource);
        } else {
            shelf.resources.push(resource);
        }
    }
    shelf.templates.extend(artifacts(catalog));
    shelf.templates.extend(runs(catalog));
    Ok(shelf)
}

/// The artifacts of runs, where they can be read.
fn artifacts(catalog: &Catalog) -> Option<Resource> {
    let tool = "artifacts/read".to_owned();
    catalog.find(&tool).ok()?;
    Some(Resource {
        uri: ARTIFACT_TEMPLATE.to_owned(),
        name: "artifact".to_owned(),
        description: "An artifact of a streamed run, by the digest in the run's report".to_owned(),
        face: Face {
            title: Some("Artifacts of runs".to_owned()),
            ..Face::default()
        },
        mime_type: None,
        source: Source::Tool(tool),
    })
}

/// The runs themselves, where they can be looked at.
fn runs(catalog: &Catalog) -> Option<Resource> {
    let tool = "runs/get".to_owned();
    catalog.find(&tool).ok()?;
    Some(Resource {
        uri: RUN_TEMPLATE.to_owned(),
        name: "run".to_owned(),
        description: "A run by its id: its state, its artifacts or slots, its report".to_owned(),
        face: Face {
            title: Some("Runs".to_owned()),
            ..Face::default()
        },
        mime_type: Some("application/json".to_owned()),
        source: Source::Tool(tool),
    })
}

fn prompt(config: PromptConfig, catalog: &Catalog) -> Result<Prompt, String> {
    if config.name.is_empty() {
        return Err("it needs a name".to_owned());
    }
    let user = |text: String| MessageConfig {
        role: RoleConfig::User,
        text,
    };
    let source = match (config.text, config.file, config.messages, config.tool) {
        (Some(text), None, None, None) => Source::Fixed(messages(vec![user(text)])),
        (None, None, Some(given), None) => Source::Fixed(messages(given)),
        (None, None, None, Some(tool)) => Source::Tool(known(tool, catalog)?),
        _ => return Err("say one of text, file, messages and tool".to_owned()),
    };
    let arguments = config.arguments.into_iter().map(|argument| PromptArgument {
        name: argument.name,
        description: argument.description,
        required: argument.required,
        values: argument.values,
    });
    Ok(Prompt {
        name: config.name,
        description: config.description,
        face: Face {
            title: config.title,
            icons: config.icons,
        },
        arguments: arguments.collect(),
        source,
    })
}

fn messages(given: Vec<MessageConfig>) -> Value {
    let message = |message: MessageConfig| {
        let role = match message.role {
            RoleConfig::User => "user",
            RoleConfig::Assistant => "assistant",
        };
        json!({ "role": role, "content": { "type": "text", "text": message.text } })
    };
    given.into_iter().map(message).collect()
}

fn resource(config: ResourceConfig, catalog: &Catalog) -> Result<Resource, String> {
    let scheme = config.uri.split(':').next().unwrap_or_default();
    if scheme.len() == config.uri.len() || scheme.is_empty() {
        return Err("uri is an address with a scheme, as in notes://today".to_owned());
    }
    let source = match (config.text, config.file, config.tool) {
        (Some(text), None, None) => Source::Fixed(json!({ "text": text })),
        (None, None, Some(tool)) => Source::Tool(known(tool, catalog)?),
        _ => return Err("say one of text, file and tool".to_owned()),
    };
    Ok(Resource {
        uri: config.uri,
        name: config.name,
        description: config.description,
        face: Face {
            title: config.title,
            icons: config.icons,
        },
        mime_type: config.mime_type,
        source,
    })
}

fn known(tool: String, catalog: &Catalog) -> Result<String, String> {
    match catalog.find(&tool) {
        Ok(_) => Ok(tool),
        Err(_) => Err(format!("there is no tool `{tool}`")),
    }
}
