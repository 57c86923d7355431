//! The lock of a Python package: `name==version --hash=sha256:…`, a line for each package, sorted,
//! below a line that says which interpreter and platform the wheels are for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::{InstallError, LockError};
use crate::request::PackageRequest;
use crate::settings::RegistrySettings;
use crate::spec::{PackageSpec, Registry, WantedVersion, normal_pypi_name};

/// The beginning of the first line.
const TARGET: &str = "# ";
/// Hex digits of a SHA-256.
const SHA256_DIGITS: usize = 64;

/// A lock that was checked.
#[derive(Debug)]
pub(crate) struct PypiLock {
    /// Version and digest by name.
    packages: BTreeMap<String, (String, String)>,
    /// The interpreter and platform.
    pub target: String,
    /// The version of the package that the request names first.
    pub version: String,
    /// Its digest.
    pub integrity: String,
}

impl PypiLock {
    /// Reads a lock and checks each of its packages.
    pub fn parse(text: &str, request: &PackageRequest) -> Result<Self, LockError> {
        let syntax = |reason: &str| LockError::Syntax {
            registry: Registry::Pypi,
            reason: reason.to_owned(),
        };
        let (first, rest) = text
            .split_once('\n')
            .ok_or_else(|| syntax("it has one line"))?;
        let target = first
            .strip_prefix(TARGET)
            .ok_or_else(|| syntax("its first line does not name an interpreter"))?;
        let mut packages = BTreeMap::new();
        for line in rest.lines() {
            let (name, version, digest) =
                read_line(line).ok_or_else(|| LockError::package(line, "has no SHA-256"))?;
            let entry = (version.to_owned(), format!("sha256:{digest}"));
            if packages.insert(name.to_owned(), entry).is_some() {
                return Err(LockError::package(name, "is there twice"));
            }
        }
        for spec in request.packages() {
            let found = packages.get(&spec.name);
            let fits = match &spec.version {
                WantedVersion::Exact(version) => found.is_some_and(|(known, _)| known == version),
                WantedVersion::Newest | WantedVersion::Range(_) => found.is_some(),
            };
            if !fits {
                return Err(LockError::OtherPackage {
                    wanted: spec.to_string(),
                });
            }
        }
        let (version, integrity) = packages[&request.spec.name].clone();
        Ok(Self {
            packages,
            target: target.to_owned(),
            version,
            integrity,
        })
    }

    /// The number of packages.
    pub fn len(&self) -> usize {
        self.packages.len()
    }

    /// Compares the packages in a folder with this lock.
    pub fn compare(&self, packages: &Path) -> Result<(), InstallError> {
        let differs = |difference: String| Err(InstallError::Differs { difference });
        let mut installed = BTreeMap::new();
        let entries = fs::read_dir(packages).map_err(InstallError::file("read", packages))?;
        for entry in entries {
            let name = entry
                .map_err(InstallError::file("read", packages))?
                .file_name();
            let known = name
                .to_str()
                .and_then(|name| name.strip_suffix(".dist-info"))
                .and_then(|name| name.split_once('-'));
            if let Some((name, version)) = known {
                installed.insert(normal_pypi_name(name), version.to_owned());
            }
        }
        for (name, (version, _)) in &self.packages {
            match installed.remove(name) {
                Some(found) if is_same_version(&found, version) => {}
                Some(found) => return differs(format!("`{name}` is {found}, not {version}")),
                None => return differs(format!("`{name}` is missing")),
            }
        }
        match installed.into_keys().next() {
            Some(name) => differs(format!("`{name}` is not in the lock")),
            None => Ok(()),
        }
    }
}

/// Compares the version in the name of a folder with one of the lock: in the name `-` is `_`.
fn is_same_version(found: &str, wanted: &str) -> bool {
    let plain = |text: &str| text.replace('-', "_").to_ascii_lowercase();
    plain(found) == plain(wanted)
}

/// The name, version and digest in a line.
fn read_line(line: &str) -> Option<(&str, &str, &str)> {
    let (requirement, digest) = line.split_once(" --hash=sha256:")?;
    let (name, version) = requirement.split_once("==")?;
    let spec = PackageSpec::parse_pypi(requirement).ok()?;
    let is_digest = digest.len() == SHA256_DIGITS
        && digest
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let is_plain = spec.is_exact() && spec.name == name && spec.extras.is_empty();
    (is_digest && is_plain).then_some((name, version, digest))
}

/// What pip would install.
#[derive(Deserialize)]
struct Report {
    install: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    download_info: Download,
    metadata: Metadata,
    #[serde(default)]
    is_direct: bool,
}

#[derive(Deserialize)]
struct Download {
    url: String,
    archive_info: Option<Archive>,
}

#[derive(Deserialize)]
struct Archive {
    #[serde(default)]
    hashes: BTreeMap<String, String>,
    hash: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
}

/// The text of a lock from pip's report.
pub(super) fn of_report(
    report: &str,
    target: &str,
    index: &RegistrySettings,
) -> Result<String, LockError> {
    let report: Report = serde_json::from_str(report).map_err(|error| LockError::Syntax {
        registry: Registry::Pypi,
        reason: error.to_string(),
    })?;
    let mut lines = Vec::new();
    for choice in &report.install {
        lines.push(choice.line(index)?);
    }
    lines.sort();
    let mut text = format!("{TARGET}{target}\n");
    for line in lines {
        writeln!(text, "{line}").expect("a String takes all");
    }
    Ok(text)
}

impl Choice {
    fn line(&self, index: &RegistrySettings) -> Result<String, LockError> {
        let name = normal_pypi_name(&self.metadata.name);
        let refuse = |problem: &str| LockError::package(&name, problem);
        let url = &self.download_info.url;
        if self.is_direct || !index.has_archive(url) {
            return Err(refuse("comes from an address, not from the index"));
        }
        let path = url.split(['?', '#']).next().unwrap_or_default();
        if !path.ends_with(".whl") {
            return Err(refuse("has no wheel"));
        }
        let archive = self.download_info.archive_info.as_ref();
        let digest = archive.and_then(|archive| {
            let single = || archive.hash.as_deref()?.strip_prefix("sha256=");
            archive
                .hashes
                .get("sha256")
                .map(String::as_str)
                .or_else(single)
        });
        let digest = digest.ok_or_else(|| refuse("has no SHA-256"))?;
        let line = format!("{name}=={} --hash=sha256:{digest}", self.metadata.version);
        match read_line(&line) {
            Some(_) => Ok(line),
            None => Err(refuse("has a version or digest that can not be read")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DIGEST: &str = "5c099a001c6ca78260bda419f2e9b2aabee1adc4fe6ca56d8959871ad8da58a1";

    fn parse(text: &str, spec: &str) -> Result<PypiLock, LockError> {
        let request = PackageRequest::new(PackageSpec::parse(spec).unwrap());
        PypiLock::parse(text, &request)
    }

    #[test]
    fn locks_are_read() {
        let text = format!(
            "# python 3.11 linux-x86_64\na==1.0 --hash=sha256:{DIGEST}\nb==2 --hash=sha256:{DIGEST}\n"
        );
        for spec in ["pypi:A", "pypi:a==1.0", "pypi:a[x]>=1"] {
            let lock = parse(&text, spec).unwrap();
            assert_eq!((lock.version.as_str(), lock.len()), ("1.0", 2));
            assert_eq!(lock.integrity, format!("sha256:{DIGEST}"));
            assert_eq!(lock.target, "python 3.11 linux-x86_64");
        }
        for spec in ["pypi:c", "pypi:a==1.1"] {
            assert!(matches!(
                parse(&text, spec),
                Err(LockError::OtherPackage { .. })
            ));
        }
    }

    /// A line is a requirement with one digest, and never an option of pip.
    #[test]
    fn lines_that_are_no_requirement_are_refused() {
        for line in [
            "--index-url https://evil.test",
            "-r other",
            "a==1.0",
            "a==1.0 --hash=md5:00",
            "a>=1.0 --hash=sha256:D",
            "a[x]==1.0 --hash=sha256:D",
            "A==1.0 --hash=sha256:D",
            "a @ https://evil.test/a.whl --hash=sha256:D",
            "a==1.0 --hash=sha256:D --hash=sha256:D",
            "a==1.0 --hash=sha256:D --global-option=x",
            "a==1.0 --hash=sha256:d",
            "a==1.0; os_name == 'x' --hash=sha256:D",
            "",
        ] {
            let text = format!("# t\n{}\n", line.replace('D', DIGEST));
            assert!(parse(&text, "pypi:a").is_err(), "{line}");
        }
        let line = format!("a==1.0 --hash=sha256:{DIGEST}");
        assert!(parse(&format!("# t\n{line}\n"), "pypi:a").is_ok());
        assert!(parse(&format!("# t\n{line}\n{line}\n"), "pypi:a").is_err());
        assert!(parse(&format!("{line}\n"), "pypi:a").is_err());
    }

    #[test]
    fn only_wheels_of_the_index_are_locked() {
        let report = |url: &str, direct: bool, hashes: serde_json::Value| {
            let report = json!({ "install": [{
                "download_info": { "url": url, "archive_info": { "hashes": hashes } },
                "is_direct": direct,
                "metadata": { "name": "A_b", "version": "1.0" },
            }]});
            of_report(&report.to_string(), "t", &RegistrySettings::pypi())
        };
        let sha256 = json!({ "sha256": DIGEST });
        let wheel = "https://files.pythonhosted.org/p/A_b-1.0-py3-none-any.whl";
        let line = format!("# t\na-b==1.0 --hash=sha256:{DIGEST}\n");
        assert_eq!(report(wheel, false, sha256.clone()), Ok(line));
        for (url, direct, hashes) in [
            (wheel, true, &sha256),
            (wheel, false, &json!({ "md5": "00" })),
            ("https://files.pythonhosted.org/p/a.tar.gz", false, &sha256),
            ("https://evil.test/a.whl", false, &sha256),
            ("file:///a.whl", false, &sha256),
        ] {
            let refused = report(url, direct, hashes.clone());
            assert!(matches!(refused, Err(LockError::Package { .. })), "{url}");
        }
    }
}
