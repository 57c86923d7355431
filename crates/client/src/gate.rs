//! Asking a running gate over its socket.

use std::error::Error;
use std::path::Path;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

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
    pub async fn ask(self, method: Method, path: &str, body: String) -> Result<Value, ClientError> {
        self.talk().await?.ask(method, path, body).await
    }

    /// Requests one after the other.
    pub async fn talk(self) -> Result<Talk, ClientError> {
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(self.stream))
            .await
            .map_err(failed("handshake"))?;
        // It must be driven while we wait, and ends with us.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Talk { sender, connection })
    }
}

/// A connection that is kept for the next request.
pub struct Talk {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

impl Talk {
    /// One request, and its whole answer as JSON.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Value, ClientError> {
        let body = self.open(method, path, body).await?.into_body();
        // bound: the gate's own, which bounds what it answers
        let body = body.collect().await.map_err(failed("read"))?;
        serde_json::from_slice(&body.to_bytes()).map_err(failed("body"))
    }

    /// One request, and an answer that is still to be read.
    pub async fn open(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "gate")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(failed("request"))?;
        let sent = self.sender.send_request(request).await;
        sent.map_err(failed("send"))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A gate that did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the gate did not answer ({step}: {error}); is `callgate serve` well?")]
pub struct ClientError {
    /// How far the conversation came.
    step: &'static str,
    error: Box<dyn Error + Send + Sync>,
}

fn failed<E: Error + Send + Sync + 'static>(step: &'static str) -> impl FnOnce(E) -> ClientError {
    move |error| ClientError {
        step,
        error: Box::new(error),
    }
}
