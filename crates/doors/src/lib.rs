//! Where wires meet sockets, pipes and HTTP: a wire's whole conversation in one file. A door
//! turns bytes into a `Call`, hands it to the gate and turns the `Outcome` into bytes.

pub mod bridge;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod mcp;
pub mod metrics;
pub mod pipe;
pub mod port;
mod reply;
pub mod rpc;
pub mod service;
pub mod tool;
pub mod toolhost;
