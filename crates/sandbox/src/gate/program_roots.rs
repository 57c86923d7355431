//! What a program needs to read to run, beyond the system's own folders: itself, its
//! interpreter, and the libraries that stand beside them.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::gate::compile::real;

/// What is looked at of a script's first line. The kernel looks at no more.
const FIRST_LINE_BYTES_MAX: u64 = 256;

/// Bytes of a virtual environment's description.
const VENV_BYTES_MAX: u64 = 64 * 1024;

/// Where libraries stand beside a `bin` folder. Not the folder above as a whole: that may be
/// somebody's home.
const BESIDE: [&str; 4] = ["lib", "lib64", "libexec", "pyvenv.cfg"];

/// What a version manager's wrapper reads beside its own folder. Not the folder above as a whole:
/// `~/shims` is in somebody's home too.
const MANAGED: [&str; 12] = [
    "shims", "bin", "lib", "libexec", "versions", "installs", "plugins", "pyenv.d", "rbenv.d",
    "nodenv.d", "goenv.d", "version",
];

/// The names by which `program` and its interpreter are found, each in its real folder.
pub(crate) fn names_of(program: &Path) -> Vec<PathBuf> {
    let named = |path: &Path| match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => real(folder).join(name),
        _ => path.to_owned(),
    };
    let interpreter = interpreter_of(program);
    let all = std::iter::once(program).chain(interpreter.as_deref());
    all.map(named).collect()
}

/// The paths that running `program` needs.
pub(crate) fn of_program(program: &Path) -> Vec<PathBuf> {
    let mut paths = around(program);
    if let Some(interpreter) = interpreter_of(program) {
        paths.extend(around(&interpreter));
    }
    paths
}

/// A program by its name and by its real one, with what stands beside both.
fn around(program: &Path) -> Vec<PathBuf> {
    let real = program.canonicalize().unwrap_or_else(|_| program.into());
    let mut paths = vec![real.clone()];
    if let Some(manager) = manager_of(&real) {
        paths.extend(there(manager, &MANAGED));
    }
    for name in [program, &real] {
        if let Some(prefix) = prefix_of(name) {
            paths.extend(there(prefix, &BESIDE));
            if let Some(home) = home_of_venv(prefix) {
                // The interpreter that the environment was made from.
                paths.extend(there(home.parent().unwrap_or(&home), &BESIDE));
            }
        }
    }
    paths
}

/// The folder of the version manager whose wrapper this is: it looks there for the real one. A
/// manager is known by its versions.
fn manager_of(program: &Path) -> Option<&Path> {
    let folder = program.parent()?;
    let manager = (folder.file_name()? == "shims").then(|| folder.parent())??;
    let has = |name: &str| manager.join(name).is_dir();
    (has("versions") || has("installs")).then_some(manager)
}

fn prefix_of(program: &Path) -> Option<&Path> {
    let folder = program.parent()?;
    if folder.file_name()? == "bin" {
        folder.parent()
    } else {
        None
    }
}

fn there(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let paths = names.iter().map(|name| folder.join(name));
    paths.filter(|path| path.exists()).collect()
}

/// `home = …` of a Python environment.
pub(crate) fn home_of_venv(prefix: &Path) -> Option<PathBuf> {
    let mut text = String::new();
    fs::File::open(prefix.join("pyvenv.cfg"))
        .ok()?
        .take(VENV_BYTES_MAX)
        // bound: `VENV_BYTES_MAX`
        .read_to_string(&mut text)
        .ok()?;
    let home = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| value.trim())
    })?;
    let home = Path::new(home);
    (home.is_absolute() && home.file_name()? == "bin").then(|| home.to_owned())
}

/// The program that the first line of a script names.
pub(crate) fn interpreter_of(script: &Path) -> Option<PathBuf> {
    let line = first_line(script)?;
    let word = line.split(u8::is_ascii_whitespace).next()?;
    let path = Path::new(OsStr::from_bytes(word));
    path.is_absolute().then(|| path.to_owned())
}

/// The name that the first line of a script leaves to `env` to look for: `#!/usr/bin/env node`.
pub(crate) fn env_program_of(script: &Path) -> Option<String> {
    let line = first_line(script)?;
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let is_env = Path::new(OsStr::from_bytes(words.next()?)).ends_with("env");
    let name = words.find(|word| *word != b"-S")?;
    is_env.then(|| str::from_utf8(name).ok().map(str::to_owned))?
}

/// What stands behind `#!`.
fn first_line(script: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    fs::File::open(script)
        .ok()?
        .take(FIRST_LINE_BYTES_MAX)
        // bound: `FIRST_LINE_BYTES_MAX`
        .read_to_end(&mut head)
        .ok()?;
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    Some(line.trim_ascii().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of wrappers brings along what its manager is made of, never the folder above.
    #[test]
    fn a_manager_brings_along_named_folders() {
        let home = std::env::temp_dir().join(format!("callgate-code-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        for folder in [
            "shims",
            "manager/shims",
            "manager/versions",
            "manager/private",
        ] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        for shim in ["shims/tool", "manager/shims/tool"] {
            fs::write(home.join(shim), "#!/bin/sh\n").unwrap();
        }
        let home = home.canonicalize().unwrap();
        let reaches = |shim: &str, what: &str| {
            let paths = of_program(&home.join(shim));
            paths.iter().any(|path| home.join(what).starts_with(path))
        };
        for (shim, what, wanted) in [
            ("shims/tool", "shims/tool", true),
            ("shims/tool", "secret", false),
            ("shims/tool", "manager/versions", false),
            ("manager/shims/tool", "manager/versions", true),
            ("manager/shims/tool", "manager/shims/other", true),
            ("manager/shims/tool", "manager/private", false),
            ("manager/shims/tool", "manager/credentials", false),
        ] {
            assert_eq!(reaches(shim, what), wanted, "{shim}: {what}");
        }
        fs::remove_dir_all(&home).unwrap();
    }
}
