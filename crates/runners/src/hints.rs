//! Reports why confinement made a call fail, from what the runner knows of its child.

use std::path::Path;

use callgate_call::{ConfinementHint, Fault, Guarantee, Job, RefusedAccess};
use callgate_sandbox::{Child, Ending, Reach, SpawnError};

use crate::answer::{Asked, Attempt};
use crate::ending;
use crate::tail::Tail;

/// Reports the hint for a call that failed, if its child's confinement made it fail. `tail` is the
/// end of the child's stderr.
pub(crate) fn tell(job: Job<'_>, child: &Child, fault: &Fault, tail: &Tail) {
    let (Some(reach), true) = (child.reach(), is_of_the_program(fault)) else {
        return;
    };
    let mut printed = tail.text().into_owned();
    printed.push('\n');
    printed.push_str(&fault.to_string());
    let hint = match fault {
        Fault::GuaranteeBlocked { guarantee, .. } => Guarantee::from_name(guarantee)
            .and_then(|guarantee| reach.explain_guarantee(job.tool, guarantee, &printed)),
        _ => reach.explain(job.tool, &printed),
    };
    if let Some(hint) = hint {
        tell_refusal(job, fault, &hint);
        job.sink.hint(&hint);
    }
}

/// Reports a refused access to a file as a stopped attempt, where a promise or the roots of the
/// request stop such attempts. A worker reports its own.
fn tell_refusal(job: Job<'_>, fault: &Fault, hint: &ConfinementHint) {
    let guarantee = match hint.refused {
        RefusedAccess::Read => Guarantee::NoFilesystemRead,
        RefusedAccess::Write => Guarantee::NoFilesystemWrite,
        _ => return,
    };
    let is_crash = matches!(fault, Fault::Crash { .. });
    let needs = job.plan.confinement.as_deref();
    if is_crash && needs.is_some_and(|needs| Asked(needs).stops(guarantee)) {
        job.sink.blocked(guarantee);
    }
}

/// Reports the attempts that a worker names, as far as the plan stops them. A path that the plan
/// lets be used was not stopped, whatever the worker says.
pub(crate) fn tell_attempts(job: Job<'_>, asked: Asked<'_>, reach: &Reach, attempts: &[Attempt]) {
    for Attempt(name, path) in attempts {
        let Some(guarantee) = Guarantee::from_name(name).filter(|one| asked.stops(*one)) else {
            continue;
        };
        let is_stopped = match guarantee {
            Guarantee::NoFilesystemRead => reach.refuses_read(Path::new(path)),
            Guarantee::NoFilesystemWrite => reach.refuses_write(Path::new(path)),
            _ => true,
        };
        if is_stopped {
            job.sink.blocked(guarantee);
        }
    }
}

/// The same for a child that a signal may have ended.
pub(crate) fn tell_end(job: Job<'_>, child: &Child, ending: Ending) {
    if let (Some(reach), Ending::Signal(signal)) = (child.reach(), ending)
        && let Some(hint) = reach.explain_signal(signal)
    {
        job.sink.hint(&hint);
    }
}

/// Reports the host that the proxy refused, where it refused one.
pub(crate) fn tell_host(job: Job<'_>, host: Option<String>) {
    if let Some(hint) = of_host(job, host) {
        job.sink.hint(&hint);
    }
}

/// The hint for a host that the proxy refused.
pub(crate) fn of_host(job: Job<'_>, host: Option<String>) -> Option<ConfinementHint> {
    let needs = job.plan.confinement.as_deref()?;
    Some(ConfinementHint::refused_host(job.tool, needs, &host?))
}

/// The fault of a child that was not born, with the hint reported where there is one.
pub(crate) fn not_started(job: Job<'_>, error: &SpawnError) -> Fault {
    if let Some(hint) = error.hint(job.tool) {
        job.sink.hint(&hint);
    }
    ending::not_started(error)
}

/// Returns whether a fault is an end that the program came to by itself.
fn is_of_the_program(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Crash { .. }
            | Fault::ToolFailed { .. }
            | Fault::BadOutput { .. }
            | Fault::GuaranteeBlocked { .. }
    )
}
