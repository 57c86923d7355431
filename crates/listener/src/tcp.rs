//! HTTP on TCP for strangers: connections are bounded in number, heads in size and time, and only
//! calls in flight delay the end. Bodies are bounded by the doors that read them.

mod resumed;
mod shared;
mod short;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Request, header};
use axum::response::Response;
use callgate_call::{Cancel, Clock};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use self::resumed::Resumed;
use self::shared::Shared;
use self::short::Left;
pub use self::short::{Asked, Head, Told};
#[cfg(feature = "fuzzing")]
pub(crate) mod properties {
    //! Properties of the short path.
    pub(crate) use super::short::Last;
    pub(crate) use super::short::properties::read_as_by_hyper;
}

/// How long connections without a call may last once we stop.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a closed connection is still read from, so that an answer given before its request
/// was read is not lost with it.
const LINGER: Duration = Duration::from_secs(2);
/// A pause where accepting fails: others may finish meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// What strangers may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. The next one waits, and those behind it with it.
    pub connections_max: usize,
    /// How long it waits before it is refused.
    pub wait: Duration,
    /// A request's head must be here so long after the connection was made, or after the
    /// answer before. So it bounds slow heads and idle connections alike.
    pub head: Duration,
    /// Largest head.
    pub head_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 512,
            wait: Duration::from_secs(2),
            head: Duration::from_secs(30),
            head_bytes_max: 64 * 1024,
        }
    }
}

/// Who answers the requests of a port.
pub trait Answers: Send + Sync + 'static {
    /// Answers a small `POST`, whole. What waits for long goes on without whoever asks.
    fn message<'a>(
        &'a self,
        head: &'a Head,
        body: &'a [u8],
    ) -> impl Future<Output = Told> + Send + 'a;

    /// Answers any request.
    fn request(&self, request: Request<Asked>) -> impl Future<Output = Response> + Send;
}

impl Answers for Router {
    async fn message(&self, head: &Head, body: &[u8]) -> Told {
        // Boxed, so that connections that never ask for it have no room for it.
        Box::pin(self.request(head.request(body))).await.into()
    }

    async fn request(&self, request: Request<Asked>) -> Response {
        let Ok(response) = self.clone().call(request).await;
        response
    }
}

/// Has `answers` answer every request until `stop`. Then no new one is taken; connections last until
/// `calls` is ready, and a little longer for their answers to leave.
pub async fn serve<A: Answers>(
    listener: TcpListener,
    answers: Arc<A>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    calls: impl Future<Output = ()>,
    stop: Cancel,
) {
    let shared = Arc::new(Shared::new(clock));
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let connections = TaskTracker::new();
    let abandon = Cancel::new();
    loop {
        let next = async {
            let stream = accept(&listener).await;
            let place = Arc::clone(&places).acquire_owned();
            (stream, tokio::time::timeout(limits.wait, place).await)
        };
        // A connection that was accepted and waits for its place is closed by the stop, before
        // anything of it was read. Biased so that none is taken after the stop.
        let (stream, place) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = next => next,
        };
        let Ok(Ok(place)) = place else {
            // At most one in `wait`, so these need no bound of their own.
            connections.spawn(turn_away(stream));
            continue;
        };
        let (answers, shared) = (Arc::clone(&answers), Arc::clone(&shared));
        let (stop, abandon) = (stop.clone(), abandon.clone());
        connections.spawn(async move {
            // `abandon` drops a connection midway. It comes after the calls are over, so what is
            // lost is a request that never became whole, or an answer that nobody reads.
            tokio::select! {
                () = connection(stream, answers, limits, &shared, &stop) => {}
                () = abandon.cancelled() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    // A connection with half a request on it would hold us up for ever; calls would not.
    let left_over = async {
        calls.await;
        tokio::time::sleep(FAREWELL).await;
    };
    // Both arms only wait: connections are tasks of their own, and those that are left are
    // abandoned below.
    tokio::select! {
        () = connections.wait() => {}
        () = left_over => {}
    }
    abandon.cancel();
    connections.wait().await;
}

/// The next connection, without delay: an answer in several small writes would otherwise wait
/// for the other side's acknowledgements, tens of milliseconds each.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if stream.set_nodelay(true).is_ok() => return stream,
            Ok(_) => {}
            // Out of descriptors or the like.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn connection<A: Answers>(
    mut stream: TcpStream,
    answers: Arc<A>,
    limits: Limits,
    shared: &Shared,
    stop: &Cancel,
) {
    match short::carry(&mut stream, &*answers, &limits, shared, stop).await {
        Left::Over => linger(stream).await,
        // Boxed, so that connections that never get here have no room for it.
        Left::Library(came) => Box::pin(by_library(stream, came, answers, limits, stop)).await,
    }
}

/// The rest of a connection of which `came` was read already.
async fn by_library<A: Answers>(
    stream: TcpStream,
    came: Vec<u8>,
    answers: Arc<A>,
    limits: Limits,
    stop: &Cancel,
) {
    let leaves = Leaves::default();
    let told = leaves.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        if request.headers().contains_key(header::UPGRADE) {
            request.extensions_mut().insert(told.clone());
        }
        let answers = Arc::clone(&answers);
        let request = request.map(Asked::Coming);
        Box::pin(async move { Ok::<_, Infallible>(answers.request(request).await) })
    });
    let stream = Resumed::new(came, stream);
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_header_size(limits.head_bytes_max)
        .serve_connection(TokioIo::new(stream), service);
    let stopped = tokio::select! {
        // What went wrong is the other side's; hyper has answered what can be answered.
        _ = poll_fn(|cx| connection.poll_without_shutdown(cx)) => false,
        () = stop.cancelled() => true,
    };
    if stopped {
        Pin::new(&mut connection).graceful_shutdown();
        let _ = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    }
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    let (stream, unread) = io.into_inner().into_parts();
    match leaves.next() {
        Some(next) if !stopped => next(stream, [&read_buf, &*unread].concat().into()).await,
        _ => linger(stream).await,
    }
}

/// How a connection goes on that leaves HTTP: with its stream and what was read of it.
pub type Next =
    Box<dyn FnOnce(TcpStream, Bytes) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// In a request that asks for another protocol: where its answer says how that one goes. It has
/// the place of its connection, among those there may be, until its end.
#[derive(Clone, Default)]
pub struct Leaves(Arc<Mutex<Option<Next>>>);

impl Leaves {
    /// Once the answer is out, `next`.
    pub fn then(&self, next: Next) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    fn next(&self) -> Option<Next> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        next.take()
    }
}

/// Says goodbye and lets the other side finish speaking, so that it gets to hear.
async fn linger(mut stream: TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut unheard = vec![0; 16 * 1024];
    let hear = async { while matches!(stream.read(&mut unheard).await, Ok(bytes) if bytes > 0) {} };
    let _ = tokio::time::timeout(LINGER, hear).await;
}

/// All places are taken.
async fn turn_away(mut stream: TcpStream) {
    const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\n\
        content-type: application/json\r\ncontent-length: 93\r\nconnection: close\r\n\r\n\
        {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"too many connections are open\"}}";
    if stream.write_all(FULL).await.is_ok() {
        linger(stream).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinHandle;

    struct Running {
        addr: std::net::SocketAddr,
        stop: Cancel,
        task: JoinHandle<()>,
    }

    struct Hello;

    impl Answers for Hello {
        async fn message(&self, _: &Head, _: &[u8]) -> Told {
            Response::new("hello".into()).into()
        }

        async fn request(&self, _: Request<Asked>) -> Response {
            Response::new("hello".into())
        }
    }

    async fn running(limits: Limits) -> Running {
        running_with(Hello, limits).await
    }

    async fn running_with(answers: impl Answers, limits: Limits) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = Cancel::new();
        let served = serve(
            listener,
            Arc::new(answers),
            limits,
            Arc::new(callgate_call::ManualClock::default()),
            std::future::ready(()),
            stop.clone(),
        );
        let task = tokio::spawn(served);
        Running { addr, stop, task }
    }

    async fn say(addr: std::net::SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Everything until the other side closes.
    async fn hear(stream: &mut TcpStream) -> String {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        String::from_utf8(heard).unwrap()
    }

    const WHOLE: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    /// What an answer says of its own length and date is said once, as its sender knows it.
    #[tokio::test]
    async fn a_length_is_told_once() {
        struct Told;
        impl Answers for Told {
            async fn message(&self, _: &Head, _: &[u8]) -> super::Told {
                let response = Response::builder()
                    .header("content-length", "5")
                    .header("date", "never")
                    .header("x-own", "y");
                response.body("hello".into()).unwrap().into()
            }

            async fn request(&self, _: Request<Asked>) -> Response {
                Response::new("hello".into())
            }
        }
        let running = running_with(Told, Limits::default()).await;
        let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
        let mut stream = say(running.addr, request).await;
        stream.shutdown().await.unwrap();
        let heard = hear(&mut stream).await;
        let fields = |name: &str| heard.matches(&format!("\r\n{name}: ")).count();
        let all = ["content-length", "date", "x-own"].map(fields);
        assert_eq!(all, [1, 1, 1], "{heard}");
        assert!(!heard.contains("never") && heard.ends_with("\r\n\r\nhello"));
        running.stop.cancel();
        running.task.await.unwrap();
    }

    /// Half a head, none at all, and an idle connection end by themselves.
    #[tokio::test]
    async fn slow_heads_end() {
        let limits = Limits {
            // Long enough for a whole head to come.
            head: Duration::from_millis(500),
            ..Limits::default()
        };
        let running = running(limits).await;
        let mut silent = say(running.addr, b"").await;
        let mut slow = say(running.addr, b"GET / HT").await;
        let mut idle = say(running.addr, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        hear(&mut silent).await;
        hear(&mut slow).await;
        assert!(hear(&mut idle).await.ends_with("hello"));
        running.stop.cancel();
        running.task.await.unwrap();
    }

    #[tokio::test]
    async fn large_heads_are_refused() {
        let running = running(Limits::default()).await;
        let head = format!("GET / HTTP/1.1\r\nx: {}\r\n", "y".repeat(64 * 1024));
        let mut stream = say(running.addr, head.as_bytes()).await;
        let heard = hear(&mut stream).await;
        assert!(heard.starts_with("HTTP/1.1 431 "), "{heard}");
        running.stop.cancel();
        running.task.await.unwrap();
    }

    /// One too many waits, and is refused if no place comes free.
    #[tokio::test]
    async fn connections_are_bounded() {
        let limits = Limits {
            connections_max: 1,
            wait: Duration::from_millis(50),
            ..Limits::default()
        };
        let running = running(limits).await;
        let first = say(running.addr, b"GET / HT").await;
        let heard = hear(&mut say(running.addr, WHOLE).await).await;
        assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
        drop(first);
        // The place is free once the first is seen to be gone.
        loop {
            let heard = hear(&mut say(running.addr, WHOLE).await).await;
            if heard.ends_with("hello") {
                break;
            }
            assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
        }
        running.stop.cancel();
        running.task.await.unwrap();
    }

    /// Connections on which nothing, or half a request, has come do not hold up the end.
    #[tokio::test]
    async fn the_end_waits_for_nobody_who_is_silent() {
        let running = running(Limits::default()).await;
        let mut held = vec![say(running.addr, b"").await];
        held.push(say(running.addr, b"GET / HT").await);
        assert!(
            hear(&mut say(running.addr, WHOLE).await)
                .await
                .ends_with("hello")
        );
        running.stop.cancel();
        running.task.await.unwrap();
        assert!(TcpStream::connect(running.addr).await.is_err());
    }
}
