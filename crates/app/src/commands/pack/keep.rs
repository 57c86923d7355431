//! For those who use packs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgate_call::OriginSource;
use callgate_registry::pack::OwnerError;
use callgate_registry::pack::{
    INSTALLED, LOCAL, OwnerFile, Pack, Policy, PublicKey, Standing, judge, standing,
};
use callgate_registry::project;
use callgate_store::{NewFolder, remove_folder, sweep_folders};
use callgate_wires::tool_protocol::is_pack_id;
use serde_json::{Value, json};

use super::{At, DONE, about, key_name, read};
use crate::cli::Done;
use crate::compose::chain;
use crate::error::KeepError;
use crate::show;

fn owners(at: &At<'_>) -> Result<OwnerFile, OwnerError> {
    at.owner.read()
}

pub fn verify(at: &At<'_>, named: &Path) -> Done {
    let folder = find(at, named)?;
    let pack = read(&folder)?;
    let standing = standing(&pack, &owners(at)?.keys);
    let good = matches!(standing, Standing::Verified { .. });
    if at.place.json {
        let mut body = about(&pack);
        body["standing"] = json!(standing.word());
        body["reason"] = json!(standing.reason());
        if let Standing::Verified { signer, .. } = &standing {
            body["signer"] = json!(signer);
        }
        show::json(&body);
    } else {
        let id = &pack.manifest.id;
        show::data(&format!(
            "{id}: {}: {}\n",
            standing.word(),
            standing.reason()
        ));
    }
    match good {
        true => DONE,
        false => Ok(ExitCode::FAILURE),
    }
}

/// A folder, or the id of a pack of the workspace.
fn find(at: &At<'_>, named: &Path) -> Result<PathBuf, KeepError> {
    let folder = at.path(named);
    let id = named.to_str().filter(|id| is_pack_id(id));
    if folder.is_dir() {
        return Ok(folder);
    }
    let places = [INSTALLED, LOCAL].into_iter();
    let found = id.and_then(|id| {
        let mut places = places.map(|place| at.workspace.join(place).join(id));
        places.find(|place| place.is_dir())
    });
    found.ok_or_else(|| KeepError::NotFound(named.to_owned()))
}

pub fn trust(at: &At<'_>, name: &str, key: PublicKey) -> Done {
    let mut keys = owners(at)?.keys;
    match keys.get(key_name(name)?) {
        Some(known) if *known == key => {}
        Some(_) => {
            let words = format!(
                "{name} is another key of yours: `callgate pack untrust {name}` first, or \
                 choose another name"
            );
            return Err(words.into());
        }
        None => {
            keys.insert(name.to_owned(), key);
        }
    }
    let written = at.owner.write_keys(&keys);
    let path = written?;
    at.show(
        &json!({ "name": name, "key": key.to_string(), "file": path }),
        &format!("packs signed by {name} count now, in every workspace of yours"),
    );
    DONE
}

pub fn untrust(at: &At<'_>, name: &str) -> Done {
    let mut keys = owners(at)?.keys;
    if keys.remove(name).is_none() {
        return Err(format!("no key is called {name}: `callgate pack keys` lists them").into());
    }
    let written = at.owner.write_keys(&keys);
    written?;
    at.show(
        &json!({ "name": name, "trusted": false }),
        &format!("packs signed by {name} no longer count"),
    );
    DONE
}

pub fn keys(at: &At<'_>) -> Done {
    let keys = owners(at)?.keys;
    let own = at.owner.signers();
    if at.place.json {
        let rows: Vec<Value> = keys
            .iter()
            .map(|(name, key)| json!({ "name": name, "key": key.to_string() }))
            .collect();
        show::json(&json!({ "trusted": rows, "own": own }));
        return DONE;
    }
    let trusted = keys
        .iter()
        .map(|(name, key)| vec![name.clone(), "trusted".to_owned(), key.to_string()]);
    let own = own.into_iter().map(|name| {
        let signer = at.owner.signer(&name);
        let key = signer.map_or_else(|error| chain(&error), |signer| signer.public().to_string());
        vec![name, "own".to_owned(), key]
    });
    let rows: Vec<Vec<String>> = trusted.chain(own).collect();
    show::table_or(&["NAME", "IS", "KEY"], &rows, "no keys");
    DONE
}

/// The folder of installed packs, which must be one: a checkout may bring a link that leads
/// elsewhere.
fn packs_folder(at: &At<'_>) -> Result<PathBuf, KeepError> {
    let folder = at.workspace.join(INSTALLED);
    let inside = folder.ancestors().take_while(|part| *part != at.workspace);
    let is_link = |part: &&Path| part.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    if let Some(link) = inside.into_iter().find(is_link) {
        return Err(KeepError::Link(link.to_owned()));
    }
    sweep_folders(&folder);
    Ok(folder)
}

pub fn install(at: &At<'_>, folder: &Path, replace: bool) -> Done {
    let parent = packs_folder(at)?;
    let pack = read(&at.path(folder))?;
    let owner = at.owner.read_for(&at.workspace);
    let owner = owner?;
    let allowed = may_install(&pack, &owner)?;
    let id = &pack.manifest.id;
    if !replace && parent.join(id).exists() {
        let words = format!("{id} is installed already: --replace puts this one in its place");
        return Err(words.into());
    }
    let new = NewFolder::fill(&parent, id, &pack.files.all())?;
    // What stands on the disk is looked at again, and not what was meant to be written.
    let copy = read(new.path())?;
    let same = copy.files.digest() == pack.files.digest();
    if !same || may_install(&copy, &owner)? != allowed {
        return Err(format!("{id}: the copy is not what was read: nothing was installed").into());
    }
    new.put(replace)?;
    let mut body = about(&pack);
    body["standing"] = json!(allowed.word());
    body["reason"] = json!(allowed.reason());
    at.show(
        &body,
        &format!(
            "installed {id} {}, {}: look at what it needs (`callgate pack check {}`), then run \
             `callgate trust`",
            pack.manifest.version,
            allowed.reason(),
            parent.join(id).display()
        ),
    );
    DONE
}

fn may_install(pack: &Pack, owner: &OwnerFile) -> Result<Standing, KeepError> {
    let standing = standing(pack, &owner.keys);
    let allowed = owner.policy.allow_unverified_installs;
    let none = Policy::default();
    let source = OriginSource::InstalledPack;
    match judge(pack, source, &standing, allowed, &owner.policy, &none) {
        Ok(()) => Ok(standing),
        Err(refusal) => Err(KeepError::Refused {
            pack: pack.manifest.id.clone(),
            refusal: Box::new(refusal),
        }),
    }
}

pub fn list(at: &At<'_>) -> Done {
    let settings = project::settings(&at.workspace)?;
    let policy = project::policy(&at.workspace)?;
    let owner = owners(at)?;
    let mut rows = Vec::new();
    for (parent, source) in [
        (INSTALLED, OriginSource::InstalledPack),
        (LOCAL, OriginSource::LocalPack),
    ] {
        let names = project::folders(&at.workspace, parent)?;
        for name in names {
            let folder = at.workspace.join(parent).join(&name);
            let mut row = row(&folder, &name, source, &owner, &policy);
            if row["use"] == "enabled" && !settings.enables(&name) {
                row["use"] = json!("disabled");
            }
            rows.push(row);
        }
    }
    if at.place.json {
        show::json(&json!({ "packs": rows }));
        return DONE;
    }
    let cell = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            ["id", "version", "source", "use", "standing", "reason"]
                .map(|name| cell(row, name))
                .to_vec()
        })
        .collect();
    let head = ["PACK", "VERSION", "SOURCE", "USE", "STANDING", "WHY"];
    show::table_or(
        &head,
        &rows,
        "no packs: `callgate pack install FOLDER` installs one",
    );
    DONE
}

fn row(
    folder: &Path,
    name: &str,
    source: OriginSource,
    owner: &OwnerFile,
    policy: &Policy,
) -> Value {
    let mut body = json!({ "id": name, "source": source.as_str(), "use": "enabled" });
    let pack = match Pack::read(folder) {
        Ok(pack) => pack,
        Err(error) => {
            body["standing"] = json!("refused");
            body["use"] = json!("refused");
            body["reason"] = json!(error.to_string());
            return body;
        }
    };
    let standing = standing(&pack, &owner.keys);
    let allowed = owner.policy.allow_unverified_enable;
    let judged = judge(&pack, source, &standing, allowed, &owner.policy, policy);
    body["version"] = json!(pack.manifest.version);
    body["digest"] = json!(pack.files.digest().to_hex());
    body["risk"] = json!(pack.risk().as_str());
    body["tools"] = json!(pack.bindings.keys().collect::<Vec<_>>());
    body["standing"] = json!(standing.word());
    body["reason"] = json!(standing.reason());
    if let Err(refusal) = judged {
        body["use"] = json!("refused");
        body["reason"] = json!(refusal.to_string());
    }
    body
}

pub fn remove(at: &At<'_>, id: &str) -> Done {
    let parent = packs_folder(at)?;
    let there = is_pack_id(id) && remove_folder(&parent, id)?;
    if !there {
        let words = format!("{id} is not installed: `callgate pack list` lists what is");
        return Err(words.into());
    }
    at.show(
        &json!({ "id": id, "removed": true }),
        &format!("removed {id}: run `callgate trust` for what is left"),
    );
    DONE
}
