//! `callgate pilot --queue DIR`: runs from a folder, one after the other. A job's run is named when
//! the job is claimed, so whoever takes a job up again goes on with the same run.

mod face;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callgate_call::{Caller, Cancel, Timestamp};
use callgate_doors::pilot::{Pilot, PilotError, Progress, RunEnd};
use callgate_store::{Job, Queue, Shelf};
use callgate_wires::toolhost::{JITTER_MS_MAX, MAX_STDIN_BYTES, RunRequest};
use serde_json::{Value, json};

use super::pilot::{ended_json, fresh_run_id, gate_and_pilot, keep_log};
use super::serve::http;
use super::{StopSignals, tend};
use crate::cli::{Done, Place, runtime};
use crate::compose::{Parts, chain};
use crate::environment::Environment;
use crate::show;
use face::{QueueWork, elsewhere};

/// How often the folders are looked at.
const SCAN_EVERY: Duration = Duration::from_millis(500);

pub fn run(
    environment: &Environment,
    place: &Place,
    dir: &Path,
    once: bool,
    port: Option<u16>,
) -> Done {
    let queue = Arc::new(Queue::open(dir).map_err(|error| chain(&error))?);
    let parts = super::open(environment, place)?;
    if port.is_some() {
        let no_auth = false;
        http::make_token(&parts, http::Asked { port, no_auth })?;
    }
    let (gate, pilot_parts) = gate_and_pilot(&parts)?;
    let (gate, pilot_parts) = (Arc::new(gate), Arc::new(pilot_parts));
    let cancel = Arc::new(Cancel::new());
    let caller = Caller::uid(environment.uid);
    let pilot = pilot_parts.pilot(&gate, caller.clone(), Arc::clone(&cancel));
    let face = QueueWork {
        gate: Arc::clone(&gate),
        pilot: Arc::clone(&pilot_parts),
        caller,
        queue: Arc::clone(&queue),
        store: Arc::clone(&parts.store),
        state: parts.paths.state.clone(),
        cancel: Arc::clone(&cancel),
        adding: Mutex::default(),
    };
    let worker = Worker {
        place,
        parts: &parts,
        pilot: &pilot,
        queue: &queue,
    };
    let worked = runtime()?.block_on(async {
        let mut stop = StopSignals::watch()?;
        let stopped = async {
            stop.next().await;
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        // Whichever of the two ends has the other end.
        let working = async {
            let worked = worker.work(once).await;
            cancel.cancel();
            worked
        };
        let served = async {
            let Some(port) = port else { return Ok(()) };
            let served = face::serve(&parts, port, face).await;
            cancel.cancel();
            served
        };
        let both = async {
            let (worked, served) = tokio::join!(working, served);
            worked.and(served)
        };
        // What the worker is at comes to its end first: its call is cancelled.
        tokio::select! {
            worked = both => worked,
            () = stopped => unreachable!("waits for the worker"),
            () = tend(&parts.store) => unreachable!("it never ends"),
        }
    });
    super::close(&parts);
    worked?;
    Ok(ExitCode::SUCCESS)
}

struct Worker<'a> {
    place: &'a Place,
    parts: &'a Parts<'a>,
    pilot: &'a Pilot<'a>,
    queue: &'a Queue,
}

/// What becomes of a job.
enum Verdict {
    Shelved(Shelf),
    /// It is tried again after so many ms.
    PutOff(u64),
}

impl Worker<'_> {
    async fn work(&self, once: bool) -> Result<(), String> {
        loop {
            self.queue.recover().map_err(|error| chain(&error))?;
            while let Some(job) = self.claim()? {
                self.one(job).await?;
                if self.pilot.cancel.is_cancelled() {
                    return Ok(());
                }
            }
            if once {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(SCAN_EVERY) => {}
                () = self.pilot.cancel.cancelled() => return Ok(()),
            }
        }
    }

    fn claim(&self) -> Result<Option<Job>, String> {
        let run = fresh_run_id().map_err(|error| error.to_string())?;
        let claimed = self.queue.claim(self.now(), &run);
        claimed.map_err(|error| chain(&error))
    }

    fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Drives a job's run, tells what came of it, and puts the job where it belongs.
    async fn one(&self, job: Job) -> Result<(), String> {
        let read = job
            .read(MAX_STDIN_BYTES as u64)
            .map_err(|error| chain(&error))?;
        let request = match read {
            None => Err("a request is 10 MiB at most".to_owned()),
            Some(bytes) => RunRequest::parse(&bytes).map_err(|error| error.to_string()),
        };
        let request = match request {
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
            // The same request is being worked on elsewhere.
            Err(PilotError::Busy(_)) => {
                return self.finish(job, &request, elsewhere(), Verdict::Shelved(Shelf::Done));
            }
            Err(error) => return Err(error.to_string()),
        };
        let state = &self.parts.paths.state;
        let log = keep_log(&self.parts.store, state, &progress.header.run_id)?;
        let verdict = verdict(&job, &request, &end, known);
        let mut result = ended_json(&progress, known, &log);
        if let Verdict::PutOff(delay_ms) = verdict {
            result["next_run_at_ms"] = json!(self.now().0 + delay_ms);
        }
        self.finish(job, &request, result, verdict)
    }

    /// The run of a job, to its end; true if it had ended before, and is only told again.
    async fn drive(
        &self,
        job: &Job,
        request: &RunRequest,
    ) -> Result<(Progress, RunEnd, bool), PilotError> {
        let begun = !self.pilot.gate.store().pilot_events(&job.run)?.is_empty();
        let (mut progress, known) = if begun {
            (self.pilot.find(&job.run)?, false)
        } else {
            let taken = self.pilot.take(request, job.run.clone())?;
            (taken.progress, taken.known)
        };
        // Of a run that was there before, the job's first try is none: only what it failed at
        // itself is tried again.
        let tried = if known { 1 } else { progress.attempt };
        let ended = progress.end.is_some();
        let resumed = self.pilot.resume(&mut progress, job.attempt > tried)?;
        let told_again = known && ended && !resumed;
        let end = self.pilot.drive(&mut progress).await?;
        Ok((progress, end, told_again))
    }

    fn refuse(&self, job: Job, reason: &str) -> Result<(), String> {
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
    ) -> Result<(), String> {
        let result = self.about(&job, request.max_attempts, result, &verdict);
        self.put(job, &result, verdict)
    }

    fn about(&self, job: &Job, max: u32, mut result: Value, verdict: &Verdict) -> Value {
        result["exit_code"] = json!(i32::from(result["ok"] != true));
        result["job"] = json!(job.base);
        result["attempt"] = json!(job.attempt);
        result["max_attempts"] = json!(max);
        result["scheduled_retry"] = json!(matches!(verdict, Verdict::PutOff(_)));
        result["deadletter"] = json!(matches!(verdict, Verdict::Shelved(Shelf::DeadLetters)));
        result
    }

    fn put(&self, job: Job, result: &Value, verdict: Verdict) -> Result<(), String> {
        let fail = |error: callgate_store::StoreError| chain(&error);
        self.queue
            .tell(&job, &format!("{result}\n"))
            .map_err(fail)?;
        if self.place.json {
            show::json(result);
        } else {
            let end = result["end"].as_str().unwrap_or_default();
            show::say(&format!("{} (try {}): {end}", job.base, job.attempt));
        }
        let put = match verdict {
            Verdict::Shelved(shelf) => self.queue.shelve(job, shelf),
            Verdict::PutOff(delay_ms) => {
                let due = Timestamp(self.now().0.saturating_add(delay_ms));
                self.queue.put_off(job, due)
            }
        };
        put.map_err(fail)
    }
}

/// A run that failed is tried again, unless nobody knows what it did.
fn verdict(job: &Job, request: &RunRequest, end: &RunEnd, known: bool) -> Verdict {
    let unknown = matches!(end, RunEnd::ToolError { unknown: true, .. });
    if end.is_good() || known {
        Verdict::Shelved(Shelf::Done)
    } else if unknown || job.attempt >= request.max_attempts {
        Verdict::Shelved(Shelf::DeadLetters)
    } else {
        let jitter_ms = getrandom::u32().unwrap_or(0) as u64 % (JITTER_MS_MAX + 1);
        Verdict::PutOff(request.delay_ms(job.attempt) + jitter_ms)
    }
}
