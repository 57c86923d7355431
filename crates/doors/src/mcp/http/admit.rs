//! The entrance's refusals in this door's words, and how to get past it.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use callgate_wires::jsonrpc::{INVALID_REQUEST, METHOD_NOT_FOUND, RpcError};

use super::{Door, HttpDoor, refuse};
use callgate_listener::access::Identity;
use callgate_listener::web::{Refused, json_response};

impl HttpDoor {
    /// Who asks, if the request may be looked at at all.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<Identity, Box<Response>> {
        let admitted = self.entrance.admit(headers).await;
        admitted.map_err(|refused| Box::new(self.refused(refused)))
    }

    /// Whoever may not is counted for the chain.
    pub(super) fn refused(&self, refused: Refused) -> Response {
        if let Some(gate) = self.server.gate() {
            gate.refused_stranger(refused.reason);
        }
        let error = RpcError::new(INVALID_REQUEST, refused.words.as_str());
        let told = refuse(refused.status, None, &error);
        refused.finish(told.into())
    }
}

/// RFC 9728: how to get a token. It needs none itself.
pub(super) async fn metadata(State(door): Door, headers: HeaderMap) -> Response {
    if let Err(refused) = door.entrance.check_names(&headers) {
        return door.refused(refused);
    }
    match door.entrance.metadata(&headers) {
        Some(document) => json_response(StatusCode::OK, document.to_string().into_bytes()),
        None => {
            let words = "tokens for this server are made by `callgate token create`";
            let error = RpcError::new(METHOD_NOT_FOUND, words);
            refuse(StatusCode::NOT_FOUND, None, &error).into()
        }
    }
}
