//! Plans of edits: servers leave a settings file and one entry of ours takes their place. A plan
//! changes nothing; `runs` carries it out.

use std::collections::BTreeSet;
use std::path::PathBuf;

use similar::TextDiff;

use crate::clients::dialects::OwnShape;
use crate::file;
use crate::find::ClientFile;
use crate::model::{Scope, Transport};
use crate::node::{Member, Node, Step, Value, json_text, pointer};
use crate::read::{FoundTable, Settings};
use crate::syntax::{TableChange, TextEditError};

/// Shortest secret that is kept out of a difference wherever it occurs.
const MASKED_CHARS_MIN: usize = 6;
const MASK: &str = "…";

/// Entry that starts this program as an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnEntry {
    /// Name of the entry.
    pub name: String,
    /// Absolute path of the program.
    pub command: String,
    /// Arguments.
    pub args: Vec<String>,
}

/// Servers that a replacement removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All but parts of the client itself and unsupported transports.
    All,
    /// Those with these pointers.
    Only(BTreeSet<String>),
}

/// Change of one file, as planned.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Path without links.
    pub path: PathBuf,
    /// Content that was read.
    pub before: Vec<u8>,
    /// Content that is written.
    pub after: Vec<u8>,
    /// Permission bits, which are kept.
    pub mode: u32,
    /// Owner and group, which are kept.
    pub owner: (u32, u32),
    /// Pointers of the servers that are removed.
    pub removed: Vec<String>,
    pub(crate) client: &'static str,
    pub(crate) place_path: &'static str,
    secrets: Vec<String>,
}

/// Error of an edit that is not planned.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file is a link that leaves the folders of its user or its project.
    #[error("`{}` leads to `{}`, outside of the folders that are edited", path.display(), real.display())]
    LeavesHome {
        /// Path of the client.
        path: PathBuf,
        /// Where it leads.
        real: PathBuf,
    },
    /// The file has other names, which would keep the old content.
    #[error("`{}` has {names} names (hard links)", path.display())]
    HardLinked {
        /// File.
        path: PathBuf,
        /// Number of names.
        names: u64,
    },
    /// Another server has the name of the entry.
    #[error("`{at}` is another server of that name")]
    NameTaken {
        /// JSON pointer.
        at: String,
    },
    /// A pointer of the selection names no server of the file.
    #[error("`{at}` is no server of this file")]
    UnknownServer {
        /// JSON pointer.
        at: String,
    },
    /// The text can not be edited.
    #[error("edit `{}`", path.display())]
    Text {
        /// File.
        path: PathBuf,
        /// Reason.
        #[source]
        source: TextEditError,
    },
}

/// Plans an edit that removes servers and puts one entry in their place: in the usual table if it
/// loses some or no table does, and else in each table of a folder that loses some. Older entries
/// of ours are removed by `Selection::All` too.
pub fn plan_replace(
    file: &ClientFile,
    settings: &Settings,
    selection: &Selection,
    entry: &OwnEntry,
) -> Result<Edit, EditError> {
    check_place(file, settings)?;
    let selected = select(settings, selection)?;
    let removed_of = |index: usize| -> Vec<usize> {
        let servers = settings.servers.iter().zip(&selected);
        let of_table = servers.filter(|(server, is)| **is && server.place.table == index);
        of_table
            .flat_map(|(server, _)| server.place.positions.iter().copied())
            .collect()
    };
    let usual = usual_table(settings);
    let is_usual_alone = !removed_of(usual).is_empty() || !selected.contains(&true);
    let mut changes = Vec::new();
    for (index, table) in settings.tables.iter().enumerate() {
        let mut removed = removed_of(index);
        let is_entered = match is_usual_alone {
            true => index == usual,
            false => !removed.is_empty(),
        };
        if removed.is_empty() && !is_entered {
            continue;
        }
        if is_entered {
            replace_own(settings, index, entry, &mut removed)?;
        }
        removed.sort_unstable();
        let own = || Member::new(&entry.name, own_entry(settings, table, entry));
        changes.push(TableChange {
            path: table.path.clone(),
            is_list: table.rule.is_list,
            removed,
            inserted: is_entered.then(own),
        });
    }
    make(file, settings, &changes, &selected)
}

/// Plans an edit that adds one entry beside the servers, in the usual table. An entry of ours with
/// the same name is replaced.
pub fn plan_beside(
    file: &ClientFile,
    settings: &Settings,
    entry: &OwnEntry,
) -> Result<Edit, EditError> {
    plan_replace(file, settings, &Selection::Only(BTreeSet::new()), entry)
}

fn make(
    file: &ClientFile,
    settings: &Settings,
    changes: &[TableChange],
    selected: &[bool],
) -> Result<Edit, EditError> {
    let after = settings
        .document
        .edit(changes)
        .map_err(|source| EditError::Text {
            path: file.path.clone(),
            source,
        })?;
    let servers = settings.servers.iter().zip(selected);
    Ok(Edit {
        path: settings.real.clone(),
        before: settings.image.bytes.clone(),
        after,
        mode: settings.image.mode,
        owner: (settings.image.uid, settings.image.gid),
        removed: servers
            .filter(|(_, is_selected)| **is_selected)
            .map(|(server, _)| server.pointer.clone())
            .collect(),
        client: file.client,
        place_path: file.place.path,
        secrets: settings.secret_texts(),
    })
}

/// Refuses a file that an edit would take from where others look for it.
fn check_place(file: &ClientFile, settings: &Settings) -> Result<(), EditError> {
    let real = &settings.real;
    let roots = file
        .roots
        .iter()
        .filter_map(|root| file::real_path(root).ok());
    if !roots.into_iter().any(|root| real.starts_with(root)) {
        return Err(EditError::LeavesHome {
            path: file.path.clone(),
            real: real.clone(),
        });
    }
    match settings.image.links {
        0 | 1 => Ok(()),
        names => Err(EditError::HardLinked {
            path: real.clone(),
            names,
        }),
    }
}

fn select(settings: &Settings, selection: &Selection) -> Result<Vec<bool>, EditError> {
    let servers = settings.servers.iter();
    let pointers = match selection {
        Selection::All => {
            let can_move = |transport: &Transport| {
                !matches!(
                    transport,
                    Transport::Native { .. } | Transport::Other { .. }
                )
            };
            return Ok(servers.map(|server| can_move(&server.transport)).collect());
        }
        Selection::Only(pointers) => pointers,
    };
    let known = |at: &String| settings.servers.iter().any(|server| server.pointer == *at);
    match pointers.iter().find(|at| !known(at)) {
        Some(at) => Err(EditError::UnknownServer { at: at.clone() }),
        None => Ok(servers
            .map(|server| pointers.contains(&server.pointer))
            .collect()),
    }
}

/// Returns the table that gets an entry when no table loses a server.
fn usual_table(settings: &Settings) -> usize {
    let tables = settings.tables.iter().enumerate();
    let shared = tables.filter(|(_, table)| !matches!(table.scope, Scope::Local(_)));
    let last_there = shared.clone().rfind(|(_, table)| table.is_there);
    let first = shared.into_iter().next();
    last_there.or(first).map_or(0, |(index, _)| index)
}

/// Adds the positions of an entry of ours that has the name already.
fn replace_own(
    settings: &Settings,
    index: usize,
    entry: &OwnEntry,
    removed: &mut Vec<usize>,
) -> Result<(), EditError> {
    let table = &settings.tables[index];
    let place = settings.document.root.at(&table.path);
    let names: Vec<Option<&str>> = match place.map(|place| &place.value) {
        Some(Value::Table(members)) => members
            .iter()
            .map(|member| Some(member.key.as_str()))
            .collect(),
        Some(Value::List(items)) => items
            .iter()
            .map(|item| item.get("name").and_then(Node::as_text))
            .collect(),
        _ => Vec::new(),
    };
    for (position, name) in names.iter().enumerate() {
        if *name != Some(entry.name.as_str()) || removed.contains(&position) {
            continue;
        }
        let is_ours = settings.servers.iter().any(|server| {
            server.is_ours
                && server.place.table == index
                && server.place.positions.contains(&position)
        });
        if !is_ours {
            let mut path = table.path.clone();
            path.push(Step::Key(entry.name.clone()));
            return Err(EditError::NameTaken { at: pointer(&path) });
        }
        removed.push(position);
    }
    Ok(())
}

/// Returns our entry in the form of a client.
fn own_entry(settings: &Settings, table: &FoundTable, entry: &OwnEntry) -> Node {
    let command = || Node::text(&entry.command);
    let args = || Node::texts(&entry.args);
    let words = || {
        let mut words = vec![entry.command.clone()];
        words.extend(entry.args.iter().cloned());
        Node::texts(&words)
    };
    let stdio = || Node::text("stdio");
    let truth = |truth| Node::new(Value::Bool(truth));
    match table.rule.dialect.own {
        OwnShape::Plain => Node::table([("command", command()), ("args", args())]),
        OwnShape::Typed => {
            Node::table([("type", stdio()), ("command", command()), ("args", args())])
        }
        OwnShape::Zed => {
            let place = settings.document.root.at(&table.path);
            let members = place.map_or(&[][..], Node::members);
            // Versions that write `source` do not read an entry without it.
            match members
                .iter()
                .any(|member| member.node.get("source").is_some())
            {
                true => Node::table([
                    ("source", Node::text("custom")),
                    ("command", command()),
                    ("args", args()),
                ]),
                false => Node::table([("command", command()), ("args", args())]),
            }
        }
        OwnShape::Opencode => Node::table([
            ("type", Node::text("local")),
            ("command", words()),
            ("enabled", truth(true)),
        ]),
        OwnShape::Opencode2 => Node::table([("type", Node::text("local")), ("command", words())]),
        OwnShape::Goose => Node::table([
            ("enabled", truth(true)),
            ("type", stdio()),
            ("name", Node::text(&entry.name)),
            ("description", Node::text("Callgate")),
            ("cmd", command()),
            ("args", args()),
            ("envs", Node::new(Value::Table(Vec::new()))),
            ("env_keys", Node::new(Value::List(Vec::new()))),
            ("timeout", Node::new(Value::Number("300".to_owned()))),
        ]),
        OwnShape::Continue => Node::table([
            ("name", Node::text(&entry.name)),
            ("command", command()),
            ("args", args()),
        ]),
        OwnShape::ContinueOld => Node::table([
            ("name", Node::text(&entry.name)),
            (
                "transport",
                Node::table([("type", stdio()), ("command", command()), ("args", args())]),
            ),
        ]),
        OwnShape::Copilot => Node::table([
            ("type", Node::text("local")),
            ("command", command()),
            ("args", args()),
            ("tools", Node::texts(&["*".to_owned()])),
        ]),
    }
}

impl Edit {
    /// Returns whether the edit leaves the file as it is.
    pub fn is_empty(&self) -> bool {
        self.before == self.after
    }

    /// Returns the change as a unified diff. Secrets that were found are left out of it.
    pub fn diff(&self) -> String {
        let path = self.path.display().to_string();
        unified_diff(&path, &self.before, &self.after, &self.secrets)
    }
}

/// Returns the difference of two contents of a file as a unified diff, with `…` for each of
/// `secrets`.
pub fn unified_diff(path: &str, before: &[u8], after: &[u8], secrets: &[String]) -> String {
    let before = masked(before, secrets);
    let after = masked(after, secrets);
    TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header(path, path)
        .to_string()
}

fn masked(bytes: &[u8], secrets: &[String]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    let mut secrets: Vec<&String> = secrets.iter().collect();
    // A secret may hold a shorter one.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        let quoted = json_text(secret);
        text = text.replace(&quoted, &format!("\"{MASK}\""));
        if secret.chars().count() >= MASKED_CHARS_MIN {
            text = text.replace(secret.as_str(), MASK);
            text = text.replace(&quoted[1..quoted.len() - 1], MASK);
        }
    }
    text
}
