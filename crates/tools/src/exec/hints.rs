//! Why confinement made a program of `exec/run` fail: a last line of its `stderr`, because the
//! result of the contract has no other place for it. R-9.

use callgate_call::{ConfinementHint, Fault, Job};
use callgate_sandbox::{Child, SpawnError};

use super::command::not_started as fault_of;

/// What is looked at of each stream: its end.
const TAIL_BYTES: usize = 8 * 1024;

/// The hint for a program that ended with `code`, or that asked for a host it may not reach.
/// `printed` is what it wrote to stdout and stderr.
pub(super) fn hint(
    job: Job<'_>,
    child: &Child,
    code: i32,
    printed: (&str, &str),
    refused_host: Option<String>,
) -> Option<ConfinementHint> {
    if let (Some(host), Some(needs)) = (refused_host, job.plan.confinement.as_deref()) {
        return Some(ConfinementHint::refused_host(job.tool, needs, &host));
    }
    if code == 0 {
        return None;
    }
    let reach = child.reach()?;
    let signal = code.checked_sub(super::BY_SIGNAL).unwrap_or_default();
    let (stdout, stderr) = printed;
    let printed = format!("{}\n{}", tail(stdout), tail(stderr));
    reach
        .explain_signal(signal)
        .or_else(|| reach.explain(job.tool, &printed))
}

/// Appends the hint as a line of its own.
pub(super) fn add_line(stderr: &mut String, hint: &ConfinementHint) {
    if !stderr.is_empty() && !stderr.ends_with('\n') {
        stderr.push('\n');
    }
    stderr.push_str(&format!("[callgate: {hint}]\n"));
}

/// The fault of a program that was not started, with its hint where there is one.
pub(super) fn not_started(job: Job<'_>, error: &SpawnError) -> Fault {
    let fault = fault_of(error);
    match error.hint(job.tool) {
        Some(hint) => {
            job.sink.hint(&hint);
            fault.with("hint", hint.to_value())
        }
        None => fault,
    }
}

fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(TAIL_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
