//! The program of an installed Python package.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use callgate_call::bounded;

use crate::error::InstallError;
use crate::folder::read_text;
use crate::launcher::PackageProgram;
use crate::pypi::Venv;
use crate::record::EntryWord;
use crate::request::PackageRequest;
use crate::spec::normal_pypi_name;

/// Bytes of a script that is looked at; a larger file is a program of its own.
const SCRIPT_BYTES_MAX: u64 = 64 * 1024;

/// Finds the program of an installation, and returns the command that starts it.
pub(crate) fn program(
    venv: &Venv,
    packages: &Path,
    request: &PackageRequest,
) -> Result<Vec<EntryWord>, InstallError> {
    let python = EntryWord::inside(Venv::inside("bin/python"));
    let wanted = match &request.program {
        PackageProgram::Interpreter => return Ok(vec![python]),
        PackageProgram::Module(module) => {
            return Ok(vec![
                python,
                EntryWord::outside("-m"),
                EntryWord::outside(module),
            ]);
        }
        PackageProgram::Script(name) => Some(name.as_str()),
        PackageProgram::Default => None,
    };
    let package = &request.spec.name;
    let known = scripts_of(packages, package)?;
    let is_there = |name: &str| !name.contains('/') && venv.programs().join(name).is_file();
    let found = match wanted {
        Some(name) => Some(name.to_owned()).filter(|name| is_there(name)),
        // As `uvx`: the script with the package's name, else the only one.
        None if known.is_empty() => {
            return Err(InstallError::NoProgram {
                package: package.clone(),
            });
        }
        None => known
            .iter()
            .find(|name| normal_pypi_name(name) == *package)
            .or_else(|| known.first().filter(|_| known.len() == 1))
            .cloned(),
    };
    let Some(name) = found else {
        return Err(InstallError::OtherPrograms {
            package: package.clone(),
            wanted: wanted.unwrap_or(package).to_owned(),
            known: known.into_iter().collect(),
        });
    };
    let path = venv.programs().join(&name);
    let script = EntryWord::inside(Venv::inside("bin").join(&name));
    let text = bounded::read_path_text(&path, SCRIPT_BYTES_MAX).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let is_python = line.starts_with("#!") && line.contains("python");
    // pip writes a shell's line where the path of the interpreter is long or has a space.
    let is_wrapped = line == "#!/bin/sh" && text.contains("'''exec'");
    if is_python || is_wrapped {
        return Ok(vec![python, script]);
    }
    let mode = fs::metadata(&path).map_or(0, |found| found.permissions().mode());
    match mode & 0o111 {
        0 => Ok(vec![python, script]),
        _ => Ok(vec![script]),
    }
}

/// The scripts of a package, by what its metadata says.
fn scripts_of(packages: &Path, package: &str) -> Result<BTreeSet<String>, InstallError> {
    let entries = fs::read_dir(packages).map_err(InstallError::file("read", packages))?;
    let metadata = entries.flatten().find(|entry| {
        let name = entry.file_name();
        name.to_str()
            .and_then(|name| name.strip_suffix(".dist-info"))
            .and_then(|name| name.split_once('-'))
            .is_some_and(|(name, _)| normal_pypi_name(name) == package)
    });
    let Some(metadata) = metadata else {
        return Ok(BTreeSet::new());
    };
    let folder = metadata.path();
    let mut scripts = BTreeSet::new();
    let entry_points = folder.join("entry_points.txt");
    if entry_points.is_file() {
        scripts.extend(console_scripts(&read_text(&entry_points)?));
    }
    // Scripts and programs that a wheel brings along as they are.
    let record = folder.join("RECORD");
    if record.is_file() {
        for line in read_text(&record)?.lines() {
            let path = line.split(',').next().unwrap_or_default();
            if let Some((folders, name)) = path.rsplit_once("/bin/")
                && folders.split('/').all(|part| part == "..")
            {
                scripts.insert(name.to_owned());
            }
        }
    }
    Ok(scripts)
}

/// The names in the section `console_scripts`.
fn console_scripts(text: &str) -> Vec<String> {
    let mut is_inside = false;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_inside = line == "[console_scripts]";
        } else if let Some((name, _)) = line.split_once('=').filter(|_| is_inside)
            && !name.starts_with(['#', ';'])
        {
            names.push(name.trim().to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_those_of_the_console() {
        let text = "[console_scripts]\na = m:f\n b-c=m:g [x]\n# d = m\n\n[gui_scripts]\ne = m:h\n";
        assert_eq!(console_scripts(text), ["a", "b-c"]);
        assert!(console_scripts("").is_empty());
    }
}
