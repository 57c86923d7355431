//! A process of a server from its birth to its end: started confined, brought to speak, served,
//! stopped. One task drives it and owns it.

mod birth;
mod stop;

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callgate_call::{Needs, Redactor};
use callgate_sandbox::{Child, Ending, Home};
use callgate_wires::json::{DEPTH_MAX, parse_output};
use callgate_wires::mcp::client::{
    AnswerError, LINE_BYTES_MAX, ServerLines, write_initialize, write_initialized, write_list,
};
use callgate_wires::mcp::{HANDSHAKE, RawJson};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::{Instant, Sleep};

use super::conversation::{Conversation, OwnAnswer};
use super::end::{EndCause, ProcessEnd};
use super::link::{Errand, Link};
use super::listing::{ListKind, Pages, listed_prompts, listed_tools};
use super::outbox::Outbox;
use super::pins::{Listed, digest_of};
use super::settings::ShareKey;
use super::{Parts, Upstream};
use crate::egress::SharedOutlet;
use crate::flood::{FLOOD_PAUSE, FREE_BYTES, Flood};
use crate::tail::Tail;
pub(super) use birth::leave;
use birth::{internal, open_home, spec_of};

/// How long a process that closed its output may take to be dead.
const LAST_BREATH: Duration = Duration::from_secs(1);

/// The shortest time between two lists of one process. U-11.
const RELIST_PAUSE: Duration = Duration::from_millis(500);

/// After this the bytes of lines that were no answers are forgiven.
const FLOOD_WINDOW: Duration = Duration::from_secs(1);

/// Starts a process, serves its calls, ends it and tells everybody.
pub(super) async fn drive(
    parts: Arc<Parts>,
    link: Arc<Link>,
    key: ShareKey,
    needs: Option<Arc<Needs>>,
    upstream: Weak<Upstream>,
) {
    let (process_end, home) = match Process::start(&parts, &link, &key, needs.as_ref()).await {
        Ok(mut process) => {
            let cause = match process.begin().await {
                Ok(()) => process.serve().await,
                Err(cause) => cause,
            };
            if cause.is_orderly() {
                link.close();
            }
            process.finish(cause).await
        }
        Err(cause) => (ProcessEnd::before_birth(cause), None),
    };
    if let Some(upstream) = upstream.upgrade() {
        upstream.note_end(&link, &process_end);
    }
    link.end(process_end);
    leave(home).await;
    if let Some(upstream) = upstream.upgrade() {
        upstream.forget(&link);
    }
}

/// What a server said of itself when it was greeted.
pub(super) struct Greeting {
    pub protocol_version: String,
    pub result: Value,
}

impl Greeting {
    pub fn instructions(&self) -> Option<&str> {
        self.result.get("instructions").and_then(Value::as_str)
    }

    /// Returns whether it has a capability.
    pub fn has(&self, capability: &str) -> bool {
        let declared = self.result.get("capabilities");
        declared.is_some_and(|declared| declared.get(capability).is_some())
    }
}

/// A running process.
pub(super) struct Process {
    parts: Arc<Parts>,
    link: Arc<Link>,
    child: Child,
    stdout: pipe::Receiver,
    lines: ServerLines,
    stderr: Flood,
    redactor: Redactor,
    tail: Tail,
    home: Option<Home>,
    talk: Conversation,
    /// Its standard input, while something waits for room in it.
    room: Option<pipe::Sender>,
    timer: Pin<Box<Sleep>>,
    ready_since: Option<Instant>,
    /// Lists that the server said changed, each once.
    stale: Vec<ListKind>,
    /// A list that is being fetched anew.
    pages: Option<Pages>,
    listed_at: Instant,
    relist_at: Option<Instant>,
    flood_since: Instant,
    paused_until: Option<Instant>,
}

/// What came next.
enum Event {
    Read(io::Result<usize>),
    Bell,
    Room(io::Result<()>),
    Exited(Ending),
    Stop,
    Timer,
}

impl Process {
    /// A new process that nothing was said to yet.
    pub async fn start(
        parts: &Arc<Parts>,
        link: &Arc<Link>,
        key: &ShareKey,
        needs: Option<&Arc<Needs>>,
    ) -> Result<Self, EndCause> {
        let home = open_home(parts, key).await?;
        let (spec, stdin, stdout, stderr) = spec_of(parts, home.as_ref(), needs)
            .map_err(|error| EndCause::Refused(internal(&error)))?;
        let child = parts.spawner.spawn(spec).await;
        let mut child = child.map_err(EndCause::NotBorn)?;
        let outlet = SharedOutlet::start(&mut child, needs.map(|needs| &**needs));
        if let Some(outlet) = outlet.map_err(EndCause::Refused)? {
            let _ = link.outlet.set(outlet);
        }
        link.pid.store(child.pid(), Ordering::Relaxed);
        link.open(Outbox::new(stdin));
        let now = Instant::now();
        Ok(Self {
            parts: Arc::clone(parts),
            link: Arc::clone(link),
            child,
            stdout,
            lines: ServerLines::new(LINE_BYTES_MAX),
            stderr,
            redactor: Redactor::new(&parts.secrets),
            tail: Tail::default(),
            home,
            talk: Conversation::new(Arc::clone(parts), Arc::clone(link)),
            room: None,
            timer: Box::pin(tokio::time::sleep(parts.settings.idle_max)),
            ready_since: None,
            stale: Vec::new(),
            pages: None,
            listed_at: now,
            relist_at: None,
            flood_since: now,
            paused_until: None,
        })
    }

    /// Greets it and takes its lists of tools and prompts: then it is ready for calls.
    async fn begin(&mut self) -> Result<(), EndCause> {
        let limit = self.parts.settings.start_timeout;
        let listed = tokio::time::timeout(limit, async {
            let greeting = self.greet().await?;
            let tools = self.list(ListKind::Tools, &greeting).await?;
            let prompts = self.list(ListKind::Prompts, &greeting).await?;
            Ok(Listed {
                tools: listed_tools(&tools)?,
                prompts: listed_prompts(&prompts),
                instructions: digest_of(greeting.instructions()),
            })
        });
        let listed = listed.await.unwrap_or(Err(EndCause::StartTimeout(limit)))?;
        let now = Instant::now();
        (self.ready_since, self.listed_at) = (Some(now), now);
        self.link.set_ready(listed);
        self.set_timer();
        Ok(())
    }

    /// The handshake.
    pub async fn greet(&mut self) -> Result<Greeting, EndCause> {
        let version = env!("CARGO_PKG_VERSION");
        self.talk.ask(|id, out| write_initialize(id, version, out));
        let result = self.own_answer().await?.map_err(|error| {
            EndCause::BadHandshake(format!("it refused `initialize`: {}", words_of(&error)))
        })?;
        let result = parse_output(result.as_bytes(), DEPTH_MAX)
            .map_err(|error| EndCause::BadHandshake(format!("its `initialize`: {error}")))?;
        let version = result.get("protocolVersion").and_then(Value::as_str);
        let version = version.unwrap_or_default().to_owned();
        if !HANDSHAKE.contains(&version.as_str()) {
            return Err(EndCause::Incompatible(version));
        }
        self.link.send(write_initialized);
        Ok(Greeting {
            protocol_version: version,
            result,
        })
    }

    /// All pages of one list. Nothing where the server has no such list.
    pub async fn list(
        &mut self,
        kind: ListKind,
        greeting: &Greeting,
    ) -> Result<Vec<RawJson>, EndCause> {
        let is_declared = greeting.has(kind.capability());
        // Early servers declare nothing and have tools all the same.
        if !is_declared && kind != ListKind::Tools {
            return Ok(Vec::new());
        }
        let mut pages = Pages::new(kind);
        let mut cursor = None;
        loop {
            self.talk
                .ask(|id, out| write_list(id, kind.method(), cursor.as_deref(), out));
            match self.own_answer().await? {
                Ok(page) => cursor = pages.take(&page)?,
                Err(AnswerError::Refused(_)) if !is_declared || kind != ListKind::Tools => {
                    return Ok(Vec::new());
                }
                Err(error) => {
                    let words = words_of(&error);
                    return Err(EndCause::BadHandshake(format!(
                        "its {}: {words}",
                        kind.method()
                    )));
                }
            }
            if cursor.is_none() {
                return Ok(pages.into_items());
            }
        }
    }

    async fn own_answer(&mut self) -> Result<OwnAnswer, EndCause> {
        loop {
            if let Some(answer) = self.talk.take_own_answer() {
                return Ok(answer);
            }
            self.step().await?;
        }
    }

    /// Serves calls until something ends it.
    async fn serve(&mut self) -> EndCause {
        loop {
            if let Err(cause) = self.serve_step().await {
                return cause;
            }
        }
    }

    async fn serve_step(&mut self) -> Result<(), EndCause> {
        self.step().await?;
        if let Some(answer) = self.talk.take_own_answer() {
            self.relisted(answer)?;
        }
        for kind in self.talk.take_changed() {
            if !self.stale.contains(&kind) {
                self.stale.push(kind);
            }
        }
        if !self.stale.is_empty() && self.pages.is_none() && self.relist_at.is_none() {
            self.relist_at = Some((self.listed_at + RELIST_PAUSE).max(Instant::now()));
            self.set_timer();
        }
        Ok(())
    }

    /// Waits for what comes next, and sees to it.
    async fn step(&mut self) -> Result<(), EndCause> {
        let Self {
            link,
            child,
            stdout,
            lines,
            stderr,
            redactor,
            tail,
            room,
            timer,
            paused_until,
            parts,
            ..
        } = self;
        let is_stopping = link.is_closing();
        // Reads and writes keep what they move where it belongs in the poll that moves it; the
        // other arms only wait. Biased: an answer outranks an end, and a flood is made to pause, so
        // that it does not keep the other arms from their turn.
        let event = tokio::select! {
            biased;
            read = read(stdout, lines, paused_until) => Event::Read(read),
            () = link.bell.notified() => Event::Bell,
            ready = writable(room) => Event::Room(ready),
            () = stderr.pump(|bytes| print(bytes, redactor, tail, parts)) => {
                unreachable!("it never ends")
            }
            exit = child.wait() => Event::Exited(exit.ending),
            () = link.stop.cancelled(), if !is_stopping => Event::Stop,
            () = timer => Event::Timer,
        };
        match event {
            Event::Read(Ok(1..)) => self.take_lines(),
            Event::Read(Ok(0) | Err(_)) => Err(self.hung_up().await),
            Event::Exited(ending) => {
                self.read_rest()?;
                Err(EndCause::Exited(ending))
            }
            Event::Room(ready) => {
                if let (Ok(()), Some(room)) = (ready, &self.room)
                    && self.link.flush(|bytes| room.try_write(bytes))
                {
                    return Ok(());
                }
                self.room = None;
                self.see_to_errands()
            }
            Event::Bell => match self.see_to_errands() {
                Err(EndCause::InputClosed) => Err(self.input_closed().await),
                seen => seen,
            },
            Event::Stop => {
                self.link.close();
                self.see_to_errands()
            }
            Event::Timer => self.on_timer(),
        }
    }

    fn see_to_errands(&mut self) -> Result<(), EndCause> {
        match self.link.look() {
            Errand::None => Ok(()),
            Errand::Unsent(pipe) => {
                if self.room.is_none() {
                    let room = pipe::Sender::from_owned_fd(pipe);
                    self.room = Some(room.map_err(|error| EndCause::Refused(internal(&error)))?);
                }
                Ok(())
            }
            Errand::InputClosed => Err(EndCause::InputClosed),
            Errand::Drained => Err(EndCause::Stopped),
        }
    }

    fn take_lines(&mut self) -> Result<(), EndCause> {
        while let Some(line) = self.lines.next_line() {
            self.talk.line(line)?;
        }
        if self.talk.idle_bytes > FREE_BYTES {
            let now = Instant::now();
            if now - self.flood_since > FLOOD_WINDOW {
                (self.flood_since, self.talk.idle_bytes) = (now, 0);
            } else {
                self.paused_until = Some(now + FLOOD_PAUSE);
            }
        }
        Ok(())
    }

    /// It has exited: what it printed before that is still in the pipe.
    fn read_rest(&mut self) -> Result<(), EndCause> {
        loop {
            match self.stdout.try_read_buf(self.lines.room()) {
                Ok(0) => break,
                Ok(_) => self.take_lines()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.take_last_line()
    }

    fn take_last_line(&mut self) -> Result<(), EndCause> {
        use callgate_wires::mcp::client::ServerLine;
        match self.lines.finish() {
            Some(line) => self.talk.line(ServerLine::Whole(line)),
            None => Ok(()),
        }
    }

    /// It reads no more. Mostly it has exited, and may have answered before.
    async fn input_closed(&mut self) -> EndCause {
        match tokio::time::timeout(LAST_BREATH, self.child.wait()).await {
            Ok(exit) => match self.read_rest() {
                Ok(()) => EndCause::Exited(exit.ending),
                Err(cause) => cause,
            },
            Err(_) => EndCause::InputClosed,
        }
    }

    async fn hung_up(&mut self) -> EndCause {
        if let Err(cause) = self.take_last_line() {
            return cause;
        }
        match tokio::time::timeout(LAST_BREATH, self.child.wait()).await {
            Ok(exit) => EndCause::Exited(exit.ending),
            Err(_) => EndCause::OutputClosed,
        }
    }

    fn set_timer(&mut self) {
        let idle_max = self.parts.settings.idle_max;
        let idle_since = self.link.idle_since().unwrap_or_else(Instant::now);
        let due = self
            .relist_at
            .into_iter()
            .fold(idle_since + idle_max, Instant::min);
        self.timer.as_mut().reset(due);
    }

    fn on_timer(&mut self) -> Result<(), EndCause> {
        let now = Instant::now();
        let idle_max = self.parts.settings.idle_max;
        if self.ready_since.is_some()
            && self
                .link
                .idle_since()
                .is_some_and(|since| now - since >= idle_max)
            && self.link.close_if_idle()
        {
            return Err(EndCause::Idle);
        }
        if self.relist_at.is_some_and(|at| at <= now) {
            self.relist_at = None;
            if let Some(kind) = self.stale.pop() {
                self.pages = Some(Pages::new(kind));
                self.talk
                    .ask(|id, out| write_list(id, kind.method(), None, out));
            }
        }
        self.set_timer();
        Ok(())
    }

    /// A page of a list that was fetched because the server said that it changed.
    fn relisted(&mut self, answer: OwnAnswer) -> Result<(), EndCause> {
        let Some(mut pages) = self.pages.take() else {
            return Ok(());
        };
        let method = pages.kind().method();
        let page = answer.map_err(|error| {
            EndCause::BadHandshake(format!("its {method}: {}", words_of(&error)))
        })?;
        if let Some(cursor) = pages.take(&page)? {
            self.pages = Some(pages);
            self.talk
                .ask(|id, out| write_list(id, method, Some(&cursor), out));
            return Ok(());
        }
        let mut listed = Listed::clone(&self.link.listed());
        match pages.kind() {
            ListKind::Tools => listed.tools = listed_tools(&pages.into_items())?,
            ListKind::Prompts => listed.prompts = listed_prompts(&pages.into_items()),
            ListKind::Resources | ListKind::Templates => {}
        }
        self.link.set_listed(listed);
        self.listed_at = Instant::now();
        self.parts.relists.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads once, after a pause where one was imposed.
async fn read(
    stdout: &mut pipe::Receiver,
    lines: &mut ServerLines,
    paused_until: &mut Option<Instant>,
) -> io::Result<usize> {
    if let Some(until) = *paused_until {
        tokio::time::sleep_until(until).await;
        *paused_until = None;
    }
    stdout.read_buf(lines.room()).await
}

async fn writable(room: &mut Option<pipe::Sender>) -> io::Result<()> {
    match room {
        Some(room) => room.writable().await,
        None => std::future::pending().await,
    }
}

/// Keeps what it printed to its standard error.
fn print(bytes: &[u8], redactor: &mut Redactor, tail: &mut Tail, parts: &Parts) {
    let clean = redactor.feed(bytes);
    tail.push(&clean);
    parts.journal.push(&clean);
}

fn words_of(error: &AnswerError) -> String {
    crate::answer::clipped(&error.to_string())
}
