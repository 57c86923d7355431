//! What a request's head says it takes, and the plain answers.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

pub(crate) fn content_type_is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    value.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    })
}

pub(crate) fn accepts_both(headers: &HeaderMap) -> bool {
    accepts(headers, "application/json") && accepts(headers, "text/event-stream")
}

pub(crate) fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let any_of_kind = wanted.split('/').next().map(|kind| format!("{kind}/*"));
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|item| item.split(';').next().unwrap_or_default().trim())
        .any(|kind| {
            kind.eq_ignore_ascii_case(wanted)
                || kind == "*/*"
                || Some(kind) == any_of_kind.as_deref()
        })
}

pub(crate) fn json_response(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
