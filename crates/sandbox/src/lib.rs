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
//! (`gate/compile.rs`) turns the needs into roots, a filter and namespaces. The child carries them
//! out on its way to exec (`child/before_exec.rs`), its nanny being the one that lets exec pass. A child that
//! may reach some hosts makes its way to them there (`child/outlet.rs`); [`Child::take_outlet`] has it.
//!
//! Each folder holds the code of one process: `gate/`, `spawner/`, `nanny/`, and `child/`, which
//! runs between fork and exec. The files at the top are for several of them: the messages and the
//! compiled plan that they exchange, and the system calls.
//!
//! Not here: the environment, which the app reads and hands in.

mod child;
mod confine;
mod error;
mod gate;
mod kernel;
mod message;
mod nanny;
mod spawner;
mod spec;
mod sys;
mod terminal;
mod wait;

pub use error::SpawnError;
pub use gate::child::{Child, Ending, Exit};
pub use gate::compile::real;
pub use gate::confinement::{Confinement, outlook};
pub use gate::detached::{leave_session, start_detached};
pub use gate::env::{held_env, scrubbed_env};
pub use gate::explain::{Culprit, Reach};
pub use gate::facts::{Cgroup, Facility, Facts};
pub use gate::filter::{SYSCALL_PROFILES, SyscallVerdict, child_program, syscall_verdicts};
pub use gate::homes::{Furnishing, Home, HomeError, Homes};
pub use gate::levels::{hosts_held, limits_held};
pub use gate::resident::let_go_of_code;
pub use gate::resolve::resolve;
pub use gate::signals::ignore_file_size_signal;
pub use gate::spawner::{SPAWNER_ARG, Spawner, SpawnerSettings, Trees};
pub use spawner::spawner_main;
pub use spec::{Folder, Limits, Spec, Stdio};
pub use terminal::{Terminal, TerminalSize};
