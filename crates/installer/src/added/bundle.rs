//! Bundles (`.mcpb`, once `.dxt`): an archive with a server, all that it depends on, and a
//! `manifest.json`.
//!
//! Nothing of an archive is trusted: names stay inside, links are refused, and sizes are counted
//! as bytes come and not as the archive says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use callgate_call::bounded;
use serde::Deserialize;
use serde_json::Value;
use zip::ZipArchive;

use super::{AddError, AddedInput, AddedServer, AddedStart, InputKind};
use crate::error::InstallError;
use crate::folder::{Draft, make_folder};
use crate::record::FOLDER_PREFIX;

/// The file that describes the server.
const MANIFEST: &str = "manifest.json";
/// Bytes of a manifest.
const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of an entry's name.
const NAME_BYTES_MAX: usize = 1024;
/// The type bits of a Unix mode, and their value for a link, a file and a folder.
const MODE_TYPE: u32 = 0o170_000;
const MODE_FILE: u32 = 0o100_000;
const MODE_FOLDER: u32 = 0o040_000;

/// Bounds of a bundle.
#[derive(Clone, Copy, Debug)]
pub struct BundleSettings {
    /// Bytes of all files, unpacked.
    pub bytes_max: u64,
    /// Files and folders.
    pub files_max: u64,
}

impl Default for BundleSettings {
    fn default() -> Self {
        Self {
            bytes_max: 2 * 1024 * 1024 * 1024,
            files_max: 200_000,
        }
    }
}

/// A bundle that was looked at.
#[derive(Debug)]
pub struct Bundle {
    /// The server in it.
    pub server: AddedServer,
    /// The BLAKE3 digest of the file, in hex.
    pub digest: String,
    archive: ZipArchive<File>,
    settings: BundleSettings,
}

/// A bundle that was unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpackedBundle {
    /// The folder, `${__dirname}` in templates.
    pub folder: PathBuf,
    /// The BLAKE3 digest of the bundle, in hex.
    pub digest: String,
}

/// Reads a bundle's manifest and checks the names of all its entries. Nothing is unpacked.
///
/// # Errors
///
/// `AddError` if the file is no bundle, if an entry would leave its folder, or if the server is
/// not one for this system.
pub fn read_bundle(path: &Path, settings: BundleSettings) -> Result<Bundle, AddError> {
    let read = |source| AddError::Read {
        path: path.to_owned(),
        source,
    };
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).map_err(read)?;
    if file.metadata().map_err(read)?.len() > settings.bytes_max {
        return Err(settings.too_large());
    }
    io::copy(&mut (&file).take(settings.bytes_max), &mut hasher).map_err(read)?;
    let mut archive = ZipArchive::new(file).map_err(|source| AddError::NotArchive {
        path: path.to_owned(),
        source,
    })?;
    settings.check_names(&mut archive)?;
    let manifest = {
        let entry = archive.by_name(MANIFEST).map_err(|_| AddError::Entry {
            name: MANIFEST.to_owned(),
            problem: "is missing",
        })?;
        bounded::read_all(entry, MANIFEST_BYTES_MAX).map_err(read)?
    };
    Ok(Bundle {
        server: server_of(&manifest)?,
        digest: hasher.finalize().to_hex().to_string(),
        archive,
        settings,
    })
}

impl BundleSettings {
    fn too_large(&self) -> AddError {
        AddError::TooLarge {
            bytes_max: self.bytes_max,
            files_max: self.files_max,
        }
    }

    /// Refuses entries that would leave the folder or are no plain files, and names that two
    /// entries have.
    fn check_names(&self, archive: &mut ZipArchive<File>) -> Result<(), AddError> {
        if archive.len() as u64 > self.files_max {
            return Err(self.too_large());
        }
        let mut names = BTreeSet::new();
        let mut bytes: u64 = 0;
        for index in 0..archive.len() {
            let entry = archive.by_index_raw(index).map_err(entry_error)?;
            let name = entry.name().map_err(entry_error)?.into_owned();
            let refuse = |problem| {
                Err(AddError::Entry {
                    name: name.chars().take(200).collect(),
                    problem,
                })
            };
            if let Some(problem) = problem_of(&name) {
                return refuse(problem);
            }
            let kind = entry.unix_mode().map_or(0, |mode| mode & MODE_TYPE);
            if entry.is_symlink() || ![0, MODE_FILE, MODE_FOLDER].contains(&kind) {
                return refuse("is a link or a device");
            }
            if entry.encrypted() {
                return refuse("is encrypted");
            }
            // What the archive says, to refuse early; what comes is counted again.
            bytes = bytes.saturating_add(entry.size());
            if bytes > self.bytes_max {
                return Err(self.too_large());
            }
            if !names.insert(name.trim_end_matches('/').to_owned()) {
                return refuse("is there twice");
            }
        }
        Ok(())
    }
}

/// Returns why a name is refused.
fn problem_of(name: &str) -> Option<&'static str> {
    let path = name.strip_suffix('/').unwrap_or(name);
    let is_part = |part: &str| !["", ".", ".."].contains(&part);
    if name.len() > NAME_BYTES_MAX {
        Some("has a name that is too long")
    } else if path.contains(['\\', '\0']) || path.contains(':') && !path.contains('/') {
        Some("has a name of another system")
    } else if !path.split('/').all(is_part) {
        Some("would leave its folder")
    } else {
        None
    }
}

fn entry_error(error: zip::result::ZipError) -> AddError {
    AddError::Read {
        path: PathBuf::from("an entry of the bundle"),
        source: error.into(),
    }
}

impl Bundle {
    /// Unpacks the bundle into a folder of `root` that is named by the bundle's digest. Blocks.
    ///
    /// # Errors
    ///
    /// `AddError` if the bundle is larger than it says or past its bounds.
    pub fn unpack(mut self, root: &Path) -> Result<UnpackedBundle, AddError> {
        let draft = Draft::new(root)?;
        let tree = draft.tree();
        let mut left = self.settings.bytes_max;
        for index in 0..self.archive.len() {
            let mut entry = self.archive.by_index(index).map_err(entry_error)?;
            // Checked when the bundle was read.
            let path = tree.join(&*entry.name().map_err(entry_error)?);
            if entry.is_dir() {
                make_folder(&path)?;
                continue;
            }
            make_folder(path.parent().unwrap_or(&tree))?;
            let is_program = entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
            let mode = if is_program { 0o755 } else { 0o644 };
            let failed = InstallError::file("write", &path);
            let mut options = File::options();
            let mut file = match options.write(true).create_new(true).mode(mode).open(&path) {
                Ok(file) => file,
                Err(source) => return Err(failed(source).into()),
            };
            let mut limited = (&mut entry).take(left.saturating_add(1));
            let written = io::copy(&mut limited, &mut file).map_err(failed)?;
            left = left
                .checked_sub(written)
                .ok_or_else(|| self.settings.too_large())?;
        }
        let name = format!("{FOLDER_PREFIX}{}", &self.digest[..32]);
        let folder = draft.place(&name)?;
        Ok(UnpackedBundle {
            folder,
            digest: self.digest,
        })
    }
}

#[derive(Deserialize)]
struct Manifest {
    name: String,
    version: Option<String>,
    description: Option<String>,
    server: Server,
    #[serde(default)]
    user_config: BTreeMap<String, UserInput>,
    #[serde(default)]
    compatibility: Compatibility,
}

#[derive(Default, Deserialize)]
struct Compatibility {
    platforms: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Server {
    #[serde(rename = "type")]
    kind: String,
    mcp_config: Option<McpConfig>,
}

#[derive(Default, Deserialize)]
struct McpConfig {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    platform_overrides: BTreeMap<String, McpConfig>,
}

#[derive(Deserialize)]
struct UserInput {
    #[serde(rename = "type")]
    kind: Option<String>,
    title: Option<String>,
    description: Option<String>,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    sensitive: bool,
    #[serde(default)]
    multiple: bool,
    default: Option<Value>,
}

fn server_of(manifest: &[u8]) -> Result<AddedServer, AddError> {
    let manifest: Manifest = serde_json::from_slice(manifest)?;
    if let Some(platforms) = &manifest.compatibility.platforms
        && !platforms.iter().any(|platform| platform == "linux")
    {
        let known = platforms.join(", ");
        return Err(AddError::unsupported(format!("a server for {known}")));
    }
    if !["node", "python", "binary"].contains(&manifest.server.kind.as_str()) {
        let kind = &manifest.server.kind;
        return Err(AddError::unsupported(format!("a server of type `{kind}`")));
    }
    let mut config = manifest.server.mcp_config.unwrap_or_default();
    let mut env = config.env.take().unwrap_or_default();
    if let Some(own) = config.platform_overrides.remove("linux") {
        config.command = own.command.or(config.command);
        config.args = own.args.or(config.args);
        env.extend(own.env.unwrap_or_default());
    }
    let command = config
        .command
        .ok_or_else(|| AddError::unsupported("no command"))?;
    let mut words = vec![command];
    words.extend(config.args.unwrap_or_default());
    let inputs = manifest.user_config.into_iter();
    Ok(AddedServer {
        name: manifest.name,
        version: manifest.version,
        description: manifest.description,
        start: AddedStart::Command(words),
        env,
        inputs: inputs.map(|(key, input)| input.into_added(key)).collect(),
    })
}

impl UserInput {
    fn into_added(self, key: String) -> AddedInput {
        AddedInput {
            key,
            title: self.title.or(self.description),
            kind: match self.kind.as_deref() {
                Some("number") => InputKind::Number,
                Some("boolean") => InputKind::Boolean,
                Some("directory") => InputKind::Folder,
                Some("file") => InputKind::File,
                _ => InputKind::Text,
            },
            is_required: self.required,
            is_secret: self.sensitive,
            is_multiple: self.multiple,
            default: match self.default {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(values)) => values.iter().map(shown).collect(),
                Some(value) => vec![shown(&value)],
            },
            choices: Vec::new(),
        }
    }
}

/// A value as the text that a program gets.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::TempFolder;
    use serde_json::json;
    use std::io::Write as _;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    fn manifest() -> Value {
        json!({
            "manifest_version": "0.3",
            "name": "one",
            "version": "1.0.0",
            "server": {
                "type": "node",
                "entry_point": "server/index.js",
                "mcp_config": {
                    "command": "node",
                    "args": ["${__dirname}/server/index.js", "${user_config.dirs}"],
                    "env": { "TOKEN": "${user_config.token}", "A": "b" },
                    "platform_overrides": { "linux": { "env": { "A": "c" } } },
                },
            },
            "user_config": {
                "dirs": { "type": "directory", "multiple": true, "default": ["${HOME}"] },
                "token": { "type": "string", "sensitive": true, "required": true },
            },
        })
    }

    fn pack(folder: &TempFolder, manifest: &Value, files: &[(&str, &[u8], u32)]) -> PathBuf {
        let path = folder.join("one.mcpb");
        let mut writer = ZipWriter::new(File::create(&path).unwrap());
        let plain = SimpleFileOptions::default();
        writer.start_file(MANIFEST, plain).unwrap();
        writer.write_all(manifest.to_string().as_bytes()).unwrap();
        for (name, bytes, mode) in files {
            writer
                .start_file(*name, plain.unix_permissions(*mode))
                .unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap();
        path
    }

    #[test]
    fn a_bundle_is_read_and_unpacked() {
        let folder = TempFolder::new();
        let files: [(&str, &[u8], u32); 2] =
            [("server/index.js", b"1", 0o644), ("bin/x", b"2", 0o755)];
        let path = pack(&folder, &manifest(), &files);
        let bundle = read_bundle(&path, BundleSettings::default()).unwrap();
        let AddedServer {
            start, env, inputs, ..
        } = &bundle.server;
        let words = [
            "node",
            "${__dirname}/server/index.js",
            "${user_config.dirs}",
        ];
        assert_eq!(*start, AddedStart::Command(words.map(str::to_owned).into()));
        assert_eq!((env["A"].as_str(), env.len()), ("c", 2));
        assert_eq!(
            (inputs[0].kind, inputs[0].is_multiple),
            (InputKind::Folder, true)
        );
        assert!(inputs[1].is_secret && inputs[1].is_required);
        let unpacked = bundle.unpack(&folder.join("root")).unwrap();
        let read = |name: &str| std::fs::read(unpacked.folder.join(name)).unwrap();
        assert_eq!(
            (read("server/index.js"), read("bin/x")),
            (b"1".into(), b"2".into())
        );
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(unpacked.folder.join("bin/x")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o100, 0o100);
        let name = unpacked.folder.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, format!("pkg-{}", &unpacked.digest[..32]));
    }

    #[test]
    fn hostile_entries_are_refused() {
        for name in [
            "../x",
            "a/../../x",
            "/x",
            "a//x",
            "./x",
            "a\\..\\x",
            "C:x",
            "a/./x",
            "..",
        ] {
            assert!(problem_of(name).is_some(), "{name}");
        }
        assert_eq!(problem_of("a/b.c/"), None);
        let folder = TempFolder::new();
        for name in ["../x", "/x", "a/../../x"] {
            let path = pack(&folder, &manifest(), &[(name, b"1", 0o644)]);
            let refused = read_bundle(&path, BundleSettings::default());
            assert!(matches!(refused, Err(AddError::Entry { .. })), "{name}");
        }
        let path = folder.join("link.mcpb");
        let mut writer = ZipWriter::new(File::create(&path).unwrap());
        let plain = SimpleFileOptions::default();
        writer.add_symlink("x", "/etc", plain).unwrap();
        writer.finish().unwrap();
        let refused = read_bundle(&path, BundleSettings::default());
        assert!(matches!(refused, Err(AddError::Entry { .. })));
        let text = folder.write("text.mcpb", "no archive");
        let refused = read_bundle(&text, BundleSettings::default());
        assert!(matches!(refused, Err(AddError::NotArchive { .. })));
    }

    /// An archive that says less than it has is stopped while it is unpacked.
    #[test]
    fn bundles_are_bounded() {
        let folder = TempFolder::new();
        let zeros = vec![0; 100_000];
        let path = pack(&folder, &manifest(), &[("zeros", &zeros, 0o644)]);
        let length = manifest().to_string().len() as u64;
        let bounds = |bytes_max, files_max| BundleSettings {
            bytes_max,
            files_max,
        };
        for (settings, fits) in [
            (bounds(length + 100_000, 2), true),
            (bounds(length + 99_999, 2), false),
            (bounds(length + 100_000, 1), false),
            (bounds(length + 100_001, 3), true),
        ] {
            let read = read_bundle(&path, settings);
            assert_eq!(read.is_ok(), fits, "{settings:?}");
        }
        // The sizes in the list and before the bytes say 1.
        let mut bytes = std::fs::read(&path).unwrap();
        let size = 100_000_u32.to_le_bytes();
        while let Some(at) = bytes.windows(4).position(|four| four == size) {
            bytes[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
        }
        std::fs::write(&path, bytes).unwrap();
        let bundle = read_bundle(&path, bounds(length + 1, 2));
        let root = folder.join("root");
        let refused = bundle.and_then(|bundle| bundle.unpack(&root));
        assert!(refused.is_err());
        assert_eq!(std::fs::read_dir(&root).map_or(0, Iterator::count), 0);
    }

    #[test]
    fn servers_for_other_systems_are_refused() {
        let folder = TempFolder::new();
        for (pointer, value) in [
            ("/compatibility", json!({ "platforms": ["darwin"] })),
            ("/server", json!({ "type": "uv" })),
            ("/server", json!({ "type": "node" })),
        ] {
            let mut other = manifest();
            other[&pointer[1..]] = value;
            let path = pack(&folder, &other, &[]);
            let refused = read_bundle(&path, BundleSettings::default());
            assert!(
                matches!(refused, Err(AddError::Unsupported { .. })),
                "{other}"
            );
        }
    }
}
