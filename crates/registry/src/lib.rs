//! What a workspace declares, and what becomes of it: configuration, packs and projects are
//! read, checked against the owner's trust, and made into the tools and the setup of a gate.
//! Arguments, the environment of the process and what people see at a terminal are `app`'s.

mod bounds;
pub mod candidate;
pub mod catalog;
pub mod code;
pub mod config;
pub mod declared;
pub mod entries;
pub mod environment;
pub mod exec;
pub mod lock;
pub mod needs;
mod node;
pub mod open;
pub mod pack;
pub mod paths;
mod plain;
pub mod project;
mod python;
pub mod reads;
mod remote;
mod runs;
mod search;
pub mod servers;
pub mod setup;
mod shelf;
pub mod suggest;
mod terminals;
pub mod toolchains;
pub mod trust;
mod unserved;
pub mod workspace;
