//! The gate as a parent of bridges: `bridge.sock` and the schema file beside `gate.sock`. Both
//! are ours as long as we hold the gate's lock, so what is there at the start is stale; both
//! are gone when this value is. B-7.

use std::path::Path;
use std::sync::Arc;

use callgate_call::{Caller, Cancel, Change};
use callgate_doors::bridge::parent;
use callgate_doors::http::SameUid;
use callgate_gate::Gate;
use tokio::net::UnixListener;

use crate::bridge::{Place, remove_schema_file, write_schema_file};
use crate::paths::SOCKET_PATH_BYTES_MAX;
use crate::show;

/// The bridge's socket and file.
pub struct Bridge {
    place: Place,
    /// `None` where the path is too long for a socket.
    listener: Option<UnixListener>,
    gate: Arc<Gate>,
    caller: Caller,
}

impl Bridge {
    /// Sweeps, writes the schema file and binds.
    pub fn open(gate_socket: &Path, gate: &Arc<Gate>, caller: &Caller) -> Result<Self, String> {
        let place = Place::beside(gate_socket);
        let mut bridge = Self {
            place,
            listener: None,
            gate: Arc::clone(gate),
            caller: caller.clone(),
        };
        let socket = &bridge.place.socket;
        if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            let path = socket.display();
            show::say(&format!("no bridge: {path} is too long for a socket"));
            return Ok(bridge);
        }
        // The file first: whoever can connect finds it.
        bridge.write_schema()?;
        bridge.listener = Some(super::bind(socket)?);
        Ok(bridge)
    }

    /// Serves until `stop`, and keeps the schema file up to date.
    pub async fn serve(mut self, uid: u32, stop: &Cancel) {
        let Some(listener) = self.listener.take() else {
            return;
        };
        let listener = SameUid::new(listener, uid);
        let (gate, caller) = (Arc::clone(&self.gate), self.caller.clone());
        tokio::select! {
            () = parent::serve(listener, gate, caller, stop) => {}
            () = self.follow() => unreachable!("never ends"),
        }
    }

    async fn follow(&self) {
        let mut changes = self.gate.changes().listen();
        loop {
            match changes.next().await {
                Some(Change::Tools) | None => {
                    if let Err(words) = self.write_schema() {
                        show::complain(&words);
                    }
                }
                Some(Change::Prompts | Change::Resources | Change::Resource(_)) => {}
            }
        }
    }

    fn write_schema(&self) -> Result<(), String> {
        let path = &self.place.schema;
        write_schema_file(path, &parent::schemas(&self.gate, &self.caller))
            .map_err(|error| format!("write {}: {error}", path.display()))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // The socket last: a bridge that finds it also finds the file.
        let _ = remove_schema_file(&self.place.schema);
        let _ = super::remove_socket(&self.place.socket);
    }
}
