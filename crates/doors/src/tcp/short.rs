//! The short way. A small message by `POST`, whole and with its length told, is read and answered
//! here, without the HTTP library: for the most frequent request there is, that does more than
//! is needed. Whatever is not that plain is the library's, from its first byte on, and so is
//! all that follows on its connection.

use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, response,
};
use axum::response::Response;
use callgate_call::{Cancel, Clock};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::Limits;

/// Largest request that goes the short way, and so what a stranger may have us keep.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Header fields of one; more are the library's.
const FIELDS_MAX: usize = 32;
/// Answers up to this length leave in one write.
const WRITE_BYTES: usize = 64 * 1024;

/// A request's body: here, or on its way.
pub enum Asked {
    /// All of it.
    Whole(Bytes),
    /// As it comes.
    Coming(Incoming),
}

impl http_body::Body for Asked {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Coming(coming) => Pin::new(coming).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Coming(coming) => coming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Coming(coming) => coming.size_hint(),
        }
    }
}

/// The date as answers tell it, made once a second.
pub(super) struct Dates {
    clock: Arc<dyn Clock>,
    last: Mutex<(u64, String)>,
}

impl Dates {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let last = Mutex::new((u64::MAX, String::new()));
        Self { clock, last }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let second = self.clock.now().0 / 1000;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != second {
            let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            *last = (second, httpdate::fmt_http_date(moment));
        }
        out.extend_from_slice(last.1.as_bytes());
    }
}

/// How a connection left the short way.
pub(super) enum Left {
    /// It is over.
    Over,
    /// The library's: these bytes were read already.
    Library(Vec<u8>),
}

/// Carries a connection's requests out as long as they are plain.
pub(super) async fn carry<A, F>(
    stream: &mut TcpStream,
    answer: &A,
    limits: &Limits,
    dates: &Dates,
    stop: &Cancel,
) -> Left
where
    A: Fn(Request<Asked>) -> F,
    F: Future<Output = Response>,
{
    let mut came = Vec::with_capacity(4 * 1024);
    let mut stopped = pin!(stop.cancelled());
    let mut patience = pin!(sleep(limits.head));
    let mut place = Place::default();
    loop {
        // The first time the clock runs from the connection on, then from the answer before.
        let mut runs = place.is_new();
        let request = loop {
            match place.take(&mut came) {
                Ok(Some(request)) => break request,
                Ok(None) => {}
                Err(NotPlain) => return Left::Library(came),
            }
            let late = async {
                if !runs {
                    patience.as_mut().reset(Instant::now() + limits.head);
                    runs = true;
                }
                patience.as_mut().await;
            };
            tokio::select! {
                biased;
                read = stream.read_buf(&mut came) => {
                    if !matches!(read, Ok(count) if count > 0) {
                        return Left::Over;
                    }
                }
                () = &mut stopped => return Left::Over,
                () = late => return Left::Over,
            }
        };
        let response = tokio::select! {
            biased;
            response = answer(request) => response,
            () = hung_up(stream, &mut came) => return Left::Over,
        };
        match tell(stream, &mut came, response, dates).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return Left::Over,
        }
    }
}

/// Ready once the other side hangs up. What it says before is kept, as far as there is room.
async fn hung_up(stream: &TcpStream, came: &mut Vec<u8>) {
    while came.len() < REQUEST_BYTES_MAX {
        if stream.readable().await.is_err() {
            return;
        }
        match stream.try_read_buf(came) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
    // Whoever has so much to say is there.
    std::future::pending::<()>().await;
}

/// A request that is the library's.
#[derive(Debug, PartialEq, Eq)]
struct NotPlain;

/// Where the last request went: nearly always the next one goes there too.
#[derive(Default)]
struct Place(Option<Uri>);

impl Place {
    fn is_new(&self) -> bool {
        self.0.is_none()
    }

    fn uri(&mut self, target: &str) -> Option<Uri> {
        let same = |uri: &&Uri| uri.path_and_query().is_some_and(|known| known == target);
        if let Some(known) = self.0.as_ref().filter(same) {
            return Some(known.clone());
        }
        let uri: Uri = target.parse().ok()?;
        self.0 = Some(uri.clone());
        Some(uri)
    }

    /// Takes one request off the beginning of what came; nothing if more of it must come.
    fn take(&mut self, came: &mut Vec<u8>) -> Result<Option<Request<Asked>>, NotPlain> {
        let method = b"POST ";
        let known = came.len().min(method.len());
        if came[..known] != method[..known] {
            return Err(NotPlain);
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Request::new(&mut fields);
        let head_bytes = match head.parse(came) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) if came.len() < REQUEST_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(_) => return Err(NotPlain),
        };
        let length = plain_length(&head).ok_or(NotPlain)?;
        let whole = head_bytes.saturating_add(length);
        if whole > REQUEST_BYTES_MAX {
            return Err(NotPlain);
        }
        if came.len() < whole {
            return Ok(None);
        }
        let uri = head.path.and_then(|target| self.uri(target));
        let mut headers = HeaderMap::with_capacity(head.headers.len());
        // One copy of all bytes, which the values share.
        let (bytes, start) = (Bytes::copy_from_slice(&came[..whole]), came.as_ptr().addr());
        for field in &*head.headers {
            let from = field.value.as_ptr().addr().wrapping_sub(start);
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| NotPlain)?;
            headers.append(name, value_of(&bytes, from..from + field.value.len())?);
        }
        let mut request = Request::new(Asked::Whole(bytes.slice(head_bytes..)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.ok_or(NotPlain)?;
        *request.headers_mut() = headers;
        came.drain(..whole);
        Ok(Some(request))
    }
}

fn value_of(bytes: &Bytes, at: Range<usize>) -> Result<HeaderValue, NotPlain> {
    // An empty value need not lie among the bytes.
    if at.is_empty() {
        return Ok(HeaderValue::from_static(""));
    }
    HeaderValue::from_maybe_shared(bytes.slice(at)).map_err(|_| NotPlain)
}

/// The length of a plain request's body: told once, and nothing else about how it is sent.
fn plain_length(head: &httparse::Request<'_, '_>) -> Option<usize> {
    if head.version != Some(1) {
        return None;
    }
    let mut length = None;
    for field in &*head.headers {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let digits = std::str::from_utf8(field.value).ok()?;
            if length.is_some() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            length = Some(digits.parse().ok()?);
        } else if is("transfer-encoding")
            || is("expect")
            || is("upgrade")
            || is("connection") && !field.value.eq_ignore_ascii_case(b"keep-alive")
        {
            return None;
        }
    }
    length
}

/// Tells an answer; true if another request may follow.
async fn tell(
    stream: &mut TcpStream,
    came: &mut Vec<u8>,
    response: Response,
    dates: &Dates,
) -> io::Result<bool> {
    let (head, body) = response.into_parts();
    let mut out = Vec::with_capacity(1024);
    write_head(&head, dates, &mut out);
    let closes = head
        .headers
        .get(header::CONNECTION)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"));
    let whole = match body.size_hint().exact() {
        Some(length) => tell_whole(stream, head.status, out, body, length).await?,
        None => tell_parts(stream, came, out, body).await?,
    };
    Ok(whole && !closes)
}

fn write_head(head: &response::Parts, dates: &Dates, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(head.status.as_str().as_bytes());
    out.push(b' ');
    let reason = head.status.canonical_reason().unwrap_or_default();
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in &head.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"date: ");
    dates.write(out);
    out.extend_from_slice(b"\r\n");
}

/// A body whose length is known.
async fn tell_whole(
    stream: &mut TcpStream,
    status: StatusCode,
    mut out: Vec<u8>,
    mut body: Body,
    length: u64,
) -> io::Result<bool> {
    if status != StatusCode::NO_CONTENT {
        out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    let mut told = 0;
    while let Some(data) = next_data(&mut body).await? {
        told += data.len() as u64;
        if out.len() + data.len() <= WRITE_BYTES {
            out.extend_from_slice(&data);
        } else {
            stream.write_all(&out).await?;
            out.clear();
            stream.write_all(&data).await?;
        }
    }
    stream.write_all(&out).await?;
    Ok(told == length)
}

/// A body that is told piece by piece, as it is made.
async fn tell_parts(
    stream: &mut TcpStream,
    came: &mut Vec<u8>,
    mut out: Vec<u8>,
    mut body: Body,
) -> io::Result<bool> {
    out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    stream.write_all(&out).await?;
    loop {
        let data = tokio::select! {
            biased;
            data = next_data(&mut body) => data?,
            () = hung_up(stream, came) => return Ok(false),
        };
        out.clear();
        match data {
            Some(data) if data.is_empty() => continue,
            Some(data) => {
                out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                out.extend_from_slice(&data);
                out.extend_from_slice(b"\r\n");
                stream.write_all(&out).await?;
            }
            None => {
                stream.write_all(b"0\r\n\r\n").await?;
                return Ok(true);
            }
        }
    }
}

async fn next_data(body: &mut Body) -> io::Result<Option<Bytes>> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(io::Error::other(error)),
            Some(Ok(frame)) => {
                // Trailers are nothing anybody here sends.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "POST /mcp HTTP/1.1\r\nHost: x\r\nempty:\r\ncontent-length: 5\r\n\r\nhello";

    fn take(bytes: &str) -> (Result<Option<Request<Asked>>, NotPlain>, Vec<u8>) {
        let mut came = bytes.as_bytes().to_vec();
        let taken = Place::default().take(&mut came);
        (taken, came)
    }

    async fn body(request: Request<Asked>) -> Bytes {
        request.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn plain_requests() {
        for end in 0..PLAIN.len() {
            assert!(matches!(take(&PLAIN[..end]).0, Ok(None)), "{end}");
        }
        let two = format!("{PLAIN}POST");
        let (Ok(Some(request)), rest) = take(&two) else {
            panic!("is whole");
        };
        assert_eq!(rest, b"POST");
        assert_eq!(request.uri().path(), "/mcp");
        assert_eq!(request.headers()["host"], "x");
        assert_eq!(request.headers()["empty"], "");
        assert_eq!(body(request).await, "hello");
    }

    #[test]
    fn what_is_not_plain_is_the_library_s() {
        let with = |field: &str| PLAIN.replace("empty:", field);
        for other in [
            "GET / HTTP/1.1\r\n",
            "PATCH",
            "P\0",
            &PLAIN.replace("HTTP/1.1", "HTTP/1.0"),
            &PLAIN.replace("content-length: 5\r\n", ""),
            &PLAIN.replace("content-length: 5", "content-length: +5"),
            &PLAIN.replace(
                "content-length: 5",
                "content-length: 99999999999999999999999",
            ),
            &PLAIN.replace("/mcp", "http://%"),
            &with("content-length: 5"),
            &with("transfer-encoding: chunked"),
            &with("Transfer-Encoding: identity"),
            &with("expect: 100-continue"),
            &with("upgrade: h2c"),
            &with("connection: close"),
            &with("connection: keep-alive, upgrade"),
            &with("bad header"),
            &with(&"x: y\r\n".repeat(FIELDS_MAX)),
        ] {
            let (taken, came) = take(other);
            assert!(matches!(taken, Err(NotPlain)), "{other}");
            assert_eq!(came, other.as_bytes(), "nothing is lost");
        }
        assert!(matches!(
            take(&with("connection: Keep-Alive")).0,
            Ok(Some(_))
        ));
    }

    /// Just below, at and past the largest request.
    #[test]
    fn bounds() {
        let sized = |all: usize| {
            let head = |body: usize| format!("POST / HTTP/1.1\r\ncontent-length: {body}\r\n\r\n");
            let body = all - head(10_000).len();
            head(body) + &"x".repeat(body)
        };
        for (all, is_short) in [
            (REQUEST_BYTES_MAX - 1, true),
            (REQUEST_BYTES_MAX, true),
            (REQUEST_BYTES_MAX + 1, false),
        ] {
            let request = sized(all);
            assert_eq!(request.len(), all);
            assert_eq!(matches!(take(&request).0, Ok(Some(_))), is_short, "{all}");
            assert_eq!(
                matches!(take(&request[..60]).0, Ok(None)),
                is_short,
                "{all}"
            );
        }
        let endless = format!("POST / HTTP/1.1\r\nx: {}", "y".repeat(REQUEST_BYTES_MAX));
        assert!(matches!(take(&endless).0, Err(NotPlain)));
    }
}
