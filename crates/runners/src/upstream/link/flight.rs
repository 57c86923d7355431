//! One call at a process: its inbox, which the driver of the process fills, and the wait for the
//! answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callgate_call::{Fault, Job, Log, Progress};
use callgate_wires::mcp::client::AnswerError;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Link;
use crate::process::stop;

/// Reports of one call that wait to be passed on; more are dropped.
const REPORTS_MAX: usize = 32;

/// What the process has for one call.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bell: Notify,
    content: Mutex<InboxContent>,
}

#[derive(Debug, Default)]
struct InboxContent {
    answer: Option<Answer>,
    reports: Vec<Report>,
}

/// The end of a call at a process.
#[derive(Debug)]
pub(super) enum Answer {
    Result {
        value: Value,
        bytes: usize,
    },
    Failed(AnswerError),
    TooLong,
    /// The process ended, with or without having seen the request.
    Ended {
        was_sent: bool,
    },
}

/// What a server says of a call before it answers.
#[derive(Debug)]
pub(in crate::upstream) enum Report {
    Progress(Progress),
    Log(Log),
}

/// A request in flight. Dropping it gives the call up.
pub(super) struct Flight<'a> {
    link: &'a Link,
    id: u64,
    inbox: Arc<Inbox>,
    is_over: bool,
    /// The progress that was passed on last.
    done: Option<f64>,
}

impl<'a> Flight<'a> {
    pub fn new(link: &'a Link, id: u64, inbox: Arc<Inbox>) -> Self {
        Self {
            link,
            id,
            inbox,
            is_over: false,
            done: None,
        }
    }

    /// The answer, unless the call must end before.
    pub async fn answer(&mut self, job: Job<'_>, deadline: Instant) -> Result<Answer, Fault> {
        let inbox = Arc::clone(&self.inbox);
        let mut stopped = std::pin::pin!(stop(job, deadline));
        loop {
            // What comes meanwhile stays in the inbox. Biased: an answer outranks a cancellation
            // and the deadline.
            let fault = tokio::select! {
                biased;
                () = inbox.bell.notified() => None,
                fault = &mut stopped => Some(fault),
            };
            let (answer, reports) = inbox.take();
            for report in reports {
                self.pass(report, job);
            }
            if let Some(answer) = answer {
                self.is_over = true;
                return Ok(answer);
            }
            if let Some(fault) = fault {
                self.is_over = true;
                self.link.give_up(self.id, &fault.to_string());
                return Err(fault);
            }
        }
    }

    fn pass(&mut self, report: Report, job: Job<'_>) {
        match report {
            Report::Progress(progress) => {
                if self.done.is_none_or(|done| progress.done > done) {
                    self.done = Some(progress.done);
                    job.sink.progress(&progress);
                }
            }
            Report::Log(log) => job.sink.log(&log),
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.link.give_up(self.id, "the caller is gone");
        }
    }
}

impl Inbox {
    fn content(&self) -> MutexGuard<'_, InboxContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, answer: Answer) {
        self.content().answer = Some(answer);
        self.bell.notify_one();
    }

    pub fn report(&self, report: Report) -> bool {
        let mut content = self.content();
        if content.reports.len() >= REPORTS_MAX {
            return false;
        }
        content.reports.push(report);
        drop(content);
        self.bell.notify_one();
        true
    }

    fn take(&self) -> (Option<Answer>, Vec<Report>) {
        let mut content = self.content();
        (content.answer.take(), std::mem::take(&mut content.reports))
    }
}
