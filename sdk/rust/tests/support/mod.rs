//! A folder for parents, and the bridge's end of a connection.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses some of it, and one that can not go on has failed"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

/// A folder that removes itself.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callgate-sdk-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    pub fn entries(&self) -> usize {
        std::fs::read_dir(&self.0).map_or(0, Iterator::count)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One connection.
pub struct Bridge(pub UnixStream);

impl Bridge {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        let patience = std::time::Duration::from_secs(60);
        stream.set_read_timeout(Some(patience)).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, payload: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap();
        self.0.write_all(&len.to_be_bytes()).unwrap();
        self.0.write_all(payload).unwrap();
    }

    /// `None` at the end.
    pub fn receive(&mut self) -> Option<Value> {
        let mut prefix = [0; 4];
        self.0.read_exact(&mut prefix).ok()?;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes(prefix)).unwrap()];
        self.0.read_exact(&mut payload).unwrap();
        Some(serde_json::from_slice(&payload).unwrap())
    }

    pub fn ask(&mut self, message: &Value) -> Value {
        self.send(message.to_string().as_bytes());
        self.receive().unwrap()
    }

    pub fn call(&mut self, name: &str, arguments: &Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        self.ask(&json!({ "method": "call_tool", "params": params }))
    }
}

pub fn text(text: &str) -> Value {
    json!({ "result": { "content": [{ "type": "text", "text": text }] } })
}

pub fn error(kind: &str, message: &str) -> Value {
    json!({ "error": { "message": message, "type": kind } })
}
