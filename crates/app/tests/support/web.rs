//! HTTP as a client without a library sends it, and an issuer of tokens on a socket of its own.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::drive::{PATIENCE, Serve, cli};
use super::{Folder, callgate, wait_for};

/// A gate and its port.
pub struct Web {
    pub serve: Serve,
    pub port: u16,
}

impl Web {
    /// `callgate serve --port 0 ARGS…`.
    pub fn start(folder: &Folder, args: &[&str]) -> Self {
        Self::start_with(folder, |command| {
            command.args(args);
        })
    }

    /// The same, with whatever else the command is to have.
    pub fn start_with(folder: &Folder, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = callgate(folder);
        command.args(["serve", "--port", "0"]);
        command.env("CALLGATE_LOG", "debug");
        change(&mut command);
        let serve = Serve::spawn(&mut command, folder.join("state/gate.sock"));
        let port = wait_for("the port", || {
            let said = serve.said();
            let (_, rest) = said.split_once("MCP on http://127.0.0.1:")?;
            rest.split_once('/')?.0.parse().ok()
        });
        Self { serve, port }
    }

    /// A modern request by whoever has `token`.
    pub fn ask(&self, token: Option<&str>, method: &str, params: Value) -> Reply {
        self.send(&modern(token, method, params))
    }

    /// A modern `tools/call`.
    pub fn call(&self, token: &str, name: &str, arguments: Value) -> Reply {
        let params = json!({ "name": name, "arguments": arguments });
        self.ask(Some(token), "tools/call", params)
    }

    /// The names in the `tools/list` of whoever has `token`.
    pub fn tools(&self, token: &str) -> Vec<String> {
        let reply = self.ask(Some(token), "tools/list", json!({}));
        assert_eq!(reply.status, 200, "{reply:?}");
        let body = reply.json();
        let tools = body["result"]["tools"].as_array().expect("a list");
        let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
        tools.iter().map(name).collect()
    }

    /// A request on a connection of its own.
    pub fn send(&self, request: &Request) -> Reply {
        let mut stream = self.connect();
        stream
            .write_all(&request.bytes("connection: close\r\n"))
            .expect("write");
        hear(&mut stream)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }
}

/// A request, to be changed before it is sent.
#[derive(Clone, Debug)]
pub struct Request {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(line: &str, body: &[u8]) -> Self {
        Self {
            line: line.to_owned(),
            headers: Vec::new(),
            body: body.to_vec(),
        }
        .with("host", "localhost")
        .with("content-type", "application/json")
        .with("accept", "application/json, text/event-stream")
    }

    /// With this header, and no other of its name.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub fn by(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// The bytes, with `more` among the headers.
    pub fn bytes(&self, more: &str) -> Vec<u8> {
        let mut head = format!("{} HTTP/1.1\r\n{more}", self.line);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self
            .headers
            .iter()
            .any(|(name, _)| name == "transfer-encoding")
        {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }
}

/// A modern request with all that it must bring.
pub fn modern(token: Option<&str>, method: &str, mut params: Value) -> Request {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    if params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_null() {
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut request = Request::new("POST /mcp", body.to_string().as_bytes())
        .with("mcp-protocol-version", "2026-07-28")
        .with("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        request = request.with("mcp-name", name);
    }
    match token {
        Some(token) => request.by(token),
        None => request,
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// The body, or the last event of it.
    pub fn json(&self) -> Value {
        let text = self.body.rsplit("data: ").next().unwrap_or(&self.body);
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The first text of a result.
    pub fn text(&self) -> String {
        let body = self.json();
        let text = body.pointer("/result/content/0/text");
        text.and_then(Value::as_str)
            .unwrap_or_else(|| panic!("no text: {body}"))
            .to_owned()
    }
}

/// All that comes until the other side closes.
pub fn hear(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    // A reset after the answer takes nothing from it.
    let _ = stream.read_to_end(&mut bytes);
    reply_of(&bytes)
}

/// Reads until `end` has come.
pub fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| {
            let heard = String::from_utf8_lossy(&bytes);
            panic!("{error} before {end:?}: {heard}")
        });
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One answer of a connection that stays open. Its body must have a length.
pub fn hear_one(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        bytes.push(byte[0]);
    }
    let head = reply_of(&bytes);
    let length = head.header("content-length").expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    stream.read_exact(&mut body).expect("a body");
    bytes.extend_from_slice(&body);
    reply_of(&bytes)
}

fn reply_of(bytes: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    Reply {
        status: status.unwrap_or_else(|| panic!("no status: {head}")),
        head: head.to_owned(),
        body: if chunked {
            joined(body)
        } else {
            body.to_owned()
        },
    }
}

/// The chunks of a body, one behind the other.
fn joined(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = after.get(..size).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        body.push_str(chunk);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}

/// A port of this machine at which nobody listens, nor will while the guard lives: the other end
/// of a connection has it.
pub fn nobody() -> (u16, impl Sized) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    let held = TcpStream::connect(at).expect("connect");
    let port = held.local_addr().expect("connected").port();
    (port, (listener, held))
}

/// What an issuer talks over.
pub trait Talk: std::io::Read + std::io::Write {}

impl<T: std::io::Read + std::io::Write> Talk for T {}

/// An issuer: a key pair, a discovery document, a key set, and a count of who asked.
pub struct Issuer {
    pub url: String,
    pub pair: EcdsaKeyPair,
    pub asked: Arc<AtomicUsize>,
}

impl Issuer {
    pub fn start() -> Self {
        Self::start_over("http", |stream| Box::new(stream))
    }

    /// One whose connections are made into something first.
    pub fn start_over(
        scheme: &str,
        over: impl Fn(TcpStream) -> Box<dyn Talk> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("{scheme}://{}", listener.local_addr().expect("bound"));
        let pair = new_pair();
        let point = pair.public_key().as_ref();
        let key = json!({
            "kty": "EC", "crv": concat!("P-", "256"), "kid": "k1", "use": "sig", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]),
            "y": URL_SAFE_NO_PAD.encode(&point[33..65]),
        });
        let jwks = json!({ "keys": [key] }).to_string();
        let document = json!({ "issuer": url, "jwks_uri": format!("{url}/jwks") }).to_string();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                let mut stream = over(stream);
                let mut head = [0; 4096];
                let bytes = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..bytes]);
                let (status, body) = if head.starts_with("GET /jwks ") {
                    count.fetch_add(1, Ordering::SeqCst);
                    (200, jwks.as_str())
                } else if head.starts_with("GET /.well-known/oauth-authorization-server ") {
                    (200, document.as_str())
                } else {
                    (404, "{}")
                };
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}"
                );
            }
        });
        Self { url, pair, asked }
    }

    /// What its tokens say, good for an hour.
    pub fn claims(&self, scope: &str) -> Value {
        json!({
            "iss": self.url, "aud": "https://gate.test/mcp", "sub": "alice",
            "exp": now() + 3600, "nbf": now() - 10, "scope": scope,
        })
    }

    /// A token of its own.
    pub fn token(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "k1" });
        signed(&header, claims, |message| sign(&self.pair, message))
    }
}

pub fn new_pair() -> EcdsaKeyPair {
    let (how, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(how, &random).expect("a key pair");
    EcdsaKeyPair::from_pkcs8(how, pkcs8.as_ref(), &random).expect("its own key pair")
}

pub fn sign(pair: &EcdsaKeyPair, message: &[u8]) -> Vec<u8> {
    let signature = pair.sign(&SystemRandom::new(), message);
    signature.expect("a signature").as_ref().to_vec()
}

/// A token with any header and any signature.
pub fn signed(header: &Value, claims: &Value, by: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(by(message.as_bytes()));
    format!("{message}.{signature}")
}

/// Seconds since the epoch.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// Everything that was said to anybody, to be searched for what must not be in it.
#[derive(Default)]
pub struct Heard(Mutex<Vec<String>>);

impl Heard {
    pub fn keep(&self, reply: Reply) -> Reply {
        let text = format!("{}\n{}", reply.head, reply.body);
        self.0.lock().expect("no panic holds it").push(text);
        reply
    }

    pub fn holds(&self, secret: &str) -> bool {
        let all = self.0.lock().expect("no panic holds it");
        all.iter().any(|text| text.contains(secret))
    }
}

const TOOLS: &str = r#"
[[tool]]
name = "papers/read"
tier = 0
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
[[tool]]
name = "papers/write"
tier = 1
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
[[tool]]
name = "deploy"
tier = 2
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
[[tool]]
name = "slow"
tier = 0
timeout_ms = 60000
writes = ["effects.log"]
code = ["slow.sh"]
runner = { kind = "process", command = ["/bin/sh", "slow.sh"] }
"#;

const TOOL: &str = "read -r input\nprintf '{\"got\":%s}' \"$input\"\n";

/// Says that it runs, waits until `go` is there, and answers.
const SLOW: &str = "read -r input\necho started >> effects.log\n\
                    while [ ! -e go ]; do sleep 0.02; done\necho '{\"slow\":true}'\n";

/// A workspace with tools of three tiers and one that waits.
pub fn trusted(more: &str) -> Folder {
    let folder = Folder::new();
    folder.write("callgate.toml", &format!("{more}\n{TOOLS}"));
    folder.write("tool.sh", TOOL);
    folder.write("slow.sh", SLOW);
    cli(&folder, &["trust"]).good();
    folder
}

/// A new token of the store.
pub fn token(folder: &Folder, args: &[&str]) -> String {
    let args = [&["token", "create", "--json"], args].concat();
    let made = cli(folder, &args).good().json();
    made["token"].as_str().expect("a token").to_owned()
}

/// The owner's token.
pub fn owner(folder: &Folder) -> String {
    let shown = cli(folder, &["token", "owner"]).good();
    shown.out.trim_end().to_owned()
}

/// The code of a JSON-RPC error.
pub fn code(reply: &Reply) -> i64 {
    let body = reply.json();
    body["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error: {body}"))
}

/// 401, with this word in the challenge.
pub fn assert_refused(reply: &Reply, error: &str) {
    assert_eq!(reply.status, 401, "{reply:?}");
    let challenge = reply.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("Bearer "), "{challenge}");
    let told = format!("error=\"{error}\"");
    assert_eq!(challenge.contains(&told), !error.is_empty(), "{challenge}");
    assert_eq!(challenge.contains("error="), !error.is_empty());
}
