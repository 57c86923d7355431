//! `callgate pack`: packs of tools, from their making to their end.

mod author;
mod keep;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callgate_registry::environment::Environment;
use callgate_registry::pack::{KeyError, Owner, Pack as Folder, PublicKey};
use callgate_wires::tool_protocol::{Capabilities, RunnerWord, is_pack_id};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{Done, Place};
use crate::error::{ArgumentError, CommandError};
use crate::show;

/// Make, check, sign, verify, install, list and remove packs of tools.
#[derive(Args)]
pub struct Pack {
    #[command(subcommand)]
    command: PackCommand,
}

#[derive(Subcommand)]
enum PackCommand {
    /// Make the files of a new pack
    Init {
        /// A folder that is not there yet
        folder: PathBuf,
        /// The pack's id; the folder's name if not given
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// The name of its first tool
        #[arg(long, value_name = "NAME", default_value = "say hello")]
        tool: String,
    },
    /// Say what is wrong with a pack, or what its tools need
    Check {
        /// The pack's folder
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
    /// Make a key to sign packs with; the public half is printed
    Keygen {
        /// What to call it
        name: String,
    },
    /// Sign a pack, with every file as it is now
    Sign {
        /// The pack's folder
        folder: PathBuf,
        /// The name of a key of yours
        #[arg(long, value_name = "NAME")]
        key: String,
    },
    /// Say whether a pack is as it was signed, by a key you trust
    Verify {
        /// A folder, or the id of a pack of the workspace
        pack: PathBuf,
    },
    /// Let packs count that a key signed
    Trust {
        /// What you call the key
        name: String,
        /// The public key, as `keygen` prints it
        #[arg(value_parser = public_key)]
        key: PublicKey,
    },
    /// No longer let packs count that a key signed
    Untrust {
        /// What you called the key
        name: String,
    },
    /// List the keys you trust and those you sign with
    Keys,
    /// Verify a pack and copy it into the workspace, whole or not at all
    Install {
        /// The pack's folder
        folder: PathBuf,
        /// Take the place of the one that is installed
        #[arg(long)]
        replace: bool,
    },
    /// List the packs of the workspace, and whether each counts
    List,
    /// Remove an installed pack
    Remove {
        /// Its id
        id: String,
    },
}

fn public_key(text: &str) -> Result<PublicKey, KeyError> {
    text.parse()
}

/// Where a command works.
struct At<'a> {
    environment: &'a Environment,
    place: &'a Place,
    workspace: PathBuf,
    owner: Owner,
}

impl At<'_> {
    /// A path as the caller meant it.
    fn path(&self, path: &Path) -> PathBuf {
        self.environment.current_dir.join(path)
    }

    /// Shows data as JSON, or in words.
    fn show(&self, data: &Value, words: &str) {
        if self.place.json {
            show::json(data);
        } else {
            show::say(words);
        }
    }
}

pub fn run(environment: &Environment, place: &Place, pack: &Pack) -> Done {
    let paths = place.paths(environment)?;
    let at = At {
        environment,
        place,
        workspace: paths.workspace,
        owner: Owner::new(environment),
    };
    match &pack.command {
        PackCommand::Init { folder, id, tool } => author::init(&at, folder, id.as_deref(), tool),
        PackCommand::Check { folder } => author::check(&at, folder),
        PackCommand::Keygen { name } => author::keygen(&at, name),
        PackCommand::Sign { folder, key } => author::sign(&at, folder, key),
        PackCommand::Verify { pack } => keep::verify(&at, pack),
        PackCommand::Trust { name, key } => keep::trust(&at, name, *key),
        PackCommand::Untrust { name } => keep::untrust(&at, name),
        PackCommand::Keys => keep::keys(&at),
        PackCommand::Install { folder, replace } => keep::install(&at, folder, *replace),
        PackCommand::List => keep::list(&at),
        PackCommand::Remove { id } => keep::remove(&at, id),
    }
}

/// Reads a pack, or says where it is wrong.
fn read(folder: &Path) -> Result<Folder, CommandError> {
    Folder::read(folder).map_err(|error| CommandError::Pack {
        path: folder.to_owned(),
        error: Box::new(error),
    })
}

/// A name for a key, which becomes the name of a file.
fn key_name(name: &str) -> Result<&str, ArgumentError> {
    match is_pack_id(name) {
        true => Ok(name),
        false => Err(ArgumentError::KeyName(name.to_owned())),
    }
}

/// What a tool needs, in a few words.
fn needs(needed: &Capabilities) -> String {
    let mut words = Vec::new();
    let mut say = |name: &str, level: &str| {
        if level != "none" {
            words.push(format!("{name} {level}"));
        }
    };
    say("filesystem", needed.filesystem.as_str());
    say("network", needed.network.as_str());
    say("env", needed.env.as_str());
    say("subprocess", needed.subprocess.as_str());
    if !needed.secrets.is_empty() {
        let names: Vec<&str> = needed.secrets.iter().map(String::as_str).collect();
        words.push(format!("secrets {}", names.join(" ")));
    }
    if words.is_empty() {
        "nothing".to_owned()
    } else {
        words.join(", ")
    }
}

/// A pack as data.
fn about(pack: &Folder) -> Value {
    let tools: Vec<Value> = pack
        .bindings
        .iter()
        .map(|(name, binding)| {
            let needed = pack.capabilities(name);
            json!({
                "name": name,
                "entry": binding.entry,
                "runner": binding.runner.unwrap_or(RunnerWord::Local).as_str(),
                "filesystem": needed.filesystem.as_str(),
                "network": needed.network.as_str(),
                "env": needed.env.as_str(),
                "subprocess": needed.subprocess.as_str(),
                "secrets": needed.secrets,
            })
        })
        .collect();
    json!({
        "id": pack.manifest.id,
        "name": pack.manifest.name,
        "version": pack.manifest.version,
        "digest": pack.files.digest().to_hex(),
        "files": pack.files.content().count(),
        "bytes": pack.files.bytes(),
        "risk": pack.risk().as_str(),
        "tools": tools,
    })
}

const DONE: Done = Ok(ExitCode::SUCCESS);
