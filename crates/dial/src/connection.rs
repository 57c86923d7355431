//! One connection, and one question and answer on it.

use std::fmt;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::Address;

/// One question.
#[derive(Clone, Debug)]
pub struct Ask {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Ask {
    /// Asks for the document at a path.
    #[must_use]
    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    /// Sends JSON to a path.
    #[must_use]
    pub fn post(path: &str, json: Vec<u8>) -> Self {
        Self::with_json(Method::POST, path, json)
    }

    /// Changes what is at a path by JSON.
    #[must_use]
    pub fn put(path: &str, json: Vec<u8>) -> Self {
        Self::with_json(Method::PUT, path, json)
    }

    fn with_json(method: Method, path: &str, json: Vec<u8>) -> Self {
        let mut ask = Self::new(method, path, json.into());
        let json = HeaderValue::from_static("application/json");
        ask.headers.insert(header::CONTENT_TYPE, json);
        ask
    }

    /// Asks for what is at a path to be removed.
    #[must_use]
    pub fn delete(path: &str) -> Self {
        Self::new(Method::DELETE, path, Bytes::new())
    }

    fn new(method: Method, path: &str, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::ACCEPT, json);
        Self {
            method,
            path: path.to_owned(),
            headers,
            body,
        }
    }

    /// Adds a header.
    pub fn header(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    pub(crate) fn request(self, to: &Address) -> Result<Request<Full<Bytes>>, Trouble> {
        let failed = |error: hyper::http::Error| Trouble::Unsent(format!("{to}: {error}"));
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(header::HOST, to.authority())
            .body(Full::new(self.body))
            .map_err(failed)?;
        request.headers_mut().extend(self.headers);
        Ok(request)
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The body of a good answer; any other's is not read.
    pub body: Option<Bytes>,
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Nothing was sent, so nothing was done.
    #[error("{0}")]
    Unsent(String),
    /// It was sent, wholly or in part; whether anything was done is not known.
    #[error("{0}")]
    Lost(String),
    /// The answer is longer than was asked for.
    #[error("the answer exceeds {max} bytes")]
    TooLarge {
        /// The most that was asked for.
        max: usize,
    },
}

/// Makes connections.
pub struct Dialer {
    roots: Box<dyn Fn() -> Vec<Vec<u8>> + Send + Sync>,
    tls: OnceLock<TlsConnector>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

impl Dialer {
    /// Believes servers that one of `roots` (DER) vouches for. They are asked for with the
    /// first TLS connection, since a machine has many.
    pub fn new(roots: impl Fn() -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self {
            roots: Box::new(roots),
            tls: OnceLock::new(),
        }
    }

    /// Asks one question on a connection of its own.
    pub async fn ask(&self, to: &Address, ask: Ask, bytes_max: usize) -> Result<Reply, Trouble> {
        let mut connection = self.connect(to).await?;
        let request = ask.request(to)?;
        match connection.send(to, request).await? {
            Sent::Answered(response) => receive(to, response, bytes_max).await,
            Sent::Closed(..) => Err(Trouble::Unsent(format!("{to}: closed at once"))),
        }
    }

    /// The same for what takes long to come: however long, as long as something comes. One who
    /// is silent for `silence`, at any time, is waited for no more.
    pub async fn fetch(
        &self,
        to: &Address,
        ask: Ask,
        bytes_max: usize,
        silence: Duration,
    ) -> Result<Reply, Trouble> {
        let silent = |_| Trouble::Lost(format!("{to}: silent for {} s", silence.as_secs_f32()));
        let request = ask.request(to)?;
        let sent = async {
            let mut connection = self.connect(to).await?;
            let sent = connection.send(to, request).await?;
            Ok::<_, Trouble>((connection, sent))
        };
        let (_connection, sent) = timeout(silence, sent).await.map_err(silent)??;
        let response = match sent {
            Sent::Answered(response) if response.status().is_success() => response,
            Sent::Answered(response) => return receive(to, response, bytes_max).await,
            Sent::Closed(..) => return Err(Trouble::Unsent(format!("{to}: closed at once"))),
        };
        let status = response.status().as_u16();
        let (mut rest, mut body) = (response.into_body(), Vec::new());
        while let Some(frame) = timeout(silence, rest.frame()).await.map_err(silent)? {
            let frame = frame.map_err(|error| Trouble::Lost(words(to, &error)))?;
            let bytes = frame.into_data().unwrap_or_default();
            if body.len() + bytes.len() > bytes_max {
                return Err(Trouble::TooLarge { max: bytes_max });
            }
            body.extend_from_slice(&bytes);
        }
        let body = Some(body.into());
        Ok(Reply { status, body })
    }

    pub(crate) async fn connect(&self, to: &Address) -> Result<Connection, Trouble> {
        let failed = |error: &dyn fmt::Display| Trouble::Unsent(format!("{to}: {error}"));
        let stream = TcpStream::connect((to.host(), to.port()))
            .await
            .map_err(|error| failed(&error))?;
        // Questions are written whole; waiting for more to send would only cost time.
        let _ = stream.set_nodelay(true);
        let socket = stream.as_fd().try_clone_to_owned();
        let socket = socket.map_err(|error| failed(&error))?;
        if !to.is_tls() {
            return Connection::over(stream, socket, to).await;
        }
        let name = ServerName::try_from(to.host().to_owned()).map_err(|error| failed(&error))?;
        let stream = self.tls().connect(name, stream).await;
        Connection::over(stream.map_err(|error| failed(&error))?, socket, to).await
    }

    fn tls(&self) -> &TlsConnector {
        self.tls.get_or_init(|| {
            let mut store = RootCertStore::empty();
            let certificates = (self.roots)().into_iter().map(CertificateDer::from);
            // A machine's list holds certificates that are odd; the others are good none the
            // less.
            store.add_parsable_certificates(certificates);
            let config = ClientConfig::builder()
                .with_root_certificates(store)
                .with_no_client_auth();
            TlsConnector::from(Arc::new(config))
        })
    }
}

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    /// The socket below it, to be looked at.
    socket: OwnedFd,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// What came of sending.
pub(crate) enum Sent {
    Answered(Response<Incoming>),
    /// The connection had been closed before anything was sent; here is the question again.
    Closed(Box<Request<Full<Bytes>>>),
}

impl Connection {
    async fn over<S>(stream: S, socket: OwnedFd, to: &Address) -> Result<Self, Trouble>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Trouble::Unsent(format!("{to}: {error}")))?;
        // Ends with its sender; what goes wrong shows in the answer.
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            driver: driver.abort_handle(),
            socket,
        })
    }

    pub(crate) async fn send(
        &mut self,
        to: &Address,
        request: Request<Full<Bytes>>,
    ) -> Result<Sent, Trouble> {
        match self.sender.try_send_request(request).await {
            Ok(response) => Ok(Sent::Answered(response)),
            Err(mut error) => match error.take_message() {
                Some(request) => Ok(Sent::Closed(Box::new(request))),
                None => Err(Trouble::Lost(words(to, error.error()))),
            },
        }
    }

    /// Waits until another question can be asked; false if none can.
    pub(crate) async fn is_reusable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// True if the server has neither closed it nor spoken unasked. Asks the kernel: the
    /// runtime may not have heard yet, and a question sent too late can not be sent again.
    pub(crate) fn is_open(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        !self.sender.is_closed() && matches!(poll(&mut polled, Some(&at_once)), Ok(0))
    }
}

/// Reads a good answer to its end.
pub(crate) async fn receive(
    from: &Address,
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<Reply, Trouble> {
    let status = response.status();
    if !status.is_success() {
        let status = status.as_u16();
        return Ok(Reply { status, body: None });
    }
    let status = status.as_u16();
    match Limited::new(response.into_body(), bytes_max)
        .collect()
        .await
    {
        Ok(body) => Ok(Reply {
            status,
            body: Some(body.to_bytes()),
        }),
        Err(error) if error.is::<LengthLimitError>() => Err(Trouble::TooLarge { max: bytes_max }),
        Err(error) => Err(Trouble::Lost(words(from, &*error))),
    }
}

/// An error with its causes: hyper's own words are short of them.
fn words(at: &Address, error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = format!("{at}: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// What a server that says this, and then stays silent on an open connection, is answered.
    async fn fetched(said: &'static str, bytes_max: usize) -> Result<Reply, Trouble> {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = server.local_addr().expect("an address").port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.expect("a connection");
            stream.write_all(said.as_bytes()).await.expect("written");
            // Until the other end closes.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let to = Address::parse(&format!("http://127.0.0.1:{port}/a")).expect("an address");
        let dialer = Dialer::new(Vec::new);
        let silence = match said.contains("whole") {
            true => Duration::from_secs(60),
            false => Duration::from_millis(100),
        };
        let fetched = dialer.fetch(&to, Ask::get("/a"), bytes_max, silence).await;
        server.await.expect("the server ends");
        fetched
    }

    #[tokio::test]
    async fn the_silent_are_not_waited_for() {
        for said in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart",
        ] {
            let trouble = fetched(said, 9).await.expect_err("nothing came");
            assert!(trouble.to_string().contains("silent"), "{said}: {trouble}");
        }
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole";
        let reply = fetched(whole, 5).await.expect("a reply");
        assert_eq!(reply.body.as_deref(), Some(&b"whole"[..]));
        assert_eq!(fetched(whole, 4).await, Err(Trouble::TooLarge { max: 4 }));
    }
}
