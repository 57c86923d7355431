//! The short way. A small message by `POST`, whole and with its length told, is read and answered
//! here, without the HTTP library: for the most frequent request there is, that does more than
//! is needed. Whatever is not that plain is the library's, from its first byte on, and so is
//! all that follows on its connection.

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, response,
};
use axum::response::Response;
use callgate_call::Cancel;
use callgate_gate::others_first;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::shared::{Dates, Shared};
use super::{Answers, Limits};
use crate::web::{Kinds, json_response};

/// Largest request that goes the short way, and so what a stranger may have us keep.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Header fields of one; more are the library's.
const FIELDS_MAX: usize = 32;
/// Answers up to this length leave in one write.
const WRITE_BYTES: usize = 64 * 1024;
/// What a connection reads into at first.
const BUFFER_BYTES: usize = 4 * 1024;
/// A larger buffer is let go of with its request.
const KEPT_BYTES_MAX: usize = 8 * 1024;

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

/// How a connection left the short way.
pub(super) enum Left {
    /// It is over.
    Over,
    /// The library's: these bytes were read already.
    Library(Vec<u8>),
}

/// Carries a connection's requests out as long as they are plain.
pub(super) async fn carry<A: Answers>(
    stream: &mut TcpStream,
    answers: &A,
    limits: &Limits,
    shared: &Shared,
    stop: &Cancel,
) -> Left {
    let mut came = Vec::with_capacity(BUFFER_BYTES);
    // The request that is answered, while what comes next is read.
    let mut asked = Vec::with_capacity(BUFFER_BYTES);
    let mut out = Vec::new();
    let mut stopped = pin!(stop.cancelled());
    let mut patience = pin!(sleep(limits.head));
    // The connection was made, or the answer before was told.
    let mut since = Instant::now();
    let mut last = Last::default();
    loop {
        let (head, body) = loop {
            if !came.is_empty() {
                match last.take(&came) {
                    Ok(Some(taken)) => break taken,
                    Ok(None) => {}
                    Err(NotPlain) => return Left::Library(came),
                }
            }
            // Set again when it runs out, not at every request.
            let late = async {
                loop {
                    patience.as_mut().await;
                    let due = since + limits.head;
                    if due <= Instant::now() {
                        return;
                    }
                    patience.as_mut().reset(due);
                }
            };
            // `readable` reads nothing, and `stopped` and `patience` outlive the loop. Biased
            // because a request that has arrived needs no poll of the other two; the stop is looked
            // at below.
            let comes = tokio::select! {
                biased;
                ready = stream.readable() => ready.is_ok(),
                () = &mut stopped => false,
                () = late => false,
            };
            if !comes {
                return Left::Over;
            }
            shared.breathe().await;
            if stop.is_cancelled() {
                return Left::Over;
            }
            match poll_fn(|cx| Poll::Ready(pin!(stream.read_buf(&mut came)).poll(cx))).await {
                Poll::Ready(Ok(read)) if read > 0 => {}
                // It was told of, and is not there: then it is waited for again.
                Poll::Pending => {}
                Poll::Ready(_) => return Left::Over,
            }
        };
        std::mem::swap(&mut came, &mut asked);
        came.clear();
        came.extend_from_slice(&asked[body.end..]);
        let under_way = shared.begins();
        // Most answers only wait for each other, and are here before anybody could hang up.
        let gone = async {
            others_first().await;
            hung_up(stream, &mut came).await;
        };
        // Dropping `message` leaves its call to the door, which cancels the call or lets it run on as
        // a task. `hung_up` keeps what it reads in `came`. Biased because most answers are ready at
        // once.
        let told = tokio::select! {
            biased;
            told = answers.message(&head, &asked[body]) => told,
            () = gone => return Left::Over,
        };
        drop(under_way);
        match tell(stream, &mut came, told, &mut out, &shared.dates).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return Left::Over,
        }
        since = Instant::now();
        for buffer in [&mut asked, &mut out] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::with_capacity(BUFFER_BYTES);
            }
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
pub(crate) struct NotPlain;

/// The head of a plain request.
pub struct Head {
    bytes: Vec<u8>,
    /// Where among them its body's length is told.
    length: Range<usize>,
    uri: Uri,
    headers: HeaderMap,
    kinds: Kinds,
}

impl Head {
    /// Where it goes.
    #[must_use]
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// Its fields, but for the length of its body, which is here.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// What it says of bodies.
    pub fn kinds(&self) -> Kinds {
        self.kinds
    }

    /// The whole request.
    #[must_use]
    pub fn request(&self, body: &[u8]) -> Request<Asked> {
        let mut request = Request::new(Asked::Whole(Bytes::copy_from_slice(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// If the same head comes again: how long it is and its body. Only the length may differ.
    fn comes_again(&self, came: &[u8]) -> Option<(usize, usize)> {
        let rest = came.strip_prefix(&self.bytes[..self.length.start])?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (told, rest) = rest.split_at(digits);
        let end = &self.bytes[self.length.end..];
        rest.starts_with(end).then_some(())?;
        let length = std::str::from_utf8(told).ok()?.parse().ok()?;
        Some((self.length.start + digits + end.len(), length))
    }

    /// Reads one off the beginning of what came; nothing if more of it must come.
    fn read(came: &[u8]) -> Result<Option<(Self, usize)>, NotPlain> {
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
        let (length, told) = plain_length(&head).ok_or(NotPlain)?;
        let uri = head.path.and_then(|target| target.parse().ok());
        let mut headers = HeaderMap::with_capacity(head.headers.len());
        // One copy of all bytes, which the values share.
        let (bytes, start) = (
            Bytes::copy_from_slice(&came[..head_bytes]),
            came.as_ptr().addr(),
        );
        let place = |value: &[u8]| {
            let from = value.as_ptr().addr().wrapping_sub(start);
            from..from.wrapping_add(value.len())
        };
        for field in &*head.headers {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| NotPlain)?;
            if name != header::CONTENT_LENGTH {
                headers.append(name, value_of(&bytes, place(field.value))?);
            }
        }
        let read = Self {
            length: place(told),
            uri: uri.ok_or(NotPlain)?,
            kinds: Kinds::of(&headers),
            headers,
            bytes: bytes.to_vec(),
        };
        Ok(Some((read, length)))
    }
}

/// A request's head, and where its body is.
type Taken = (Arc<Head>, Range<usize>);

/// The head of the request before: nearly always the next one has the same.
#[derive(Default)]
pub(crate) struct Last(Option<Arc<Head>>);

impl Last {
    /// The request at the beginning of what came; nothing if more of it must come.
    pub(crate) fn take(&mut self, came: &[u8]) -> Result<Option<Taken>, NotPlain> {
        let again = self.0.as_ref().and_then(|head| head.comes_again(came));
        let (head_bytes, length) = match again {
            Some(again) => again,
            None => match Head::read(came)? {
                Some((head, length)) => {
                    let head_bytes = head.bytes.len();
                    self.0 = Some(Arc::new(head));
                    (head_bytes, length)
                }
                None => return Ok(None),
            },
        };
        let whole = head_bytes.saturating_add(length);
        if whole > REQUEST_BYTES_MAX {
            return Err(NotPlain);
        }
        let here = self.0.as_ref().filter(|_| came.len() >= whole);
        Ok(here.map(|head| (Arc::clone(head), head_bytes..whole)))
    }
}

fn value_of(bytes: &Bytes, at: Range<usize>) -> Result<HeaderValue, NotPlain> {
    // An empty value need not lie among the bytes.
    if at.is_empty() {
        return Ok(HeaderValue::from_static(""));
    }
    HeaderValue::from_maybe_shared(bytes.slice(at)).map_err(|_| NotPlain)
}

/// The length of a plain request's body, and its words: told once, and nothing else about how it
/// is sent.
fn plain_length<'a>(head: &httparse::Request<'_, 'a>) -> Option<(usize, &'a [u8])> {
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
            length = Some((digits.parse().ok()?, field.value));
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

/// An answer.
pub enum Told {
    /// A whole message.
    Json(StatusCode, Vec<u8>),
    /// Anything else.
    Other(Response),
}

impl From<Response> for Told {
    fn from(response: Response) -> Self {
        Self::Other(response)
    }
}

impl From<Told> for Response {
    fn from(told: Told) -> Self {
        match told {
            Told::Json(status, message) => json_response(status, message),
            Told::Other(response) => response,
        }
    }
}

/// Tells an answer; true if another request may follow.
async fn tell(
    stream: &mut TcpStream,
    came: &mut Vec<u8>,
    told: Told,
    out: &mut Vec<u8>,
    dates: &Dates,
) -> io::Result<bool> {
    out.clear();
    let response = match told {
        Told::Json(status, message) => {
            write_status(status, out);
            out.extend_from_slice(b"content-type: application/json\r\ndate: ");
            dates.write(out);
            write!(out, "\r\ncontent-length: {}\r\n\r\n", message.len())?;
            tell_data(stream, out, &message).await?;
            stream.write_all(out).await?;
            return Ok(true);
        }
        Told::Other(response) => response,
    };
    // Boxed: it is rare, and connections that never get here have no room for it.
    Box::pin(tell_response(stream, came, response, out, dates)).await
}

async fn tell_response(
    stream: &mut TcpStream,
    came: &mut Vec<u8>,
    response: Response,
    out: &mut Vec<u8>,
    dates: &Dates,
) -> io::Result<bool> {
    let (head, body) = response.into_parts();
    write_head(&head, dates, out);
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

/// Adds to what waits to be written; what waits is written first where both are too much.
async fn tell_data(stream: &mut TcpStream, out: &mut Vec<u8>, data: &[u8]) -> io::Result<()> {
    if out.len() + data.len() <= WRITE_BYTES {
        out.extend_from_slice(data);
        return Ok(());
    }
    stream.write_all(out).await?;
    out.clear();
    stream.write_all(data).await
}

fn write_status(status: StatusCode, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    let reason = status.canonical_reason().unwrap_or_default();
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_head(head: &response::Parts, dates: &Dates, out: &mut Vec<u8>) {
    write_status(head.status, out);
    // How long the answer is and how it is sent is told by whoever sends it.
    let ours = [
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::DATE,
    ];
    for (name, value) in head.headers.iter().filter(|(name, _)| !ours.contains(name)) {
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
    out: &mut Vec<u8>,
    mut body: Body,
    length: u64,
) -> io::Result<bool> {
    if status != StatusCode::NO_CONTENT {
        write!(out, "content-length: {length}\r\n")?;
    }
    out.extend_from_slice(b"\r\n");
    let mut told = 0;
    while let Some(data) = next_data(&mut body).await? {
        told += data.len() as u64;
        tell_data(stream, out, &data).await?;
    }
    stream.write_all(out).await?;
    Ok(told == length)
}

/// A body that is told piece by piece, as it is made.
async fn tell_parts(
    stream: &mut TcpStream,
    came: &mut Vec<u8>,
    out: &mut Vec<u8>,
    mut body: Body,
) -> io::Result<bool> {
    out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    stream.write_all(out).await?;
    loop {
        // Both are cancel safe: a piece stays in the body, and `hung_up` keeps what it reads in
        // `came`. Biased so that a piece that is ready is sent without a look at the socket.
        let data = tokio::select! {
            biased;
            data = next_data(&mut body) => data?,
            () = hung_up(stream, came) => return Ok(false),
        };
        out.clear();
        match data {
            Some(data) if data.is_empty() => continue,
            Some(data) => {
                write!(out, "{:x}\r\n", data.len())?;
                out.extend_from_slice(&data);
                out.extend_from_slice(b"\r\n");
                stream.write_all(out).await?;
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
mod mutations;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "POST /mcp HTTP/1.1\r\nHost: x\r\nempty:\r\ncontent-length: 5\r\n\r\nhello";

    fn take(bytes: &str) -> Result<Option<Taken>, NotPlain> {
        Last::default().take(bytes.as_bytes())
    }

    #[tokio::test]
    async fn plain_requests() {
        for end in 0..PLAIN.len() {
            assert!(matches!(take(&PLAIN[..end]), Ok(None)), "{end}");
        }
        let two = format!("{PLAIN}POST");
        let Ok(Some((head, body))) = take(&two) else {
            panic!("is whole");
        };
        assert_eq!(&two[body.clone()], "hello");
        assert_eq!(&two[body.end..], "POST");
        assert_eq!(head.path(), "/mcp");
        let request = head.request(&two.as_bytes()[body]);
        assert_eq!(request.headers()["host"], "x");
        assert_eq!(request.headers()["empty"], "");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "hello");
    }

    /// The same head again is known by its bytes; whatever differs from it is read.
    #[test]
    fn the_same_head_again() {
        let mut last = Last::default();
        let Ok(Some((first, _))) = last.take(PLAIN.as_bytes()) else {
            panic!("is whole");
        };
        let again = PLAIN.replace("length: 5", "length: 15") + ", and more";
        for end in 0..again.len() {
            let taken = last.take(&again.as_bytes()[..end]);
            assert!(matches!(taken, Ok(None)), "{end}");
        }
        for (text, body) in [(PLAIN, "hello"), (&again, "hello, and more")] {
            let mut last = Last(Some(Arc::clone(&first)));
            let Ok(Some((head, at))) = last.take(text.as_bytes()) else {
                panic!("is whole: {text}");
            };
            assert!(Arc::ptr_eq(&head, &first), "{text}");
            assert_eq!(&text[at], body);
        }
        for (from, to) in [
            ("Host: x", "Host: y"),
            ("Host: x", "Host: xx"),
            ("/mcp", "/rpc"),
            ("length: 5", "length:5"),
            ("length: 5\r\n", "length: 5\r\nmore: x\r\n"),
        ] {
            let other = PLAIN.replace(from, to);
            let mut last = Last(Some(Arc::clone(&first)));
            let Ok(Some((head, at))) = last.take(other.as_bytes()) else {
                panic!("is whole: {to}");
            };
            assert!(!Arc::ptr_eq(&head, &first), "{to}");
            assert_eq!(&other[at], "hello");
        }
        for bad in ["length: +5", "length: ", "length: 5,5", "length: 5\nx: y"] {
            let other = PLAIN.replace("length: 5", bad);
            let mut last = Last(Some(Arc::clone(&first)));
            let taken = last.take(other.as_bytes());
            assert!(!matches!(taken, Ok(Some((head, _))) if Arc::ptr_eq(&head, &first)));
        }
        let large = PLAIN.replace("length: 5", "length: 16384");
        assert!(matches!(last.take(large.as_bytes()), Err(NotPlain)));
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
            assert!(matches!(take(other), Err(NotPlain)), "{other}");
        }
        assert!(matches!(take(&with("connection: Keep-Alive")), Ok(Some(_))));
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
            assert_eq!(matches!(take(&request), Ok(Some(_))), is_short, "{all}");
            assert_eq!(matches!(take(&request[..60]), Ok(None)), is_short, "{all}");
        }
        let endless = format!("POST / HTTP/1.1\r\nx: {}", "y".repeat(REQUEST_BYTES_MAX));
        assert!(matches!(take(&endless), Err(NotPlain)));
    }
}
