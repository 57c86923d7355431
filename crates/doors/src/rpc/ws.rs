//! `GET /rpc/ws`: the conversation of pipes over a WebSocket, a message in each of its messages.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_wires::jsonrpc::{INVALID_REQUEST, RpcError};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::coding::CloseCode;

use super::Reached;
use super::conversation::{Ends, Received, converse};
use super::frames::{Frames, Incoming, write_close, write_ping, write_text};
use super::http::{Door, answer};
use crate::mcp::stdio::LINE_BYTES_MAX;
use callgate_listener::tcp::Leaves;
use callgate_listener::web::{empty, kept_bearer, no_longer_good};

/// How often we ask a silent client whether it is there. One that does not say so by the next
/// time is not.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a client may leave what we write unread. Meanwhile it takes a connection's place.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long what runs may still answer once the client said goodbye: nobody is there to read it.
const GRACE: Duration = Duration::ZERO;

const READ_BYTES: usize = 16 * 1024;

pub(super) async fn open(State(door): Door, mut request: axum::extract::Request) -> Response {
    let identity = match door.admit(request.headers()).await {
        Ok(identity) => identity,
        Err(refused) => return *refused,
    };
    let Some(accepted) = accepted(request.headers()) else {
        return not_a_handshake();
    };
    let peer = door.peer(identity);
    let Some(place) = door.rpc.listeners.enter(&peer.caller) else {
        return door.rpc.listeners.full();
    };
    // A copy: the original would keep its whole head for as long as the conversation lasts.
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| HeaderValue::from_bytes(host.as_bytes()).ok());
    let reached = Reached::Http(host);
    let access = Arc::clone(&door.entrance.access);
    let bearer = kept_bearer(request.headers());
    let rpc = Arc::clone(&door.rpc);
    // What went wrong on the way is the client's.
    let talk = async move |socket: WebSocket<Box<dyn Socket>>| {
        let _place = place;
        let stop = rpc.closing.stop.clone();
        // A token that is no longer good cuts the conversation off: its connection is closed, and its
        // calls end as those of a client that has left.
        tokio::select! {
            _ = converse(&rpc, peer, reached, socket, &stop) => {}
            () = no_longer_good(access, bearer) => {}
        }
    };
    match request.extensions().get::<Leaves>() {
        Some(leaves) => leaves.then(Box::new(|stream, read| {
            Box::pin(async move { talk(WebSocket::new(Box::new(stream), &read)).await })
        })),
        None => {
            let upgrade = hyper::upgrade::on(&mut request);
            door.rpc.listeners.tasks.spawn(async move {
                if let Ok(upgraded) = upgrade.await {
                    let stream = Box::new(TokioIo::new(upgraded));
                    talk(WebSocket::new(stream, &Bytes::new())).await;
                }
            });
        }
    }
    switching(&accepted)
}

/// The answer to a client's key; `None` if this is no handshake.
fn accepted(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    let handshake = has(header::UPGRADE, "websocket")
        && has(header::CONNECTION, "upgrade")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    if !handshake || !is_key {
        return None;
    }
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

fn switching(accepted: &HeaderValue) -> Response {
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted.clone());
    response
}

fn not_a_handshake() -> Response {
    let words = "a WebSocket of version 13 is opened here";
    let mut response = answer(&RpcError::new(INVALID_REQUEST, words));
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(
        header::SEC_WEBSOCKET_VERSION,
        HeaderValue::from_static("13"),
    );
    response
}

/// Bytes both ways.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// A connection on which WebSocket messages come and go.
struct WebSocket<S> {
    socket: S,
    frames: Frames,
    chunk: Vec<u8>,
    /// Nothing more is read.
    ended: bool,
    /// We asked whether they are there, and heard nothing since.
    asked: bool,
    ask_at: Instant,
}

impl<S> WebSocket<S> {
    fn new(socket: S, read: &[u8]) -> Self {
        let mut frames = Frames::new(LINE_BYTES_MAX);
        frames.feed(read);
        Self {
            socket,
            frames,
            chunk: vec![0; READ_BYTES],
            ended: false,
            asked: false,
            ask_at: Instant::now() + PING_EVERY,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Ends for WebSocket<S> {
    const GRACE: Duration = GRACE;
    const PATIENCE: Option<Duration> = Some(PATIENCE);

    async fn unheard(&mut self) {
        std::future::pending().await
    }

    async fn receive(&mut self) -> io::Result<Received> {
        loop {
            if self.ended {
                return Ok(Received::End);
            }
            match self.frames.next() {
                Some(Incoming::Message(message)) => return Ok(Received::Message(message)),
                Some(Incoming::Ping(pong)) => return Ok(Received::Reply(pong)),
                Some(Incoming::Close(close)) => {
                    self.ended = true;
                    return Ok(Received::Reply(close));
                }
                None => {}
            }
            // A read that is given up has taken nothing.
            let read = tokio::select! {
                read = self.socket.read(&mut self.chunk) => Some(read?),
                () = sleep_until(self.ask_at) => None,
            };
            self.ask_at = Instant::now() + PING_EVERY;
            match read {
                Some(0) => self.ended = true,
                Some(read) => {
                    self.asked = false;
                    self.frames.feed(&self.chunk[..read]);
                }
                None if self.asked => self.ended = true,
                None => {
                    self.asked = true;
                    let mut out = Vec::new();
                    write_ping(&mut out);
                    return Ok(Received::Reply(out));
                }
            }
        }
    }

    fn put(&self, message: &[u8], out: &mut Vec<u8>) {
        write_text(message, out);
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await?;
        self.socket.flush().await
    }

    fn put_farewell(&self, out: &mut Vec<u8>) {
        if !self.ended {
            write_close(CloseCode::Away, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455.
    #[test]
    fn handshakes() {
        let headers = |fields: &[(&'static str, &'static str)]| {
            let field = |(name, value): &(&'static str, &'static str)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            };
            HeaderMap::from_iter(fields.iter().map(field))
        };
        let whole = [
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let wanted = HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accepted(&headers(&whole)), Some(wanted));
        for left_out in 0..whole.len() {
            let mut some = whole.to_vec();
            some.remove(left_out);
            assert_eq!(accepted(&headers(&some)), None);
        }
    }
}
