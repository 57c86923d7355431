//! Another version of a server's package: installed beside the present one, looked at, and only then
//! changed to.

use std::process::ExitCode;

use callgate_adoption::{look, packages};
use callgate_installer::{PackageSpec, WantedVersion, list_installed, lock_of};
use callgate_registry::config;
use callgate_registry::environment::Environment;
use callgate_registry::lock::{LockedPackage, LockedServer};
use callgate_registry::servers::accept::ServersChange;
use callgate_registry::servers::packages_folder;
use callgate_registry::servers::review::changes;
use callgate_registry::setup::Parts;

use super::{find, review};
use crate::ask::confirm;
use crate::cli::{Done, Place, runtime};
use crate::error::CommandError;
use crate::show;

/// Changes to a version, or to the newest.
pub fn update(
    environment: &Environment,
    place: &Place,
    (name, version): (&str, Option<&str>),
    yes: bool,
) -> Done {
    let parts = crate::commands::open(environment, place)?;
    let (server, _) = find(&parts, name)?;
    let no_package = || CommandError::NoPackage(name.to_owned());
    let mut request = packages::request_of(&server)?.ok_or_else(no_package)?;
    request.spec = match version {
        Some(version) => request.spec.at_version(version),
        None => PackageSpec {
            version: WantedVersion::Newest,
            ..request.spec
        },
    };
    let installed =
        runtime()?.block_on(packages::install(&parts, name, &request, &show::progress()))?;
    change_to(&parts, place, name, installed, yes)
}

/// Changes to the version that was installed before the present one.
pub fn rollback(environment: &Environment, place: &Place, name: &str, yes: bool) -> Done {
    let parts = crate::commands::open(environment, place)?;
    let (_, locked) = find(&parts, name)?;
    let present = locked.and_then(|locked| locked.package);
    let present = present.ok_or_else(|| CommandError::NoPackage(name.to_owned()))?;
    let all = list_installed(&packages_folder(&parts, name));
    let earlier = all.iter().find(|one| one.lock_digest != present.tree);
    let earlier = earlier.ok_or_else(|| CommandError::NoEarlier(name.to_owned()))?;
    let package = packages::locked(earlier, &lock_of(earlier)?);
    change_to(&parts, place, name, package, yes)
}

fn change_to(parts: &Parts, place: &Place, name: &str, package: LockedPackage, yes: bool) -> Done {
    let mut change = ServersChange::begin(parts)?;
    let before = change.lock.get(name).cloned();
    let old = before.as_ref().and_then(|before| before.package.as_ref());
    let from = old.map_or("nothing", |old| old.spec.as_str()).to_owned();
    if old.is_some_and(|old| old.tree == package.tree) {
        show::say(&format!("{name} is {} already", package.spec));
        return Ok(ExitCode::SUCCESS);
    }
    let to = match &package.released {
        Some(day) => format!("{} of {day}", package.spec),
        None => package.spec.clone(),
    };
    change.config.set_package(name, &package.spec)?;
    let config = config::parse(&change.config.text())?;
    let server = config.servers.iter().find(|server| server.name == name);
    let server = server.ok_or_else(|| CommandError::NoServer(name.to_owned()))?;
    let pinned = LockedServer {
        package: Some(package),
        ..before.clone().unwrap_or_default()
    };
    let listed = runtime()?.block_on(look(parts, &config, server, Some(&pinned)))?;
    review::show(
        name,
        &listed,
        &changes(before.as_ref(), &listed),
        place.json,
    );
    if !confirm(&format!("Change {name} from {from} to {to}?"), yes)? {
        show::say("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    change.lock.put(listed);
    change.accept(parts)?;
    show::say(&format!(
        "{name} is {to} now; `callgate servers rollback {name}` changes back"
    ));
    crate::commands::close(parts);
    Ok(ExitCode::SUCCESS)
}
