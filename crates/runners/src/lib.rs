//! How a tool is carried out.
//!
//! [`ProcessRunner`] starts one program per call, [`PoolRunner`] hands calls to long-lived
//! workers of a [`Pool`] shared by several tools; [`python_plan`] and [`node_plan`] plan the
//! pools behind `kind = "python"` and `kind = "node"`, [`ServiceRunner`] asks a foreign service
//! and [`ContainerRunner`] keeps a tool in a container. [`ExecutorRunner`] starts streamed runs, and
//! [`UpstreamRunner`] calls tools of MCP servers. Children come from `sandbox`; what a tool
//! may do is the gate's affair.

mod answer;
mod chatter;
mod container;
mod coverage;
mod egress;
mod ending;
mod executor;
mod flood;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod hints;
mod interpreter;
mod leaks;
mod line;
mod node;
mod pool;
mod process;
mod python;
mod service;
mod tail;
mod upstream;

pub use container::{
    Client, ContainerRunner, ContainerSettings, Containers, Profiles, Runtime, Talking, over_stdio,
    seccomp_profile,
};
pub use egress::{Allowed, Refusal, Served};
pub use executor::{ExecutorParts, ExecutorRunner, ExecutorSettings, Executors};
pub use leaks::NamedSecrets;
pub use node::{NodeSettings, node, node_plan};
pub use pool::{Pool, PoolPlan, PoolRunner, PoolSettings};
pub use process::{ProcessRunner, ProcessSettings};
pub use python::{PythonSettings, interpreter, python_plan};
pub use service::{BearerSecret, HandshakeWhen, ServiceRunner, ServiceSettings};
pub use upstream::{
    DefinitionPin, HOME_PLACEHOLDER, Listing, PINNED_MEMBERS, Pins, ProcessStatus, RestartRules,
    Share, Upstream, UpstreamPromptRunner, UpstreamResourceRunner, UpstreamRunner,
    UpstreamSettings, UpstreamState, UpstreamStatus, pinned_digest, upstream_address,
};
