//! Executors of streamed runs: a program that `callgate run` starts, and whose items, artifacts
//! and logs are kept as they come.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use callgate_emit::EmitError;
//! use serde_json::json;
//!
//! fn main() -> ExitCode {
//!     callgate_emit::main(|run| {
//!         let page = run.request().job["page"].as_u64().unwrap_or(1);
//!         run.item("product", &json!({ "name": "Lamp", "page": page }))?;
//!         run.artifact("page.html", "text/html", b"<html></html>")?;
//!         println!("goes to stderr: stdout is the stream");
//!         Ok::<_, EmitError>(())
//!     })
//! }
//! ```
//!
//! - **Order.** Every emit is written before it returns, and blocks while the other side does not
//!   read: there is no queue, nothing is dropped, and a script is never ahead of what is kept by
//!   more than a pipe.
//! - **The end.** A script that returns `Ok` completes its run, one that returns `Err` or panics
//!   fails it; [`Run::run_complete`] and [`Run::run_error`] say so earlier, and whatever is emitted
//!   after them is refused. [`main`] then sends the one run result and exits with 0, 1 if the
//!   script failed, 2 if the stream broke, 3 if the request was none.
//! - **Stdout.** The stream is a copy of descriptor 1, which then leads to stderr, so that a stray
//!   print does no harm. Stdin is taken likewise: acknowledgements come by it.
//! - **Errors.** Most of them leave the stream whole, and the script may go on: a value that can
//!   not be sent, a file that can not be read, [a file](Run::put) that was refused. Only
//!   [`EmitError::Stream`] is final.
//!
//! Contract `docs/contracts/stream.md`.

mod error;
mod guard;
mod ids;
mod payload;
mod pipes;
mod run;

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

pub use callgate_wires::stream::{
    BadRequest, ProxyEndpoint, ProxyProtocol, ProxyUsed, RunRequest, Storage,
};
pub use error::{EmitError, StartError};
pub use run::{Level, Run};

/// What a request that is none ends with. ST-19.
const EXIT_BAD_REQUEST: u8 = 3;

/// Runs a script from its request to its run result; what it gives is what the program exits
/// with.
pub fn main<E: Into<Box<dyn Error>>>(script: impl FnOnce(&mut Run) -> Result<(), E>) -> ExitCode {
    let mut run = match Run::from_stdin() {
        Ok(run) => run,
        Err(error) => {
            eprintln!("callgate-emit: {}", told(&error));
            return ExitCode::from(EXIT_BAD_REQUEST);
        }
    };
    // What the script shares with us is the run, which is whole after each call.
    match catch_unwind(AssertUnwindSafe(|| script(&mut run))) {
        Ok(Ok(())) => run.finish(),
        Ok(Err(error)) => run.fail("script_error", &told(&*error.into())),
        Err(panic) => run.fail("panic", panic_message(&*panic)),
    }
}

/// An error with all that caused it.
fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}
