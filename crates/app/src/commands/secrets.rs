//! `callgate secrets`: values for the variables of MCP servers, kept outside of configurations.

use std::io::{self, IsTerminal as _, Read as _};
use std::process::ExitCode;

use callgate_registry::environment::Environment;
use callgate_store::OwnerSecrets;
use clap::{Args, Subcommand};
use serde_json::json;

use super::servers::place::Whose;
use crate::cli::{Done, Place};
use crate::error::CommandError;
use crate::show;

/// Keep values that servers refer to as `${secret:NAME}`, list their names, remove them.
///
/// Each is a file that only you can read (0600), in the state; they are not encrypted.
#[derive(Args)]
pub struct Secrets {
    #[command(flatten)]
    whose: Whose,
    #[command(subcommand)]
    command: SecretsCommand,
}

#[derive(Subcommand)]
enum SecretsCommand {
    /// The names
    List,
    /// Keep a value, which is read from standard input
    Set {
        /// Its name
        name: String,
    },
    /// Remove a value
    Remove {
        /// Its name
        name: String,
    },
}

/// Longest value that is read; more is refused where it is kept.
const VALUE_BYTES_MAX: u64 = 1024 * 1024;

pub fn run(environment: &Environment, place: &Place, secrets: &Secrets) -> Done {
    let place = secrets.whose.place(environment, place)?;
    let kept = OwnerSecrets::of_state(&place.paths(environment)?.state);
    match &secrets.command {
        SecretsCommand::List => {
            let names = kept.names()?;
            match place.json {
                true => show::json(&json!({ "secrets": names })),
                false if names.is_empty() => show::say("no secrets are kept"),
                false => names
                    .iter()
                    .for_each(|name| show::data(&format!("{name}\n"))),
            }
        }
        SecretsCommand::Set { name } => {
            if io::stdin().is_terminal() {
                show::say("type the value, then Enter and Ctrl-D");
            }
            let mut value = String::new();
            let mut input = io::stdin().lock().take(VALUE_BYTES_MAX);
            // bound: `VALUE_BYTES_MAX`
            let read = input.read_to_string(&mut value);
            read.map_err(CommandError::system("read standard input"))?;
            kept.set(name, value.trim_end_matches(['\n', '\r']))?;
            show::say(&format!("kept; servers refer to it as ${{secret:{name}}}"));
        }
        SecretsCommand::Remove { name } => {
            if !kept.remove(name)? {
                return Err(CommandError::NoSecret(name.clone()).into());
            }
            show::say("removed");
        }
    }
    Ok(ExitCode::SUCCESS)
}
