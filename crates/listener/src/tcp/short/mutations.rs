//! Seeded mutations of requests, 100,000: whatever goes the short way is read as the library
//! would have read it, whatever came before it on its connection and wherever it was cut.

use std::convert::Infallible;
use std::sync::Mutex;

use axum::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::*;
use callgate_testing::{Random, mutant};

const CASES: usize = 100_000;

const REQUESTS: [&[u8]; 5] = [
    b"POST /mcp HTTP/1.1\r\nHost: localhost:7411\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"jsonrpc\":1}",
    b"POST /mcp HTTP/1.1\r\nHost: localhost:7411\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}POST /",
    b"POST /rpc?a=b HTTP/1.1\r\nContent-Length:5\r\nempty:\r\naccept: a, b\r\naccept: c\r\nconnection: keep-alive\r\n\r\nhello",
    b"POST http://localhost/tools HTTP/1.1\nhost: x\ncontent-length: 0\n\n",
    b"POST /mcp HTTP/1.1\r\nx: \xff\t\r\ncontent-length: 00003 \r\n\r\nabc",
];

const WORDS: [&[u8]; 24] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b": ",
    b"0",
    b"1",
    b"99999999999999999999",
    b"+",
    b"-",
    b"content-length: 3\r\n",
    b"Content-Length:",
    b"transfer-encoding: chunked\r\n",
    b"connection: close\r\n",
    b"connection: keep-alive\r\n",
    b"expect: 100-continue\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1\r\n",
    b"GET ",
    b"\0",
    b"\xff",
];

/// What the library makes of the first request.
async fn by_the_library(bytes: &[u8]) -> Option<(Parts, Bytes)> {
    let (near, far) = tokio::io::duplex(2 * REQUEST_BYTES_MAX);
    let (mut reading, mut writing) = tokio::io::split(near);
    writing.write_all(bytes).await.unwrap();
    writing.shutdown().await.unwrap();
    let heard = Arc::new(Mutex::new(None));
    let first = Arc::clone(&heard);
    let service = service_fn(move |request: Request<Incoming>| {
        let first = Arc::clone(&first);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            let mut first = first.lock().unwrap();
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
    let _ = tokio::join!(served, reading.read_to_end(&mut answers));
    heard.lock().unwrap().take()
}

#[tokio::test]
async fn requests() {
    let mut random = Random::new("short requests");
    let mut accepted = 0;
    let mut last = Last::default();
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &REQUESTS, &WORDS);
        let fresh = Last::default().take(&bytes);
        // What came before on the connection changes nothing.
        let known = last.take(&bytes);
        let shown = bytes.escape_ascii().to_string();
        assert_eq!(fresh.is_err(), known.is_err(), "{shown}");
        let (Ok(Some((head, body))), Ok(known)) = (fresh, known) else {
            continue;
        };
        accepted += 1;
        let (known, known_body) = known.expect(&shown);
        assert_eq!(known_body, body, "{shown}");
        assert_eq!(known.headers(), head.headers(), "{shown}");
        assert_eq!(known.path(), head.path(), "{shown}");
        let cut = random.below(body.end);
        let cut = Last::default().take(&bytes[..cut]);
        assert!(matches!(cut, Ok(None)), "{shown}");

        let (parts, whole) = by_the_library(&bytes).await.expect(&shown);
        let mut headers = parts.headers;
        headers.remove(header::CONTENT_LENGTH);
        assert_eq!((parts.method, parts.uri), (Method::POST, head.uri.clone()));
        assert_eq!(&headers, head.headers(), "{shown}");
        assert_eq!(whole, bytes[body], "{shown}");
    }
    eprintln!("{accepted} of {CASES} went the short way");
    assert!(accepted > 1000 && accepted < CASES);
}
