//! What holds of any bytes at the beginning of a connection: whatever goes the short way is read
//! as hyper would have read it. For the seeded mutations and the fuzz target `http-short`.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use axum::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::*;

/// Panics unless `bytes` are read alike by hyper, by a new connection, and by one that read other
/// requests before; and unless more bytes are waited for where they are cut. Returns whether they
/// go the short way.
pub(crate) async fn read_as_by_hyper(bytes: &[u8], earlier: &mut Last, cut: usize) -> bool {
    let shown = bytes.escape_ascii();
    let fresh = Last::default().take(bytes);
    let known = earlier.take(bytes);
    assert_eq!(fresh.is_err(), known.is_err(), "{shown}");
    let (Ok(Some((head, body))), Ok(known)) = (fresh, known) else {
        return false;
    };
    let (known, known_body) = known.expect("a whole request is whole after others too");
    assert_eq!(known_body, body, "{shown}");
    assert_eq!(known.headers(), head.headers(), "{shown}");
    assert_eq!(known.path(), head.path(), "{shown}");
    let cut = Last::default().take(&bytes[..cut % body.end]);
    assert!(matches!(cut, Ok(None)), "{shown}");

    let (parts, whole) = first_by_hyper(bytes).await.expect("hyper reads it");
    let mut headers = parts.headers;
    headers.remove(header::CONTENT_LENGTH);
    assert_eq!((parts.method, parts.uri), (Method::POST, head.uri.clone()));
    assert_eq!(&headers, head.headers(), "{shown}");
    assert_eq!(whole, bytes[body], "{shown}");
    true
}

/// The first request of a connection as hyper reads it.
async fn first_by_hyper(bytes: &[u8]) -> Option<(Parts, Bytes)> {
    let (near, far) = tokio::io::duplex(2 * REQUEST_BYTES_MAX);
    let (mut reading, mut writing) = tokio::io::split(near);
    writing.write_all(bytes).await.ok()?;
    writing.shutdown().await.ok()?;
    let found = Arc::new(Mutex::new(None));
    let first = Arc::clone(&found);
    let service = service_fn(move |request: Request<Incoming>| {
        let first = Arc::clone(&first);
        async move {
            let (parts, body) = request.into_parts();
            // bound: the bytes of the caller
            let body = body.collect().await.map(|body| body.to_bytes());
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Ok(body), true) = (body, first.is_none()) {
                *first = Some((parts, body));
            }
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    // What comes after the first request is not looked at, and may be anything.
    let served = http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(far), service);
    let mut answers = Vec::new();
    // bound: an answer without a body for each request
    let _ = tokio::join!(served, reading.read_to_end(&mut answers));
    found.lock().unwrap_or_else(PoisonError::into_inner).take()
}
