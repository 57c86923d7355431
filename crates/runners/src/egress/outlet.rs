//! A child's ways out for as long as the child lives: the proxy that serves its hosts, forwarded
//! ports, and what was refused to the call under way.

use std::fmt::Write as _;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_call::{Fault, Needs, Network, Sink};
use callgate_sandbox::Child;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Allowed, Destination, Egress, Refusal, Watch};

/// The fact that tells of refusals.
pub(super) const FACT: &str = "network_refused";

/// Refusals of one call that are told apart; further ones are only counted.
const TOLD_MAX: usize = 8;

/// How long it may take to hear what processes asked for that have ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Connections that a call may have left waiting: as many as the listener holds, and some that
/// were on their way.
const LEFT_MAX: usize = 256;

/// A child's ways out. The child's processes are the only ones that can reach them.
#[derive(Debug)]
pub(crate) struct Outlet {
    ways: Vec<Way>,
    refused: Arc<Mutex<Refused>>,
}

/// One listener in a child's network, and what it leads to.
#[derive(Debug)]
struct Way {
    listener: TcpListener,
    destination: Destination,
    egress: Option<Egress>,
}

impl Outlet {
    /// Those of a child, where it has some.
    pub fn of(child: &mut Child, needs: Option<&Needs>) -> Result<Option<Self>, Fault> {
        let Some(needs) = needs else {
            return Ok(None);
        };
        let mut ways = Vec::new();
        if let Network::Hosts(hosts) = needs.reach()
            && let Some(listener) = child.take_outlet()
        {
            let allowed = Allowed::parse(hosts).map_err(|message| Fault::Internal { message })?;
            ways.push(Way::new(listener, Destination::Asked(Arc::new(allowed)))?);
        }
        let targets = needs.forwarded().iter().map(|(_, target)| target);
        for (listener, target) in child.take_forwards().into_iter().zip(targets) {
            let fixed =
                Destination::fixed(target).map_err(|message| Fault::Internal { message })?;
            ways.push(Way::new(listener, fixed)?);
        }
        Ok((!ways.is_empty()).then(|| Self::new(ways)))
    }

    fn new(ways: Vec<Way>) -> Self {
        Self {
            ways,
            refused: Arc::default(),
        }
    }

    /// Serves them for as long as the values returned live. `watch` is called for each refusal.
    pub(super) fn serve_to(self, watch: &Watch) -> Result<Vec<Egress>, Fault> {
        let ways = self.ways.into_iter();
        let started = ways.map(|way| Egress::start(way.listener, way.destination, watch.clone()));
        started.collect::<Result<_, _>>().map_err(internal)
    }

    /// A call begins. Connections of earlier ones stay open, unless it is to begin `afresh`.
    pub async fn begin(&mut self, afresh: bool) -> Result<(), Fault> {
        if afresh {
            let mut has_ended = false;
            for way in &mut self.ways {
                has_ended |= way.end().await;
            }
            if has_ended {
                *lock(&self.refused) = Refused::default();
            }
        }
        for way in &mut self.ways {
            way.begin(&self.refused).map_err(internal)?;
        }
        Ok(())
    }

    /// Reports what was refused to a call that is over, and returns the first host that may be
    /// allowed by naming it. Where its processes are `gone`, what they asked for last is heard
    /// first; where they live on, it is told with the next call.
    pub async fn tell(&self, gone: bool, sink: &dyn Sink) -> Option<String> {
        if gone {
            let _ = tokio::time::timeout(LAST_WORDS, self.all_heard()).await;
        }
        let refused = std::mem::take(&mut *lock(&self.refused));
        if let Some(words) = refused.words() {
            sink.fact(FACT, &words);
            sink.refused(refused.count);
        }
        refused.host
    }

    /// Ready when nobody waits any more to be told whether its connection may be.
    async fn all_heard(&self) {
        let is_busy = |way: &Way| {
            let undecided = way.egress.as_ref().map_or(0, Egress::undecided);
            undecided > 0 || is_waited_at(&way.listener)
        };
        while self.ways.iter().any(is_busy) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Way {
    fn new(listener: TcpListener, destination: Destination) -> Result<Self, Fault> {
        listener.set_nonblocking(true).map_err(internal)?;
        Ok(Self {
            listener,
            destination,
            egress: None,
        })
    }

    /// Ends what is carried. False if nothing was.
    async fn end(&mut self) -> bool {
        let Some(egress) = self.egress.take() else {
            return false;
        };
        egress.end().await;
        // Nobody of the last call is alive to wait for these, nor of the next one yet.
        for _ in 0..LEFT_MAX {
            if self.listener.accept().is_err() {
                break;
            }
        }
        true
    }

    fn begin(&mut self, refused: &Arc<Mutex<Refused>>) -> io::Result<()> {
        if self.egress.is_none() {
            let refused = Arc::clone(refused);
            let watch = Arc::new(move |refusal: &Refusal| lock(&refused).add(refusal));
            let listener = self.listener.try_clone()?;
            self.egress = Some(Egress::start(listener, self.destination.clone(), watch)?);
        }
        Ok(())
    }
}

/// The same for one call of a child that is not a runner's.
#[derive(Debug)]
pub struct Served(Outlet);

impl Served {
    /// Serves the way out of a child, where it has one.
    pub async fn begin(child: &mut Child, needs: &Needs) -> Result<Option<Self>, Fault> {
        let Some(mut outlet) = Outlet::of(child, Some(needs))? else {
            return Ok(None);
        };
        outlet.begin(true).await?;
        Ok(Some(Self(outlet)))
    }

    /// Reports what was refused to a child that is gone, and returns the first host that may be
    /// allowed by naming it.
    pub async fn tell(&self, sink: &dyn Sink) -> Option<String> {
        self.0.tell(true, sink).await
    }
}

/// True if a connection waits to be taken.
fn is_waited_at(listener: &TcpListener) -> bool {
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn internal(error: io::Error) -> Fault {
    Fault::Internal {
        message: format!("serve the tool's way to its hosts: {error}"),
    }
}

fn lock(refused: &Mutex<Refused>) -> MutexGuard<'_, Refused> {
    refused.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was refused to one call.
#[derive(Debug, Default)]
pub(super) struct Refused {
    told: Vec<(String, u64)>,
    pub count: u64,
    /// The first that is not among the allowed ones, with its port.
    pub host: Option<String>,
}

impl Refused {
    pub fn add(&mut self, refusal: &Refusal) {
        self.count += 1;
        if self.host.is_none() {
            self.host = refusal.host();
        }
        let words = refusal.brief();
        let known = self.told.iter().position(|(known, _)| *known == words);
        match known {
            Some(at) => self.told[at].1 += 1,
            None if self.told.len() < TOLD_MAX => self.told.push((words, 1)),
            None => {}
        }
    }

    /// `3: evil.test:443 not allowed (2 times); 10.0.0.1:80 not allowed`; nothing if nothing was.
    pub fn words(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let mut text = format!("{}: ", self.count);
        let mut before = "";
        for (words, times) in &self.told {
            text.push_str(before);
            text.push_str(words);
            if *times > 1 {
                write!(text, " ({times} times)").expect("a String takes all");
            }
            before = "; ";
        }
        let told: u64 = self.told.iter().map(|(_, times)| times).sum();
        if told < self.count {
            text.push_str("; …");
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use callgate_call::Stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    fn refusal(host: &str, port: u16) -> Refusal {
        Refusal::NotAllowed {
            host: host.to_owned(),
            port,
        }
    }

    fn outlet(allowed: &str) -> (Outlet, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let allowed = Allowed::parse(&[allowed.to_owned()]).unwrap();
        let way = Way::new(listener, Destination::Asked(Arc::new(allowed))).unwrap();
        (Outlet::new(vec![way]), proxy)
    }

    #[derive(Default)]
    struct Counted(AtomicU64);

    impl Sink for Counted {
        fn chunk(&self, _: Stream, _: &[u8]) {}

        fn refused(&self, connections: u64) {
            self.0.fetch_add(connections, Ordering::Relaxed);
        }
    }

    /// What a process asked for last is told with its call, though nobody waits for the answer
    /// and nobody has had a turn to hear it.
    #[tokio::test]
    async fn last_words_are_heard() {
        let (mut outlet, proxy) = outlet("a.test:1");
        outlet.begin(true).await.unwrap();
        for _ in 0..20 {
            let mut client = std::net::TcpStream::connect(proxy).unwrap();
            client
                .write_all(b"CONNECT b.test:1 HTTP/1.1\r\n\r\n")
                .unwrap();
        }
        let sink = Counted::default();
        outlet.tell(true, &sink).await;
        assert_eq!(sink.0.load(Ordering::Relaxed), 20);
        outlet.tell(true, &sink).await;
        assert_eq!(sink.0.load(Ordering::Relaxed), 20, "told once");
    }

    /// A stream that the proxy carries, to a host that sends back what it gets.
    async fn tunnel(proxy: SocketAddr, host: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(proxy).await.unwrap();
        let request = format!("CONNECT {host} HTTP/1.1\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 39];
        stream.read_exact(&mut head).await.unwrap();
        assert!(head.ends_with(b"\r\n\r\n") && head.starts_with(b"HTTP/1.1 200"));
        stream
    }

    async fn is_open(stream: &mut TcpStream) -> bool {
        let mut back = [0; 2];
        stream.write_all(b"hi").await.is_ok() && stream.read_exact(&mut back).await.is_ok()
    }

    /// A call finds what earlier ones opened, unless it is to begin afresh.
    #[tokio::test]
    async fn calls_share_connections_or_do_not() {
        let echo = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = echo.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let (mut outlet, proxy) = outlet(&host.to_string());
        // Whoever comes before the first call has begun waits for it.
        let early = tokio::spawn(tunnel(proxy, host));
        outlet.begin(true).await.unwrap();
        let mut stream = early.await.unwrap();
        assert!(is_open(&mut stream).await);
        outlet.begin(false).await.unwrap();
        assert!(is_open(&mut stream).await);
        outlet.begin(true).await.unwrap();
        assert!(!is_open(&mut stream).await);
        assert!(is_open(&mut tunnel(proxy, host).await).await);
    }

    #[test]
    fn refusals_are_told_within_bounds() {
        let mut refused = Refused::default();
        assert_eq!(refused.words(), None);
        refused.add(&refusal("evil.test", 443));
        refused.add(&refusal("10.0.0.1", 80));
        refused.add(&refusal("evil.test", 443));
        assert_eq!(
            refused.words().as_deref(),
            Some("3: evil.test:443 not allowed (2 times); 10.0.0.1:80 not allowed")
        );
        for port in 1..1000 {
            refused.add(&refusal(&"\u{1b}x".repeat(10_000), port));
        }
        let words = refused.words().unwrap();
        assert!(words.starts_with("1002: evil.test:443 not allowed (2 times); "));
        assert!(words.ends_with("; …") && words.len() < 2048, "{words}");
        assert!(!words.contains('\u{1b}'));
    }
}
