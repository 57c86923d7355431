//! A program's function, and what it gives back.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::schema::Schema;

/// Functions by name.
pub(crate) type Tools = HashMap<String, Tool>;

/// One function, and what it takes.
pub(crate) struct Tool {
    pub schema: Schema,
    pub handler: Handler,
}

type Given = Result<Reply, ToolError>;
type Running = Pin<Box<dyn Future<Output = Given> + Send>>;
type Plain = dyn Fn(Map<String, Value>) -> Given + Send + Sync;
type Async = dyn Fn(Map<String, Value>) -> Running + Send + Sync;

/// One function.
#[derive(Clone)]
pub(crate) enum Handler {
    Plain(Arc<Plain>),
    Async(Arc<Async>),
}

impl Handler {
    pub fn plain<F>(function: F) -> Self
    where
        F: Fn(Map<String, Value>) -> Given + Send + Sync + 'static,
    {
        Self::Plain(Arc::new(function))
    }

    pub fn future<F, R>(function: F) -> Self
    where
        F: Fn(Map<String, Value>) -> R + Send + Sync + 'static,
        R: Future<Output = Given> + Send + 'static,
    {
        Self::Async(Arc::new(move |arguments| Box::pin(function(arguments))))
    }

    /// Starts one call in a task of its own, so that a panic is that call's alone.
    pub fn start(&self, arguments: Map<String, Value>) -> tokio::task::JoinHandle<Given> {
        match self {
            Self::Plain(function) => {
                let function = Arc::clone(function);
                tokio::task::spawn_blocking(move || function(arguments))
            }
            Self::Async(function) => {
                let function = Arc::clone(function);
                tokio::spawn(async move { function(arguments).await })
            }
        }
    }
}

/// What a function gives: content blocks as MCP has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    content: Vec<Value>,
    is_error: bool,
}

impl Reply {
    /// One text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::content(vec![json!({ "type": "text", "text": text.into() })])
    }

    /// Blocks of any type.
    #[must_use]
    pub fn content(content: Vec<Value>) -> Self {
        Self {
            content,
            is_error: false,
        }
    }

    /// The same content, as the words of a failure.
    #[must_use]
    pub fn as_error(mut self) -> Self {
        self.is_error = true;
        self
    }

    pub(crate) fn into_result(self) -> Value {
        let mut content = self.content;
        // A result has at least one block. BR-12.
        if content.is_empty() {
            content.push(json!({ "type": "text", "text": "" }));
        }
        let mut result = json!({ "content": content });
        if self.is_error {
            result["isError"] = true.into();
        }
        result
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// A text is itself; anything else is told as its JSON.
impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            other => Self::text(other.to_string()),
        }
    }
}

/// Why a function failed: the name of an exception, and words that say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub(crate) kind: String,
    pub(crate) message: String,
}

impl ToolError {
    /// A failure that is called `kind`, such as `ValueError`.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
        }
    }
}
