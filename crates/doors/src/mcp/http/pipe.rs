//! A connection of `gate.sock` that becomes the conversation of `stdio.rs`, for `callgate mcp` that
//! attaches to a running gate.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use callgate_listener::web::{Names, empty};
use callgate_wires::jsonrpc::{METHOD_NOT_FOUND, RpcError};
use hyper_util::rt::TokioIo;

use super::super::{Peer, stdio};
use super::{Door, refuse};

/// The protocol that `callgate mcp` asks of a connection of `gate.sock`.
pub const PIPE_PROTOCOL: &str = "callgate-mcp";
/// The same for `callgate mcp --only`. A gate that does not know `ONLY` does not know this protocol
/// either, and refuses it instead of serving all tools.
pub const NARROW_PIPE_PROTOCOL: &str = "callgate-mcp-only";
/// One pattern of `callgate mcp --only`.
pub const ONLY: &str = "callgate-only";

/// The conversation of `stdio.rs` over this connection, for `callgate mcp` that attaches to us.
pub(super) async fn pipe(State(door): Door, mut request: axum::extract::Request) -> Response {
    let identity = match door.admit(request.headers()).await {
        Ok(identity) => identity,
        Err(response) => return *response,
    };
    let Some((protocol, only)) =
        asked_pipe(request.headers()).filter(|_| matches!(door.entrance.names, Names::Any))
    else {
        let words = "only for `callgate mcp` on this machine";
        let error = RpcError::new(METHOD_NOT_FOUND, words);
        return refuse(StatusCode::NOT_FOUND, None, &error).into();
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let peer = Peer::new(identity.caller, door.wire, identity.scope, &only);
    let server = Arc::clone(&door.server);
    door.server.calls.spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let ends = stdio::Socket(TokioIo::new(upgraded));
            let stop = server.stopping.clone();
            // A reader that went away is no error.
            let _ = stdio::serve(&server, peer, ends, &stop).await;
        }
    });
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// The protocol of a pipe and the patterns its tools must fit, if the request is for one. A narrow
/// pipe has at least one pattern, and no pipe ignores one that cannot be read.
fn asked_pipe(headers: &HeaderMap) -> Option<(&'static str, Vec<String>)> {
    let patterns = headers.get_all(ONLY).iter();
    let patterns: Result<Vec<String>, _> = patterns
        .map(|pattern| pattern.to_str().map(str::to_owned))
        .collect();
    let only = patterns.ok()?;
    match headers.get(header::UPGRADE)?.to_str().ok()? {
        PIPE_PROTOCOL if only.is_empty() => Some((PIPE_PROTOCOL, only)),
        NARROW_PIPE_PROTOCOL if !only.is_empty() => Some((NARROW_PIPE_PROTOCOL, only)),
        _ => None,
    }
}
