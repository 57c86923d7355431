//! The only birthplace of child processes.
//!
//! Children are not born from this process, which may be big, but from a *spawner*: the
//! same program started with [`SPAWNER_ARG`], small and single-threaded. For each child it
//! forks a *nanny*, which owns the child's whole tree and ends it with the call, with the
//! gate and with the spawner, whichever goes first.
//!
//! ```text
//!  gate ── seqpacket: descriptors of a new child ──▶ spawner
//!   │                                                   │ fork (pid namespace where allowed)
//!   └── leash: one stream socket per child ─────────▶ nanny
//!       ▶ what to run, then end of stream to kill       │ fork, exec
//!       ◀ started or why not, then how it ended       tool and all it starts
//! ```
//!
//! Confinement by the kernel is not here yet: [`Confinement`] plans `none` and says so.
//! Not here either: the environment, which the app reads and hands in.

mod child;
mod confinement;
mod env;
mod error;
#[cfg_attr(not(test), allow(dead_code, reason = "the launcher takes it up next"))]
mod filter;
mod message;
mod nanny;
mod resolve;
mod server;
mod signals;
mod spawner;
mod spec;
mod sys;
mod tool;
mod tree;
mod wait;

pub use child::{Child, Ending, Exit};
pub use confinement::Confinement;
pub use env::scrubbed_env;
pub use error::SpawnError;
pub use filter::child_program;
pub use resolve::resolve;
pub use server::spawner_main;
pub use signals::ignore_file_size_signal;
pub use spawner::{SPAWNER_ARG, Spawner, Trees};
pub use spec::{Limits, Spec, Stdio};
