//! Functions of a Rust program as tools of MCP clients.
//!
//! A [`Parent`] serves functions on a Unix socket of its own and lists them in a schema file;
//! an MCP client starts `callgate bridge SOCKET SCHEMA` (see [`Running::client_entry`]) and
//! calls them. Contract `docs/contracts/bridge.md`.
//!
//! ```
//! use callgate_sdk::{Parent, ToolError};
//! use serde_json::json;
//!
//! let schema = json!({
//!     "type": "object",
//!     "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
//!     "required": ["a", "b"],
//! });
//! let running = Parent::new()
//!     .tool("sum", "Adds two numbers.", schema, |arguments| {
//!         // Numbers they are: what does not fit the schema does not get here.
//!         let number = |name: &str| {
//!             arguments[name].as_i64().ok_or_else(|| ToolError::new("ValueError", "too large"))
//!         };
//!         Ok((number("a")? + number("b")?).to_string().into())
//!     })
//!     .start()?;
//! println!("{}", running.client_entry("callgate"));
//! running.stop(); // or drop it: the socket and the file go either way
//! # Ok::<(), callgate_sdk::StartError>(())
//! ```
//!
//! Socket and file are removed when the [`Running`] is stopped or dropped, a panic included,
//! and on SIGTERM, SIGINT and SIGHUP with [`Parent::exit_on_signals`]. What a killed process
//! leaves is swept by the next parent that starts: a lock tells whose owner is dead.

mod files;
mod handler;
mod schema;
mod serve;

use std::path::Path;
use std::thread::JoinHandle;

use callgate_wires::bridge::ToolSchema;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

pub use files::StartError;
use handler::{Handler, Tool, Tools};
pub use handler::{Reply, ToolError};
use schema::Schema;

/// A program's functions on their way to be served.
#[derive(Default)]
pub struct Parent {
    tools: Vec<(ToolSchema, Handler)>,
    exit_on_signals: bool,
}

impl Parent {
    /// One without functions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a plain function, which is called with arguments that fit `input_schema`. It runs on a thread for blocking work; one that is running when
    /// its bridge goes away runs to its end.
    #[must_use]
    pub fn tool<F>(self, name: &str, description: &str, input_schema: Value, function: F) -> Self
    where
        F: Fn(Map<String, Value>) -> Result<Reply, ToolError> + Send + Sync + 'static,
    {
        self.add(name, description, input_schema, Handler::plain(function))
    }

    /// Adds an async function. Its future is dropped when its bridge goes away.
    #[must_use]
    pub fn tool_async<F, R>(
        self,
        name: &str,
        description: &str,
        input_schema: Value,
        function: F,
    ) -> Self
    where
        F: Fn(Map<String, Value>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, ToolError>> + Send + 'static,
    {
        let handler = Handler::future(function);
        self.add(name, description, input_schema, handler)
    }

    /// Ends the program on SIGTERM, SIGINT and SIGHUP, with the files removed and the code a
    /// shell gives such an end. For programs that do not watch for these signals themselves.
    #[must_use]
    pub fn exit_on_signals(mut self) -> Self {
        self.exit_on_signals = true;
        self
    }

    fn add(mut self, name: &str, description: &str, input_schema: Value, handler: Handler) -> Self {
        // The last one of a name counts.
        self.tools.retain(|(tool, _)| tool.name != name);
        let tool = ToolSchema {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema,
        };
        self.tools.push((tool, handler));
        self
    }

    /// Sweeps what dead parents left, makes socket and file, and serves them on a thread.
    pub fn start(self) -> Result<Running, StartError> {
        self.start_in(&files::usual_folder())
    }

    /// The same in a folder of the caller's choice: made if it is not there, 0700, and only
    /// for parents.
    pub fn start_in(self, folder: &Path) -> Result<Running, StartError> {
        let (schemas, tools) = compiled(self.tools)?;
        let (files, listener) = files::Files::make(folder, &schemas)?;
        let (stop, stopped) = watch::channel(false);
        let place = files.place().clone();
        let serving = serve::Serving {
            tools,
            listener,
            stopped,
            exit_on_signals: self.exit_on_signals,
        };
        let thread = serving.spawn(files)?;
        Ok(Running {
            place,
            stop,
            thread: Some(thread),
        })
    }
}

/// The list of the functions, and the functions by name.
fn compiled(added: Vec<(ToolSchema, Handler)>) -> Result<(Vec<ToolSchema>, Tools), StartError> {
    let (mut schemas, mut tools) = (Vec::new(), Tools::new());
    for (tool, handler) in added {
        let schema = Schema::compile(&tool.input_schema).map_err(|reason| StartError::Schema {
            tool: tool.name.clone(),
            reason,
        })?;
        tools.insert(tool.name.clone(), Tool { schema, handler });
        schemas.push(tool);
    }
    Ok((schemas, tools))
}

/// A parent that serves until it is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    place: files::Place,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Where bridges connect.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.place.socket
    }

    /// The file that lists the functions.
    #[must_use]
    pub fn schema(&self) -> &Path {
        &self.place.schema
    }

    /// The entry an MCP client needs; `program` is Callgate's binary.
    #[must_use]
    pub fn client_entry(&self, program: &str) -> Value {
        json!({
            "type": "stdio",
            "command": program,
            "args": ["bridge", self.place.socket, self.place.schema],
        })
    }

    /// Ends serving: connections are closed, socket and file are gone when this returns.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
