//! The MCP server of a workspace: its settings, and the key by which it recognises what its
//! clients keep for it.

use std::sync::Arc;
use std::time::Duration;

use callgate_doors::mcp::{Behind, Seal, Server, Settings};
use callgate_gate::Gate;

use crate::compose::Parts;

/// A call that takes longer becomes a task, where its client knows tasks.
pub const TASK_AFTER: Duration = Duration::from_secs(3);

/// The server in front of `gate`.
pub fn server(parts: &Parts<'_>, gate: Arc<Gate>, task_after: Duration) -> Arc<Server> {
    // Where the state can not be written, what clients keep is good for this process only.
    let key = parts.store.secret("mcp").unwrap_or_else(|_| {
        let mut key = [0; 32];
        // Without randomness nothing sealed is accepted by anybody else either.
        let _ = getrandom::fill(&mut key);
        key
    });
    let settings = Settings {
        name: "callgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instructions: None,
        task_after,
    };
    let seal = Seal::new(key, Arc::clone(&parts.clock));
    Arc::new(Server::new(Behind::Gate(gate), settings, seal))
}
