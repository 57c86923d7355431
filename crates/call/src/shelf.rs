//! What stands beside the tools: prompts and resources, each fixed or given by a tool, and
//! the word that one of these lists has changed.

use serde_json::Value;
use tokio::sync::broadcast;

use crate::Face;

/// Changes kept for a subscriber that is slow; what it misses it is told as everything.
const CHANGES_KEPT: usize = 256;

/// The prompts and resources of one configuration.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    /// In the order they were written.
    pub prompts: Vec<Prompt>,
    /// With fixed addresses.
    pub resources: Vec<Resource>,
    /// With addresses that have places to fill.
    pub templates: Vec<Resource>,
    /// Addresses that no list has, by what they begin with.
    pub spaces: Vec<AddressSpace>,
}

/// All addresses with one beginning, which a tool reads: those of an MCP server of somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    /// The beginning.
    pub prefix: String,
    /// The tool. Its input has the whole address as `uri`.
    pub tool: String,
}

/// Where a prompt or a resource comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// It is this: messages, or contents.
    Fixed(Value),
    /// A tool gives it: the arguments are its input, its output the messages or contents.
    Tool(String),
}

/// A text for a model, with arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// What callers name.
    pub name: String,
    /// One line.
    pub description: String,
    /// For menus.
    pub face: Face,
    /// What it takes.
    pub arguments: Vec<PromptArgument>,
    /// Its messages.
    pub source: Source,
    /// The definition that an MCP server lists, for a prompt of somebody else's server. Clients
    /// receive it under our name for the prompt.
    pub definition: Option<Value>,
}

/// One argument of a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// One line.
    pub description: String,
    /// It must be given.
    pub required: bool,
    /// Values to propose while it is typed.
    pub values: Vec<String>,
}

/// Something to read.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its address; a template's has places in braces.
    pub uri: String,
    /// A short name.
    pub name: String,
    /// One line.
    pub description: String,
    /// For menus.
    pub face: Face,
    /// What kind of bytes, where known.
    pub mime_type: Option<String>,
    /// Its contents.
    pub source: Source,
    /// The definition that an MCP server lists, for a resource of somebody else's server. Clients
    /// receive it under our address for the resource.
    pub definition: Option<Value>,
}

/// Something a client may have read has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// What is at one address.
    Resource(String),
}

/// Where changes are told to whoever listens. Bounded for each of them.
#[derive(Clone, Debug)]
pub struct Changes {
    sender: broadcast::Sender<Change>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(CHANGES_KEPT),
        }
    }
}

impl Changes {
    /// Tells everyone who listens now.
    pub fn tell(&self, change: Change) {
        // Nobody listening is an ordinary state.
        let _ = self.sender.send(change);
    }

    /// Listens from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener {
            receiver: self.sender.subscribe(),
        }
    }
}

/// One who listens.
#[derive(Debug)]
pub struct Listener {
    receiver: broadcast::Receiver<Change>,
}

impl Listener {
    /// The next change; `None` for a listener that fell behind and must take all as changed.
    pub async fn next(&mut self) -> Option<Change> {
        match self.receiver.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            // Whoever could speak is gone, and so are we soon.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
