//! Where wires meet sockets, pipes and HTTP: a wire's whole conversation in one file. A door
//! turns bytes into a `Call`, hands it to the gate and turns the `Outcome` into bytes.

pub mod bridge;
mod carry;
mod content;
mod enforcement;
pub mod http;
pub mod mcp;
pub mod metrics;
pub mod pipe;
pub mod port;
pub mod rpc;
pub mod service;
pub mod tool;
pub mod toolhost;
