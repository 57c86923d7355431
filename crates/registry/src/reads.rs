//! `reads` as configuration writes it: relative to the workspace, absolute, or below the owner's
//! home (`~/data`).

use std::path::{Path, PathBuf};

use callgate_sandbox::real;

use crate::config::Config;
use crate::paths::Paths;

/// A path below the owner's home that means nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HomeError {
    /// The home of another user.
    #[error("{field}: `{name}`: only `~` and `~/…` are known, for the owner's own home")]
    Other {
        /// The field it is written in.
        field: &'static str,
        /// As written.
        name: String,
    },
    /// The owner has no home.
    #[error(
        "{field}: `{name}`: HOME is not an absolute path, so `~` means nothing; name the path \
         itself"
    )]
    Homeless {
        /// The field it is written in.
        field: &'static str,
        /// As written.
        name: String,
    },
}

/// Returns the path below the owner's home that `name` means, if it begins with `~`.
///
/// A folder of the workspace that is really called `~` is `./~`.
pub fn below_home(
    field: &'static str,
    name: &str,
    home: Option<&Path>,
) -> Option<Result<PathBuf, HomeError>> {
    let rest = name.strip_prefix('~')?;
    if !rest.is_empty() && !rest.starts_with('/') {
        let name = name.to_owned();
        return Some(Err(HomeError::Other { field, name }));
    }
    let Some(home) = home else {
        let name = name.to_owned();
        return Some(Err(HomeError::Homeless { field, name }));
    };
    let rest = rest.trim_start_matches('/');
    Some(Ok(match rest {
        "" => real(home),
        rest => real(&home.join(rest)),
    }))
}

/// Returns a warning for each path in `reads` that is not there: nothing is made readable by it.
pub fn missing_reads(paths: &Paths, config: &Config) -> Vec<String> {
    let tools = config.tools.iter();
    let tools = tools.map(|tool| (format!("tool `{}`", tool.name), &tool.reads));
    let others = [
        ("[exec]".to_owned(), &config.exec.reads),
        ("[pilot]".to_owned(), &config.pilot.reads),
    ];
    let mut missing = Vec::new();
    for (whose, reads) in tools.chain(others) {
        for name in reads {
            let path = match below_home("reads", name, paths.home.as_deref()) {
                Some(Ok(path)) => path,
                // It does not load, and says so there.
                Some(Err(_)) => continue,
                None => paths.workspace.join(name),
            };
            if !path.exists() {
                let shown = path.display();
                missing.push(format!(
                    "{whose}: reads: `{name}` is not there ({shown}), so nothing can be read by it"
                ));
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tildes() {
        let home = Path::new("/nowhere/ada");
        let read = |name| below_home("reads", name, Some(home));
        assert_eq!(read("data"), None);
        assert_eq!(read("./~/x"), None);
        assert_eq!(read("~"), Some(Ok(home.into())));
        assert_eq!(read("~/x/y"), Some(Ok("/nowhere/ada/x/y".into())));
        assert!(read("~root/x").unwrap().is_err());
        let without = below_home("reads", "~/x", None).unwrap();
        assert!(without.unwrap_err().to_string().contains("HOME"));
    }
}
