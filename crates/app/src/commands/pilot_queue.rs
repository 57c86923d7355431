//! `callgate pilot --queue DIR`: runs from a folder, one after the other.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use callgate_call::{Caller, Cancel};
use callgate_pilot::queue_http::QueueHttp;
use callgate_pilot::queue_work::QueueWork;
use callgate_pilot::queue_worker::QueueWorker;
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_store::{Job, Queue};
use serde_json::Value;

use super::pilot::gate_and_pilot;
use super::serve::http;
use super::{StopSignals, tend};
use crate::cli::{Done, Place, runtime};
use crate::error::CommandError;
use crate::show;

pub fn run(
    environment: &Environment,
    place: &Place,
    dir: &Path,
    once: bool,
    port: Option<u16>,
) -> Done {
    let queue = Arc::new(Queue::open(dir)?);
    let parts = super::open(environment, place)?;
    if port.is_some() {
        let no_auth = false;
        http::make_token(
            &parts,
            http::Asked {
                port,
                no_auth,
                off: false,
            },
        )?;
    }
    let (gate, settings) = gate_and_pilot(&parts)?;
    let (gate, settings) = (Arc::new(gate), Arc::new(settings));
    let cancel = Arc::new(Cancel::new());
    let caller = Caller::uid(environment.uid);
    let pilot = settings.pilot(&gate, caller.clone(), Arc::clone(&cancel));
    let work = QueueWork {
        gate: Arc::clone(&gate),
        pilot: Arc::clone(&settings),
        caller,
        queue: Arc::clone(&queue),
        store: Arc::clone(&parts.store),
        state: parts.paths.state.clone(),
        cancel: Arc::clone(&cancel),
        adding: Mutex::default(),
    };
    let report = |job: &Job, result: &Value| show_result(place, job, result);
    let worker = QueueWorker::new(&pilot, &queue, &*parts.clock, &parts.paths.state, &report);
    let worked = runtime()?.block_on(async {
        let mut stop = StopSignals::watch()?;
        let stopped = stop.then(|| cancel.cancel());
        // Whichever of the two ends has the other end.
        let working = async {
            let worked = worker.work(once).await;
            let worked = worked.map_err(|error| CommandError::Work(Box::new(error)));
            cancel.cancel();
            worked
        };
        let served = async {
            let Some(port) = port else { return Ok(()) };
            let served = serve(&parts, port, work).await;
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
            never = stopped => match never {},
            never = tend(&parts.store) => match never {},
        }
    });
    super::close(&parts);
    worked?;
    Ok(ExitCode::SUCCESS)
}

/// Serves the HTTP endpoints of the queue at `port` of this machine until the work is cancelled.
async fn serve(parts: &Parts, port: u16, work: QueueWork) -> Result<(), CommandError> {
    let asked = http::Asked {
        port: Some(port),
        no_auth: false,
        off: false,
    };
    let (gate, owner) = (Arc::clone(&work.gate), work.caller.clone());
    let opened = http::open(parts, &gate, owner.clone(), asked).await?;
    let tcp = opened.into_port().ok_or(CommandError::NoPort)?;
    let (token, _) = parts.store.owner_token()?;
    let stop = Cancel::clone(&work.cancel);
    let endpoints = QueueHttp::new(gate, tcp.entrance(), owner, token.reveal(), Arc::new(work));
    show::say(&format!(
        "the queue on http://127.0.0.1:{}, with the owner's token (`callgate token owner`)",
        tcp.port
    ));
    let listener = tcp.into_listener();
    endpoints
        .serve(listener, Arc::clone(&parts.clock), stop)
        .await;
    Ok(())
}

/// Shows the result of one try of a job.
fn show_result(place: &Place, job: &Job, result: &Value) {
    if place.json {
        show::json(result);
    } else {
        let end = result["end"].as_str().unwrap_or_default();
        show::say(&format!("{} (try {}): {end}", job.base, job.attempt));
    }
}
