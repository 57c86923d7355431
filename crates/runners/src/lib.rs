//! How a tool is carried out.
//!
//! [`ProcessRunner`] starts one program per call, [`PoolRunner`] hands calls to long-lived
//! workers of a [`Pool`] shared by several tools, [`python_pool`] makes the pool behind
//! `kind = "python"`, and [`ServiceRunner`] asks a foreign service. Children come from `sandbox`; what a tool may do is the gate's affair.

mod answer;
mod chatter;
mod coverage;
mod egress;
mod ending;
mod pool;
mod process;
mod python;
mod service;
mod tail;

pub use egress::{Allowed, Egress, Refusal, Watch};
pub use pool::{Pool, PoolRunner, PoolSettings};
pub use process::{ProcessRunner, ProcessSettings};
pub use python::{PythonSettings, interpreter, python_pool};
pub use service::{BearerSecret, HandshakeWhen, NamedSecrets, ServiceRunner, ServiceSettings};
