//! Names of packages with a wanted version: `npm:@scope/name@1.2.3`, `pypi:name[extra]==1.2.3`.
//!
//! A specification names a package of a registry and nothing else. Repositories, URLs, files and
//! aliases are refused here, before any package manager reads them.

use std::fmt;
use std::str::FromStr;

/// Longest specification, in bytes.
const SPEC_BYTES_MAX: usize = 512;
/// Longest package name of npm, in bytes.
const NPM_NAME_BYTES_MAX: usize = 214;

/// A package registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Registry {
    /// The registry of npm.
    Npm,
    /// The Python Package Index.
    Pypi,
}

impl Registry {
    /// The prefix in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
        }
    }
}

/// The version that a specification asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WantedVersion {
    /// The newest release.
    Newest,
    /// One version.
    Exact(String),
    /// A range or, for npm, a tag. Text in the notation of the registry: `^1.2`, `next`, `>=1,<2`.
    Range(String),
}

/// A package of a registry with the wanted version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackageSpec {
    /// The registry.
    pub registry: Registry,
    /// The name, for PyPI in its normal form.
    pub name: String,
    /// Optional parts of a Python package, sorted.
    pub extras: Vec<String>,
    /// The wanted version.
    pub version: WantedVersion,
}

/// A place other than a registry that a specification can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignSource {
    /// A version control repository.
    Repository,
    /// An archive at an address.
    Url,
    /// A file or folder.
    File,
    /// Another package under this name.
    Alias,
}

impl fmt::Display for ForeignSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repository => "a repository",
            Self::Url => "an address",
            Self::File => "a file or folder",
            Self::Alias => "an alias",
        })
    }
}

/// The reason why a package specification is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The registry is missing or unknown.
    #[error("`{text}` does not begin with `npm:` or `pypi:`")]
    Registry {
        /// The specification.
        text: String,
    },
    /// The name is not a name of the registry.
    #[error("`{name}` is not a package name of {}", registry.as_str())]
    Name {
        /// The registry.
        registry: Registry,
        /// The name.
        name: String,
    },
    /// The version has characters that no version has.
    #[error("`{version}` is not a version or range of {}", registry.as_str())]
    Version {
        /// The registry.
        registry: Registry,
        /// The version.
        version: String,
    },
    /// The package would not come from a registry.
    #[error("`{text}` names {source_kind}: only packages of a registry have a lock")]
    Foreign {
        /// The specification.
        text: String,
        /// What the specification names.
        source_kind: ForeignSource,
    },
    /// An environment marker decides whether the package counts.
    #[error("`{text}` has an environment marker")]
    Marker {
        /// The specification.
        text: String,
    },
    /// The specification is longer than any name with a version.
    #[error("a package specification has more than {SPEC_BYTES_MAX} bytes")]
    TooLong,
}

impl PackageSpec {
    /// Reads a specification with its registry: `npm:@scope/name@1.2.3`.
    ///
    /// # Errors
    ///
    /// `SpecError` if `text` is no package of a registry.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        match text.trim().split_once(':') {
            Some(("npm", rest)) => Self::parse_npm(rest),
            Some(("pypi", rest)) => Self::parse_pypi(rest),
            _ => {
                check_length(text)?;
                Err(SpecError::Registry {
                    text: text.to_owned(),
                })
            }
        }
    }

    /// Reads a specification as `npx` takes it: `name`, `@scope/name@^1.2`.
    ///
    /// # Errors
    ///
    /// `SpecError` if `text` is no package of the registry.
    pub fn parse_npm(text: &str) -> Result<Self, SpecError> {
        check_length(text)?;
        let text = text.trim();
        let at = text.char_indices().skip(1).find(|&(_, c)| c == '@');
        let (name, version) = match at {
            Some((at, _)) => (&text[..at], &text[at + 1..]),
            None => (text, ""),
        };
        if let Some(source_kind) = foreign_npm(name, version) {
            return Err(SpecError::Foreign {
                text: text.to_owned(),
                source_kind,
            });
        }
        let registry = Registry::Npm;
        if !is_npm_name(name) {
            return Err(bad_name(registry, name));
        }
        let version = match version {
            "" | "latest" | "*" => WantedVersion::Newest,
            exact if is_npm_version(exact) => WantedVersion::Exact(exact.to_owned()),
            range if is_npm_range(range) => WantedVersion::Range(range.to_owned()),
            other => return Err(bad_version(registry, other)),
        };
        Ok(Self {
            registry,
            name: name.to_owned(),
            extras: Vec::new(),
            version,
        })
    }

    /// Reads a specification as `pip` and `uvx` take it: `name`, `name[extra]==1.2`, `name@1.2`.
    ///
    /// # Errors
    ///
    /// `SpecError` if `text` is no package of the index.
    pub fn parse_pypi(text: &str) -> Result<Self, SpecError> {
        check_length(text)?;
        let text = text.trim();
        if let Some(source_kind) = foreign_pypi(text) {
            return Err(SpecError::Foreign {
                text: text.to_owned(),
                source_kind,
            });
        }
        if text.contains(';') {
            return Err(SpecError::Marker {
                text: text.to_owned(),
            });
        }
        let registry = Registry::Pypi;
        let end = text.find(['[', '=', '<', '>', '!', '~', '@', ' ', '(']);
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        if !is_pypi_name(name) {
            return Err(bad_name(registry, name));
        }
        let (extras, version) = match rest.trim_start().strip_prefix('[') {
            Some(rest) => rest
                .split_once(']')
                .ok_or_else(|| bad_name(registry, text))?,
            None => ("", rest),
        };
        let mut names = Vec::new();
        for extra in extras.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            if !is_pypi_name(extra) {
                return Err(bad_name(registry, extra));
            }
            names.push(normal_pypi_name(extra));
        }
        names.sort();
        names.dedup();
        Ok(Self {
            registry,
            name: normal_pypi_name(name),
            extras: names,
            version: pypi_version(version.trim())?,
        })
    }

    /// Returns whether the specification names one version.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        matches!(self.version, WantedVersion::Exact(_))
    }

    /// Returns the same package at one version.
    #[must_use]
    pub fn at_version(&self, version: &str) -> Self {
        Self {
            version: WantedVersion::Exact(version.to_owned()),
            ..self.clone()
        }
    }

    /// The requirement in the registry's own notation, without the registry: `name@^1`,
    /// `name[extra]==1.2`.
    #[must_use]
    pub fn requirement(&self) -> String {
        let mut text = self.name.clone();
        if !self.extras.is_empty() {
            text.push('[');
            text.push_str(&self.extras.join(","));
            text.push(']');
        }
        match (&self.version, self.registry) {
            (WantedVersion::Newest, _) => {}
            (WantedVersion::Exact(version), Registry::Pypi) => {
                text.push_str("==");
                text.push_str(version);
            }
            (WantedVersion::Range(range), Registry::Pypi) => text.push_str(range),
            (WantedVersion::Exact(version) | WantedVersion::Range(version), Registry::Npm) => {
                text.push('@');
                text.push_str(version);
            }
        }
        text
    }
}

impl fmt::Display for PackageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.registry.as_str(), self.requirement())
    }
}

impl FromStr for PackageSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text)
    }
}

fn check_length(text: &str) -> Result<(), SpecError> {
    match text.len() {
        0..=SPEC_BYTES_MAX => Ok(()),
        _ => Err(SpecError::TooLong),
    }
}

fn bad_name(registry: Registry, name: &str) -> SpecError {
    SpecError::Name {
        registry,
        name: name.to_owned(),
    }
}

fn bad_version(registry: Registry, version: &str) -> SpecError {
    SpecError::Version {
        registry,
        version: version.to_owned(),
    }
}

/// The source that npm would take a package from, if that is not the registry.
fn foreign_npm(name: &str, version: &str) -> Option<ForeignSource> {
    let is_repository = |text: &str| {
        let hosts = [
            "git+",
            "git:",
            "git@",
            "github:",
            "gitlab:",
            "bitbucket:",
            "gist:",
        ];
        hosts.iter().any(|host| text.starts_with(host)) || text.ends_with(".git")
    };
    let is_file = |text: &str| {
        let starts = ["file:", "link:", "workspace:", "./", "../", "/", "~/"];
        starts.iter().any(|start| text.starts_with(start))
            || [".", ".."].contains(&text)
            || text.ends_with(".tgz")
            || text.ends_with(".tar.gz")
    };
    for text in [name, version] {
        if is_repository(text) {
            return Some(ForeignSource::Repository);
        }
        if text.contains("://") {
            return Some(ForeignSource::Url);
        }
        if is_file(text) {
            return Some(ForeignSource::File);
        }
    }
    match (name, version) {
        (_, version) if version.starts_with("npm:") => Some(ForeignSource::Alias),
        // `user/repository` is a repository of GitHub.
        (name, _) if !name.starts_with('@') && name.contains('/') => {
            Some(ForeignSource::Repository)
        }
        (_, version) if version.contains('/') => Some(ForeignSource::Repository),
        _ => None,
    }
}

fn foreign_pypi(text: &str) -> Option<ForeignSource> {
    if ["git+", "hg+", "svn+", "bzr+"]
        .iter()
        .any(|start| text.contains(start))
    {
        Some(ForeignSource::Repository)
    } else if text.contains("://") {
        Some(ForeignSource::Url)
    } else if text.starts_with(['.', '/', '~'])
        || text.contains('/')
        || text.ends_with(".whl")
        || text.ends_with(".tar.gz")
    {
        Some(ForeignSource::File)
    } else {
        None
    }
}

fn is_npm_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        !part.is_empty() && !part.starts_with(['.', '_', '-']) && part.bytes().all(allowed)
    };
    let fits = name.len() <= NPM_NAME_BYTES_MAX && name != "node_modules";
    fits && match name.strip_prefix('@') {
        Some(scoped) => scoped
            .split_once('/')
            .is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
        None => is_part(name),
    }
}

/// Returns whether `text` is one version by semantic versioning.
pub(crate) fn is_npm_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').unwrap_or((text, "0"));
    let (numbers, pre) = text.split_once('-').unwrap_or((text, "0"));
    let is_word = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        !text.is_empty() && text.bytes().all(allowed)
    };
    let numbers: Vec<&str> = numbers.split('.').collect();
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    numbers.len() == 3 && numbers.iter().all(is_number) && is_word(pre) && is_word(build)
}

/// Returns whether `text` has only what ranges and tags are made of.
fn is_npm_range(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"^~<>=*.- |+_".contains(&byte);
    !text.starts_with('-') && text.bytes().all(allowed)
}

fn is_pypi_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.iter().all(|&byte| allowed(byte)) && edge(bytes.first()) && edge(bytes.last())
}

/// The normal form of a name of the Python Package Index: lower case, `-` for runs of `-`, `_`, `.`.
pub(crate) fn normal_pypi_name(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            c => normal.push(c.to_ascii_lowercase()),
        }
    }
    normal
}

fn pypi_version(text: &str) -> Result<WantedVersion, SpecError> {
    let registry = Registry::Pypi;
    let bad = || bad_version(registry, text);
    let is_version = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".!+_-".contains(&byte);
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(allowed)
    };
    // The notation of uvx: `name@1.2`, `name@latest`.
    if let Some(version) = text.strip_prefix('@').map(str::trim) {
        return match version {
            "latest" => Ok(WantedVersion::Newest),
            version if is_version(version) => Ok(WantedVersion::Exact(version.to_owned())),
            _ => Err(bad()),
        };
    }
    let inner = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'));
    let text = inner.unwrap_or(text);
    if text.is_empty() {
        return Ok(WantedVersion::Newest);
    }
    let mut clauses = Vec::new();
    for clause in text.split(',').map(str::trim) {
        let end = clause
            .find(|c| !"=<>!~".contains(c))
            .unwrap_or(clause.len());
        let (operator, version) = clause.split_at(end);
        let version = version.trim();
        let known = ["==", "!=", "<=", ">=", "<", ">", "~="].contains(&operator);
        let plain = version.strip_suffix(".*").unwrap_or(version);
        if !known || !is_version(plain) {
            return Err(bad());
        }
        clauses.push((operator, version));
    }
    Ok(match clauses[..] {
        [("==", version)] if !version.ends_with('*') => WantedVersion::Exact(version.to_owned()),
        _ => {
            let words: Vec<String> = clauses
                .iter()
                .map(|(operator, version)| format!("{operator}{version}"))
                .collect();
            WantedVersion::Range(words.join(","))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_read() {
        for (text, shown, exact) in [
            ("npm:x", "npm:x", false),
            ("npm:x@latest", "npm:x", false),
            ("npm:@scope/x@1.2.3", "npm:@scope/x@1.2.3", true),
            ("npm:x@1.2.3-beta.1+5", "npm:x@1.2.3-beta.1+5", true),
            ("npm:x@^1.2", "npm:x@^1.2", false),
            ("npm:x@next", "npm:x@next", false),
            ("npm:x@1", "npm:x@1", false),
            (
                "pypi:Mcp_Server.Time==1.2",
                "pypi:mcp-server-time==1.2",
                true,
            ),
            ("pypi:x[b,a]==1.2", "pypi:x[a,b]==1.2", true),
            ("pypi:x@1.2", "pypi:x==1.2", true),
            ("pypi:x@latest", "pypi:x", false),
            ("pypi:x >= 1.2, <2", "pypi:x>=1.2,<2", false),
            ("pypi:x==1.*", "pypi:x==1.*", false),
            ("pypi:x~=1.4", "pypi:x~=1.4", false),
        ] {
            let spec = PackageSpec::parse(text).unwrap();
            assert_eq!((spec.to_string().as_str(), spec.is_exact()), (shown, exact));
            assert_eq!(PackageSpec::parse(shown), Ok(spec));
        }
    }

    #[test]
    fn foreign_sources_are_refused() {
        use ForeignSource::{Alias, File, Repository, Url};
        for (text, source) in [
            ("npm:user/repo", Repository),
            ("npm:github:user/repo", Repository),
            ("npm:git+https://h/x.git", Repository),
            ("npm:x@git+ssh://h/x", Repository),
            ("npm:git@github.com:u/r.git", Repository),
            ("npm:x@user/repo", Repository),
            ("npm:https://h/x.tgz", Url),
            ("npm:x@https://h/x.tgz", Url),
            ("npm:x@file:../x", File),
            ("npm:./x", File),
            ("npm:.", File),
            ("npm:/x", File),
            ("npm:x.tgz", File),
            ("npm:x@npm:y@1", Alias),
            ("pypi:git+https://h/x", Repository),
            ("pypi:x @ git+https://h/x", Repository),
            ("pypi:x @ https://h/x.whl", Url),
            ("pypi:./x", File),
            ("pypi:x.whl", File),
            ("pypi:.", File),
        ] {
            match PackageSpec::parse(text) {
                Err(SpecError::Foreign { source_kind, .. }) => assert_eq!(source_kind, source),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_package_is_refused() {
        for text in [
            "x",
            "npm:",
            "npm:-x",
            "npm:--x",
            "npm:_x",
            "npm:@x",
            "npm:@/x",
            "npm:@s/",
            "npm:x y",
            "npm:x@-y",
            "npm:x@a;b",
            "npm:node_modules",
            "pypi:",
            "pypi:-x",
            "pypi:x-",
            "pypi:x===1",
            "pypi:x=1",
            "pypi:x==",
            "pypi:x[a",
            "pypi:x[-a]",
            "pypi:x; y",
            "pypi:x==1 --hash=a",
            "cargo:x",
        ] {
            assert!(PackageSpec::parse(text).is_err(), "{text}");
        }
        let name = "x".repeat(NPM_NAME_BYTES_MAX);
        assert!(PackageSpec::parse_npm(&name).is_ok());
        assert!(PackageSpec::parse_npm(&format!("{name}x")).is_err());
        let version = |length: usize| format!("x=={}", "1".repeat(length - 3));
        assert!(PackageSpec::parse_pypi(&version(SPEC_BYTES_MAX)).is_ok());
        let past = PackageSpec::parse_pypi(&version(SPEC_BYTES_MAX + 1));
        assert_eq!(past, Err(SpecError::TooLong));
    }
}
