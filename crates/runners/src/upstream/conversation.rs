//! What is said on the way between calls: answers find their calls, questions of the server are
//! answered, notifications are passed on or counted. No I/O of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use callgate_call::{Log, LogLevel, Progress};
use callgate_wires::json::{DEPTH_MAX, parse_output};
use callgate_wires::mcp::client::{
    AnswerBody, AnswerError, LINE_BYTES_MAX, LineSubject, ResultForm, ServerLine, ServerMessage,
    read_line, subject_of, write_method_not_found, write_pong,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Parts;
use super::end::EndCause;
use super::link::{Addressee, Link, Report};
use super::listing::ListKind;
use super::rates::{EventBudget, StrayCount};
use crate::answer::clipped;

/// The longest line of noise that is kept.
const NOISE_BYTES_MAX: usize = 1024;

/// The answer to a request of the driver's own.
pub(super) type OwnAnswer = Result<String, AnswerError>;

/// One side of the conversation with a process.
pub(super) struct Conversation {
    parts: Arc<Parts>,
    link: Arc<Link>,
    budget: EventBudget,
    strays: StrayCount,
    /// The request of the driver's own that has no answer yet.
    asked: Option<u64>,
    own_answer: Option<OwnAnswer>,
    /// Lists that the server said changed, each once.
    changed: Vec<ListKind>,
    /// Bytes of lines that were no answers, since the last look.
    pub idle_bytes: u64,
}

impl Conversation {
    pub fn new(parts: Arc<Parts>, link: Arc<Link>) -> Self {
        Self {
            parts,
            link,
            budget: EventBudget::new(Instant::now()),
            strays: StrayCount::default(),
            asked: None,
            own_answer: None,
            changed: Vec::new(),
            idle_bytes: 0,
        }
    }

    /// Sends a request of the driver's own.
    pub fn ask(&mut self, write: impl FnOnce(u64, &mut Vec<u8>)) {
        let id = self.link.next_id();
        self.asked = Some(id);
        self.own_answer = None;
        self.link.send(|out| write(id, out));
    }

    /// The answer to it, once it is there.
    pub fn take_own_answer(&mut self) -> Option<OwnAnswer> {
        self.own_answer.take()
    }

    /// The lists that the server said changed since the last look.
    pub fn take_changed(&mut self) -> Vec<ListKind> {
        std::mem::take(&mut self.changed)
    }

    /// Takes one line.
    pub fn line(&mut self, line: ServerLine<'_>) -> Result<(), EndCause> {
        match line {
            ServerLine::Whole(line) => self.message(line),
            ServerLine::TooLong(head) => match subject_of(head) {
                LineSubject::Answer(id) if self.asked == Some(id) => {
                    self.own(Err(AnswerError::Malformed("too long".to_owned())));
                    Ok(())
                }
                LineSubject::Answer(id) => {
                    let addressee = self.link.answered_too_long(id);
                    self.count(addressee)
                }
                LineSubject::Message | LineSubject::Noise => {
                    self.drop_one(head.len());
                    Ok(())
                }
                LineSubject::Unknown => Err(EndCause::LineTooLong(LINE_BYTES_MAX)),
            },
        }
    }

    fn message(&mut self, line: &[u8]) -> Result<(), EndCause> {
        // What is the driver's own is kept as the bytes it came as.
        let form = match self.asked {
            Some(_) => ResultForm::Raw,
            None => ResultForm::Parsed,
        };
        match read_line(line, form) {
            ServerMessage::Answer { id, body } if self.asked == Some(id) => {
                self.own(body.map(|body| match body {
                    AnswerBody::Raw(text) => text.to_owned(),
                    AnswerBody::Parsed(value) => value.to_string(),
                }));
                return Ok(());
            }
            ServerMessage::Answer { id, body } => {
                let body = body.and_then(|body| match body {
                    AnswerBody::Parsed(value) => Ok(value),
                    AnswerBody::Raw(text) => parse_output(text.as_bytes(), DEPTH_MAX)
                        .map_err(|error| AnswerError::Malformed(error.to_string())),
                });
                let addressee = self.link.answered(id, body, line.len());
                return self.count(addressee);
            }
            ServerMessage::StrayAnswer => return self.count(Addressee::Nobody),
            ServerMessage::Request { id, method } => match &*method {
                "ping" => self.link.send(|out| write_pong(&id, out)),
                method => self
                    .link
                    .send(|out| write_method_not_found(&id, method, out)),
            },
            ServerMessage::Notification { method, params } => self.notified(&method, params),
            ServerMessage::Noise => self.noise(line),
        }
        self.idle_bytes += line.len() as u64;
        Ok(())
    }

    fn own(&mut self, answer: OwnAnswer) {
        self.asked = None;
        self.own_answer = Some(answer);
    }

    /// U-7: an answer that nobody waits for.
    fn count(&mut self, addressee: Addressee) -> Result<(), EndCause> {
        if addressee == Addressee::Nobody {
            self.drop_one(0);
            if self.strays.add(Instant::now()) {
                return Err(EndCause::Strays);
            }
        }
        Ok(())
    }

    fn drop_one(&mut self, bytes: usize) {
        self.idle_bytes += bytes as u64;
        self.link.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// U-9: what a library prints where it should not. Kept for the owner as far as there is room.
    fn noise(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&line[..line.len().min(NOISE_BYTES_MAX)]);
        let text = self.parts.secrets.clean(&text).into_owned();
        self.parts
            .journal
            .push(format!("stdout: {text}\n").as_bytes());
    }

    /// U-10, U-11: bounded, whatever the server sends.
    fn notified(&mut self, method: &str, params: Option<&str>) {
        let changed = match method {
            "notifications/tools/list_changed" => Some(ListKind::Tools),
            "notifications/prompts/list_changed" => Some(ListKind::Prompts),
            _ => None,
        };
        if let Some(kind) = changed {
            if !self.changed.contains(&kind) {
                self.changed.push(kind);
            }
            return;
        }
        let report = match method {
            "notifications/progress" if self.budget.takes(Instant::now()) => progress_of(params),
            "notifications/message" if self.budget.takes(Instant::now()) => log_of(params),
            // Lists that calls do not depend on.
            "notifications/resources/list_changed" | "notifications/resources/updated" => return,
            _ => None,
        };
        let is_passed = report.is_some_and(|(id, report)| self.link.report(id, report));
        if !is_passed {
            self.drop_one(0);
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams {
    progress_token: u64,
    progress: f64,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

fn progress_of(params: Option<&str>) -> Option<(Option<u64>, Report)> {
    let params: ProgressParams = serde_json::from_str(params?).ok()?;
    let progress = Progress {
        done: params.progress,
        total: params.total,
        message: params.message.map(|message| clipped(&message)),
    };
    Some((Some(params.progress_token), Report::Progress(progress)))
}

/// The longest data of a log message that is passed on.
const LOG_BYTES_MAX: usize = 64 * 1024;

#[derive(Deserialize)]
struct LogParams<'a> {
    level: String,
    #[serde(default)]
    logger: Option<String>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// A log message names no request, so that it belongs to a call only where there is just one.
fn log_of(params: Option<&str>) -> Option<(Option<u64>, Report)> {
    let params: LogParams<'_> = serde_json::from_str(params?).ok()?;
    if params.data.get().len() > LOG_BYTES_MAX {
        return None;
    }
    let log = Log {
        level: LogLevel::parse(&params.level)?,
        logger: params.logger.map(|logger| clipped(&logger)),
        data: parse_output(params.data.get().as_bytes(), DEPTH_MAX).ok()?,
    };
    Some((None, Report::Log(log)))
}
