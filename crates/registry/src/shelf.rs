//! Prompts and resources out of configuration.

use std::collections::HashSet;

use callgate_call::{Face, Prompt, PromptArgument, Resource, Shelf, Source};
use callgate_gate::Catalog;
use callgate_tools::runs::{ARTIFACT_TEMPLATE, RUN_TEMPLATE};
use serde_json::{Value, json};

use crate::config::{Config, MessageConfig, PromptConfig, ResourceConfig, RoleConfig};

/// Why a prompt or a resource cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// Two of one name or address.
    #[error("{item} is there twice")]
    Twice {
        /// The prompt or the resource.
        item: Item,
    },
    /// One that does not hold together.
    #[error("{item}")]
    Wrong {
        /// The prompt or the resource.
        item: Item,
        /// What is wrong with it.
        source: ItemError,
    },
}

/// A prompt by its name, or a resource by its address.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Item {
    /// A prompt.
    #[error("prompt `{0}`")]
    Prompt(String),
    /// A resource.
    #[error("resource `{0}`")]
    Resource(String),
}

/// What is wrong with a prompt or a resource.
#[derive(Debug, thiserror::Error)]
pub enum ItemError {
    /// No name.
    #[error("it needs a name")]
    Nameless,
    /// No content, or more than one.
    #[error("say one of text, file, messages and tool")]
    PromptContent,
    /// No content, or more than one.
    #[error("say one of text, file and tool")]
    ResourceContent,
    /// No scheme.
    #[error("uri is an address with a scheme, as in notes://today")]
    Uri,
    /// A tool that is not there.
    #[error("there is no tool `{0}`")]
    NoTool(String),
}

/// What a configuration has beside its tools.
pub fn shelf(config: &mut Config, catalog: &Catalog) -> Result<Shelf, ShelfError> {
    let mut shelf = Shelf::default();
    let mut names = HashSet::new();
    for config in std::mem::take(&mut config.prompts) {
        let item = Item::Prompt(config.name.clone());
        if !names.insert(config.name.clone()) {
            return Err(ShelfError::Twice { item });
        }
        let prompt =
            prompt(config, catalog).map_err(|source| ShelfError::Wrong { item, source })?;
        shelf.prompts.push(prompt);
    }
    let mut uris = HashSet::new();
    for config in std::mem::take(&mut config.resources) {
        let item = Item::Resource(config.uri.clone());
        if !uris.insert(config.uri.clone()) {
            return Err(ShelfError::Twice { item });
        }
        let resource =
            resource(config, catalog).map_err(|source| ShelfError::Wrong { item, source })?;
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
        definition: None,
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
        definition: None,
    })
}

fn prompt(config: PromptConfig, catalog: &Catalog) -> Result<Prompt, ItemError> {
    if config.name.is_empty() {
        return Err(ItemError::Nameless);
    }
    let user = |text: String| MessageConfig {
        role: RoleConfig::User,
        text,
    };
    let source = match (config.text, config.file, config.messages, config.tool) {
        (Some(text), None, None, None) => Source::Fixed(messages(vec![user(text)])),
        (None, None, Some(given), None) => Source::Fixed(messages(given)),
        (None, None, None, Some(tool)) => Source::Tool(known(tool, catalog)?),
        _ => return Err(ItemError::PromptContent),
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
        definition: None,
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

fn resource(config: ResourceConfig, catalog: &Catalog) -> Result<Resource, ItemError> {
    let scheme = config.uri.split(':').next().unwrap_or_default();
    if scheme.len() == config.uri.len() || scheme.is_empty() {
        return Err(ItemError::Uri);
    }
    let source = match (config.text, config.file, config.tool) {
        (Some(text), None, None) => Source::Fixed(json!({ "text": text })),
        (None, None, Some(tool)) => Source::Tool(known(tool, catalog)?),
        _ => return Err(ItemError::ResourceContent),
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
        definition: None,
    })
}

fn known(tool: String, catalog: &Catalog) -> Result<String, ItemError> {
    match catalog.find(&tool) {
        Ok(_) => Ok(tool),
        Err(_) => Err(ItemError::NoTool(tool)),
    }
}
