//! The tools there are, found by canonical name, AID or alias, each with its schemas
//! compiled once.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use callgate_call::{Fault, Tool, Unserved, aid_of_name, fits_any, host_name, names_tool};

use crate::admit::Traffic;
use crate::metrics::Tally;
use crate::schema::{Schema, SchemaError};

/// All tools of one configuration. Never changes: a reload makes a new one.
#[derive(Default)]
pub struct Catalog {
    entries: Vec<Arc<Entry>>,
    by_name: HashMap<String, usize>,
    /// So many of the first are built in.
    builtins: usize,
    /// Built-in tools that are not served, by all their names.
    unserved: HashMap<String, Unserved>,
}

/// One tool, ready to be called.
pub struct Entry {
    /// What it is.
    pub tool: Tool,
    pub(crate) input: Schema,
    pub(crate) output: Option<Schema>,
    pub(crate) traffic: Traffic,
    /// Where its calls are counted, once there was one.
    pub(crate) tally: OnceLock<Arc<Tally>>,
}

impl Entry {
    /// Whether a call with this input could be made.
    pub fn check_input(&self, input: &serde_json::Value) -> Result<(), callgate_call::Fault> {
        self.input.check_input(input)
    }

    /// A tool that stands in no catalog.
    pub fn new(tool: Tool) -> Result<Self, CatalogError> {
        let compile = |which: &'static str, schema| {
            Schema::compile(schema).map_err(|source| CatalogError::Schema {
                tool: tool.name.clone(),
                which,
                source,
            })
        };
        let input = compile("input_schema", &tool.input_schema)?;
        let output = match &tool.output_schema {
            Some(schema) => Some(compile("output_schema", schema)?),
            None => None,
        };
        Ok(Self::with(tool, input, output))
    }

    fn with(tool: Tool, input: Schema, output: Option<Schema>) -> Self {
        let traffic = Traffic::new(&tool);
        Self {
            tool,
            input,
            output,
            traffic,
            tally: OnceLock::new(),
        }
    }
}

/// Makes tools of code that is not registered, where the owner allows that.
pub trait Entries: Send + Sync {
    /// The tool that runs `entry` (`module:function`); `None` if that is not allowed.
    fn find(&self, entry: &str) -> Option<Result<Arc<Entry>, Fault>>;

    /// Ends what outlives calls.
    fn stop(&self);
}

/// Why a tool can not join a catalog.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Two tools of one name, AID or alias.
    #[error("`{name}` names both `{first}` and `{second}`")]
    Taken {
        /// The name both claim.
        name: String,
        /// Who had it.
        first: String,
        /// Who wants it.
        second: String,
    },
    /// A schema that does not compile.
    #[error("tool `{tool}`: {which}: {source}")]
    Schema {
        /// The tool.
        tool: String,
        /// `input_schema` or `output_schema`.
        which: &'static str,
        /// What is wrong with it.
        source: SchemaError,
    },
}

impl Catalog {
    /// Adds a tool under all its names. A built-in tool of the same name gives way.
    pub fn add(&mut self, tool: Tool) -> Result<(), CatalogError> {
        let entry = Entry::new(tool)?;
        let known = self.by_name.get(&entry.tool.name);
        if let Some(&index) = known.filter(|index| **index < self.builtins)
            && self.entries[index].tool.name == entry.tool.name
        {
            self.remove_builtin(index);
        }
        self.enter(entry)
    }

    fn remove_builtin(&mut self, index: usize) {
        self.entries.remove(index);
        self.builtins -= 1;
        self.by_name.retain(|_, at| *at != index);
        for at in self.by_name.values_mut().filter(|at| **at > index) {
            *at -= 1;
        }
    }

    /// Adds a built-in tool, whose schemas are compiled when they are first needed.
    pub fn add_builtin(&mut self, tool: Tool) -> Result<(), CatalogError> {
        let input = Schema::builtin(&tool.input_schema);
        let output = tool.output_schema.as_ref().map(Schema::builtin);
        self.enter(Entry::with(tool, input, output))?;
        self.builtins += 1;
        Ok(())
    }

    /// Adds a tool of an MCP server. Its input schema is compiled when it is first needed and never
    /// refused (U-5); its outputs are the server's affair.
    pub fn add_foreign(&mut self, tool: Tool) -> Result<(), CatalogError> {
        let input = Schema::foreign(&tool.input_schema);
        self.enter(Entry::with(tool, input, None))
    }

    /// Returns whether a tool of these names could be added.
    #[must_use]
    pub fn is_free(&self, name: &str) -> bool {
        [name.to_owned(), aid_of_name(name), host_name(name)]
            .iter()
            .all(|name| !self.by_name.contains_key(name))
    }

    fn enter(&mut self, entry: Entry) -> Result<(), CatalogError> {
        let tool = &entry.tool;
        let index = self.entries.len();
        let host_name = host_name(&tool.name);
        let mut names: Vec<&String> = [&tool.name, &tool.aid, &host_name]
            .into_iter()
            .chain(&tool.aliases)
            .collect();
        names.sort_unstable();
        names.dedup();
        for name in &names {
            if let Some(&first) = self.by_name.get(*name) {
                return Err(CatalogError::Taken {
                    name: (*name).clone(),
                    first: self.entries[first].tool.name.clone(),
                    second: tool.name.clone(),
                });
            }
        }
        for name in names {
            self.by_name.insert(name.clone(), index);
        }
        self.entries.push(Arc::new(entry));
        Ok(())
    }

    /// The tool a caller means.
    pub fn find(&self, name: &str) -> Result<&Arc<Entry>, Fault> {
        match self.by_name.get(name) {
            Some(&index) => Ok(&self.entries[index]),
            None => Err(Fault::UnknownTool {
                tool: name.to_owned(),
                why: self.unserved.get(name).copied(),
            }),
        }
    }

    /// Notes why a built-in tool of this name is not served.
    pub fn leave_out(&mut self, name: &str, why: Unserved) {
        for name in [name.to_owned(), aid_of_name(name), host_name(name)] {
            self.unserved.insert(name, why);
        }
    }

    /// The patterns that fit none of the tools.
    pub fn idle_patterns<'a>(&self, patterns: &'a [String]) -> Vec<&'a str> {
        let fits = |pattern: &&String| {
            let pattern = std::slice::from_ref(*pattern);
            self.tools().any(|tool| {
                fits_any(pattern, &tool.rule_names()) || names_tool(pattern, &tool.name, &tool.aid)
            })
        };
        let idle = patterns.iter().filter(|pattern| !fits(pattern));
        idle.map(String::as_str).collect()
    }

    /// All entries, in the order they were added.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter()
    }

    /// All tools, in the order they were added.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.entries.iter().map(|entry| &entry.tool)
    }

    /// Ends what outlives calls, when this catalog is no longer used.
    pub fn stop(&self) {
        for tool in self.tools() {
            tool.runner.stop();
        }
    }
}
