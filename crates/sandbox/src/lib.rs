//! The only birthplace of child processes.
//!
//! Children are not born from this process, which may be big, but from a *spawner*: the
//! same program started with [`SPAWNER_ARG`], small and single-threaded. It forks *nannies*.
//! A nanny has one child at a time, owns its whole tree and ends it with the call, with the
//! gate and with the spawner, whichever goes first; then it is free for the next child.
//!
//! ```text
//!  gate ── seqpacket: the far end of a new leash ──▶ spawner
//!   │                                                   │ fork (pid namespace where allowed)
//!   └── leash: one stream socket per nanny ─────────▶ nanny
//!       ▶ what to run and its descriptors,              │ fork, exec
//!         end of stream to kill                       tool and all it starts
//!       ◀ started or why not, then how it ended
//! ```
//!
//! What holds a child is decided in three steps. [`Confinement`] plans: which promises can be
//! kept, purely from a tool's needs and the machine's [`Facts`]. The gate's side of a spawn
//! (`compile.rs`) turns the needs into roots, a filter and namespaces. The child carries them
//! out on its way to exec (`tool.rs`), its nanny being the one that lets exec pass. A child that
//! may reach some hosts makes its way to them there (`outlet.rs`); [`Child::take_outlet`] has it.
//!
//! Not here: the environment, which the app reads and hands in.

mod bounded;
mod child;
mod code;
mod compile;
mod confine;
mod confinement;
mod env;
mod error;
mod explain;
mod facts;
mod fence;
mod files;
mod filter;
mod group;
mod homes;
mod idle;
mod kernel;
mod levels;
mod message;
mod nanny;
mod outlet;
mod places;
mod private;
mod probe;
mod resident;
mod resolve;
mod scratch;
mod server;
mod signals;
mod spawner;
mod spec;
mod sys;
mod terminal;
mod tool;
mod tree;
mod userns;
mod view;
mod wait;

pub use child::{Child, Ending, Exit};
pub use compile::real;
pub use confinement::{Confinement, outlook};
pub use env::{held_env, scrubbed_env};
pub use error::SpawnError;
pub use explain::{Culprit, Reach};
pub use facts::{Cgroup, Facility, Facts};
pub use filter::{SYSCALL_PROFILES, SyscallVerdict, child_program, syscall_verdicts};
pub use homes::{Furnishing, Home, HomeError, Homes};
pub use levels::{hosts_held, limits_held};
pub use resident::let_go_of_code;
pub use resolve::resolve;
pub use server::spawner_main;
pub use signals::ignore_file_size_signal;
pub use spawner::{SPAWNER_ARG, Spawner, SpawnerSettings, Trees};
pub use spec::{Folder, Limits, Spec, Stdio};
pub use terminal::{Terminal, TerminalSize};
