//! A pack as a folder: read once, whole, within bounds. Whether it counts is `verdict.rs`; what
//! its tools become is `project.rs`.

mod files;
mod owner;
mod seal;
mod verdict;

use std::collections::BTreeMap;
use std::path::Path;

use callgate_wires::tool_protocol::{
    Binding, Capabilities, Kind, LineError, PackManifest, Risk, RunnerWord, is_entry,
    read_bindings, read_capabilities, read_pack, slug,
};

pub use files::{Change, FilesError, PackFiles};
pub use owner::{Levels, Owner, OwnerError, OwnerFile, Policy, PolicyError, read_policy};
pub use seal::{KeyError, PublicKey, SEAL_FILE, Seal};
pub use verdict::{Refusal, Standing, judge, standing};
use verdict::{changed_words, changes_since_signed};

/// The folder of installed packs in a workspace.
pub const INSTALLED: &str = ".namel3ss/packs";
/// The folder of packs that are part of a workspace.
pub const LOCAL: &str = "packs/capability";
/// Most packs of one folder.
pub const PACKS_MAX: usize = 64;

/// A pack, from one moment.
#[derive(Debug)]
pub struct Pack {
    /// `pack.yaml`.
    pub manifest: PackManifest,
    /// What its tools are bound to, the manifest's defaults filled in.
    pub bindings: BTreeMap<String, Binding>,
    /// `capabilities.yaml`.
    capabilities: BTreeMap<String, Capabilities>,
    /// All of it.
    pub files: PackFiles,
}

/// Why a folder is not a pack. Texts are for people.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// Its files can not be read, or are none a pack may have.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A file it must have.
    #[error("no {file}: {what_to_do}")]
    Missing {
        /// Name of the file in the pack.
        file: &'static str,
        /// The next step for the person.
        what_to_do: &'static str,
    },
    /// A file with a wrong line.
    #[error("{file}: {source}")]
    Line {
        /// Name of the file in the pack.
        file: &'static str,
        /// Where in the file, and why.
        source: LineError,
    },
    /// It was signed, and is something else now.
    #[error("{}: install it anew", changed_words(.0))]
    Changed(Vec<Change>),
    /// Files that do not fit each other.
    #[error("{file}: {reason}")]
    Wrong {
        /// Name of the file in the pack.
        file: &'static str,
        /// Why.
        reason: String,
    },
}

impl Pack {
    /// Reads the pack in a folder.
    pub fn read(folder: &Path) -> Result<Self, PackError> {
        let files = PackFiles::read(folder)?;
        match parts(&files) {
            Ok((manifest, bindings, capabilities)) => Ok(Self {
                manifest,
                bindings,
                capabilities,
                files,
            }),
            // That it is no longer what was signed says more than where it does not read.
            Err(error) => Err(match changes_since_signed(&files) {
                Some(changes) => PackError::Changed(changes),
                None => error,
            }),
        }
    }

    /// What a tool needs; nothing if it is not listed. TP-63.
    pub fn capabilities(&self, tool: &str) -> Capabilities {
        self.capabilities.get(tool).cloned().unwrap_or_default()
    }

    /// The most harm any of its tools can do. A container is as free as its image.
    pub fn risk(&self) -> Risk {
        let of_tool = |(name, binding): (&String, &Binding)| match binding.runner {
            Some(RunnerWord::Container) => Risk::High,
            _ => self.capabilities(name).risk(),
        };
        self.bindings.iter().map(of_tool).max().unwrap_or_default()
    }
}

/// Why a tool of a pack cannot be one.
#[derive(Debug, thiserror::Error)]
enum PackToolError {
    /// A tool without a binding.
    #[error("no binding for `{0}`, which pack.yaml lists")]
    Unbound(String),
    /// A binding without a tool.
    #[error("`{0}` is not among the tools of pack.yaml")]
    Unlisted(String),
    /// Names that become one where blanks cannot be written.
    #[error("two tools whose names both become `{0}`")]
    SameName(String),
    /// An entry that is no function.
    #[error("entry `{entry}` of `{tool}` is not module:function")]
    Entry {
        /// As written.
        entry: String,
        /// The tool.
        tool: String,
    },
    /// A container of nothing.
    #[error("`{0}` is a container without an image: say `image`, or container.image in pack.yaml")]
    NoImage(String),
    /// A module that is not there.
    #[error("no {file} for the entry of `{tool}`")]
    NoFile {
        /// The usual name of the module's file.
        file: String,
        /// The tool.
        tool: String,
    },
}

type Parts = (
    PackManifest,
    BTreeMap<String, Binding>,
    BTreeMap<String, Capabilities>,
);

fn parts(files: &PackFiles) -> Result<Parts, PackError> {
    let missing = |file, what_to_do| PackError::Missing { file, what_to_do };
    let manifest = part(files, "pack.yaml", read_pack)?
        .ok_or_else(|| missing("pack.yaml", "`callgate pack init` makes one"))?;
    let listed = part(files, "tools.yaml", read_bindings)?;
    let file = match listed.is_some() {
        true => "tools.yaml",
        false => "pack.yaml",
    };
    let mut bindings = listed
        .or_else(|| manifest.entrypoints.clone())
        .ok_or_else(|| missing("tools.yaml", "add it, or `entrypoints` in pack.yaml"))?;
    let wrong = |error: PackToolError| PackError::Wrong {
        file,
        reason: error.to_string(),
    };
    for (name, binding) in &mut bindings {
        fill_in(binding, &manifest);
        let checked = check_tool(name, binding, &manifest, files);
        checked.map_err(wrong)?;
    }
    check_names(&manifest, &bindings).map_err(wrong)?;
    let capabilities = part(files, "capabilities.yaml", read_capabilities)?.unwrap_or_default();
    let stranger = capabilities
        .keys()
        .find(|tool| !bindings.contains_key(*tool));
    match stranger {
        None => Ok((manifest, bindings, capabilities)),
        Some(tool) => Err(PackError::Wrong {
            file: "capabilities.yaml",
            reason: format!("`{tool}` is no tool of this pack"),
        }),
    }
}

fn check_names(
    manifest: &PackManifest,
    bindings: &BTreeMap<String, Binding>,
) -> Result<(), PackToolError> {
    let unbound = manifest
        .tools
        .iter()
        .find(|tool| !bindings.contains_key(*tool));
    if let Some(tool) = unbound {
        return Err(PackToolError::Unbound(tool.clone()));
    }
    let mut slugs: Vec<String> = bindings.keys().map(|name| slug(name)).collect();
    slugs.sort_unstable();
    match slugs.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(twice) => Err(PackToolError::SameName(twice[0].clone())),
    }
}

fn part<T>(
    files: &PackFiles,
    file: &'static str,
    read: impl Fn(&str) -> Result<T, LineError>,
) -> Result<Option<T>, PackError> {
    let Some(bytes) = files.get(file) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes).map_err(|_| PackError::Wrong {
        file,
        reason: "not UTF-8".to_owned(),
    })?;
    read(text)
        .map(Some)
        .map_err(|source| PackError::Line { file, source })
}

/// What the manifest says for tools that do not say it themselves. TP-62.
fn fill_in(binding: &mut Binding, manifest: &PackManifest) {
    binding.runner = binding.runner.or(manifest.runner);
    match binding.runner {
        Some(RunnerWord::Service) if binding.url.is_none() => {
            binding.url.clone_from(&manifest.service_url);
        }
        Some(RunnerWord::Container) if binding.image.is_none() => {
            binding.image.clone_from(&manifest.container_image);
        }
        _ => {}
    }
}

fn check_tool(
    name: &str,
    binding: &Binding,
    manifest: &PackManifest,
    files: &PackFiles,
) -> Result<(), PackToolError> {
    if !manifest.tools.iter().any(|tool| tool == name) {
        return Err(PackToolError::Unlisted(name.to_owned()));
    }
    if !is_entry(&binding.entry) {
        return Err(PackToolError::Entry {
            entry: binding.entry.clone(),
            tool: name.to_owned(),
        });
    }
    match binding.runner {
        // The owner may name one for all services, so it may be missing here.
        Some(RunnerWord::Service) => Ok(()),
        Some(RunnerWord::Container) if binding.image.is_none() => {
            Err(PackToolError::NoImage(name.to_owned()))
        }
        Some(RunnerWord::Container) => Ok(()),
        Some(RunnerWord::Local | RunnerWord::Node) | None => {
            let path = module_path(&binding.entry);
            let (ends, usual) = match is_node(binding) {
                true => (&NODE_ENDS[..], NODE_ENDS[0]),
                false => (&PYTHON_ENDS[..], PYTHON_ENDS[0]),
            };
            match code_file(&path, ends, |file| files.get(file).is_some()) {
                Some(_) => Ok(()),
                None => Err(PackToolError::NoFile {
                    file: format!("{path}{usual}"),
                    tool: name.to_owned(),
                }),
            }
        }
    }
}

/// What a Node module's file may end in.
pub const NODE_ENDS: [&str; 3] = [".mjs", ".js", ".cjs"];

const PYTHON_ENDS: [&str; 2] = [".py", "/__init__.py"];

/// The folders of a pack in which its modules may be.
pub const CODE_FOLDERS: [&str; 3] = ["", "src/", "tools/"];

/// True if Node runs it.
pub fn is_node(binding: &Binding) -> bool {
    match binding.runner {
        Some(RunnerWord::Node) => true,
        Some(RunnerWord::Local) | None => binding.kind == Kind::Node,
        Some(RunnerWord::Service | RunnerWord::Container) => false,
    }
}

/// The file of a pack that a module is in.
pub fn code_file(module: &str, ends: &[&str], has: impl Fn(&str) -> bool) -> Option<String> {
    let name = |folder, end| format!("{folder}{module}{end}");
    let mut names = CODE_FOLDERS
        .iter()
        .flat_map(|folder| ends.iter().map(move |end| name(folder, end)));
    names.find(|file| has(file))
}

/// `tools.greet:run` as `tools/greet`.
pub fn module_path(entry: &str) -> String {
    let module = entry.split(':').next().unwrap_or_default();
    module.replace('.', "/")
}
