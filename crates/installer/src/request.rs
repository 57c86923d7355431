//! What is to be installed.

use crate::launcher::{NpmLaunch, PackageProgram, PypiLaunch};
use crate::spec::PackageSpec;

/// A package with a program, and packages that are installed beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageRequest {
    /// The package.
    pub spec: PackageSpec,
    /// Further packages of the same registry.
    pub with: Vec<PackageSpec>,
    /// The Python interpreter, as a launcher names it. `python3` if nothing is said.
    pub python: Option<String>,
    /// The program.
    pub program: PackageProgram,
}

impl PackageRequest {
    /// A request for a package's own program.
    #[must_use]
    pub fn new(spec: PackageSpec) -> Self {
        Self {
            spec,
            with: Vec::new(),
            python: None,
            program: PackageProgram::Default,
        }
    }

    /// The package and those beside it.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &PackageSpec> {
        std::iter::once(&self.spec).chain(&self.with)
    }
}

impl From<&NpmLaunch> for PackageRequest {
    fn from(launch: &NpmLaunch) -> Self {
        Self {
            spec: launch.spec.clone(),
            with: launch.with.clone(),
            python: None,
            program: match &launch.bin {
                Some(name) => PackageProgram::Script(name.clone()),
                None => PackageProgram::Default,
            },
        }
    }
}

impl From<&PypiLaunch> for PackageRequest {
    fn from(launch: &PypiLaunch) -> Self {
        Self {
            spec: launch.spec.clone(),
            with: launch.with.clone(),
            python: launch.python.clone(),
            program: launch.program.clone(),
        }
    }
}

/// The day of a time in RFC 3339: `2026-08-31`.
pub(crate) fn day_of(time: &str) -> Option<String> {
    let day = time.get(..10)?;
    let fits = day.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    fits.then(|| day.to_owned())
}
