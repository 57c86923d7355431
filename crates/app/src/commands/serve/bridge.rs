//! The gate as a parent of bridges: `bridge.sock` and the schema files beside `gate.sock`. They
//! are ours as long as we hold the gate's lock, so what is there at the start is stale; all are
//! gone when this value is. B-7, B-10.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Caller, Change};
use callgate_doors::bridge::parent;
use callgate_doors::http::Closing;
use callgate_gate::Gate;
use callgate_registry::paths::BridgePaths;
use callgate_registry::paths::SOCKET_PATH_BYTES_MAX;
use callgate_wires::bridge::ToolSchema;

use crate::bridge::{List, in_order, remove, schema_of, sweep, write_schema_file};
use crate::compose::chain;
use crate::error::CommandError;
use crate::show;

use super::socket::{Kept, remove_socket};

/// The bridge's socket and files.
pub struct Bridge {
    place: BridgePaths,
    /// Where lists for single clients are kept.
    state: PathBuf,
    /// `None` where the path is too long for a socket.
    kept: Option<Kept>,
    gate: Arc<Gate>,
    caller: Caller,
}

impl Bridge {
    /// Sweeps, writes the schema files and binds.
    pub fn open(
        gate_socket: &Path,
        state: &Path,
        gate: &Arc<Gate>,
        (caller, uid): (&Caller, u32),
    ) -> Result<Self, CommandError> {
        let place = BridgePaths::beside(gate_socket);
        let mut bridge = Self {
            place,
            state: state.to_owned(),
            kept: None,
            gate: Arc::clone(gate),
            caller: caller.clone(),
        };
        let socket = &bridge.place.socket;
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            let path = socket.display();
            show::say(&format!("no bridge: {path} is too long for a socket"));
            return Ok(bridge);
        }
        // The files first: whoever can connect finds them.
        sweep(&bridge.place);
        bridge.write_schemas()?;
        bridge.kept = Some(Kept::bind(socket, uid)?);
        Ok(bridge)
    }

    /// Serves until `stop`, and keeps the schema files up to date.
    pub async fn serve(mut self, closing: &Closing) {
        let Some(kept) = self.kept.take() else {
            return;
        };
        let (listener, kept) = kept.split();
        let (gate, caller) = (Arc::clone(&self.gate), self.caller.clone());
        // Only the first arm ends, after its calls are answered. Dropping the others loses nothing:
        // schema files are written without a wait, and the next start makes them and the socket
        // anew.
        tokio::select! {
            () = parent::serve(listener, gate, caller, closing) => {}
            never = self.follow() => match never {},
            never = kept => match never {},
        }
    }

    async fn follow(&self) -> Infallible {
        let mut changes = self.gate.changes().listen();
        loop {
            match changes.next().await {
                Some(Change::Tools) | None => {
                    if let Err(error) = self.write_schemas() {
                        show::complain(&chain(&error));
                    }
                }
                Some(Change::Prompts | Change::Resources | Change::Resource(_)) => {}
            }
        }
    }

    /// All tools in one file, and in one for each list those of its tools that there are. One
    /// that can not be written keeps no other from it; the first error is told.
    fn write_schemas(&self) -> Result<(), CommandError> {
        let write = |path: &Path, tools: &[ToolSchema]| {
            write_schema_file(path, tools).map_err(CommandError::file("write", path))
        };
        let mut written = write(
            &self.place.schema,
            &parent::schemas(&self.gate, &self.caller),
        );
        for list in List::all(&self.state) {
            let found = list.tools.iter().filter_map(|name| {
                let entry = self.gate.visible(name, &self.caller, None).ok()?;
                Some(parent::schema_of(&entry.tool))
            });
            let list = write(&schema_of(&self.place, &list), &in_order(found.collect()));
            written = written.and(list);
        }
        written
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // The socket last: a bridge that finds it also finds its file.
        sweep(&self.place);
        let _ = remove(&self.place.schema);
        let _ = remove_socket(&self.place.socket);
    }
}
