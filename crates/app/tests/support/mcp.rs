//! An MCP client's side, by hand: requests in both eras, over pipes and over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::drive::{Host, PATIENCE, Serve, spelt};
use super::{Folder, callgate};

pub use callgate_testing::mcp::{initialize, legacy_call, modern_call, modern_meta};

/// `subscriptions/listen` for changes of the list of tools.
pub fn listen(id: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen",
        "params": { "notifications": { "toolsListChanged": true }, "_meta": modern_meta() },
    })
}

/// Takes a request back.
pub fn cancelled(id: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
    })
}

/// Reads from a stream until it has said `words`.
pub fn hear_of(stream: &mut impl std::io::Read, words: &str) {
    let mut seen = String::new();
    while !seen.contains(words) {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).expect("events");
        assert_ne!(count, 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
}

/// `callgate mcp` with arguments.
pub fn mcp(folder: &Folder, args: &[&str]) -> Host {
    Host::spawn(callgate(folder).arg("mcp").args(args))
}

/// `callgate serve` with HTTP for anybody, and its port.
pub fn serve_http(folder: &Folder) -> (Serve, u16) {
    serve_http_with(folder, &[])
}

/// The same with further arguments.
pub fn serve_http_with(folder: &Folder, args: &[&str]) -> (Serve, u16) {
    let serve = Serve::spawn(
        callgate(folder)
            .args(["serve", "--no-auth", "--port", "0"])
            .args(args),
        folder.join("state/gate.sock"),
    );
    serve.wait_said("MCP on http://127.0.0.1:");
    let said = serve.said();
    let (_, rest) = said.split_once("MCP on http://127.0.0.1:").expect("a port");
    let port = rest.split('/').next().and_then(|port| port.parse().ok());
    (serve, port.expect("a port"))
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// The JSON of the body.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The answer itself, whether or not something was said before it.
    pub fn last(&self) -> Value {
        match self.header("content-type") {
            Some("text/event-stream") => self.events().pop().expect("an answer"),
            _ => self.json(),
        }
    }

    /// The messages of a stream of events.
    pub fn events(&self) -> Vec<Value> {
        self.body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| !data.is_empty())
            .map(|data| serde_json::from_str(data).expect("a message"))
            .collect()
    }
}

/// The headers every client sends, and those that mirror a modern message.
pub fn headers_of(message: &Value) -> Vec<(String, String)> {
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        (
            "accept".to_owned(),
            "application/json, text/event-stream".to_owned(),
        ),
    ];
    let params = &message["params"];
    let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
    if let Some(version) = version.as_str() {
        headers.push(("mcp-protocol-version".to_owned(), version.to_owned()));
        let method = message["method"].as_str().unwrap_or_default();
        headers.push(("mcp-method".to_owned(), method.to_owned()));
        if let Some(name) = params["name"].as_str() {
            headers.push(("mcp-name".to_owned(), name.to_owned()));
        }
    }
    headers
}

/// A connection on which a message was posted; dropping it hangs up.
pub fn post_open(port: u16, message: &Value, more: &[(&str, &str)]) -> TcpStream {
    let body = spelt(message);
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost:{port}\r\ncontent-length: {}\r\n",
        body.len()
    );
    let mut headers = headers_of(message);
    headers.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
    for (name, value) in &headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    for (name, value) in more {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let bytes = [head.as_bytes(), b"\r\n", body.as_bytes()].concat();
    stream.write_all(&bytes).expect("the gate reads");
    stream
}

/// The messages of a stream of events, as they come.
pub struct Events(BufReader<TcpStream>);

impl Events {
    pub fn of(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// The next one. Heads, chunk sizes and comments are passed over.
    pub fn next(&mut self) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.0.read_line(&mut line).expect("an event");
            assert_ne!(count, 0, "the stream ended");
            if let Some(data) = line.strip_prefix("data: {") {
                let data = format!("{{{data}");
                return serde_json::from_str(&data).unwrap_or_else(|e| panic!("{e}: {data}"));
            }
        }
    }
}

/// Posts a message on a connection of its own and reads the whole answer.
pub fn post_mcp(port: u16, message: &Value, more: &[(&str, &str)]) -> Answer {
    let mut more = more.to_vec();
    more.push(("connection", "close"));
    read_answer(post_open(port, message, &more))
}

/// Reads an answer to the end of its connection.
pub fn read_answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut chunk = [0; 64 * 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) => panic!("the gate does not answer: {error}"),
        }
    }
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let is_chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    Answer {
        status: status.expect("a status"),
        head: head.to_owned(),
        body: if is_chunked {
            unchunked(body)
        } else {
            body.to_owned()
        },
    }
}

fn unchunked(body: &str) -> String {
    let (mut text, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        text.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    text
}
