//! The content types in a request's head, and plain answers.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

/// Returns whether the body is declared as `application/json`.
pub fn content_type_is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    value.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    })
}

/// The content types that a request sends and accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// The body is declared as `application/json`.
    pub sends_json: bool,
    /// The client accepts plain answers and event streams alike.
    pub accepts_both: bool,
}

impl Kinds {
    /// Reads the content types of a request's head.
    pub fn of(headers: &HeaderMap) -> Self {
        let takes = |kind: &str| accepts(headers, kind);
        Self {
            sends_json: content_type_is_json(headers),
            accepts_both: takes("application/json") && takes("text/event-stream"),
        }
    }
}

/// Returns whether `Accept` lists the content type `wanted`.
pub fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let wanted = wanted.as_bytes();
    let kind = wanted.split(|byte| *byte == b'/').next();
    headers
        .get_all(header::ACCEPT)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|item| item.split(|byte| *byte == b';').next())
        .map(<[u8]>::trim_ascii)
        .any(|item| {
            item.eq_ignore_ascii_case(wanted)
                || item == b"*/*"
                || item
                    .strip_suffix(b"/*")
                    .is_some_and(|any| Some(any) == kind)
        })
}

/// An answer with a JSON body.
pub fn json_response(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
