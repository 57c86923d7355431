//! The owner's toolchains, as far as programs of callers may read them: named folders that hold
//! programs, libraries and the bytes of registries, and no settings. Credentials lie beside them
//! (`~/.cargo/credentials.toml`, `~/.npmrc`), so no folder above them is ever opened, whatever
//! `PATH` names. R-42.
//!
//! What is found here is by name, whether or not it is there yet: a toolchain that is installed
//! later can be used at once.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use callgate_sandbox::{Furnishing, real};

use crate::environment::Environment;

/// Folders of a Rust registry that hold nothing but what anybody may fetch.
const REGISTRY: [&str; 3] = ["index", "cache", "src"];

/// What a shim of pyenv reads on its way to the real interpreter.
const PYENV: [&str; 7] = [
    "versions", "shims", "bin", "libexec", "plugins", "pyenv.d", "version",
];

/// What a Go installation is made of.
const GOROOT: [&str; 7] = ["bin", "src", "pkg", "lib", "misc", "go.env", "VERSION"];

/// Where Go looks for modules that are not in the owner's cache.
const GO_PROXY: &str = "https://proxy.golang.org,direct";

/// The toolchains of the owner.
#[derive(Debug, Default)]
pub struct Toolchains {
    folders: Vec<ToolchainFolder>,
    /// What programs find in their home.
    pub furnishings: Vec<Furnishing>,
    /// Variables that programs need beside.
    pub env: Vec<(&'static str, OsString)>,
}

/// A folder, or a file, that programs may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolchainFolder {
    /// The toolchain it is of.
    pub toolchain: &'static str,
    /// As the environment names it.
    pub path: PathBuf,
}

impl Toolchains {
    /// Those of the gate's user, as its environment names them.
    pub fn find(environment: &Environment) -> Self {
        let mut found = Self::default();
        let Some(home) = environment.os("HOME").map(Path::new) else {
            return found;
        };
        if !home.is_absolute() {
            return found;
        }
        let place = |variable: &str, usual: &str| {
            let named = environment.os(variable).map(PathBuf::from);
            let named = named.filter(|path| path.is_absolute());
            named.unwrap_or_else(|| home.join(usual))
        };
        found.rust(
            &place("RUSTUP_HOME", ".rustup"),
            &place("CARGO_HOME", ".cargo"),
        );
        found.python(&place("PYENV_ROOT", ".pyenv"));
        found.add("node", place("NVM_DIR", ".nvm").join("versions"));
        found.go(environment, home);
        let home = real(home);
        // A variable may name anything. What holds the home holds what nobody is to read.
        // And what is the system's can be read anyway.
        found.folders.retain(|folder| {
            let path = real(&folder.path);
            !home.starts_with(&path) && !path.starts_with("/usr")
        });
        found
    }

    /// What programs may read: real paths, each but once.
    pub fn reads(&self) -> Vec<PathBuf> {
        let mut reads: Vec<PathBuf> = self.folders.iter().map(|one| real(&one.path)).collect();
        reads.sort_unstable();
        reads.dedup();
        reads
    }

    /// Those that are there.
    pub fn there(&self) -> impl Iterator<Item = &ToolchainFolder> {
        self.folders.iter().filter(|one| one.path.exists())
    }

    /// Returns whether any of them that is named in `home` leads elsewhere by a link: it is not
    /// found in a view that has no links of that home.
    pub fn are_links_in(&self, home: &Path) -> bool {
        self.there().any(|one| is_link_in(home, &one.path))
    }

    fn add(&mut self, toolchain: &'static str, path: PathBuf) {
        self.folders.push(ToolchainFolder { toolchain, path });
    }

    /// rustup's own files and cargo's are in the program's home: both write there. What they would
    /// fetch and already have is linked.
    fn rust(&mut self, rustup: &Path, cargo: &Path) {
        let toolchains = rustup.join("toolchains");
        self.add("rust", toolchains.clone());
        self.add("rust", cargo.join("bin"));
        self.furnishings.push(Furnishing::Link {
            from: toolchains,
            at: ".rustup/toolchains".into(),
        });
        // Which toolchain is the usual one, and which in some folders; nothing else.
        self.furnishings.push(Furnishing::Copy {
            from: rustup.join("settings.toml"),
            at: ".rustup/settings.toml".into(),
        });
        for name in REGISTRY {
            let from = cargo.join("registry").join(name);
            self.add("rust", from.clone());
            let at = Path::new(".cargo/registry").join(name);
            self.furnishings.push(Furnishing::Shelves { from, at });
        }
    }

    fn python(&mut self, pyenv: &Path) {
        for name in PYENV {
            self.add("python", pyenv.join(name));
        }
        if pyenv.join("versions").is_dir() {
            self.env.push(("PYENV_ROOT", pyenv.into()));
        }
    }

    fn go(&mut self, environment: &Environment, home: &Path) {
        let path = environment.os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(path)
            .map(|folder| folder.join("go"))
            .find_map(|program| program.canonicalize().ok());
        let on_path = on_path
            .as_deref()
            .and_then(Path::parent)
            .and_then(Path::parent);
        let named = environment.os("GOROOT").map(Path::new);
        // By what is in it: a program of this name may stand anywhere.
        let is_root = |root: &&Path| root.is_absolute() && root.join("src/runtime").is_dir();
        for root in named.into_iter().chain(on_path).filter(is_root) {
            for name in GOROOT {
                self.add("go", root.join(name));
            }
        }
        let first = |paths: &OsStr| std::env::split_paths(paths).next();
        let gopath = environment.os("GOPATH").and_then(first);
        let gopath = gopath.unwrap_or_else(|| home.join("go"));
        let modules = environment.os("GOMODCACHE").map(PathBuf::from);
        let modules = modules.unwrap_or_else(|| gopath.join("pkg/mod"));
        if !modules.is_absolute() {
            return;
        }
        self.add("go", modules.clone());
        // Programs have a module cache of their own, and the owner's is the first place that
        // modules come from.
        let downloads = modules.join("cache/download");
        if downloads.is_dir() {
            let proxies = format!("file://{},{GO_PROXY}", in_url(&downloads));
            self.env.push(("GOPROXY", proxies.into()));
        }
    }
}

/// Returns whether a path that is named in `home` leads elsewhere by a link.
pub fn is_link_in(home: &Path, path: &Path) -> bool {
    let inside = path.strip_prefix(home);
    inside.is_ok_and(|inside| real(path) != real(home).join(inside))
}

/// A path as it stands in a URL.
fn in_url(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn found(variables: &[(&str, &str)]) -> Toolchains {
        let variables: BTreeMap<OsString, OsString> = variables
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        Toolchains::find(&Environment::new(variables, PathBuf::from("/"), 0))
    }

    /// Named folders of the home and no other, least of all one that holds the home, whatever
    /// a variable says.
    #[test]
    fn folders_are_named() {
        let home = "/nowhere/me";
        let usual = found(&[
            ("HOME", home),
            ("PATH", "/nowhere/me/bin:/nowhere/me/.cargo/bin"),
        ]);
        let reads = usual.reads();
        for there in [
            ".rustup/toolchains",
            ".cargo/bin",
            ".cargo/registry/index",
            ".cargo/registry/cache",
            ".cargo/registry/src",
            ".pyenv/versions",
            ".nvm/versions",
            "go/pkg/mod",
        ] {
            assert!(reads.contains(&Path::new(home).join(there)), "{there}");
        }
        for secret in [
            "",
            "bin",
            ".cargo",
            ".cargo/config.toml",
            ".cargo/credentials.toml",
            ".cargo/registry",
            ".rustup/settings.toml",
            ".npmrc",
            ".netrc",
            ".gitconfig",
            ".nvm",
            ".pyenv",
            "go",
        ] {
            let secret = Path::new(home).join(secret);
            assert!(
                !reads.iter().any(|read| secret.starts_with(read)),
                "{secret:?}"
            );
        }
        for (variable, value) in [
            ("GOMODCACHE", "/"),
            ("GOMODCACHE", home),
            ("GOMODCACHE", "/nowhere"),
            ("GOPATH", "relative"),
        ] {
            let reads = found(&[("HOME", home), (variable, value)]).reads();
            let holds = |read: &PathBuf| Path::new(home).starts_with(read);
            assert!(!reads.iter().any(holds), "{variable}={value}: {reads:?}");
        }
        assert!(found(&[]).reads().is_empty());
        assert!(found(&[("HOME", "relative")]).reads().is_empty());
    }

    #[test]
    fn paths_in_urls() {
        assert_eq!(in_url(Path::new("/a b/c%/é")), "/a%20b/c%25/%C3%A9");
    }
}
