//! `package-lock.json`: every package comes from the registry and has a SHA-512.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::{InstallError, LockError};
use crate::folder::read_text;
use crate::request::PackageRequest;
use crate::settings::RegistrySettings;
use crate::spec::{Registry, WantedVersion, is_npm_version};

/// The name of the package that depends on the wanted ones.
pub(super) const ROOT_NAME: &str = "callgate-server";
/// Characters of a SHA-512 in Base64.
const SHA512_CHARS: usize = 88;
/// The lock that npm leaves in the folder of packages: what it has installed.
const INSTALLED_FILE: &str = "node_modules/.package-lock.json";

/// A lock that was checked.
#[derive(Debug)]
pub(crate) struct NpmLock {
    packages: BTreeMap<String, Entry>,
    /// The wanted packages with the versions that were asked for.
    asked: BTreeMap<String, String>,
    /// The version of the package that the request names first.
    pub version: String,
    /// Its digest.
    pub integrity: String,
}

#[derive(Debug, Deserialize)]
struct Text {
    #[serde(rename = "lockfileVersion")]
    lockfile_version: u32,
    packages: BTreeMap<String, Entry>,
}

#[derive(Debug, Default, Deserialize)]
struct Entry {
    version: Option<String>,
    resolved: Option<String>,
    integrity: Option<String>,
    #[serde(default)]
    link: bool,
    #[serde(default, rename = "inBundle")]
    in_bundle: bool,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    extraneous: bool,
    #[serde(default)]
    dependencies: BTreeMap<String, String>,
}

impl NpmLock {
    /// Reads a lock and checks each of its packages.
    pub fn parse(
        text: &str,
        request: &PackageRequest,
        registry: &RegistrySettings,
    ) -> Result<Self, LockError> {
        let syntax = |reason: String| LockError::Syntax {
            registry: Registry::Npm,
            reason,
        };
        let mut read: Text =
            serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?;
        if !(2..=3).contains(&read.lockfile_version) {
            return Err(syntax(format!("version {}", read.lockfile_version)));
        }
        let root = read.packages.remove("");
        let asked = root.unwrap_or_default().dependencies;
        for (path, entry) in &read.packages {
            entry.check(path, registry)?;
        }
        let mut wanted: Vec<&str> = request.packages().map(|one| one.name.as_str()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if !asked.keys().map(String::as_str).eq(wanted) {
            return Err(LockError::OtherPackage {
                wanted: request.spec.to_string(),
            });
        }
        let entry_of = |name: &str| read.packages.get(&format!("node_modules/{name}"));
        for spec in request.packages() {
            let found = entry_of(&spec.name).and_then(|entry| entry.version.as_deref());
            let fits = match &spec.version {
                WantedVersion::Exact(version) => found == Some(version),
                WantedVersion::Newest | WantedVersion::Range(_) => found.is_some(),
            };
            if !fits {
                return Err(LockError::OtherPackage {
                    wanted: spec.to_string(),
                });
            }
        }
        let own = entry_of(&request.spec.name).expect("found above");
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Ok(Self {
            version: text(&own.version),
            integrity: text(&own.integrity),
            packages: read.packages,
            asked,
        })
    }

    /// The number of packages.
    pub fn len(&self) -> usize {
        self.packages.len()
    }

    /// The version that the lock's maker asked for.
    pub fn asked(&self, name: &str) -> Option<&str> {
        self.asked.get(name).map(String::as_str)
    }

    /// Compares what npm says it has installed with this lock.
    pub fn compare(&self, tree: &Path) -> Result<(), InstallError> {
        let text = read_text(&tree.join(INSTALLED_FILE))?;
        let differs = |difference: String| InstallError::Differs { difference };
        let installed: Text =
            serde_json::from_str(&text).map_err(|error| differs(error.to_string()))?;
        for (path, found) in &installed.packages {
            let Some(wanted) = self.packages.get(path) else {
                return Err(differs(format!("`{path}` is not in the lock")));
            };
            if (&found.version, &found.integrity) != (&wanted.version, &wanted.integrity) {
                return Err(differs(format!("`{path}` has another version or digest")));
            }
        }
        // What is for other platforms may be missing, and what stands below it. npm also writes down
        // packages that it does not install: nothing needs them but an optional peer dependency.
        let is_optional = |entry: &Entry| entry.optional || entry.in_bundle || entry.extraneous;
        let missing = self
            .packages
            .iter()
            .find(|(path, entry)| !is_optional(entry) && !installed.packages.contains_key(*path));
        match missing {
            Some((path, _)) => Err(differs(format!("`{path}` is missing"))),
            None => Ok(()),
        }
    }
}

impl Entry {
    fn check(&self, path: &str, registry: &RegistrySettings) -> Result<(), LockError> {
        let refuse = |problem: String| Err(LockError::package(path, problem));
        let is_inside = path.starts_with("node_modules/")
            && path.split('/').all(|part| !["", ".", ".."].contains(&part));
        if !is_inside {
            return refuse("is not a folder of packages".to_owned());
        }
        if self.link {
            return refuse("is a link to a folder".to_owned());
        }
        match &self.version {
            Some(version) if is_npm_version(version) => {}
            Some(version) => return refuse(format!("has the version `{version}`")),
            None => return refuse("has no version".to_owned()),
        }
        if self.in_bundle && self.resolved.is_none() {
            // The archive of the package around it has it, and the digest of that archive.
            return match path.rfind("/node_modules/") {
                Some(_) => Ok(()),
                None => refuse("is bundled with no package".to_owned()),
            };
        }
        match &self.resolved {
            Some(url) if registry.has_archive(url) => {}
            Some(url) => {
                return refuse(format!("comes from {}, not from the registry", shown(url)));
            }
            None => return refuse("does not say where it comes from".to_owned()),
        }
        let integrity = self.integrity.as_deref().unwrap_or_default();
        let has_sha512 = integrity.split_whitespace().any(|one| {
            one.strip_prefix("sha512-")
                .is_some_and(|digest| digest.len() == SHA512_CHARS)
        });
        match has_sha512 {
            true => Ok(()),
            false => refuse("has no SHA-512".to_owned()),
        }
    }
}

/// An address without the name and password that it may have.
fn shown(url: &str) -> String {
    const CHARS_MAX: usize = 200;
    let plain = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => url.to_owned(),
    };
    plain.chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::PackageProgram;
    use crate::spec::PackageSpec;
    use serde_json::{Value, json};

    fn request(spec: &str) -> PackageRequest {
        PackageRequest {
            spec: PackageSpec::parse(spec).unwrap(),
            with: Vec::new(),
            python: None,
            program: PackageProgram::Default,
        }
    }

    fn lock() -> Value {
        let sha = format!("sha512-{}", "A".repeat(SHA512_CHARS));
        json!({
            "lockfileVersion": 3,
            "packages": {
                "": { "dependencies": { "x": "^1" } },
                "node_modules/x": {
                    "version": "1.2.3",
                    "resolved": "https://registry.npmjs.org/x/-/x-1.2.3.tgz",
                    "integrity": sha,
                },
                "node_modules/x/node_modules/y": { "version": "1.0.0", "inBundle": true },
            },
        })
    }

    fn parse(lock: &Value, spec: &str) -> Result<NpmLock, LockError> {
        NpmLock::parse(&lock.to_string(), &request(spec), &RegistrySettings::npm())
    }

    #[test]
    fn a_lock_is_of_its_package() {
        for spec in ["npm:x", "npm:x@1.2.3", "npm:x@^1"] {
            let read = parse(&lock(), spec).unwrap();
            assert_eq!((read.version.as_str(), read.len()), ("1.2.3", 2));
        }
        for spec in ["npm:z", "npm:x@1.2.4"] {
            let refused = parse(&lock(), spec);
            assert!(
                matches!(refused, Err(LockError::OtherPackage { .. })),
                "{spec}"
            );
        }
    }

    #[test]
    fn every_package_comes_from_the_registry_with_a_digest() {
        let x = "/packages/node_modules~1x";
        for (field, value) in [
            ("resolved", json!("git+ssh://git@github.com/u/x.git#abc")),
            (
                "resolved",
                json!("https://codeload.github.com/u/x/tar.gz/abc"),
            ),
            ("resolved", json!("file:../x")),
            ("resolved", json!("http://registry.npmjs.org/x.tgz")),
            ("resolved", Value::Null),
            ("integrity", json!("sha1-AAAA")),
            ("integrity", json!("sha512-AAAA")),
            ("integrity", Value::Null),
            ("link", json!(true)),
            ("version", json!("file:../x")),
            ("version", Value::Null),
        ] {
            let mut lock = lock();
            lock.pointer_mut(x).unwrap()[field] = value.clone();
            let refused = parse(&lock, "npm:x");
            assert!(
                matches!(refused, Err(LockError::Package { .. })),
                "{field}: {value}"
            );
        }
        for path in [
            "../x",
            "node_modules/../../x",
            "x",
            "node_modules//x",
            "node_modules/b",
        ] {
            let mut lock = lock();
            lock["packages"][path] = json!({ "version": "1.0.0", "inBundle": true });
            let refused = parse(&lock, "npm:x");
            assert!(matches!(refused, Err(LockError::Package { .. })), "{path}");
        }
        let mut old = lock();
        old["lockfileVersion"] = json!(1);
        assert!(matches!(
            parse(&old, "npm:x"),
            Err(LockError::Syntax { .. })
        ));
        let mut secret = lock();
        secret["packages"]["node_modules/x"]["resolved"] = json!("https://u:word@h.test/x");
        assert!(
            !parse(&secret, "npm:x")
                .unwrap_err()
                .to_string()
                .contains("word")
        );
    }

    #[test]
    fn an_installation_is_compared_with_its_lock() {
        let folder = callgate_testing::TempFolder::new();
        let mut wanted = lock();
        wanted["packages"]["node_modules/o"] = wanted["packages"]["node_modules/x"].clone();
        wanted["packages"]["node_modules/o"]["optional"] = json!(true);
        wanted["packages"]["node_modules/e"] = wanted["packages"]["node_modules/x"].clone();
        wanted["packages"]["node_modules/e"]["extraneous"] = json!(true);
        let read = parse(&wanted, "npm:x").unwrap();
        let compare = |installed: &Value| {
            folder.write(INSTALLED_FILE, &installed.to_string());
            read.compare(folder.path())
        };
        let mut installed = lock();
        installed["packages"].as_object_mut().unwrap().remove("");
        compare(&installed).unwrap();
        for (path, field) in [
            ("node_modules/x", "version"),
            ("node_modules/x", "integrity"),
            ("node_modules/new", "version"),
        ] {
            let mut other = installed.clone();
            other["packages"][path][field] = json!("9.9.9");
            assert!(compare(&other).is_err(), "{path} {field}");
        }
        let mut less = installed.clone();
        less["packages"]
            .as_object_mut()
            .unwrap()
            .remove("node_modules/x");
        assert!(compare(&less).is_err());
    }
}
