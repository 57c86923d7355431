//! Settings files of MCP clients: found, read, edited in place, and given back byte for byte.
//!
//! `find` lists the files, `read` turns one into `Settings`, `plan_replace` and `plan_beside` make
//! an `Edit` of it, `apply` writes edits under an undo record, and `restore` takes a run back.
//! Nothing here starts a process, reads the environment, or knows how a server is run.

mod clients;
mod edit;
mod failpoint;
mod file;
mod find;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod model;
mod node;
mod read;
mod runs;
mod syntax;

pub use edit::{Edit, EditError, OwnEntry, Selection, plan_beside, plan_replace, unified_diff};
#[cfg(feature = "failpoints")]
pub use failpoint::arm_from;
pub use file::{FILE_BYTES_MAX, FileError};
pub use find::{
    ClientFile, ClientName, FileScope, Home, client_names, file_at, find, find_in_project,
};
pub use model::{
    CommandKind, FoundServer, Input, NotCarried, Piece, Problem, SandboxProposal, Scope, Secret,
    SecretField, SecretPlace, SecretReason, Severity, Template, ToolFilter, Transport,
};
pub use read::{ReadError, SERVERS_MAX, Settings, read};
pub use runs::{
    ApplyError, Conflict, FileState, ParseRunIdError, RestoreError, Restored, Run, RunFile, RunId,
    apply, forget, restore, runs,
};
pub use syntax::{DEPTH_MAX, Syntax, SyntaxError, TextEditError, VALUES_MAX};
