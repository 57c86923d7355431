//! Answers that are streams of events.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use tokio::sync::mpsc;

/// How often a silent stream shows that it lives.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// Events that wait for a client that does not read; then whoever speaks waits.
pub const EVENTS_WAITING_MAX: usize = 16;

/// The answer that is a stream.
pub fn event_stream(events: mpsc::Receiver<Bytes>) -> Response {
    let mut response = Response::new(Body::new(Events(events)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A proxy that gathers events would make them late.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A body of events as they come.
struct Events(mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(context)
            .map(|event| event.map(|event| Ok(http_body::Frame::data(event))))
    }
}
