//! The tool protocol: JSON between a host and a tool.

pub mod outgoing;
