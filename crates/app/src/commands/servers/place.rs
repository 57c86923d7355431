//! Which configuration a command about servers is about.

use std::path::Path;

use callgate_registry::environment::Environment;
use callgate_registry::servers::has_file;
use clap::Args;

use crate::cli::Place;
use crate::commands::user_gate;
use crate::error::CommandError;

/// Whose servers a command is about.
#[derive(Args, Clone, Copy, Debug)]
pub struct Whose {
    /// Those of your own configuration, also where there is a configuration here
    #[arg(long, global = true)]
    user: bool,
}

impl Whose {
    /// The workspace: one that was named, the folder here if it has a configuration, else the
    /// user's own.
    pub fn place(self, environment: &Environment, place: &Place) -> Result<Place, CommandError> {
        let is_named = place.workspace != Path::new(".");
        let has_own = has_file(&environment.current_dir.join(&place.workspace));
        match self.user {
            false if is_named || has_own => Ok(place.clone()),
            _ => user_gate::place(environment, place),
        }
    }
}
