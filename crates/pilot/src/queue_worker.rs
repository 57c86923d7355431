//! The worker of a queue: runs from a folder, one after the other. A job's run is named when the job
//! is claimed, so a worker that takes a job up again goes on with the same run. TH-149.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use callgate_call::{Clock, Timestamp};
use callgate_store::{BASE_BYTES_MAX, Job, Queue, Shelf, StoreError};
use callgate_wires::toolhost::{JITTER_MS_MAX, MAX_STDIN_BYTES, RunRequest};
use serde_json::{Value, json};

use crate::run::{ended_json, fresh_run_id, keep_log};
use crate::{Pilot, PilotError, Progress, RunEnd};

/// How often the folders are looked at.
const SCAN_EVERY: Duration = Duration::from_millis(500);
/// How long a job waits before it is looked at again whose run somebody else is at.
const BUSY_DELAY_MS: u64 = 1000;
/// Runs that are known to have been told to wait.
const WAITING_MAX: usize = 1024;

/// Works off the jobs of one queue.
pub struct QueueWorker<'a> {
    pilot: &'a Pilot<'a>,
    queue: &'a Queue,
    clock: &'a dyn Clock,
    state: &'a Path,
    report: &'a dyn Fn(&Job, &Value),
    /// The runs whose jobs wait because another process drives them.
    waiting: RefCell<BTreeSet<String>>,
}

impl<'a> QueueWorker<'a> {
    /// A worker that has `pilot` drive the jobs of `queue`, keeps logs below the folder `state`,
    /// and hands each result to `report`.
    pub fn new(
        pilot: &'a Pilot<'a>,
        queue: &'a Queue,
        clock: &'a dyn Clock,
        state: &'a Path,
        report: &'a dyn Fn(&Job, &Value),
    ) -> Self {
        Self {
            pilot,
            queue,
            clock,
            state,
            report,
            waiting: RefCell::default(),
        }
    }
}

/// What becomes of a job.
enum Verdict {
    Shelved(Shelf),
    /// It is tried again then.
    PutOff(Timestamp),
    /// Somebody else is at its run, and it is looked at again then; that is no try.
    Waits(Timestamp),
}

impl Verdict {
    /// When its turn comes again, if it does.
    fn due(&self) -> Option<Timestamp> {
        match self {
            Self::Shelved(_) => None,
            Self::PutOff(due) | Self::Waits(due) => Some(*due),
        }
    }
}

impl QueueWorker<'_> {
    /// Works off due jobs until the pilot is cancelled, or with `once` until no job is due.
    pub async fn work(&self, once: bool) -> Result<(), PilotError> {
        loop {
            self.queue.recover()?;
            while let Some(job) = self.claim()? {
                self.one(job).await?;
                if self.pilot.cancel.is_cancelled() {
                    return Ok(());
                }
            }
            if once {
                return Ok(());
            }
            // Both arms only wait: the queue is folders, which the loop reads again.
            tokio::select! {
                () = tokio::time::sleep(SCAN_EVERY) => {}
                () = self.pilot.cancel.cancelled() => return Ok(()),
            }
        }
    }

    fn claim(&self) -> Result<Option<Job>, PilotError> {
        Ok(self.queue.claim(self.now(), &fresh_run_id()?)?)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn in_ms(&self, delay_ms: u64) -> Timestamp {
        Timestamp(self.now().0.saturating_add(delay_ms))
    }

    /// Drives a job's run, tells what came of it, and puts the job where it belongs.
    async fn one(&self, job: Job) -> Result<(), PilotError> {
        // One that can not be read now stays ours, and is taken up by the next worker.
        let request = match request_of(&job)? {
            Ok(request) => request,
            Err(reason) => return self.refuse(job, &reason),
        };
        let ended = self.drive(&job, &request).await;
        // Told to stop: the job stays ours until we are gone, and is taken up again as it is.
        if self.pilot.cancel.is_cancelled() {
            return Ok(());
        }
        let (progress, end, known) = match ended {
            Ok(ended) => ended,
            Err(PilotError::Refused(reason)) => return self.refuse(job, &reason),
            // The job's own fault: the others need not wait for it to be mended.
            Err(error @ PilotError::Broken { .. }) => return self.refuse(job, &error.to_string()),
            // How the same request ends elsewhere is told once it has.
            Err(PilotError::Busy(reason)) => {
                let result = json!({ "ok": false, "end": "busy", "data": { "reason": reason } });
                let verdict = Verdict::Waits(self.in_ms(BUSY_DELAY_MS));
                return self.finish(job, &request, result, verdict);
            }
            Err(error) => return Err(error),
        };
        let log = keep_log(self.pilot.gate.store(), self.state, &progress.header.run_id)?;
        let verdict = self.verdict(&job, &request, &end, known);
        let result = ended_json(&progress, known, &log);
        self.finish(job, &request, result, verdict)
    }

    /// The run of a job, to its end; true if it had ended before, and is only told again.
    async fn drive(
        &self,
        job: &Job,
        request: &RunRequest,
    ) -> Result<(Progress, RunEnd, bool), PilotError> {
        let begun = !self.pilot.gate.store().pilot_events(&job.run)?.is_empty();
        let mut taken = match begun {
            true => self.pilot.take_up(&job.run)?,
            false => self.pilot.take(request, job.run.clone())?,
        };
        let known = taken.known && !begun;
        let progress = &mut taken.progress;
        // Of a run that was there before, the job's first try is none: only what it failed at
        // itself is tried again.
        let tried = if known { 1 } else { progress.attempt };
        let ended = progress.end.is_some();
        let resumed = self.pilot.resume(progress, job.attempt > tried)?;
        let told_again = known && ended && !resumed;
        let end = self.pilot.drive(progress).await?;
        Ok((taken.progress, end, told_again))
    }

    fn refuse(&self, job: Job, reason: &str) -> Result<(), PilotError> {
        let result = json!({ "ok": false, "end": "refused", "data": { "reason": reason } });
        let result = self.about(&job, 1, result, &Verdict::Shelved(Shelf::Failed));
        self.put(job, &result, Verdict::Shelved(Shelf::Failed))
    }

    fn finish(
        &self,
        job: Job,
        request: &RunRequest,
        result: Value,
        verdict: Verdict,
    ) -> Result<(), PilotError> {
        let result = self.about(&job, request.max_attempts, result, &verdict);
        self.put(job, &result, verdict)
    }

    fn about(&self, job: &Job, max: u32, mut result: Value, verdict: &Verdict) -> Value {
        result["exit_code"] = json!(i32::from(result["ok"] != true));
        result["job"] = json!(job.base);
        result["attempt"] = json!(job.attempt);
        result["max_attempts"] = json!(max);
        result["scheduled_retry"] = json!(verdict.due().is_some());
        if let Some(due) = verdict.due() {
            result["next_run_at_ms"] = json!(due.0);
        }
        result["deadletter"] = json!(matches!(verdict, Verdict::Shelved(Shelf::DeadLetters)));
        result
    }

    /// Tells what came of a job and puts it where it belongs. That it waits is told once.
    fn put(&self, job: Job, result: &Value, verdict: Verdict) -> Result<(), PilotError> {
        let is_news = match verdict {
            Verdict::Waits(_) => {
                let mut waiting = self.waiting.borrow_mut();
                // Jobs that others took up since stay in it; to tell one twice does no harm.
                if waiting.len() == WAITING_MAX {
                    waiting.clear();
                }
                waiting.insert(job.run.clone())
            }
            Verdict::Shelved(_) | Verdict::PutOff(_) => {
                self.waiting.borrow_mut().remove(&job.run);
                true
            }
        };
        if is_news {
            self.tell(&job, result)?;
        }
        let put = match verdict {
            Verdict::Shelved(shelf) => self.queue.shelve(job, shelf),
            Verdict::PutOff(due) => self.queue.put_off(job, due),
            Verdict::Waits(due) => self.queue.put_back(job, due),
        };
        Ok(put?)
    }

    fn tell(&self, job: &Job, result: &Value) -> Result<(), PilotError> {
        self.queue.tell(job, &format!("{result}\n"))?;
        (self.report)(job, result);
        Ok(())
    }

    /// A run that failed is tried again, unless nobody knows what it did.
    fn verdict(&self, job: &Job, request: &RunRequest, end: &RunEnd, known: bool) -> Verdict {
        let unknown = matches!(end, RunEnd::ToolError { unknown: true, .. });
        if end.is_good() || known {
            Verdict::Shelved(Shelf::Done)
        } else if unknown || job.attempt >= request.max_attempts {
            Verdict::Shelved(Shelf::DeadLetters)
        } else {
            let jitter_ms = getrandom::u32().unwrap_or(0) as u64 % (JITTER_MS_MAX + 1);
            let delay_ms = request.delay_ms(job.attempt).saturating_add(jitter_ms);
            Verdict::PutOff(self.in_ms(delay_ms))
        }
    }
}

/// What a job asks for, or why it can not be worked on.
fn request_of(job: &Job) -> Result<Result<RunRequest, String>, StoreError> {
    if !job.name_fits {
        let words = format!("the file's name is {BASE_BYTES_MAX} bytes at most, without `.json`");
        return Ok(Err(words));
    }
    Ok(match job.read(MAX_STDIN_BYTES as u64)? {
        None => Err("a request is 10 MiB at most".to_owned()),
        Some(bytes) => RunRequest::parse(&bytes).map_err(|error| error.to_string()),
    })
}
