//! A port that strangers may knock at. Messages to MCP and to JSON-RPC, nearly all there is, go
//! straight to their doors; the rest is the router's.

use std::sync::Arc;

use axum::Router;
use axum::http::Request;
use axum::response::Response;
use callgate_call::{Cancel, Clock};
use tokio::net::TcpListener;

use crate::{mcp, rpc};
use callgate_listener::tcp::{self, Answers, Asked, Head, Limits, Told};

/// Who answers at one port.
pub struct Port {
    /// MCP.
    pub mcp: Arc<mcp::http::HttpDoor>,
    /// JSON-RPC.
    pub rpc: Arc<rpc::http::HttpDoor>,
    /// All paths, those two among them.
    pub router: Router,
}

impl Port {
    /// Serves connections of `listener` until `stop`, and then until `calls` is ready.
    pub async fn serve(
        self,
        listener: TcpListener,
        limits: Limits,
        clock: Arc<dyn Clock>,
        calls: impl Future<Output = ()>,
        stop: Cancel,
    ) {
        tcp::serve(listener, Arc::new(self), limits, clock, calls, stop).await;
    }
}

impl Answers for Port {
    async fn message(&self, head: &Head, body: &[u8]) -> Told {
        match head.path() {
            mcp::http::PATH => self.mcp.message(head, body).await,
            rpc::http::PATH | rpc::http::NO_PATH => self.rpc.message(head, body).await,
            _ => self.router.message(head, body).await,
        }
    }

    async fn request(&self, request: Request<Asked>) -> Response {
        self.router.request(request).await
    }
}
