//! The way out for a tool that may reach some hosts and no others: an HTTP proxy at the only
//! address of its private network.
//!
//! The tool's network namespace has nothing but a loopback, and on it one listening socket,
//! which was made there and is served here. Names are resolved on this side, and what they
//! turn out to be is checked before anything is connected. `CONNECT` carries everything that
//! is encrypted; plain requests are passed on one per connection.

mod allow;
mod outlet;
mod shared;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use allow::{Allowed, Refusal};
pub(crate) use outlet::Outlet;
pub use outlet::Served;
pub(crate) use shared::SharedOutlet;

/// Connections of one tool at the same time; further ones wait in the kernel.
const CONNECTIONS_MAX: usize = 64;
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long a client may take to say what it wants, and a host to take us.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one side may go on once the other has ended: a client that is gone must not keep a
/// place because its host says nothing.
const AFTERMATH: Duration = Duration::from_secs(30);

/// How long a refused client may take to read why.
const FAREWELL: Duration = Duration::from_secs(2);

/// Hears of every connection that was refused.
type Watch = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// A running proxy. Dropping it ends it and everything it carries.
#[derive(Debug)]
struct Egress {
    task: JoinHandle<()>,
    undecided: Arc<AtomicUsize>,
}

impl Egress {
    /// Serves `listener`, which is already listening.
    fn start(
        listener: std::net::TcpListener,
        destination: Destination,
        watch: Watch,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let door = Door { destination, watch };
        let undecided = Arc::default();
        let task = tokio::spawn(serve(listener, door, Arc::clone(&undecided)));
        Ok(Self { task, undecided })
    }

    /// Connections that it has taken and of which it does not know yet whether they may be.
    fn undecided(&self) -> usize {
        self.undecided.load(Ordering::Acquire)
    }

    /// Ends it, and with it what it carried. It takes no connection afterwards.
    async fn end(mut self) {
        self.task.abort();
        // An error is what it ends with.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts a connection until something is known of it.
struct Undecided(Arc<AtomicUsize>);

impl Undecided {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The place that a listener leads to.
#[derive(Clone, Debug)]
enum Destination {
    /// What each client asks for as that of a proxy, if it is allowed.
    Asked(Arc<Allowed>),
    /// One host and port, whatever a client says.
    Fixed(Arc<Forward>),
}

/// A host and port that a listener leads to.
#[derive(Debug)]
struct Forward {
    host: String,
    port: u16,
    /// What the host may turn out to be.
    allowed: Allowed,
}

impl Destination {
    /// Reads a target as the owner wrote it: `db.example.com:5432`.
    fn fixed(target: &str) -> Result<Self, String> {
        let allowed = Allowed::parse(&[target.to_owned()])?;
        let (host, port) = authority(target, None)
            .filter(|(host, _)| !host.contains('*'))
            .ok_or_else(|| format!("forward: `{target}` is not one host with one port"))?;
        let forward = Forward {
            host,
            port,
            allowed,
        };
        Ok(Self::Fixed(Arc::new(forward)))
    }

    fn allowed(&self) -> &Allowed {
        match self {
            Self::Asked(allowed) => allowed,
            Self::Fixed(forward) => &forward.allowed,
        }
    }
}

#[derive(Clone)]
struct Door {
    destination: Destination,
    watch: Watch,
}

async fn serve(listener: TcpListener, door: Door, undecided: Arc<AtomicUsize>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Its connections end with it.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((client, _)) => {
                let (door, undecided) = (door.clone(), Undecided::new(&undecided));
                connections.spawn(async move {
                    let _place = place;
                    door.attend(client, undecided).await;
                });
            }
            // Out of descriptors: some will come back.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

impl Door {
    /// One connection, from its head to its end.
    async fn attend(&self, client: TcpStream, undecided: Undecided) {
        match &self.destination {
            Destination::Asked(_) => self.attend_proxy(client, undecided).await,
            Destination::Fixed(forward) => self.attend_forward(forward, client, undecided).await,
        }
    }

    /// One connection to a forwarded port. A host that can not be reached shows as a connection
    /// that is closed at once.
    async fn attend_forward(&self, forward: &Forward, client: TcpStream, undecided: Undecided) {
        let opened = self.connect(&forward.host, forward.port).await;
        let opened = opened.inspect_err(|refusal| (self.watch)(refusal));
        drop(undecided);
        if let Ok(host) = opened {
            let _ = client.set_nodelay(true);
            carry(client, host).await;
        }
    }

    async fn attend_proxy(&self, mut client: TcpStream, undecided: Undecided) {
        let told = |refusal: &Refusal| (self.watch)(refusal);
        let heard = self.hear(&mut client).await.inspect_err(told);
        drop(undecided);
        let opened = match heard {
            Ok(wanted) => self.open(wanted).await.inspect_err(told),
            Err(refusal) => Err(refusal),
        };
        match opened {
            Ok((mut host, first)) => {
                let passed = match first {
                    First::Established => {
                        client
                            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                            .await
                    }
                    First::Bytes(bytes) => host.write_all(&bytes).await,
                };
                if passed.is_ok() {
                    carry(client, host).await;
                }
            }
            Err(refusal) => {
                let _ = timeout(FAREWELL, part(&mut client, &refused(&refusal))).await;
            }
        }
    }

    /// Reads what is wanted, if that may be.
    async fn hear(&self, client: &mut TcpStream) -> Result<Wanted, Refusal> {
        let head = timeout(PATIENCE, read_head(client))
            .await
            .map_err(|_| Refusal::BadRequest("the request's head did not come in time"))??;
        let wanted = Wanted::read(&head)?;
        self.destination
            .allowed()
            .check_host(&wanted.host, wanted.port)?;
        Ok(wanted)
    }

    /// Connects to what is wanted, and says what goes first.
    async fn open(&self, wanted: Wanted) -> Result<(TcpStream, First), Refusal> {
        let host = self.connect(&wanted.host, wanted.port).await?;
        Ok((host, wanted.first))
    }

    /// Connects to the first address that answers. All of them are checked before: a name must
    /// not be used to try which of them would be let through.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        let addresses = resolve(host, port).await?;
        for address in &addresses {
            let allowed = self.destination.allowed();
            allowed.check_address(host, address.ip(), port)?;
        }
        let unreachable = |reason: String| Refusal::Unreachable {
            host: host.to_owned(),
            port,
            reason,
        };
        match timeout(PATIENCE, TcpStream::connect(&*addresses)).await {
            Ok(Ok(stream)) => {
                // A proxy that waits for more to send would slow small messages down.
                let _ = stream.set_nodelay(true);
                Ok(stream)
            }
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(unreachable("it did not answer in time".to_owned())),
        }
    }
}

/// Carries bytes both ways. Either side may go at any time, and the other hears of it.
async fn carry(mut client: TcpStream, mut host: TcpStream) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_host, mut to_host) = host.split();
    let up = pass(&mut from_client, &mut to_host);
    let down = pass(&mut from_host, &mut to_client);
    tokio::pin!(up, down);
    // The direction that is still open is pinned outside of the select and goes on, so bytes on
    // their way arrive for as long as `AFTERMATH`.
    let _ = tokio::select! {
        () = &mut up => timeout(AFTERMATH, down).await,
        () = &mut down => timeout(AFTERMATH, up).await,
    };
}

/// Passes bytes on to their end, and the end too.
async fn pass(from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>) {
    let _ = tokio::io::copy(from, to).await;
    let _ = to.shutdown().await;
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if allow::is_loopback_name(&host.trim_end_matches('.').to_ascii_lowercase()) {
        return Ok(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)]);
    }
    let found: Vec<SocketAddr> =
        match timeout(PATIENCE, tokio::net::lookup_host((host, port))).await {
            Ok(Ok(found)) => found.collect(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
    if found.is_empty() {
        return Err(Refusal::NoAddress {
            host: host.to_owned(),
        });
    }
    Ok(found)
}

/// What goes first on an open connection.
enum First {
    /// To the client: its tunnel stands.
    Established,
    /// To the host: the request, and what came with it.
    Bytes(Vec<u8>),
}

struct Wanted {
    host: String,
    port: u16,
    first: First,
}

impl Wanted {
    /// Reads a head with what came behind it.
    fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let bad = Refusal::BadRequest;
        let end = head_end(bytes).ok_or(bad("the request's head has no end"))?;
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| bad("the head is not text"))?;
        let head = &head[..head.len() - 2 * "\r\n".len()];
        let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
        check_fields(line, fields)?;
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(bad("not a request of HTTP/1.1"));
        };
        if method == "CONNECT" {
            if bytes.len() > end {
                return Err(bad("bytes before the tunnel stands"));
            }
            let (host, port) = authority(target, None).ok_or(bad("CONNECT needs host:port"))?;
            return Ok(Self {
                host,
                port,
                first: First::Established,
            });
        }
        let rest = target
            .strip_prefix("http://")
            .ok_or(bad("a proxy is asked for http://host/path, or by CONNECT"))?;
        let (place, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = authority(place, Some(80)).ok_or(bad("no host in the address"))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut first = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {place}\r\n");
        for field in fields.split("\r\n").filter(|_| !fields.is_empty()) {
            if !is_ours(field) {
                first.push_str(field);
                first.push_str("\r\n");
            }
        }
        // One request: the next one may be for another host, and must be asked for.
        first.push_str("Connection: close\r\n\r\n");
        let mut first = first.into_bytes();
        first.extend_from_slice(&bytes[end..]);
        Ok(Self {
            host,
            port,
            first: First::Bytes(first),
        })
    }
}

/// Reads the head of a request to the proxy: the host, the port, and the bytes that go to the host
/// unless a tunnel was asked for. For the fuzz target `proxy-heads`.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_request(bytes: &[u8]) -> Option<(String, u16, Option<Vec<u8>>)> {
    let wanted = Wanted::read(bytes).ok()?;
    let first = match wanted.first {
        First::Established => None,
        First::Bytes(bytes) => Some(bytes),
    };
    Some((wanted.host, wanted.port, first))
}

/// Refuses a head that another server could read in another way: control characters, which a lone
/// line feed or carriage return is, NUL, folded fields, names that are none, and two statements
/// of a body's length. RFC 9112, 2.2, 5 and 6.
fn check_fields(line: &str, fields: &str) -> Result<(), Refusal> {
    let bad = |reason| Err(Refusal::BadRequest(reason));
    let is_control = |byte: u8| byte != b'\t' && byte.is_ascii_control();
    if line.bytes().any(|byte| byte.is_ascii_control()) {
        return bad("a control character in the request line");
    }
    let mut lengths = 0;
    for field in fields.split("\r\n").filter(|_| !fields.is_empty()) {
        if field.bytes().any(is_control) {
            return bad("a control character in a header field, such as a lone line feed");
        }
        let Some((name, _)) = field.split_once(':') else {
            return bad("a header field without a colon");
        };
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return bad("a header field whose name is none, or that is folded");
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        lengths += usize::from(is("content-length") || is("transfer-encoding"));
    }
    match lengths {
        0 | 1 => Ok(()),
        _ => bad("the length of the body is stated twice"),
    }
}

/// Fields between the client and us alone, or written anew.
fn is_ours(field: &str) -> bool {
    let name = field.split(':').next().unwrap_or_default().trim();
    ["host", "connection", "keep-alive", "te", "upgrade"]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
        || name
            .get(..6)
            .is_some_and(|start| start.eq_ignore_ascii_case("proxy-"))
}

fn authority(text: &str, usual: Option<u16>) -> Option<(String, u16)> {
    if text.is_empty() || text.contains('@') {
        return None;
    }
    // The colons of a bracketed address are its own.
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (!host.is_empty()).then_some((host.to_owned(), port.parse().ok()?))
        }
        _ => Some((text.to_owned(), usual?)),
    }
}

async fn read_head(client: &mut TcpStream) -> Result<Vec<u8>, Refusal> {
    let mut head = Vec::with_capacity(1024);
    while head_end(&head).is_none() {
        if head.len() >= HEAD_BYTES_MAX {
            return Err(Refusal::BadRequest("the request's head exceeds 16 KiB"));
        }
        match client.read_buf(&mut head).await {
            Ok(0) | Err(_) => return Err(Refusal::BadRequest("the request ended in its head")),
            Ok(_) => {}
        }
    }
    Ok(head)
}

/// Where the head ends, the empty line included.
fn head_end(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// Says a last thing and listens until the client has gone: a connection that is closed with
/// bytes unread is reset, and what was said is lost.
async fn part(client: &mut TcpStream, words: &str) -> io::Result<()> {
    client.write_all(words.as_bytes()).await?;
    client.shutdown().await?;
    tokio::io::copy(&mut client.take(1 << 20), &mut tokio::io::sink()).await?;
    Ok(())
}

fn refused(refusal: &Refusal) -> String {
    let status = match refusal {
        Refusal::NotAllowed { .. } | Refusal::Special { .. } => "403 Forbidden",
        Refusal::NoAddress { .. } | Refusal::Unreachable { .. } => "502 Bad Gateway",
        Refusal::BadRequest(_) => "400 Bad Request",
    };
    // RFC 9209: this answer is the proxy's own, and the host has said nothing.
    let error = match refusal {
        Refusal::NotAllowed { .. } | Refusal::Special { .. } => "http_request_denied",
        Refusal::NoAddress { .. } => "dns_error",
        Refusal::Unreachable { .. } => "destination_unavailable",
        Refusal::BadRequest(_) => "http_request_error",
    };
    let text = format!("callgate: {refusal}\n");
    format!(
        "HTTP/1.1 {status}\r\nProxy-Status: callgate; error={error}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A proxy that may reach `entries`, with what it refused.
    fn proxy(entries: &[String]) -> (SocketAddr, Egress, Arc<Mutex<Vec<Refusal>>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let watch = {
            let seen = Arc::clone(&seen);
            Arc::new(move |refusal: &Refusal| seen.lock().unwrap().push(refusal.clone()))
        };
        let allowed = Arc::new(Allowed::parse(entries).unwrap());
        let egress = Egress::start(listener, Destination::Asked(allowed), watch).unwrap();
        (address, egress, seen)
    }

    /// A host that answers the first bytes it gets with what it got.
    async fn host() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut got = vec![0; 4096];
                let read = stream.read(&mut got).await.unwrap();
                stream.write_all(&got[..read]).await.unwrap();
            }
        });
        address
    }

    async fn ask(proxy: SocketAddr, parts: &[&str]) -> String {
        let mut stream = TcpStream::connect(proxy).await.unwrap();
        let mut got = String::new();
        for part in parts {
            stream.write_all(part.as_bytes()).await.unwrap();
            let mut buffer = vec![0; 4096];
            let read = stream.read(&mut buffer).await.unwrap();
            got.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        stream.read_to_string(&mut got).await.unwrap();
        got
    }

    #[tokio::test]
    async fn a_named_host_is_reached_and_no_other() {
        let host = host().await;
        let (address, _egress, seen) = proxy(&[format!("api.localhost:{}", host.port())]);
        let connect = format!("CONNECT api.localhost:{} HTTP/1.1\r\n\r\n", host.port());
        let got = ask(address, &[&connect, "hello"]).await;
        assert!(
            got.starts_with("HTTP/1.1 200") && got.ends_with("hello"),
            "{got}"
        );
        assert_eq!(*seen.lock().unwrap(), []);

        for target in [
            format!("127.0.0.1:{}", host.port()),
            format!("localhost:{}", host.port()),
            "api.localhost:1".to_owned(),
            "169.254.169.254:80".to_owned(),
        ] {
            let got = ask(address, &[&format!("CONNECT {target} HTTP/1.1\r\n\r\n")]).await;
            assert!(got.starts_with("HTTP/1.1 403"), "{target}: {got}");
        }
        assert_eq!(seen.lock().unwrap().len(), 4);
    }

    #[tokio::test]
    async fn a_name_that_is_this_machine_after_all_is_refused() {
        // Every machine resolves its own loopback address to itself.
        let host = host().await;
        let (address, _egress, _) = proxy(&[format!("ip6-localhost:{0}", host.port())]);
        let connect = format!("CONNECT ip6-localhost:{} HTTP/1.1\r\n\r\n", host.port());
        let got = ask(address, &[&connect]).await;
        // Where the name is unknown it has no address; it is reached in neither case.
        assert!(
            got.starts_with("HTTP/1.1 403") || got.starts_with("HTTP/1.1 502"),
            "{got}"
        );
    }

    #[tokio::test]
    async fn a_plain_request_is_passed_on_alone() {
        let host = host().await;
        let (address, _egress, _) = proxy(&[format!("api.localhost:{}", host.port())]);
        let request = format!(
            "POST http://api.localhost:{}/a?b=c HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nhi",
            host.port()
        );
        let got = ask(address, &[&request]).await;
        let wanted = format!(
            "POST /a?b=c HTTP/1.1\r\nHost: api.localhost:{}\r\nX-A: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
            host.port()
        );
        assert_eq!(got, wanted);
    }

    /// A client that is gone does not keep its place because its host says nothing. The clock
    /// is the test's.
    #[tokio::test(start_paused = true)]
    async fn a_silent_host_is_left_in_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let near = TcpStream::connect(address).await.unwrap();
            ends.push((near, listener.accept().await.unwrap().0));
        }
        let [(client, ours), (host, silent)] = <[_; 2]>::try_from(ends).unwrap();
        drop(client);
        carry(ours, host).await;
        drop(silent);
    }

    /// Whatever stands in a head, what is passed on has as many lines as it seems to have.
    #[test]
    fn heads_that_can_be_read_in_two_ways_are_refused() {
        let read = |fields: &str| {
            let head = format!("GET http://a.test/ HTTP/1.1\r\n{fields}\r\n");
            Wanted::read(head.as_bytes())
        };
        for fields in [
            "X: a\nEvil: b\r\n",
            "X: a\rEvil: b\r\n",
            "X: a\0b\r\n",
            "X: a\r\n folded: b\r\n",
            "X: a\r\n\tfolded: b\r\n",
            " X: a\r\n",
            "X : a\r\n",
            "Host\u{a0}: a\r\n",
            ": a\r\n",
            "nothing\r\n",
            "\nX: a\r\n",
            "X: \x7f\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert!(read(fields).is_err(), "{fields:?}");
        }
        for fields in [
            "",
            "X: a\tb\r\n",
            "X:\r\n",
            "X: \u{e9}\r\nContent-Length: 0\r\n",
        ] {
            assert!(read(fields).is_ok(), "{fields:?}");
        }
        for line in [
            "GET http://a.test/\n HTTP/1.1",
            "GET http://a.test/\rX HTTP/1.1",
            "GET http://a.test/\0 HTTP/1.1",
            "GET\n http://a.test/ HTTP/1.1",
            "CONNECT a.test:80\n HTTP/1.1",
        ] {
            let head = format!("{line}\r\n\r\n");
            assert!(Wanted::read(head.as_bytes()).is_err(), "{line:?}");
        }
        // Every byte in the midst of a value: the head keeps its lines.
        for byte in 0..=255_u8 {
            let head = [
                b"GET http://a.test/ HTTP/1.1\r\nX: a",
                &[byte][..],
                b"b\r\n\r\n",
            ]
            .concat();
            if let Ok(Wanted {
                first: First::Bytes(first),
                ..
            }) = Wanted::read(&head)
            {
                let lines = first
                    .split(|byte| matches!(byte, b'\n' | b'\r' | 0))
                    .count();
                assert_eq!(lines, 11, "{byte}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_proxy_request_is_refused() {
        let (address, _egress, _) = proxy(&["a.test:80".to_owned()]);
        for request in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT a.test HTTP/1.1\r\n\r\n",
            "CONNECT user@a.test:80 HTTP/1.1\r\n\r\n",
            "CONNECT a.test:80 HTTP/2\r\n\r\n",
            "CONNECT a.test:80 HTTP/1.1\r\n\r\nearly",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            let got = ask(address, &[request]).await;
            assert!(got.starts_with("HTTP/1.1 400"), "{request:?}: {got}");
        }
        let long = format!("GET {} ", "x".repeat(HEAD_BYTES_MAX));
        let got = ask(address, &[&long]).await;
        assert!(got.starts_with("HTTP/1.1 400"), "{got}");
    }
}
