//! HTTP/1.1 to servers that configuration names: plainly or over TLS, bounded, without
//! redirections. What is asked and what an answer means is the caller's affair, and so is
//! how long it waits: a future that is dropped closes its connection.

mod address;
mod connection;
mod peer;

pub use address::Address;
pub use connection::{Ask, Dialer, Reply, Trouble};
pub use peer::Peer;
