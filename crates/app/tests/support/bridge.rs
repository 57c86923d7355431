//! Speaking the bridge's frames, as a bridge or as a parent, and starting the real bridge.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use super::drive::{Host, PATIENCE};
use super::{Folder, callgate};

/// A connection that carries frames.
pub struct Frames(pub UnixStream);

impl Frames {
    /// Connects to a parent.
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("a parent");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(stream)
    }

    /// Writes one frame; false if the other side is gone.
    pub fn send(&mut self, payload: &[u8]) -> bool {
        self.0.write_all(&frame(payload)).is_ok()
    }

    /// The next payload; `None` at the end.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut prefix = [0; 4];
        match self.0.read_exact(&mut prefix) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("no answer"),
            Err(_) => return None,
        }
        let len = usize::try_from(u32::from_be_bytes(prefix)).expect("32 bits fit");
        let mut payload = vec![0; len];
        self.0.read_exact(&mut payload).ok()?;
        Some(payload)
    }

    /// The next message; `None` at the end.
    pub fn message(&mut self) -> Option<Value> {
        let payload = self.receive()?;
        Some(serde_json::from_slice(&payload).expect("a parent answers in JSON"))
    }

    /// Asks for a call and waits for its answer.
    pub fn call(&mut self, name: &str, arguments: &Value) -> Value {
        assert!(self.send(request(name, arguments).to_string().as_bytes()));
        self.message().expect("an answer")
    }
}

/// A payload as a frame.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("it fits");
    [&len.to_be_bytes(), payload].concat()
}

/// A `call_tool` request.
pub fn request(name: &str, arguments: &Value) -> Value {
    json!({ "method": "call_tool", "params": { "name": name, "arguments": arguments } })
}

/// Writes a file that is its owner's alone.
pub fn write_private(path: &Path, text: &str) {
    let mut file = std::fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .expect("a file of the test");
    file.write_all(text.as_bytes()).expect("write it");
}

/// `callgate bridge SOCKET SCHEMA`.
pub fn bridge(folder: &Folder, socket: &Path, schema: &Path) -> Host {
    Host::spawn(callgate(folder).arg("bridge").arg(socket).arg(schema))
}

/// A bridge to the gate of `folder`.
pub fn bridge_to_gate(folder: &Folder) -> Host {
    let state = |name: &str| folder.join("state").join(name);
    bridge(folder, &state("bridge.sock"), &state("bridge-schema.json"))
}

/// An MCP call.
pub fn tools_call(id: u64, name: &str, arguments: &Value) -> Value {
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// The same with a key.
pub fn keyed_call(id: u64, name: &str, arguments: &Value, key: &str) -> Value {
    let mut call = tools_call(id, name, arguments);
    call["params"]["_meta"] = json!({ "callgate/idempotencyKey": key });
    call
}

/// The first text of a call's result, and whether it is an error.
pub fn told(reply: &Value) -> (&str, bool) {
    let text = reply["result"]["content"][0]["text"].as_str();
    let is_error = reply["result"]["isError"].as_bool();
    (
        text.unwrap_or_else(|| panic!("no text in {reply}")),
        is_error.unwrap_or_else(|| panic!("no isError in {reply}")),
    )
}
