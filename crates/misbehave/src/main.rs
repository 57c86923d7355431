//! A test program that does what tools should not: hangs, floods, closes descriptors, forks
//! daemons, prints garbage, dies by signal, lies.
//!
//! As a process tool it reads `{"do": …}` on stdin (`acts`), as a pool worker it reads the
//! same as input of a call on `CALLGATE_FD` (`worker`), with the spawner's argument it is a
//! spawner, with `gate` it is a gate to be killed (`gate`), with `executor` it performs the
//! acts of a streamed run's job (`executor`), and with `mcp` it is an MCP server (`mcp`). Further arguments mean
//! nothing: tests find processes by them. Never shipped.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test program, not part of the product"
)]
#![allow(unsafe_code, reason = "misbehaving takes system calls")]

mod acts;
mod executor;
mod gate;
mod mcp;
mod worker;

use std::io::Read as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let first = std::env::args().nth(1);
    match first.as_deref() {
        Some(callgate_sandbox::SPAWNER_ARG) => return callgate_sandbox::spawner_main(),
        Some("gate") => gate::run(),
        Some("executor") => executor::run(),
        Some("mcp") => mcp::run(),
        Some("no_read") => {
            // Longer than any pipe: whoever writes input is stuck.
            println!("{{\"read\":false}}");
            return ExitCode::SUCCESS;
        }
        Some("no_read_hang") => acts::hang(),
        Some("worker_exit") => {
            eprintln!("cannot start: bad day");
            return ExitCode::from(9);
        }
        _ => {}
    }
    if std::env::var_os("CALLGATE_FD").is_some() {
        worker::run()
    }
    let mut input = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut input) {
        eprintln!("read input: {error}");
        return ExitCode::from(3);
    }
    match serde_json::from_str(&input) {
        Ok(input) => {
            acts::perform(&input);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("input is not JSON: {error}");
            ExitCode::from(4)
        }
    }
}
