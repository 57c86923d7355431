//! The work behind the queue's HTTP endpoints: adds requests to the folders, runs a request at
//! once as `callgate pilot` would, and stops the worker. TH-150.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use callgate_call::{Caller, Cancel, Digest, chain};
use callgate_gate::Gate;
use callgate_store::{PilotState, Queue, Store};
use callgate_wires::toolhost::RunRequest;
use serde_json::{Value, json};

use crate::queue_http::{Ran, Refusal, Work};
use crate::run::{ended_json, fresh_run_id, keep_log, take_and_drive};
use crate::{PilotError, PilotSettings};

/// The queue behind the HTTP endpoints, with the parts that its runs need.
pub struct QueueWork {
    /// The gate that every step goes through.
    pub gate: Arc<Gate>,
    /// The settings of runs.
    pub pilot: Arc<PilotSettings>,
    /// The owner of the runs.
    pub caller: Caller,
    /// The folders of the queue.
    pub queue: Arc<Queue>,
    /// The store with the records of runs.
    pub store: Arc<Store>,
    /// The state folder, where logs are kept.
    pub state: PathBuf,
    /// Ends the worker and every run.
    pub cancel: Arc<Cancel>,
    /// Held while a name is looked for and taken. Taken before the locks of the store.
    pub adding: Mutex<()>,
}

impl QueueWork {
    /// True for a run that a request for it goes on with: its process died or was stopped, or a
    /// person has since said yes, or the approval has expired. T-29.
    fn goes_on(&self, run: &str) -> Result<bool, String> {
        let found = self.store.pilot_run(run).map_err(|error| chain(&error))?;
        match found.map(|found| found.state) {
            None | Some(PilotState::Running) => Ok(false),
            Some(PilotState::Lost) => Ok(true),
            Some(PilotState::Ended(_)) => {
                let cancel = Arc::clone(&self.cancel);
                let pilot = self.pilot.pilot(&self.gate, self.caller.clone(), cancel);
                let progress = pilot.find(run).map_err(|error| error.to_string())?;
                pilot.goes_on(&progress).map_err(|error| error.to_string())
            }
        }
    }
}

impl Work for QueueWork {
    fn jobs(&self) -> Result<Vec<(&'static str, usize)>, String> {
        self.queue.counts().map_err(|error| chain(&error))
    }

    /// A request with an id has a name of its own, so that it is known again while it waits, after
    /// a restart as well; once it is a run the store knows it.
    fn enqueue(&self, request: &RunRequest, text: &[u8]) -> Result<Option<String>, String> {
        let fail = |error: callgate_store::StoreError| chain(&error);
        let name = match &request.request_id {
            Some(id) => Digest::of_bytes(id.as_bytes()).to_hex()[..32].to_owned(),
            None => fresh_run_id().map_err(|error| error.to_string())?,
        };
        let base = format!("http_{name}");
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        // A job that leaves the folders between the two looks comes again, and is told again.
        if let Some(id) = &request.request_id
            && let Some(run) = self.store.pilot_of_request(id).map_err(fail)?
            && !self.goes_on(&run)?
        {
            return Ok(None);
        }
        let added = self.queue.add(&base, text).map_err(fail)?;
        Ok(added.then(|| format!("{base}.json")))
    }

    fn run(&self, request: RunRequest) -> Ran {
        let (gate, parts, store) = (
            Arc::clone(&self.gate),
            Arc::clone(&self.pilot),
            Arc::clone(&self.store),
        );
        let (caller, cancel) = (self.caller.clone(), Arc::clone(&self.cancel));
        let state = self.state.clone();
        Box::pin(async move {
            let pilot = parts.pilot(&gate, caller, cancel);
            let ran = match fresh_run_id() {
                Ok(run) => take_and_drive(&pilot, &request, run).await,
                Err(error) => Err(error),
            };
            let (progress, known) = match ran {
                Ok((progress, _, known)) => (progress, known),
                // The same request is being worked on elsewhere.
                Err(PilotError::Busy(_)) => return Ok(elsewhere()),
                Err(PilotError::Refused(words)) => return Err(Refusal::Bad(words)),
                Err(error) => return Err(Refusal::Failed(error.to_string())),
            };
            let log = keep_log(&store, &state, &progress.header.run_id);
            let log = log.map_err(|error| Refusal::Failed(error.to_string()))?;
            let mut report = ended_json(&progress, known, &log);
            report["exit_code"] = json!(i32::from(report["ok"] != true));
            Ok(report)
        })
    }

    fn stop(&self) {
        self.cancel.cancel();
    }
}

/// Of a request that somebody else is at.
fn elsewhere() -> Value {
    json!({ "ok": true, "end": "deduplicated", "deduplicated": true })
}
