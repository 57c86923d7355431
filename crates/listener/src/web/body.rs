//! Reads a request's body: no more than fits, and not for ever.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// Largest body.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A body must be here so long after its head.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

const _: () = assert!(BODY_BYTES_MAX == 16 * 1024 * 1024, "as the words say");

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    TooLarge,
    TooSlow,
    Broken,
}

impl Unread {
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::TooLarge => "the body is larger than 16 MiB",
            Self::TooSlow => "the body did not come in time",
            Self::Broken => "the body broke off",
        }
    }
}

/// The whole of a body.
pub async fn read_body<B>(body: B, headers: &HeaderMap) -> Result<Bytes, Unread>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    read(body, headers, BODY_BYTES_MAX, BODY_PATIENCE).await
}

/// The whole of a body that has `bytes_max` at most, which are fewer than usual.
pub async fn read_body_of<B>(
    body: B,
    headers: &HeaderMap,
    bytes_max: usize,
) -> Result<Bytes, Unread>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    read(body, headers, bytes_max.min(BODY_BYTES_MAX), BODY_PATIENCE).await
}

async fn read<B>(
    body: B,
    headers: &HeaderMap,
    bytes_max: usize,
    patience: Duration,
) -> Result<Bytes, Unread>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let told = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(Unread::TooLarge);
    }
    let mut body = pin!(Limited::new(body, bytes_max).collect());
    // Nearly every body comes with its head and needs no clock.
    let read = match poll_fn(|cx| Poll::Ready(body.as_mut().poll(cx))).await {
        Poll::Ready(read) => read,
        Poll::Pending => match tokio::time::timeout(patience, body).await {
            Ok(read) => read,
            Err(_) => return Err(Unread::TooSlow),
        },
    };
    match read {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Unread::TooLarge),
        Err(_) => Err(Unread::Broken),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;
    use axum::body::Body;

    /// A body that does not come.
    struct Never;

    impl hyper::body::Body for Never {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    /// At, past and far past the edge; with and without a length told before.
    #[tokio::test]
    async fn bounds() {
        let wait = Duration::from_secs(60);
        let none = HeaderMap::new();
        let told = |bytes: usize| HeaderMap::from_iter([(header::CONTENT_LENGTH, bytes.into())]);
        let body = |bytes: usize| Body::from(vec![b'x'; bytes]);
        assert_eq!(read(body(8), &none, 8, wait).await.unwrap().len(), 8);
        assert_eq!(read(body(9), &none, 8, wait).await, Err(Unread::TooLarge));
        assert_eq!(read(body(8), &told(8), 8, wait).await.unwrap().len(), 8);
        let never = || Body::new(Never);
        assert_eq!(
            read(never(), &told(9), 8, wait).await,
            Err(Unread::TooLarge)
        );
        let soon = Duration::from_millis(1);
        assert_eq!(read(never(), &none, 8, soon).await, Err(Unread::TooSlow));
    }
}
