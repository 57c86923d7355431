//! Packages of MCP servers, installed once with a lock and then started without a network.
//!
//! [`parse_launcher`] reads the commands by which people start servers (`npx -y X`, `uvx X`) and
//! finds the package behind them. An [`Installer`] chooses versions into a [`PackageLock`] and
//! installs exactly those, with npm or pip in a confinement of their own that reaches the registry
//! only: no scripts of packages run, no settings of users are read, and nothing comes from a
//! repository, an address or a file. Each installation is a folder of its own, so that an older
//! one can be taken again.
//!
//! Bundles ([`read_bundle`]) and the registry's descriptions ([`read_server_json`]) become an
//! [`AddedServer`].
//!
//! Not here: configuration, pins and the processes of servers.

mod added;
mod confined;
mod error;
mod folder;
mod installer;
mod launcher;
mod npm;
mod programs;
mod pypi;
mod record;
mod request;
mod settings;
mod spec;

pub use added::{
    AddError, AddedInput, AddedServer, AddedStart, Bundle, BundleSettings, InputKind,
    TemplateValues, UnpackedBundle, read_bundle, read_server_json,
};
pub use error::{InstallError, LockError};
pub use installer::{
    Installer, PackageSource, list_installed, lock_of, open_installed, remove_installed,
};
pub use launcher::{
    DockerRun, Launcher, LauncherError, NpmLaunch, PackageProgram, PypiLaunch, ShellLine,
    parse_launcher,
};
pub use record::{Installed, PackageLock};
pub use request::PackageRequest;
pub use settings::{InstallProgress, InstallStage, InstallerSettings, RegistrySettings};
pub use spec::{ForeignSource, PackageSpec, Registry, SpecError, WantedVersion};
