//! From a settings file to the servers it declares.

mod command;
mod entry;
mod extras;
mod secrets;
mod variables;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::clients::{Extra, TableRule};
use crate::file::{self, FileError, FileImage};
use crate::find::{ClientFile, FileScope};
use crate::model::{EntryPlace, FoundServer, Input, Problem, Scope, Severity};
use crate::node::{Node, Step, Value, pointer};
use crate::syntax::{Document, SyntaxError};

/// Most servers of a settings file.
pub const SERVERS_MAX: usize = 1_000;

/// Error of a settings file that can not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file can not be read.
    #[error("open settings")]
    File(#[from] FileError),
    /// The text is not of its syntax.
    #[error("parse `{}`", path.display())]
    Syntax {
        /// File.
        path: PathBuf,
        /// Error of the text.
        #[source]
        source: SyntaxError,
    },
    /// A file of a project is a link that leaves the project.
    #[error("`{}` leads out of its project", path.display())]
    LeavesProject {
        /// File.
        path: PathBuf,
    },
}

/// Content of a settings file.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Servers, in the order of the file.
    pub servers: Vec<FoundServer>,
    /// Answers that the client asks its user for.
    pub inputs: Vec<Input>,
    /// Remarks about what is no server.
    pub problems: Vec<Problem>,
    pub(crate) document: Document,
    pub(crate) image: FileImage,
    pub(crate) real: PathBuf,
    pub(crate) tables: Vec<FoundTable>,
}

/// Table of servers in a file, whether or not it is there.
#[derive(Debug, Clone)]
pub(crate) struct FoundTable {
    pub path: Vec<Step>,
    pub rule: &'static TableRule,
    pub scope: Scope,
    pub is_there: bool,
}

/// Reads a settings file. The file is opened once, and an edit is made of the same bytes.
pub fn read(file: &ClientFile) -> Result<Settings, ReadError> {
    let real = file::real_path(&file.path)?;
    if let FileScope::Project(folder) = &file.scope {
        let folder = file::real_path(folder)?;
        if !real.starts_with(&folder) {
            return Err(ReadError::LeavesProject {
                path: file.path.clone(),
            });
        }
    }
    let image = file::load(&real)?;
    interpret(file, real, image)
}

/// Makes settings of the content of a file.
pub(crate) fn interpret(
    file: &ClientFile,
    real: PathBuf,
    image: FileImage,
) -> Result<Settings, ReadError> {
    let document =
        Document::parse(file.place.syntax, &image.bytes).map_err(|source| ReadError::Syntax {
            path: file.path.clone(),
            source,
        })?;
    let mut problems = Vec::new();
    if document.is_extended_json() && !reads_comments(file.client) {
        problems.push(Problem {
            pointer: String::new(),
            text: "comments or trailing commas, which this client may not read".to_owned(),
            severity: Severity::Note,
        });
    }
    let tables = find_tables(file, &document.root);
    let mut servers = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        read_table(
            file,
            &document.root,
            table,
            index,
            &mut servers,
            &mut problems,
        );
    }
    let mut settings = Settings {
        servers,
        inputs: Vec::new(),
        problems,
        document,
        image,
        real,
        tables,
    };
    extras::apply(file, &mut settings);
    for server in &mut settings.servers {
        secrets::find_secrets(server, &settings.inputs);
    }
    Ok(settings)
}

impl Settings {
    /// Returns the secrets of the file, to be kept out of what is shown.
    pub(crate) fn secret_texts(&self) -> Vec<String> {
        let places = self.servers.iter().flat_map(|server| &server.secrets);
        let values = places.filter_map(|place| place.value.as_ref());
        let mut texts: Vec<String> = values.map(|value| value.reveal().to_owned()).collect();
        // Entries are shown with their surroundings.
        secrets::secret_texts(&self.document.root, false, &mut texts);
        texts
    }
}

/// Returns whether a client is known to read comments in JSON.
fn reads_comments(client: &str) -> bool {
    [
        "vscode",
        "zed",
        "opencode",
        "gemini-cli",
        "cursor",
        "amp",
        "trae",
        "copilot-cli",
    ]
    .contains(&client)
}

/// Finds the tables of a file. A `*` of a rule stands for each folder in the file.
fn find_tables(file: &ClientFile, root: &Node) -> Vec<FoundTable> {
    let mut tables = Vec::new();
    for rule in file.place.tables {
        let star = rule.path.iter().position(|key| *key == "*");
        let Some(star) = star else {
            let path = steps(rule.path);
            let node = root.at(&path);
            let is_there = node.is_some() && !is_server_named_servers(rule, node);
            let scope = match &file.scope {
                FileScope::User => Scope::User,
                FileScope::Project(folder) => Scope::Project(folder.clone()),
            };
            tables.push(FoundTable {
                path,
                rule,
                scope,
                is_there,
            });
            continue;
        };
        let above = steps(&rule.path[..star]);
        let mut folders: Vec<&str> = Vec::new();
        let members = root.at(&above).map_or(&[][..], Node::members);
        folders.extend(members.iter().map(|member| member.key.as_str()));
        folders.sort_unstable();
        folders.dedup();
        for folder in folders {
            let mut path = above.clone();
            path.push(Step::Key(folder.to_owned()));
            path.extend(steps(&rule.path[star + 1..]));
            if root.at(&path).is_some() {
                tables.push(FoundTable {
                    path,
                    rule,
                    scope: Scope::Local(PathBuf::from(folder)),
                    is_there: true,
                });
            }
        }
    }
    tables
}

/// Returns whether `mcp.servers` is a server of that name, in the older form of a file in which
/// `mcp` itself holds the servers.
fn is_server_named_servers(rule: &TableRule, node: Option<&Node>) -> bool {
    rule.path == ["mcp", "servers"]
        && node.is_some_and(|node| {
            node.get("type")
                .is_some_and(|kind| kind.as_text().is_some())
        })
}

fn steps(keys: &[&str]) -> Vec<Step> {
    keys.iter()
        .map(|key| Step::Key((*key).to_owned()))
        .collect()
}

/// An entry of a table: its name, its value and where it stands, equal names together.
struct Entry<'a> {
    name: String,
    node: &'a Node,
    positions: Vec<usize>,
}

fn read_table(
    file: &ClientFile,
    root: &Node,
    table: &FoundTable,
    index: usize,
    servers: &mut Vec<FoundServer>,
    problems: &mut Vec<Problem>,
) {
    let Some(place) = root.at(&table.path).filter(|_| table.is_there) else {
        return;
    };
    let Some(entries) = entries(table, place) else {
        if !matches!(place.value, Value::Null) {
            problems.push(Problem {
                pointer: pointer(&table.path),
                text: "no table of servers".to_owned(),
                severity: Severity::Error,
            });
        }
        return;
    };
    for entry in entries {
        let mut path = table.path.clone();
        path.push(match table.rule.is_list {
            true => Step::Index(entry.positions.last().copied().unwrap_or_default()),
            false => Step::Key(entry.name.clone()),
        });
        let pointer = pointer(&path);
        if servers.len() == SERVERS_MAX {
            problems.push(Problem {
                pointer,
                text: format!("more than {SERVERS_MAX} servers"),
                severity: Severity::Error,
            });
            return;
        }
        if entry.positions.len() > 1 {
            problems.push(Problem {
                pointer: pointer.clone(),
                text: "several servers of this name; the last one counts".to_owned(),
                severity: Severity::Note,
            });
        }
        // The newer form of a file keeps other settings beside its table of servers.
        if table.path == steps(&["mcp"]) && is_newer_opencode(file, root, &entry.name) {
            continue;
        }
        let context = entry::Context {
            client: file.client,
            dialect: table.rule.dialect,
            scope: &table.scope,
            place: EntryPlace {
                table: index,
                positions: entry.positions,
            },
            pointer,
        };
        match entry::read(context, &entry.name, entry.node) {
            Ok(server) => servers.push(server),
            Err(problem) => problems.push(problem),
        }
    }
}

fn is_newer_opencode(file: &ClientFile, root: &Node, name: &str) -> bool {
    let servers = root.at(&steps(&["mcp", "servers"]));
    let rule = file
        .place
        .tables
        .iter()
        .find(|rule| rule.path == ["mcp", "servers"]);
    let is_newer =
        rule.is_some_and(|rule| servers.is_some() && !is_server_named_servers(rule, servers));
    // Beside the table stand plain settings; an entry with a type is a server all the same.
    let node = root.at(&steps(&["mcp", name]));
    is_newer && node.is_some_and(|node| node.get("type").is_none())
}

/// Returns the entries of a table or a list, or `None` for a value of another kind.
fn entries<'a>(table: &FoundTable, place: &'a Node) -> Option<Vec<Entry<'a>>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    match &place.value {
        Value::Table(members) if !table.rule.is_list => {
            let mut known: HashMap<&str, usize> = HashMap::new();
            for (position, member) in members.iter().enumerate() {
                if let Some(at) = known.get(member.key.as_str()) {
                    entries[*at].positions.push(position);
                    entries[*at].node = &member.node;
                    continue;
                }
                known.insert(&member.key, entries.len());
                entries.push(Entry {
                    name: member.key.clone(),
                    node: &member.node,
                    positions: vec![position],
                });
            }
        }
        Value::List(items) if table.rule.is_list => {
            for (position, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Node::as_text);
                entries.push(Entry {
                    name: name.map_or_else(|| format!("server-{}", position + 1), str::to_owned),
                    node: item,
                    positions: vec![position],
                });
            }
        }
        _ => return None,
    }
    Some(entries)
}

/// Reads another file of a client. One that is missing has no rules.
fn read_companion(path: &Path) -> Result<Option<Node>, ()> {
    let Ok(real) = path.canonicalize() else {
        return Ok(None);
    };
    let image = file::load(&real).map_err(drop)?;
    let document = Document::parse(crate::syntax::Syntax::Json, &image.bytes).map_err(drop)?;
    Ok(Some(document.root))
}

/// Returns whether a place has settings outside of its entries.
fn has_extras(file: &ClientFile) -> bool {
    file.place.extra != Extra::None
}
