//! One session: what it prints is logged, shown and told to whoever follows it, in one order; it
//! outlives the call that made it and every connection. R-11.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_call::{Audience, Clock, Fault, Hearer, Stream, Timestamp, Topics};
use callgate_sandbox::{Ending, Terminal, TerminalSize};
use callgate_text::{rfc3339_micros, write_json_text};
use serde_json::{Value, json};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, timeout_at};

use super::clock::SessionClock;
use super::log::{LOG_BYTES_MAX, Line, Log, Space};
use super::screen::Screen;

/// How long a program may take to read what is written to it. What it has not taken by then is
/// not written.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(2);

/// Lines of one answer. As many bytes as a log holds are fewer lines as a rule, but for those that
/// are shorter than 64 bytes.
pub const LINES_MAX: usize = LOG_BYTES_MAX / 64;

/// Lines shown to who attaches to a session without a screen.
const LINES_SHOWN: usize = 24;

/// A session.
pub struct Session {
    pub id: Arc<str>,
    pub name: Option<String>,
    /// From the workspace's root.
    pub cwd: String,
    pub pid: u32,
    pub times: SessionClock,
    /// What is written to it.
    pub input: pipe::Sender,
    /// Held across a whole write, so that the bytes of two do not mix. Taken while no other lock is
    /// held; the order of the locks is at `Shared`.
    pub turn: tokio::sync::Mutex<()>,
    /// To the one who watches over its child.
    pub signals: Sender<u8>,
    pub topics: Topics,
    pub clock: Arc<dyn Clock>,
    pub state: Mutex<State>,
}

/// What changes while a session lives.
pub struct State {
    log: Log,
    /// None where it has pipes instead of a terminal, and after its end.
    screen: Option<Screen>,
    /// We have sent SIGKILL.
    killed: bool,
    end: Option<End>,
}

/// How a session ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub at: Timestamp,
    killed: bool,
    how: Ending,
    took_ms: u64,
}

impl State {
    pub fn new(size: Option<TerminalSize>, space: Arc<Space>) -> Self {
        Self {
            log: Log::new(space),
            screen: size.map(Screen::new),
            killed: false,
            end: None,
        }
    }
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has printed something. Nobody is waited for: who follows is told by a ring.
    pub fn printed(&self, stream: Stream, text: &str) {
        if text.is_empty() {
            return;
        }
        let now_us = self.times.now_us(&*self.clock);
        let kept: Arc<str> = text.into();
        let mut state = self.state();
        let at_us = state.log.push(now_us, stream, Arc::clone(&kept));
        if let Some(screen) = &mut state.screen {
            screen.feed(kept);
        }
        // Still locked: who attaches meanwhile gets all of it by the screen, or all of it so.
        if self.topics.is_followed(&self.id) {
            let body = self.stream_body(stream, text, at_us);
            self.publish("terminals/stream", body);
        }
    }

    fn publish(&self, name: &'static str, body: String) {
        let audience = Audience::Followers(Arc::clone(&self.id));
        self.topics.publish(name, body, audience);
    }

    fn stream_body(&self, stream: Stream, data: &str, at_us: u64) -> String {
        // Lines have escapes at their ends.
        let mut body = Vec::with_capacity(data.len() + data.len() / 16 + 160);
        let mut part = |key: &str, text: &str| {
            body.extend_from_slice(key.as_bytes());
            write_json_text(text, &mut body);
        };
        part("{\"session_id\":", &self.id);
        part(",\"stream\":", word(stream));
        part(",\"data\":", data);
        part(",\"timestamp\":", &rfc3339_micros(at_us));
        body.push(b'}');
        String::from_utf8(body).unwrap_or_default()
    }

    fn exit_body(&self, end: End) -> String {
        let (code, signal) = match end.how {
            Ending::Code(code) => (json!(code), Value::Null),
            Ending::Signal(signal) => (Value::Null, json!(signal_name(signal))),
            Ending::Lost => (Value::Null, Value::Null),
        };
        let body = json!({
            "session_id": &*self.id,
            "code": code,
            "signal": signal,
            "duration_ms": end.took_ms,
        });
        body.to_string()
    }

    /// From now on `hearer` is told what it prints; first, what it shows. False if there is
    /// nothing more to come: then they are told how it ended, unless they followed it.
    pub fn follow(&self, hearer: Option<&Hearer>) -> bool {
        let mut state = self.state();
        if let Some(end) = state.end {
            if let Some(hearer) = hearer
                && !self.topics.is_followed_by(hearer, &self.id)
            {
                let audience = Audience::One(hearer.clone());
                let body = self.exit_body(end);
                self.topics.publish("terminals/exit", body, audience);
            }
            return false;
        }
        let Some(hearer) = hearer else {
            return true;
        };
        let at_us = match state.log.last_us() {
            0 => self.times.now_us(&*self.clock),
            last => last,
        };
        let shown = state.shown();
        let body = self.stream_body(Stream::Stdout, &shown, at_us);
        let first = ("terminals/stream", body.into());
        self.topics.follow(hearer, &self.id, first);
        true
    }

    /// Nothing is left of its child, and all that it printed has been told.
    pub fn ended(&self, ending: Ending) {
        let mut state = self.state();
        let by_us = state.killed && ending == Ending::Signal(SIGKILL);
        let end = End {
            at: self.clock.now(),
            killed: by_us,
            how: ending,
            took_ms: self.times.elapsed_us(&*self.clock) / 1000,
        };
        state.end = Some(end);
        // Nobody attaches any more, so nobody sees it.
        state.screen = None;
        if self.topics.is_followed(&self.id) {
            self.publish("terminals/exit", self.exit_body(end));
        }
    }

    /// What its log takes.
    pub fn log_bytes(&self) -> usize {
        self.state().log.bytes()
    }

    /// Drops the oldest of its log until no more than `bytes` are left.
    pub fn shrink_log(&self, bytes: usize) {
        let mut state = self.state();
        // What waits to be shown takes no room of its own only while the log has it.
        if let Some(screen) = &mut state.screen {
            screen.catch_up();
        }
        state.log.shrink(bytes);
    }

    /// When it ended, if it has.
    pub fn end(&self) -> Option<End> {
        self.state().end
    }

    /// As `terminals/list` tells it.
    pub fn listed(&self) -> Value {
        let end = self.end();
        json!({
            "session_id": &*self.id,
            "name": self.name,
            "cwd": self.cwd,
            "started_at": self.times.started.rfc3339(),
            "ended_at": end.map(|end| end.at.rfc3339()),
            "status": match end {
                None => "running",
                Some(end) if end.killed => "killed",
                Some(_) => "exited",
            },
        })
    }

    /// As `terminals/read_logs` tells it. Where there is more than fits, a last line that it did
    /// not print says so, with the time to read on from.
    pub fn logs(&self, since_us: u64, lines_max: Option<usize>) -> Value {
        let excerpt = self.state().log.excerpt(since_us);
        let told = |at_us, stream, text: &str| json!({ "ts": rfc3339_micros(at_us), "stream": word(stream), "data": text });
        let (lines, more) = excerpt.page(since_us, lines_max, LINES_MAX);
        let line = |line: &Line<'_>| told(line.at_us, line.stream, line.text);
        let mut logs: Vec<Value> = lines.iter().map(line).collect();
        if let Some(last) = lines.last().filter(|_| more > 0) {
            let words = format!("[{more} lines more: read on since this ts]\n");
            logs.push(told(last.at_us, Stream::Stderr, &words));
        }
        json!({ "logs": logs })
    }

    /// Gives it another size. False if it has no screen, or has ended.
    pub fn resize(&self, size: TerminalSize) -> bool {
        let mut state = self.state();
        if state.end.is_some() {
            return false;
        }
        let Some(screen) = &mut state.screen else {
            return false;
        };
        screen.resize(size);
        Terminal::resize(&self.input, size).is_ok()
    }

    /// Sends a signal. False if it has ended.
    pub fn kill(&self, signal: u8) -> bool {
        let mut state = self.state();
        if state.end.is_some() {
            return false;
        }
        state.killed |= i32::from(signal) == SIGKILL;
        // Where so many are under way already, one more says nothing new.
        let _ = self.signals.try_send(signal);
        true
    }

    /// Types `data`. Gives how many bytes of it were taken before patience ended.
    pub async fn write(&self, data: &[u8]) -> Result<usize, Fault> {
        let deadline = Instant::now() + WRITE_PATIENCE;
        if self.end().is_some() {
            return Err(self.gone());
        }
        let Ok(_turn) = timeout_at(deadline, self.turn.lock()).await else {
            return Ok(0);
        };
        let mut written = 0;
        while written < data.len() {
            let Ok(ready) = timeout_at(deadline, self.input.writable()).await else {
                break;
            };
            ready.map_err(|_| self.gone())?;
            match self.input.try_write(&data[written..]) {
                Ok(count) => written += count,
                Err(error) if is_passing(&error) => {}
                Err(_) if written > 0 => break,
                Err(_) => return Err(self.gone()),
            }
        }
        Ok(written)
    }

    fn gone(&self) -> Fault {
        Fault::Unavailable {
            reason: format!("session {} has ended, or reads no more", self.id),
        }
    }
}

impl State {
    fn shown(&mut self) -> String {
        // A session that has printed nothing shows nothing.
        if self.log.last_us() == 0 {
            return String::new();
        }
        match &mut self.screen {
            Some(screen) => screen.snapshot(),
            None => {
                let lines = self.log.read(0, Some(LINES_SHOWN));
                lines.iter().map(|line| line.text).collect()
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

const SIGKILL: i32 = 9;

fn word(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("SIG{other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use callgate_call::ManualClock;

    use super::*;

    /// A screen takes memory, and sessions that ended are many.
    #[tokio::test]
    async fn what_ended_keeps_no_screen() {
        let (input, _far) = pipe::pipe().unwrap();
        let (signals, _asked) = tokio::sync::mpsc::channel(1);
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let size = TerminalSize { cols: 80, rows: 24 };
        let session = Session {
            id: "s".into(),
            name: None,
            cwd: ".".to_owned(),
            pid: 1,
            times: SessionClock::now(&*clock),
            input,
            turn: tokio::sync::Mutex::new(()),
            signals,
            topics: Topics::default(),
            clock,
            state: Mutex::new(State::new(Some(size), Arc::new(Space::new(1 << 20)))),
        };
        session.printed(Stream::Stdout, "words");
        assert!(session.state().screen.is_some());
        session.ended(Ending::Code(0));
        assert!(session.state().screen.is_none());
        assert!(!session.resize(size) && !session.follow(None));
        assert_eq!(session.logs(0, None)["logs"][0]["data"], "words");
    }
}
