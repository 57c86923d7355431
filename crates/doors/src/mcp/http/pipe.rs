//! A connection of `gate.sock` that becomes the conversation of `stdio.rs`, for `callgate mcp` that
//! attaches to a running gate.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use callgate_call::ClientScope;
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
/// The same for `callgate mcp --client`.
pub const CLIENT_PIPE_PROTOCOL: &str = "callgate-mcp-client";
/// One pattern of `callgate mcp --only`.
pub const ONLY: &str = "callgate-only";
/// The name of `callgate mcp --client`.
pub const CLIENT: &str = "callgate-client";
/// `1` for `callgate mcp --client NAME --builtins`.
pub const BUILTINS: &str = "callgate-builtins";

/// The conversation of `stdio.rs` over this connection, for `callgate mcp` that attaches to us.
pub(super) async fn pipe(State(door): Door, mut request: axum::extract::Request) -> Response {
    let identity = match door.admit(request.headers()).await {
        Ok(identity) => identity,
        Err(response) => return *response,
    };
    let asked = asked_pipe(request.headers());
    let Some(asked) = asked.filter(|_| matches!(door.entrance.names, Names::Any)) else {
        let words = "only for `callgate mcp` on this machine";
        let error = RpcError::new(METHOD_NOT_FOUND, words);
        return refuse(StatusCode::NOT_FOUND, None, &error).into();
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let peer = Peer::new(identity.caller, door.wire, identity.scope, &asked.only);
    let peer = match asked.client {
        None => peer,
        client => peer.of_client(client),
    };
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
    headers.insert(header::UPGRADE, HeaderValue::from_static(asked.protocol));
    response
}

/// The conversation that a request asks for.
struct AskedPipe {
    protocol: &'static str,
    /// Patterns that its tools must fit.
    only: Vec<String>,
    client: Option<ClientScope>,
}

/// Reads the conversation that a request asks for, if it asks for one. A narrow pipe has at least
/// one pattern, and a header that cannot be read is never ignored.
fn asked_pipe(headers: &HeaderMap) -> Option<AskedPipe> {
    let texts = |name| {
        let values = headers.get_all(name).iter();
        let texts = values.map(|value| value.to_str().map(str::to_owned));
        texts.collect::<Result<Vec<String>, _>>().ok()
    };
    let (only, clients, builtins) = (texts(ONLY)?, texts(CLIENT)?, texts(BUILTINS)?);
    let (protocol, client) = match headers.get(header::UPGRADE)?.to_str().ok()? {
        PIPE_PROTOCOL if only.is_empty() && clients.is_empty() => (PIPE_PROTOCOL, None),
        NARROW_PIPE_PROTOCOL if !only.is_empty() && clients.is_empty() => {
            (NARROW_PIPE_PROTOCOL, None)
        }
        CLIENT_PIPE_PROTOCOL => match clients.as_slice() {
            [name] => {
                let (name, builtins) = (name.clone(), builtins == ["1"]);
                (CLIENT_PIPE_PROTOCOL, Some(ClientScope { name, builtins }))
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(AskedPipe {
        protocol,
        only,
        client,
    })
}
