//! A session in the person's terminal: what it prints is shown, what is typed is written to it.

use std::io::Write as _;
use std::process::ExitCode;
use std::str::FromStr;

use callgate_client::{ClientError, Talk};
use callgate_registry::paths::Paths;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::raw::{self, Raw};
use super::{ask, gate, output};
use crate::cli::{Done, Failure};
use crate::commands::StopSignals;
use crate::error::CommandError;
use crate::show;

/// Bytes of one read of what is typed.
const TYPED_BYTES: usize = 4096;

/// Reads that wait for the gate to take them; then whoever types waits.
const TYPED_MAX: usize = 16;

/// The key that detaches, as the byte it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetachKey(u8);

impl Default for DetachKey {
    fn default() -> Self {
        Self(b']' & CONTROL)
    }
}

/// What the control key leaves of a letter.
const CONTROL: u8 = 0x1f;

impl FromStr for DetachKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        let letter = lower.strip_prefix("ctrl-").or(lower.strip_prefix('^'));
        match letter.map(str::as_bytes) {
            Some(&[letter @ (b'a'..=b'z' | b'@' | b'['..=b'_')]) => Ok(Self(letter & CONTROL)),
            _ => Err("a key is ctrl- and a letter or one of @ [ \\ ] ^ _".to_owned()),
        }
    }
}

/// How being attached ended.
enum Ended {
    Detached,
    Exited(Value),
    /// The gate went, or we were told to stop.
    Broken(String),
}

/// What comes from the person.
enum Typed {
    Bytes(Vec<u8>),
    Resized,
    Detach,
}

/// Shows `session` and types into it until it ends or the person detaches.
pub async fn attach(paths: &Paths, session: &str, key: DetachKey) -> Done {
    let mut view = View::open(paths, session).await?;
    let typed = gate(paths).await?;
    let mut stop = StopSignals::watch()?;
    let (tell, keys) = mpsc::channel(TYPED_MAX);
    show::say(&format!("attached to {session}; {} detaches", key.words()));
    let raw = Raw::enter().map_err(|error| format!("take over the terminal: {error}"))?;
    read_keys(tell.clone(), key)?;
    // The first arm that ends, ends the attachment: the session and its screen stay with the gate.
    // Keys that were typed and not sent are dropped with the connection.
    let ended = tokio::select! {
        ended = view.show() => ended,
        ended = type_into(typed, session, keys) => ended,
        () = follow_size(tell) => Ended::Broken("the terminal is gone".to_owned()),
        () = stop.next() => Ended::Broken("told to stop".to_owned()),
    };
    drop(raw);
    match ended {
        Ended::Detached => {
            show::say(&format!("detached from {session}"));
            Ok(ExitCode::SUCCESS)
        }
        Ended::Exited(how) => Ok(exited(session, &how)),
        Ended::Broken(words) => Err(words.into()),
    }
}

fn exited(session: &str, how: &Value) -> ExitCode {
    if let Some(code) = how["code"].as_u64() {
        show::say(&format!("{session} exited with code {code}"));
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let signal = how["signal"].as_str().unwrap_or("the end of its gate");
    show::say(&format!("{session} was ended by {signal}"));
    ExitCode::FAILURE
}

impl DetachKey {
    fn words(self) -> String {
        let letter = char::from(self.0 | 0x40).to_ascii_lowercase();
        format!("ctrl-{letter}")
    }
}

/// The events of a session.
struct View<'a> {
    paths: &'a Paths,
    session: &'a str,
    /// The connection that the events come by.
    _talk: Talk,
    body: Incoming,
    /// The beginning of a line.
    begun: Vec<u8>,
}

impl<'a> View<'a> {
    async fn open(paths: &'a Paths, session: &'a str) -> Result<Self, Failure> {
        let mut talk = gate(paths).await?;
        let body = events(&mut talk, session).await?;
        Ok(Self {
            paths,
            session,
            _talk: talk,
            body,
            begun: Vec::new(),
        })
    }

    /// Shows what comes until there is no more.
    async fn show(&mut self) -> Ended {
        loop {
            let frame = match self.body.frame().await {
                None => return Ended::Broken("the gate is gone".to_owned()),
                Some(Err(error)) => return Ended::Broken(format!("the gate is gone: {error}")),
                Some(Ok(frame)) => frame,
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            if let Some(ended) = self.take(&bytes).await {
                return ended;
            }
        }
    }

    async fn take(&mut self, bytes: &Bytes) -> Option<Ended> {
        self.begun.extend_from_slice(bytes);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            match event["method"].as_str() {
                Some("terminals/stream") => {
                    put(event["params"]["data"].as_str().unwrap_or_default());
                }
                Some("terminals/exit") => return Some(Ended::Exited(event["params"].clone())),
                Some("gap") => return self.again().await,
                _ => {}
            }
        }
        None
    }

    /// So much was printed that some of it was missed: what it shows now is shown anew.
    async fn again(&mut self) -> Option<Ended> {
        match Self::open(self.paths, self.session).await {
            Ok(anew) => {
                *self = anew;
                None
            }
            Err(_) => Some(Ended::Broken("fell behind, and it has ended".to_owned())),
        }
    }
}

async fn events(talk: &mut Talk, session: &str) -> Result<Incoming, Failure> {
    let path = format!("/v1/terminals/{session}");
    let response = talk.open(Method::GET, &path, String::new()).await?;
    if response.status() == StatusCode::OK {
        return Ok(response.into_body());
    }
    // bound: the gate's own, which bounds what it answers
    let body = response.into_body().collect().await;
    let body = body.map_err(|error| format!("the gate did not answer: {error}"))?;
    let refused: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    output(refused)?;
    Err("the gate's answer makes no sense".to_owned().into())
}

fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    // A terminal that is gone ends us by its signal.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Reads what is typed on a thread of its own: a terminal that does not block would not block
/// for the shell that gave it to us either. The thread ends with the program.
fn read_keys(tell: mpsc::Sender<Typed>, key: DetachKey) -> Result<(), CommandError> {
    let read = move || {
        let mut buffer = [0; TYPED_BYTES];
        loop {
            let bytes = match rustix::io::read(std::io::stdin(), &mut buffer) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) | Err(_) => &[key.0][..],
                Ok(count) => &buffer[..count],
            };
            let mut parts = bytes.splitn(2, |byte| *byte == key.0);
            let before = parts.next().unwrap_or_default().to_vec();
            let is_gone = !before.is_empty() && tell.blocking_send(Typed::Bytes(before)).is_err();
            if parts.next().is_some() {
                let _ = tell.blocking_send(Typed::Detach);
                return;
            }
            if is_gone {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("keys".to_owned());
    let started = thread.spawn(read);
    started.map(drop).map_err(CommandError::system("read keys"))
}

/// Tells of the terminal's size, now and whenever it changes.
async fn follow_size(tell: mpsc::Sender<Typed>) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else {
        return std::future::pending().await;
    };
    loop {
        if tell.send(Typed::Resized).await.is_err() || changes.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// Hands on what is typed, in order.
async fn type_into(mut talk: Talk, session: &str, mut keys: mpsc::Receiver<Typed>) -> Ended {
    let mut begun = Vec::new();
    while let Some(typed) = keys.recv().await {
        let done = match typed {
            Typed::Detach => return Ended::Detached,
            Typed::Resized => resize(&mut talk, session).await,
            Typed::Bytes(bytes) => {
                begun.extend_from_slice(&bytes);
                let text = whole_characters(&mut begun);
                write(&mut talk, session, &text).await
            }
        };
        if let Err(error) = done {
            return Ended::Broken(error.to_string());
        }
    }
    Ended::Detached
}

/// Takes the text that is whole; what is no text at all is replaced.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let end = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    let rest = bytes.split_off(end);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

async fn resize(talk: &mut Talk, session: &str) -> Result<(), ClientError> {
    let Some(size) = raw::size() else {
        return Ok(());
    };
    let input = json!({ "session_id": session, "cols": size.cols, "rows": size.rows });
    asked(talk, "terminals/resize", input).await.map(drop)
}

async fn write(talk: &mut Talk, session: &str, text: &str) -> Result<(), ClientError> {
    let mut rest = text;
    while !rest.is_empty() {
        let input = json!({ "session_id": session, "data": rest });
        let written = asked(talk, "terminals/write", input).await?;
        let bytes = written["bytes"].as_u64().unwrap_or(0);
        match usize::try_from(bytes)
            .ok()
            .and_then(|bytes| rest.get(bytes..))
        {
            // It does not read: what was typed is lost, as in any terminal.
            Some(left) if left.len() < rest.len() => rest = left,
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// A call while attached. A session that has just ended is told of by its events; a refusal is
/// no reason to stop showing it.
async fn asked(talk: &mut Talk, tool: &str, input: Value) -> Result<Value, ClientError> {
    let mut answer = ask(talk, tool, input).await?;
    Ok(answer["output"].take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_names() {
        for (text, byte) in [
            ("ctrl-]", 0x1d),
            ("^a", 1),
            ("Ctrl-Z", 26),
            ("ctrl-\\", 0x1c),
        ] {
            let key: DetachKey = text.parse().unwrap();
            assert_eq!(key, DetachKey(byte));
            assert_eq!(key.words().parse(), Ok(key));
        }
        assert_eq!(DetachKey::default(), DetachKey(0x1d));
        for wrong in ["", "a", "ctrl-", "ctrl-ab", "alt-a", "^1"] {
            assert!(wrong.parse::<DetachKey>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn characters_stay_whole() {
        let mut bytes = "aé".as_bytes()[..2].to_vec();
        assert_eq!(whole_characters(&mut bytes), "a");
        bytes.push(0xa9);
        assert_eq!(whole_characters(&mut bytes), "é");
        bytes.extend(b"\xffb");
        assert_eq!(whole_characters(&mut bytes), "\u{fffd}b");
    }
}
