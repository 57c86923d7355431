//! A run of the pilot, for `callgate runs`: its steps are its events, its slots what it made.

use std::io::{self, Write};

use callgate_pilot_events::report::report_of_events;
use callgate_store::{PilotRun, PilotState, Store};
use callgate_tools::runs::{KeptRun, pilot_events};
use serde_json::{Value, json};

use super::{LOOK_EVERY, in_words, is_wanted};
use crate::cli::Place;
use crate::commands::run::{plain, seconds, size};
use crate::error::CommandError;
use crate::show;

/// A row of the list.
pub fn row(run: &PilotRun) -> Vec<String> {
    vec![
        run.run.clone(),
        run.state.as_str().to_owned(),
        show::time(run.at.0),
        took(run).unwrap_or_default(),
        run.events.to_string(),
        "pilot".to_owned(),
        plain(run.request.as_deref().unwrap_or_default()),
    ]
}

fn took(run: &PilotRun) -> Option<String> {
    match run.state {
        PilotState::Ended(_) => Some(seconds(run.newest_at.0.saturating_sub(run.at.0) * 1000)),
        PilotState::Running | PilotState::Lost => None,
    }
}

pub fn show_run(store: &Store, place: &Place, run: &PilotRun) -> Result<(), CommandError> {
    let events = store.pilot_events(&run.run)?;
    let mut document = report_of_events(&events).map_err(CommandError::Report)?;
    document["run"] = KeptRun::Piloted(run.clone()).shown();
    if place.json {
        document["artifacts"] = json!([]);
        show::json(&document);
        return Ok(());
    }
    show::data(&in_lines(run, &document));
    Ok(())
}

fn in_lines(run: &PilotRun, document: &Value) -> String {
    let report = &document["report"];
    let mut text = head(run, report);
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("  {name:<10} {}\n", plain(value)));
    };
    line("goal", report["goal_id"].as_str().unwrap_or_default());
    line("started", &show::time(run.at.0));
    if let Some(request) = &run.request {
        line("request", &format!("{request}, try {}", report["attempt"]));
    }
    line("events", &run.events.to_string());
    for (number, step) in report["steps"].as_array().into_iter().flatten().enumerate() {
        let word = |name: &str| step[name].as_str().unwrap_or_default().to_owned();
        let call = format!("{:>2}  {}  {}", number + 1, word("aid"), word("status"));
        line("call", &call);
    }
    for (slot, artifact) in document["slots"].as_object().into_iter().flatten() {
        let word = |name: &str| artifact[name].as_str().unwrap_or_default();
        let bytes = size(artifact["size_bytes"].as_u64().unwrap_or_default());
        let about = format!("{slot}  {}  {}  {bytes}", word("type"), word("provenance"));
        line("slot", &about);
    }
    text
}

/// How far it is, or how it ended.
fn head(run: &PilotRun, report: &Value) -> String {
    let id = &run.run;
    match &run.state {
        PilotState::Running => format!("run {id}  running\n"),
        PilotState::Lost => format!(
            "run {id}  lost: its process died before it ended; `callgate pilot --resume {id}` goes on\n"
        ),
        PilotState::Ended(_) => {
            let words = plain(report["message"].as_str().unwrap_or_default());
            format!(
                "run {id}  {words} after {}\n",
                took(run).unwrap_or_default()
            )
        }
    }
}

/// The events that are there, and those to come while it goes on.
pub fn tail(
    store: &Store,
    place: &Place,
    run: &PilotRun,
    last: Option<u32>,
    follow: bool,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut told = 0;
    loop {
        // Asked before the look, so that nothing that came before the end is missed.
        let now = store.pilot_run(&run.run).map_err(io::Error::other)?;
        let events = store.pilot_events(&run.run).map_err(io::Error::other)?;
        if let Some(last) = last.filter(|_| told == 0) {
            told = events.len().saturating_sub(last as usize);
        }
        for event in pilot_events(&run.run, &events).skip(told) {
            let line = event.to_string();
            match place.json {
                true => writeln!(out, "{line}")?,
                false => writeln!(out, "{}", in_words(line.as_bytes()))?,
            }
        }
        out.flush()?;
        told = events.len();
        match now.map(|run| run.state) {
            Some(PilotState::Running) if follow => std::thread::sleep(LOOK_EVERY),
            Some(PilotState::Lost) => {
                show::say("the run was lost: its process died before it ended");
                return Ok(());
            }
            _ => return Ok(()),
        }
    }
}

pub fn export(
    store: &Store,
    run: &PilotRun,
    kind: Option<&str>,
    to: &mut dyn Write,
) -> io::Result<()> {
    let events = store.pilot_events(&run.run).map_err(io::Error::other)?;
    for event in pilot_events(&run.run, &events) {
        let line = event.to_string();
        if is_wanted(line.as_bytes(), kind) {
            writeln!(to, "{line}")?;
        }
    }
    to.flush()
}
