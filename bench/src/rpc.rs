//! What the benches of the workspace contract have in common: a served workspace, requests at
//! `/rpc`, and answers that are looked at.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::http::Connection;
use crate::lines::Lines;
use crate::mcp_http::{requests, serve};
use crate::scratch::Scratch;
use crate::{Bench, Failure, chain, cpu, mcp};

/// The harness brings no leases, which a port asks for above the files.
pub const CONFIG: &str = "[leases]\nenforce_from_tier = 3\n";

/// `callgate serve`, and how often it was called.
pub struct Served {
    pub port: u16,
    runs: Daemon,
    calls: usize,
}

impl Served {
    pub fn start(bench: &Bench, scratch: &Scratch) -> Result<Self, Failure> {
        fs::write(scratch.workspace().join("callgate.toml"), CONFIG)?;
        mcp::trust(bench, scratch)?;
        let (port, runs) = serve(bench, scratch)?;
        let calls = 0;
        Ok(Self { port, runs, calls })
    }

    /// Where it is, and how it runs.
    pub fn at(&self) -> (u16, &Daemon) {
        (self.port, &self.runs)
    }

    /// Of the gate and all it started.
    pub fn cpu(&self) -> Result<Duration, Failure> {
        cpu::tree(self.runs.pid())
    }

    /// Of the gate's process alone.
    pub fn gate_cpu(&self) -> Duration {
        cpu::process(self.runs.pid())
    }

    /// So many calls were made by other hands.
    pub fn called(&mut self, calls: usize) {
        self.calls += calls;
    }

    /// Whole requests of these.
    pub fn requests(&self, calls: &Lines) -> Lines {
        requests(&headers(self.port), calls)
    }

    /// One call on a connection that is there, and its result.
    pub fn ask(
        &mut self,
        connection: &mut Connection,
        method: &str,
        params: Value,
    ) -> Result<Value, Failure> {
        let mut one = Lines::default();
        one.push(&request(method, params));
        let requests = self.requests(&one);
        let mut messages = connection.ask(requests.slice(0, 1))?.messages()?;
        self.calls += 1;
        let mut answer = messages.pop().ok_or("an answer without a message")?;
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(format!("{method}: {answer}").into()),
        }
    }

    /// Stops it, and counts its records.
    pub fn finish(self, bench: &Bench, scratch: &Scratch) -> Result<(), Failure> {
        self.runs.stop()?;
        chain::check(bench, scratch, self.calls)
    }
}

/// A request, as one line.
pub fn request(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// The head of every request, but for its length.
pub fn headers(port: u16) -> String {
    format!("POST /rpc HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n")
}
