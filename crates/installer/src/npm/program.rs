//! The program of an installed npm package.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::error::InstallError;
use crate::folder::read_text;
use crate::launcher::PackageProgram;
use crate::programs::Node;
use crate::record::EntryWord;
use crate::request::PackageRequest;

/// Bytes of a program's first line that decide what runs it.
const FIRST_LINE_BYTES_MAX: u64 = 256;

#[derive(Debug, Deserialize)]
struct Manifest {
    #[serde(default)]
    bin: Bin,
}

/// The programs of a package: one with the package's name, or several with theirs.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Bin {
    One(String),
    Many(BTreeMap<String, String>),
}

impl Default for Bin {
    fn default() -> Self {
        Self::Many(BTreeMap::new())
    }
}

/// Finds the program of an installation, and returns the command that starts it.
pub(crate) fn program(
    tree: &Path,
    request: &PackageRequest,
    node: &Node,
) -> Result<Vec<EntryWord>, InstallError> {
    let package = &request.spec.name;
    let short = package.rsplit('/').next().unwrap_or(package);
    let own = programs_of(tree, package, short)?;
    let wanted = match &request.program {
        PackageProgram::Script(name) => Some(name.as_str()),
        _ => None,
    };
    let found = match wanted {
        // As `npx`: the only program, or the one with the package's name.
        None if own.is_empty() => {
            return Err(InstallError::NoProgram {
                package: package.clone(),
            });
        }
        None => own
            .get(short)
            .or_else(|| own.values().next().filter(|_| own.len() == 1))
            .cloned(),
        Some(name) => match own.get(name) {
            Some(path) => Some(path.clone()),
            None => of_others(tree, request, name)?,
        },
    };
    let Some(file) = found else {
        return Err(InstallError::OtherPrograms {
            package: package.clone(),
            wanted: wanted.unwrap_or(short).to_owned(),
            known: own.into_keys().collect(),
        });
    };
    command(tree, &file, node)
}

/// The program of that name in a package that is installed beside the first one.
fn of_others(
    tree: &Path,
    request: &PackageRequest,
    name: &str,
) -> Result<Option<PathBuf>, InstallError> {
    for other in &request.with {
        let short = other.name.rsplit('/').next().unwrap_or(&other.name);
        if let Some(path) = programs_of(tree, &other.name, short)?.remove(name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The programs of a package, with their files below `tree`.
fn programs_of(
    tree: &Path,
    package: &str,
    short: &str,
) -> Result<BTreeMap<String, PathBuf>, InstallError> {
    let folder = Path::new("node_modules").join(package);
    let text = read_text(&tree.join(&folder).join("package.json"))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| InstallError::Differs {
            difference: format!("`{package}` has a manifest that can not be read: {error}"),
        })?;
    Ok(match manifest.bin {
        Bin::One(file) => [(short.to_owned(), folder.join(file))].into(),
        Bin::Many(files) => files
            .into_iter()
            .map(|(name, file)| (name, folder.join(file)))
            .collect(),
    })
}

/// The command that starts a file of an installation.
fn command(tree: &Path, file: &Path, node: &Node) -> Result<Vec<EntryWord>, InstallError> {
    let path = tree.join(file);
    let failed = InstallError::file("find", &path);
    let real = path.canonicalize().map_err(failed)?;
    let inside = real.strip_prefix(tree).map_err(|_| InstallError::Differs {
        difference: format!("{} leads out of the installation", file.display()),
    })?;
    let inside = EntryWord::inside(inside);
    let is_named_script = real
        .extension()
        .is_some_and(|ending| ["js", "mjs", "cjs"].iter().any(|one| ending == *one));
    let mut head = Vec::new();
    File::open(&real)
        .and_then(|file| {
            // bound: `FIRST_LINE_BYTES_MAX`
            file.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut head)
        })
        .map_err(InstallError::file("read", &real))?;
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let is_node_script = line.starts_with("#!") && line.contains("node");
    if is_named_script || is_node_script {
        return Ok(vec![EntryWord::outside(&node.node), inside]);
    }
    let mode = std::fs::metadata(&real).map_or(0, |found| found.permissions().mode());
    match mode & 0o111 {
        0 => Ok(vec![EntryWord::outside(&node.node), inside]),
        _ => Ok(vec![inside]),
    }
}
