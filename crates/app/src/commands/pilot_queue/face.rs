//! What the queue's face on HTTP does: it adds to the folders, runs requests at once as
//! `callgate pilot` would, and ends the worker. TH-150.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use callgate_call::{Caller, Cancel, Digest};
use callgate_doors::pilot::PilotError;
use callgate_doors::pilot::face::{Face, Ran, Refusal, Work};
use callgate_gate::Gate;
use callgate_registry::setup::Parts;
use callgate_store::{PilotState, Queue, Store};
use callgate_wires::toolhost::RunRequest;
use serde_json::{Value, json};

use crate::commands::pilot::{ended_json, fresh_run_id, keep_log, take_and_drive};
use crate::commands::serve::http;
use crate::compose::chain;
use crate::pilot::PilotParts;
use crate::show;

/// What runs of the face need.
pub struct QueueWork {
    pub gate: Arc<Gate>,
    pub pilot: Arc<PilotParts>,
    pub caller: Caller,
    pub queue: Arc<Queue>,
    pub store: Arc<Store>,
    /// The folder of the state.
    pub state: PathBuf,
    /// Ends the worker and every run.
    pub cancel: Arc<Cancel>,
    /// Held while a name is looked for and taken.
    pub adding: Mutex<()>,
}

/// Answers at `port` of this machine until the work is cancelled.
pub async fn serve(parts: &Parts<'_>, port: u16, work: QueueWork) -> Result<(), String> {
    let asked = http::Asked {
        port: Some(port),
        no_auth: false,
    };
    let (gate, owner) = (Arc::clone(&work.gate), work.caller.clone());
    let opened = http::open(parts, &gate, owner.clone(), asked).await?;
    let tcp = opened.into_port().ok_or("no port")?;
    let (token, _) = parts.store.owner_token().map_err(|error| chain(&error))?;
    let stop = Cancel::clone(&work.cancel);
    let face = Face::new(gate, tcp.entrance(), owner, token.reveal(), Arc::new(work));
    show::say(&format!(
        "the queue on http://127.0.0.1:{}, with the owner's token (`callgate token owner`)",
        tcp.port
    ));
    let listener = tcp.into_listener();
    face.serve(listener, Arc::clone(&parts.clock), stop).await;
    Ok(())
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
            let log = log.map_err(Refusal::Failed)?;
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
