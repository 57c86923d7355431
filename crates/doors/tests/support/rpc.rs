//! A client of JSON-RPC: answers are waited for by their id, notifications are kept.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::host::Host;
use callgate_testing_workspace::{Folder, Opened};

/// A request.
pub fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A client of the workspace in `folder`, on a conversation of its own.
pub fn rpc(folder: &Folder) -> Client {
    Client::new(Host::rpc(folder))
}

/// A client's side of a conversation.
pub struct Client {
    host: Host,
    next: u64,
    events: VecDeque<Value>,
    answers: Vec<Value>,
}

impl Client {
    /// A client on this conversation.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            next: 0,
            events: VecDeque::new(),
            answers: Vec::new(),
        }
    }

    /// A client of an open workspace.
    pub fn of(opened: Opened) -> Self {
        Self::new(Host::rpc_of(opened))
    }

    /// Sends a request. Returns the id to wait for.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message = request(self.next, method, params);
        assert!(self.host.send(&message), "nobody reads");
        self.next
    }

    /// Waits for the answer to a request.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(at) = self.answers.iter().position(|reply| reply["id"] == id) {
                return self.answers.swap_remove(at);
            }
            let message = self.host.reply();
            if message.get("id").is_some() {
                self.answers.push(message);
            } else {
                self.events.push_back(message);
            }
        }
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The result of a request, which must succeed.
    pub fn good(&mut self, method: &str, params: Value) -> Value {
        let reply = self.ask(method, params);
        let result = reply.get("result");
        result
            .unwrap_or_else(|| panic!("{method}: {reply}"))
            .clone()
    }

    /// The error of a request, which must fail: its code and its data.
    pub fn bad(&mut self, method: &str, params: Value) -> (i64, Value) {
        let error = self.ask(method, params)["error"].clone();
        let code = error["code"].as_i64();
        (
            code.unwrap_or_else(|| panic!("{method} did not fail")),
            error["data"].clone(),
        )
    }

    /// The next notification.
    pub fn event(&mut self) -> Value {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let message = self.host.reply();
            if message.get("id").is_some() {
                self.answers.push(message);
            } else {
                return message;
            }
        }
    }

    /// Ends the conversation, which must end in order.
    pub fn end(self) {
        self.host.end();
    }
}
