//! The Rust executor of `crates/app/tests/sdk_runs.rs`, where each SDK does the same.

#![expect(clippy::print_stdout, reason = "stray prints are what is tried")]

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use callgate_emit::{EmitError, Level, Run};
use serde_json::json;

fn main() -> ExitCode {
    callgate_emit::main(|run| match run.request().job["events"].as_u64() {
        Some(events) => flood(run, events),
        None => everything(run),
    })
}

fn everything(run: &mut Run) -> Result<(), Box<dyn Error>> {
    println!("a stray print");
    let job = run.request().job.clone();
    run.item("seen", &json!({ "job": job }))?;
    run.put("notes.txt", "text/plain", b"kept")?;
    match run.put("notes.txt", "text/plain", b"again") {
        Err(EmitError::Refused { .. }) => run.log(Level::Warn, "refused")?,
        other => other?,
    }
    run.artifact("small.txt", "text/plain", b"hello")?;
    let large = std::io::Read::take(std::io::repeat(7), 20 << 20);
    run.artifact_from("large.bin", "application/octet-stream", large)?;
    Ok(())
}

fn flood(run: &mut Run, events: u64) -> Result<(), Box<dyn Error>> {
    let text = "x".repeat(2500);
    for number in 0..events {
        run.item("n", &json!({ "number": number, "text": text }))?;
        // A name that changes hands, so that a reader never finds half a number.
        let mut file = std::fs::File::create("returned.new")?;
        write!(file, "{}", number + 1)?;
        std::fs::rename("returned.new", "returned")?;
    }
    Ok(())
}
