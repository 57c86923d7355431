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
//! # A place that stays
//!
//! A client's entry names the socket and the file, and a bridge that runs keeps to them. A
//! `Parent` has the same ones at each of its starts, and one with a [name](Parent::named) at the
//! starts of other processes, too: a program that was killed and comes back under its name is
//! reached by the bridges that were there before. Whoever holds the place's lock has it; while
//! that process lives, others get [`StartError::Taken`].
//!
//! # How a program ends
//!
//! Socket and file are gone
//!
//! - when the [`Running`] is stopped or dropped, a panic included;
//! - when `main` returns or calls `std::process::exit`, which drops nothing, if the parent was
//!   started on the main thread and the libc is glibc;
//! - on SIGTERM, SIGINT and SIGHUP, if a parent has [`Parent::exit_on_signals`]. Without it these
//!   signals are the program's business: one that does nothing about them is ended by them as by
//!   SIGKILL.
//!
//! What other ends leave (SIGKILL, `abort`, `std::process::exit` on another thread) is removed by
//! the next parent that starts in the folder: a lock tells whose owner is dead.
//!
//! A program that does nothing else but serve:
//!
//! ```no_run
//! use callgate_sdk::Parent;
//!
//! fn main() -> Result<(), callgate_sdk::StartError> {
//!     let _running = Parent::new()
//!         .named("notes")
//!         .tool("ping", "Says that it is there.", serde_json::json!({}), |_| Ok("pong".into()))
//!         .exit_on_signals()
//!         .start()?;
//!     loop {
//!         std::thread::park();
//!     }
//! }
//! ```

mod ends;
mod files;
mod handler;
mod schema;
mod serve;

use std::path::Path;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use callgate_wires::bridge::ToolSchema;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

pub use files::StartError;
use handler::{Handler, Tool, Tools};
pub use handler::{Reply, ToolError};
use schema::Schema;

/// A program's functions, and where they are served.
#[derive(Default)]
pub struct Parent {
    tools: Vec<(ToolSchema, Handler)>,
    name: Option<String>,
    /// In place of a name: made at the first start, kept for the next.
    random_name: OnceLock<String>,
    exit_on_signals: bool,
}

impl Parent {
    /// One without functions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has socket and file at the same paths whenever a parent of this name is started, by this
    /// process or by one that follows it: 1 to 64 letters, digits, `-` and `_`. One living
    /// process at a time has a name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Adds a plain function, which is called with arguments that fit `input_schema`. It runs on
    /// a thread for blocking work; one that is running when its bridge goes away runs to its end.
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

    /// Ends the program on SIGTERM, SIGINT and SIGHUP, from its start on and also after its stop,
    /// with the files of all its parents removed and the code a shell gives such an end. Those
    /// that the program handles or ignores when it starts, as `nohup` has it, are left alone.
    ///
    /// For programs that do not watch for these signals themselves. It is not done without being
    /// asked for, because a program may begin to watch later: both would hear of a signal, and
    /// this would end the program before it is done.
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

    /// Sweeps what dead parents left, makes socket and file, and serves them on a thread. After
    /// its stop it can be started again, and has the same paths.
    pub fn start(&self) -> Result<Running, StartError> {
        self.start_in(&files::usual_folder())
    }

    /// The same in a folder of the caller's choice: made if it is not there, 0700, and only
    /// for parents.
    pub fn start_in(&self, folder: &Path) -> Result<Running, StartError> {
        let (schemas, tools) = compiled(&self.tools)?;
        if self.exit_on_signals {
            ends::exit_on_signals().map_err(StartError::make("watch for signals"))?;
        }
        let (files, listener) = files::Files::make(folder, self.place_name()?, &schemas)?;
        let (stop, stopped) = watch::channel(false);
        let place = files.place().clone();
        let serving = serve::Serving {
            tools,
            listener,
            stopped,
        };
        let thread = serving.spawn(files)?;
        Ok(Running {
            place,
            stop,
            thread: Some(thread),
        })
    }

    fn place_name(&self) -> Result<&str, StartError> {
        if let Some(name) = &self.name {
            files::check_name(name)?;
            return Ok(name);
        }
        if let Some(name) = self.random_name.get() {
            return Ok(name);
        }
        let name = files::random_name().map_err(StartError::make("make a name"))?;
        Ok(self.random_name.get_or_init(|| name))
    }
}

/// The list of the functions, and the functions by name.
fn compiled(added: &[(ToolSchema, Handler)]) -> Result<(Vec<ToolSchema>, Tools), StartError> {
    let (mut schemas, mut tools) = (Vec::new(), Tools::new());
    for (tool, handler) in added {
        let schema = Schema::compile(&tool.input_schema).map_err(|reason| StartError::Schema {
            tool: tool.name.clone(),
            reason,
        })?;
        let handler = handler.clone();
        tools.insert(tool.name.clone(), Tool { schema, handler });
        schemas.push(tool.clone());
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
