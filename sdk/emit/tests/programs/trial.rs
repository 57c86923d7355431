//! The program of `tests/program.rs`: an executor that does what its job says, well or badly.

#![expect(clippy::print_stdout, reason = "stray prints are what is tried")]

use std::error::Error;
use std::process::ExitCode;

use callgate_emit::{EmitError, Run};
use serde_json::json;

fn main() -> ExitCode {
    // Still in the buffer of the standard library when the stream begins.
    print!("a print before the run");
    callgate_emit::main(script)
}

fn script(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let job = run.request().job.clone();
    match job["do"].as_str().unwrap_or_default() {
        "items" => {
            for number in 0..job["count"].as_u64().unwrap_or(0) {
                println!("a print between frames");
                run.item("number", &json!({ "number": number }))?;
            }
        }
        "complete" => {
            run.run_complete_with(&json!({ "n": 1 }))?;
            let refused = run.item("late", &json!(1));
            assert!(matches!(refused, Err(EmitError::AfterTerminal)));
            return Err("after the end".into());
        }
        "fail" => return Err("the shop is closed".into()),
        "panic" => panic!("at the {}", "disco"),
        "error" => run.run_error("TypeError", "x is not a function", Some("at x"))?,
        "proxy" => run.used_proxy(),
        "big" => {
            let bytes = job["bytes"].as_u64().unwrap_or(0);
            let endless = std::io::Read::take(std::io::repeat(7), bytes);
            run.artifact_from("big", "application/octet-stream", endless)?;
        }
        other => return Err(format!("unknown: {other}").into()),
    }
    Ok(())
}
