//! A JSON-RPC client's side, by hand: pipes, a WebSocket, posts on a connection that stays, and
//! a stream of events.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::drive::{Host, PATIENCE};
use super::web::{Reply, Request, hear_one, read_until};
use super::{Folder, callgate};

/// `callgate rpc`.
pub fn rpc(folder: &Folder) -> Client {
    Client::new(Line::Pipes(Host::spawn(callgate(folder).arg("rpc"))))
}

/// `callgate rpc --standalone`.
pub fn rpc_alone(folder: &Folder) -> Client {
    let host = Host::spawn(callgate(folder).args(["rpc", "--standalone"]));
    Client::new(Line::Pipes(host))
}

/// A request.
pub fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// What carries a conversation.
pub enum Line {
    Pipes(Host),
    Socket(Ws),
}

/// One side of a conversation: answers are waited for, notifications kept.
pub struct Client {
    pub line: Line,
    next: u64,
    events: VecDeque<Value>,
    answers: Vec<Value>,
}

impl Client {
    pub fn new(line: Line) -> Self {
        Self {
            line,
            next: 0,
            events: VecDeque::new(),
            answers: Vec::new(),
        }
    }

    pub fn ws(port: u16) -> Self {
        Self::new(Line::Socket(Ws::open(port, None)))
    }

    /// Asks without waiting; the id to wait for.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message = request(self.next, method, params);
        match &mut self.line {
            Line::Pipes(host) => assert!(host.send(&message), "the host is gone"),
            Line::Socket(ws) => ws.text(message.to_string().as_bytes()),
        }
        self.next
    }

    /// The answer to a request.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(at) = self.answers.iter().position(|reply| reply["id"] == id) {
                return self.answers.swap_remove(at);
            }
            let message = self.hear();
            if message.get("id").is_some() {
                self.answers.push(message);
            } else {
                self.events.push_back(message);
            }
        }
    }

    /// Asks and waits.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The result, which there must be.
    pub fn good(&mut self, method: &str, params: Value) -> Value {
        let reply = self.ask(method, params);
        reply
            .get("result")
            .unwrap_or_else(|| panic!("{method}: {reply}"))
            .clone()
    }

    /// The error, which there must be: its code and data.
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
            let message = self.hear();
            if message.get("id").is_some() {
                self.answers.push(message);
            } else {
                return message;
            }
        }
    }

    fn hear(&mut self) -> Value {
        match &mut self.line {
            Line::Pipes(host) => host.reply(),
            Line::Socket(ws) => loop {
                let (opcode, payload) = ws.frame();
                match opcode {
                    1 => return serde_json::from_slice(&payload).expect("JSON"),
                    8 => panic!("closed: {payload:?}"),
                    _ => {}
                }
            },
        }
    }

    /// The end of a conversation on pipes.
    pub fn end(self) -> bool {
        match self.line {
            Line::Pipes(host) => host.end().success(),
            Line::Socket(_) => true,
        }
    }
}

/// A client's end of a WebSocket.
pub struct Ws(pub TcpStream);

impl Ws {
    /// The request that opens one.
    pub fn handshake(token: Option<&str>) -> Request {
        let request = Request::new("GET /rpc/ws", b"")
            .with("upgrade", "websocket")
            .with("connection", "Upgrade")
            .with("sec-websocket-version", "13")
            .with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        match token {
            Some(token) => request.by(token),
            None => request,
        }
    }

    pub fn open(port: u16, token: Option<&str>) -> Self {
        let stream = connect(port);
        Self::open_on(stream, &Self::handshake(token))
    }

    /// Opens one on a connection that is there already.
    pub fn open_on(mut stream: TcpStream, handshake: &Request) -> Self {
        stream.write_all(&handshake.bytes("")).expect("write");
        let head = read_until(&mut stream, "\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(
            head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            "the example of RFC 6455: {head}"
        );
        Self(stream)
    }

    pub fn text(&mut self, message: &[u8]) {
        self.send(0x81, message);
    }

    /// A frame; its mask is all zeros.
    pub fn send(&mut self, first: u8, payload: &[u8]) {
        let mut bytes = vec![first];
        match payload.len() {
            short @ 0..=125 => bytes.push(0x80 | short as u8),
            middle @ 126..=0xffff => {
                bytes.push(0x80 | 126);
                bytes.extend_from_slice(&(middle as u16).to_be_bytes());
            }
            long => {
                bytes.push(0x80 | 127);
                bytes.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(payload);
        self.0.write_all(&bytes).expect("write");
    }

    /// The next frame: its kind and payload.
    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        assert_eq!(head[0] & 0xf0, 0x80, "whole");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).expect("a length");
                u16::from_be_bytes(length).into()
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length).expect("a length");
                u64::from_be_bytes(length)
            }
            short => u64::from(short),
        };
        let mut payload = vec![0; usize::try_from(length).expect("a length")];
        self.0.read_exact(&mut payload).expect("a payload");
        (head[0] & 0x0f, payload)
    }
}

/// Posts on one connection that stays.
pub struct Posts {
    stream: TcpStream,
    path: &'static str,
}

impl Posts {
    pub fn new(port: u16, path: &'static str) -> Self {
        Self {
            stream: connect(port),
            path,
        }
    }

    pub fn post(&mut self, body: &[u8]) -> Reply {
        let line = format!("POST {}", self.path);
        let bytes = Request::new(&line, body).bytes("");
        self.stream.write_all(&bytes).expect("write");
        hear_one(&mut self.stream)
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let reply = self.post(request(1, method, params).to_string().as_bytes());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }
}

/// A stream of events.
pub struct Events {
    from: BufReader<TcpStream>,
    chunk: usize,
    /// The newest id.
    pub last: String,
}

impl Events {
    pub fn open(port: u16, last: Option<&str>) -> Self {
        let mut request = Request::new("GET /rpc/events", b"").with("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.with("last-event-id", last);
        }
        Self::open_with(port, &request)
    }

    pub fn open_with(port: u16, request: &Request) -> Self {
        let mut stream = connect(port);
        stream.write_all(&request.bytes("")).expect("write");
        let head = read_until(&mut stream, "\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let mut events = Self {
            from: BufReader::new(stream),
            chunk: 0,
            last: String::new(),
        };
        // The place to come back to, before any event: from here on nothing is missed.
        let first = events.block().expect("a place");
        assert!(
            first.iter().any(|line| line.starts_with("id: ")),
            "{first:?}"
        );
        events
    }

    /// The next message; `None` at the end of the stream.
    pub fn try_next(&mut self) -> Option<Value> {
        loop {
            let block = self.block()?;
            let data = block.iter().find_map(|line| line.strip_prefix("data: "));
            if let Some(data) = data {
                return Some(serde_json::from_str(data).expect("JSON"));
            }
        }
    }

    pub fn next(&mut self) -> Value {
        self.try_next().expect("an event")
    }

    /// The lines up to an empty one.
    fn block(&mut self) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Some(lines);
            }
            if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut self.last);
            }
            lines.push(line);
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            if self.chunk == 0 {
                self.chunk = self.size()?;
            }
            let there = self.from.fill_buf().ok()?;
            let there = &there[..there.len().min(self.chunk)];
            if there.is_empty() {
                return None;
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(there.len(), |end| end + 1);
            line.extend_from_slice(&there[..taken]);
            self.from.consume(taken);
            self.chunk -= taken;
            if self.chunk == 0 {
                let mut rest = String::new();
                self.from.read_line(&mut rest).ok()?;
            }
            if end.is_some() {
                line.pop();
                return Some(String::from_utf8(line).expect("text"));
            }
        }
    }

    /// The size of the next chunk; `None` at the end.
    fn size(&mut self) -> Option<usize> {
        let mut line = String::new();
        self.from.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim(), 16).ok()?;
        (size > 0).then_some(size)
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_nodelay(true).expect("no delay");
    stream
}
