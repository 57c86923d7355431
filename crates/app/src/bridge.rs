//! The bridge's files: where they are, and how schema files are written and read. Not durable
//! state: whoever owns the socket makes them anew at its start. What is kept is which tools
//! somebody asked a schema file of their own for.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use callgate_call::{Digest, bounded};
use callgate_registry::paths::BridgePaths;
use callgate_store::{StoreError, keep_newest, write_owner_file};
use callgate_wires::bridge::limits::SCHEMA_FILE_BYTES_MAX;
use callgate_wires::bridge::{SchemaFileError, ToolSchema, read_schemas, write_schemas};
use rustix::fs::OFlags;

/// The schema file of a list.
pub fn schema_of(bridge: &BridgePaths, list: &List) -> PathBuf {
    let stem = bridge.schema.file_stem().unwrap_or_default();
    let name = format!("{}-{}.json", stem.display(), list.id);
    bridge.schema.with_file_name(name)
}

/// Removes the schema files of all lists, and what interrupted writers left of any. Others may
/// have files beside them: only what is named as ours are is ours.
pub fn sweep(bridge: &BridgePaths) {
    let stem = bridge.schema.file_stem().unwrap_or_default();
    let lists = format!("{}-", stem.display());
    let name = bridge.schema.file_name().unwrap_or_default();
    let folder = bridge.schema.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let found = entry.file_name();
        let found = found.to_string_lossy();
        let (whole, writer) = match found.strip_suffix(".new").and_then(|n| n.rsplit_once('.')) {
            Some((whole, writer)) => (whole, Some(writer)),
            None => (&*found, None),
        };
        let list = whole.strip_prefix(&lists);
        let is_list = list
            .and_then(|list| list.strip_suffix(".json"))
            .is_some_and(is_list_id);
        let is_ours = match writer {
            None => is_list,
            Some(writer) => (is_list || whole == name) && is_gone(writer),
        };
        if is_ours {
            let _ = remove(&entry.path());
        }
    }
}

/// True of a process, by its number, that writes no more.
fn is_gone(writer: &str) -> bool {
    let pid = writer.parse::<u32>().ok();
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Letters of a list's name.
const LIST_ID_CHARS: usize = 16;

fn is_list_id(id: &str) -> bool {
    id.len() == LIST_ID_CHARS
        && id
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The longest list: a tool's name has 128 bytes, a schema file a few thousand tools.
const LIST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Lists that are kept; the oldest leave first.
const LISTS_MAX: usize = 64;

/// Tools that one client is to be shown, by the names they were asked for. B-10.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    id: String,
    /// Sorted, each once.
    pub tools: Vec<String>,
}

impl List {
    /// The same tools are the same list, however often they are asked for.
    pub fn new(tools: &[String]) -> Self {
        let mut tools = tools.to_vec();
        tools.sort_unstable();
        tools.dedup();
        let digest = Digest::of_bytes(tools.join("\n").as_bytes()).to_hex();
        let id = digest[..LIST_ID_CHARS].to_owned();
        Self { id, tools }
    }

    /// Keeps it, so that whoever serves the workspace next writes its schema file.
    pub fn keep(&self, state: &Path) -> Result<(), StoreError> {
        let folder = lists(state);
        write_owner_file(&folder.join(&self.id), &self.tools.join("\n"))?;
        keep_newest(&folder, LISTS_MAX);
        Ok(())
    }

    /// All that are kept.
    pub fn all(state: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(lists(state)).into_iter().flatten();
        let texts = entries
            .flatten()
            .filter_map(|entry| bounded::read_path_text(entry.path(), LIST_BYTES_MAX).ok());
        let read = |text: String| Self::new(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        texts.map(read).collect()
    }
}

fn lists(state: &Path) -> PathBuf {
    state.join("lists")
}

/// A list as its schema file has it: by name, each tool once.
pub fn in_order(mut tools: Vec<ToolSchema>) -> Vec<ToolSchema> {
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    tools
}

/// Writes a schema file: 0600 from its first byte, and whole or not at all.
pub fn write_schema_file(path: &Path, tools: &[ToolSchema]) -> io::Result<()> {
    let unfinished = unfinished(path);
    // One that is left over by another of our number may have another mode, or be a link.
    remove(&unfinished)?;
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    let written = file
        .write_all(write_schemas(tools).as_bytes())
        .and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = remove(&unfinished);
    }
    written
}

/// A name for each writer: `bridge-config` may write a list while whoever serves does.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Why a schema file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum RefusedFile {
    /// It can not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A folder, a pipe or the like.
    #[error("it is no regular file")]
    NotAFile,
    /// It may say what another user wants.
    #[error("it belongs to user {owner}, not to you (user {uid})")]
    Foreign {
        /// Whose it is.
        owner: u32,
        /// Who we are.
        uid: u32,
    },
    /// Others may read or write it.
    #[error("its mode is {mode:04o}, and others may not touch it: chmod 600 it")]
    Mode {
        /// Its permissions.
        mode: u32,
    },
    /// Too long.
    #[error("it is longer than {} MiB", SCHEMA_FILE_BYTES_MAX / (1024 * 1024))]
    TooLarge,
    /// Its text is wrong.
    #[error("{0}")]
    Text(#[from] SchemaFileError),
}

/// Reads a schema file that must be `uid`'s alone.
pub fn read_schema_file(path: &Path, uid: u32) -> Result<Vec<ToolSchema>, RefusedFile> {
    // A pipe would be waited for; what was opened is what is judged.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(RefusedFile::NotAFile);
    }
    let owner = meta.uid();
    if owner != uid {
        return Err(RefusedFile::Foreign { owner, uid });
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(RefusedFile::Mode { mode });
    }
    match bounded::read_file(&file, SCHEMA_FILE_BYTES_MAX as u64) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(RefusedFile::TooLarge),
        text => Ok(read_schemas(&text?)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-10: what another writer has begun is its own.
    #[test]
    fn two_writers() {
        let name = format!("callgate-schemas-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let [schema, theirs] = ["s.json", "s.json.1.new"].map(|name| folder.join(name));
        std::fs::write(&theirs, "half").unwrap();
        write_schema_file(&schema, &[]).unwrap();
        let left = std::fs::read_to_string(&theirs).unwrap();
        let count = std::fs::read_dir(&folder).unwrap().count();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((left.as_str(), count), ("half", 2));
    }

    /// B-7: two gates in one folder have bridges of their own.
    #[test]
    fn places() {
        let place = BridgePaths::beside(Path::new("/run/x/gate.sock"));
        assert_eq!(place.socket, Path::new("/run/x/bridge.sock"));
        assert_eq!(place.schema, Path::new("/run/x/bridge-schema.json"));
        let place = BridgePaths::beside(Path::new("/run/x/other.sock"));
        assert_eq!(place.socket, Path::new("/run/x/other.sock.bridge.sock"));
        assert_eq!(
            place.schema,
            Path::new("/run/x/other.sock.bridge-schema.json")
        );
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            List::new(&names)
        };
        let list = named(&["b", "a", "b"]);
        assert_eq!(list, named(&["a", "b"]));
        assert_eq!(
            schema_of(&place, &list),
            PathBuf::from(format!("/run/x/other.sock.bridge-schema-{}.json", list.id))
        );
    }
}
