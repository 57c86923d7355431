//! Which file a program's name means. Done by the gate, so that a name that means nothing
//! costs no process and gets a clear answer.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::{SpawnError, Spec};

/// The file that `spec` runs: as written if it has a slash (from its working folder), else
/// the first executable of that name in its search path.
pub fn resolve(spec: &Spec) -> Result<PathBuf, SpawnError> {
    let Some(name) = spec.argv.first().filter(|name| !name.is_empty()) else {
        return Err(SpawnError::BadSpec {
            program: String::new(),
            reason: "no program is named",
        });
    };
    if name.as_bytes().contains(&b'/') {
        let path = spec.cwd.join(name);
        return match kind(&path) {
            Kind::Program => Ok(path),
            Kind::NotExecutable => Err(SpawnError::NotExecutable {
                program: spec.program(),
                path,
            }),
            Kind::Absent => Err(SpawnError::NotFound {
                program: spec.program(),
            }),
        };
    }
    let path = spec.search.clone();
    search(name, &path.unwrap_or_else(|| search_path(&spec.env)), spec)
}

fn search(name: &OsStr, path: &OsStr, spec: &Spec) -> Result<PathBuf, SpawnError> {
    let mut unusable = None;
    // One without folders has not even the one that an empty name stands for, the working one.
    let folders = path.as_bytes().split(|&byte| byte == b':');
    for folder in folders.filter(|_| !path.is_empty()) {
        let candidate = spec.cwd.join(OsStr::from_bytes(folder)).join(name);
        match kind(&candidate) {
            Kind::Program => return Ok(candidate),
            Kind::NotExecutable => unusable = unusable.or(Some(candidate)),
            Kind::Absent => {}
        }
    }
    Err(match unusable {
        Some(path) => SpawnError::NotExecutable {
            program: spec.program(),
            path,
        },
        None => SpawnError::NotFound {
            program: spec.program(),
        },
    })
}

fn search_path(env: &[(OsString, OsString)]) -> OsString {
    let found = env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.clone());
    found.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

enum Kind {
    Program,
    NotExecutable,
    Absent,
}

fn kind(path: &Path) -> Kind {
    match path.metadata() {
        Ok(file) if file.is_file() && access(path, Access::EXEC_OK).is_ok() => Kind::Program,
        Ok(_) => Kind::NotExecutable,
        Err(_) => Kind::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, path: &str) -> Spec {
        let mut spec = Spec::new(vec![name.into()], "/etc".into());
        spec.env = vec![("PATH".into(), path.into())];
        spec
    }

    #[test]
    fn names_are_searched_and_paths_are_taken() {
        let found = |name, path| resolve(&spec(name, path)).map_err(|error| error.to_string());
        assert_eq!(found("sh", "/nonexistent:/bin"), Ok("/bin/sh".into()));
        assert_eq!(found("/bin/sh", ""), Ok("/bin/sh".into()));
        assert_eq!(found("../bin/sh", ""), Ok("/etc/../bin/sh".into()));
        let refusal = found("passwd", "").unwrap_err();
        assert!(refusal.contains("not found"), "{refusal}");
        assert_eq!(
            found("no-such-program", "/bin").unwrap_err(),
            "start `no-such-program`: not found; is it installed and on PATH?"
        );
        let refusal = found("passwd", "/etc:/nonexistent").unwrap_err();
        assert!(
            refusal.contains("/etc/passwd is not executable"),
            "{refusal}"
        );
        assert!(
            found("", "/bin")
                .unwrap_err()
                .contains("no program is named")
        );
    }
}
