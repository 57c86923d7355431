//! Search for settings files, by the table of clients. Contents are not read.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::clients::{CLIENTS, Client, Place, Root};

/// Most entries of a folder that a `*` of a path looks at.
const FOLDER_ENTRIES_MAX: usize = 256;

/// Folders of a user, handed in by the caller.
#[derive(Debug, Clone)]
pub struct Home {
    /// Home folder.
    pub home: PathBuf,
    /// `$XDG_CONFIG_HOME`, or else `~/.config`.
    pub config: PathBuf,
    /// `$CLAUDE_CONFIG_DIR`.
    pub claude_config_dir: Option<PathBuf>,
}

/// Settings file of a client.
#[derive(Debug, Clone)]
pub struct ClientFile {
    /// Id of the client, such as `claude-code`.
    pub client: &'static str,
    /// Name of the client for people.
    pub client_name: &'static str,
    /// Path by which the client opens the file. It may be a link.
    pub path: PathBuf,
    /// Whose file it is.
    pub scope: FileScope,
    pub(crate) place: &'static Place,
    /// Folders that an edit stays in.
    pub(crate) roots: Vec<PathBuf>,
    /// Files of the client with rules about its servers.
    pub(crate) companions: Vec<PathBuf>,
}

/// Whose file a settings file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileScope {
    /// The user's, for all sessions.
    User,
    /// That of a project, whose folder this is. Its content is as trusted as the project.
    Project(PathBuf),
}

/// Id and name of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientName {
    /// Id, such as `claude-code`.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
}

/// Returns all clients that are known, in the order of the list.
pub fn client_names() -> Vec<ClientName> {
    let names = CLIENTS.iter().map(|client| ClientName {
        id: client.id,
        name: client.name,
    });
    names.collect()
}

/// Returns the settings files of a user that exist. Two paths to one file count once.
pub fn find(home: &Home) -> Vec<ClientFile> {
    let bases = |root| match root {
        Root::Home => Some(home.home.clone()),
        Root::Config => Some(home.config.clone()),
        Root::Claude => Some(
            home.claude_config_dir
                .as_ref()
                .unwrap_or(&home.home)
                .clone(),
        ),
        Root::Project => None,
    };
    search(home, &FileScope::User, bases)
}

/// Returns the settings files of a project that exist.
pub fn find_in_project(home: &Home, project: &Path) -> Vec<ClientFile> {
    let bases = |root| (root == Root::Project).then(|| project.to_owned());
    search(home, &FileScope::Project(project.to_owned()), bases)
}

/// Returns a file that stands elsewhere, as a file of a client. Without a client, the name of the
/// file has to be one that a single client uses. `None`: no client has such a file.
pub fn file_at(home: &Home, path: &Path, client: Option<&str>) -> Option<ClientFile> {
    let known = find(home).into_iter().find(|file| file.path == path);
    if let Some(file) = known.filter(|file| client.is_none_or(|client| client == file.client)) {
        return Some(file);
    }
    let name = path.file_name()?.to_str()?;
    let ending = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let places = || {
        let clients = CLIENTS
            .iter()
            .filter(|known| client.is_none_or(|id| id == known.id));
        clients.flat_map(|client| client.places.iter().map(move |place| (client, place)))
    };
    let is_named = |place: &Place| place.path.rsplit('/').next() == Some(name);
    let is_of_syntax = |place: &Place| client.is_some() && ending(place.path) == ending(name);
    let (client, place) = places()
        .find(|(_, place)| is_named(place))
        .or_else(|| places().find(|(_, place)| is_of_syntax(place)))?;
    // `mcp.json` is a name that clients with different entries use.
    if places().any(|(other, place)| is_named(place) && other.id != client.id) {
        return None;
    }
    let mut file = client_file(home, client, place, path.to_owned(), &FileScope::User);
    // The folder was named by the caller, and so may be written.
    file.roots.extend(path.parent().map(Path::to_owned));
    Some(file)
}

fn search(
    home: &Home,
    scope: &FileScope,
    base: impl Fn(Root) -> Option<PathBuf>,
) -> Vec<ClientFile> {
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for client in CLIENTS {
        for place in client.places {
            let Some(base) = base(place.root) else {
                continue;
            };
            for path in expand(&base, place.path) {
                // Follows links: a link to nothing is no file.
                let Ok(metadata) = path.metadata() else {
                    continue;
                };
                if seen.insert((metadata.dev(), metadata.ino())) {
                    files.push(client_file(home, client, place, path, scope));
                }
            }
        }
    }
    files
}

fn client_file(
    home: &Home,
    client: &'static Client,
    place: &'static Place,
    path: PathBuf,
    scope: &FileScope,
) -> ClientFile {
    let roots = match scope {
        FileScope::User => {
            let mut roots = vec![home.home.clone(), home.config.clone()];
            roots.extend(home.claude_config_dir.clone());
            roots
        }
        FileScope::Project(folder) => vec![folder.clone()],
    };
    let companions = match client.id {
        "claude-code" => claude_companions(home, scope),
        _ => Vec::new(),
    };
    ClientFile {
        client: client.id,
        client_name: client.name,
        path,
        scope: scope.clone(),
        place,
        roots,
        companions,
    }
}

/// Returns the files in which Claude Code keeps permissions, and the switches of a project.
fn claude_companions(home: &Home, scope: &FileScope) -> Vec<PathBuf> {
    let settings = match &home.claude_config_dir {
        Some(folder) => folder.join("settings.json"),
        None => home.home.join(".claude/settings.json"),
    };
    let mut files = vec![settings];
    if let FileScope::Project(folder) = scope {
        files.push(folder.join(".claude/settings.json"));
        files.push(folder.join(".claude/settings.local.json"));
        let claude = home.claude_config_dir.as_ref().unwrap_or(&home.home);
        files.push(claude.join(".claude.json"));
    }
    files
}

/// Returns the paths that a path with `*` stands for, sorted.
fn expand(base: &Path, path: &str) -> Vec<PathBuf> {
    let mut found = vec![base.to_owned()];
    for part in path.split('/') {
        found = match part.strip_prefix('*') {
            Some(ending) => found
                .iter()
                .flat_map(|folder| entries(folder, ending))
                .collect(),
            None => found.iter().map(|folder| folder.join(part)).collect(),
        };
    }
    found
}

fn entries(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.path());
    let named = names.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(ending) && !name.starts_with('.')
    });
    // bound: entries of one folder
    let mut found: Vec<PathBuf> = named.take(FOLDER_ENTRIES_MAX).collect();
    found.sort();
    found
}
