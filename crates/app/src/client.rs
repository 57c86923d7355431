//! Asking a running gate over its socket.

use std::path::Path;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

/// A running gate that answered our knock.
pub struct Client {
    stream: UnixStream,
}

impl Client {
    /// `None` if no gate of ours answers there: another user's may not have our input.
    pub async fn connect(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).await.ok()?;
        let uid = rustix::process::geteuid().as_raw();
        (stream.peer_cred().ok()?.uid() == uid).then_some(Self { stream })
    }

    /// The connection, for a conversation of another kind.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }

    /// One request, one answer.
    pub async fn ask(self, method: Method, path: &str, body: String) -> Result<Value, String> {
        let failed = |what: &str, error: &dyn std::error::Error| {
            format!("the gate did not answer ({what}: {error}); is `callgate serve` well?")
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.stream))
                .await
                .map_err(|error| failed("handshake", &error))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "gate")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| failed("request", &error))?;
        let exchange = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|e| failed("send", &e))?;
            let body = response
                .into_body()
                .collect()
                .await
                .map_err(|e| failed("read", &e))?;
            serde_json::from_slice(&body.to_bytes()).map_err(|e| failed("body", &e))
        };
        // The connection must be driven while we wait, and ends with us.
        tokio::select! {
            answer = exchange => answer,
            Err(error) = connection => Err(failed("connection", &error)),
        }
    }
}
