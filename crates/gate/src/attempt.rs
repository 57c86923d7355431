//! A call that is tried where it was read. Most are over before anything has to be waited for; one
//! that is not becomes a task of its door, so that its end is recorded even if the
//! connection is lost.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use callgate_call::{Call, CallId, Enforcement, Fault, Outcome};

use crate::found::FoundTool;
use crate::invoke::{Answer, Gate};

/// An attempt at something that may have to wait: its result, or the rest that is left to wait for.
#[must_use]
pub enum Attempt<D = Answer, P = PendingCall> {
    /// It is over.
    Done(D),
    /// It waits for something.
    Pending(P),
}

/// The rest of a call that waits.
pub struct PendingCall(Pin<Box<dyn Future<Output = Answer> + Send>>);

impl PendingCall {
    /// Carries the call out to its end and makes its record safe. Its door runs this in a task.
    pub async fn settled(self, gate: Arc<Gate>) -> Outcome {
        gate.settled(self.0.await).await
    }
}

impl Gate {
    /// Takes a call as far as it comes by itself. `prepare` gives a call that may have to wait what
    /// only such a call needs: a cancellation of its own, a sink.
    pub fn attempt(
        self: &Arc<Self>,
        mut call: Call,
        found: FoundTool,
        prepare: impl FnOnce(&mut Call),
    ) -> Attempt {
        let attempted = catch_unwind(AssertUnwindSafe(|| {
            if let Some(answer) = self.answer_at_once(&call, &found) {
                return Attempt::Done(answer);
            }
            prepare(&mut call);
            let gate = Arc::clone(self);
            let mut work = Box::pin(async move { gate.invoke_found(&call, &found).await });
            // It is polled again once it is a task: no wake-up is lost between.
            match poll_once(work.as_mut()) {
                Poll::Ready(answer) => Attempt::Done(answer),
                Poll::Pending => Attempt::Pending(PendingCall(work)),
            }
        }));
        // The connection outlives the panic: it is the call's task that ends with it.
        attempted.unwrap_or_else(|panic| {
            Attempt::Pending(PendingCall(Box::pin(async move { resume_unwind(panic) })))
        })
    }

    /// Answers a call of a pure tool without waiting, and so without room for what is waited for: a
    /// future is moved as a whole whenever one that has it is made. `None`, and nothing has come of
    /// the call, if its tool is not pure or something must be waited for: another call with the
    /// same key, or that the record of a start is safe.
    pub fn answer_at_once(&self, call: &Call, found: &FoundTool) -> Option<Answer> {
        let tool = found.tool()?;
        if !tool.runner.is_pure() {
            return None; // others may not be broken off
        }
        // What is spent or claimed by starting would be lost if this were broken off.
        let policy = &found.setup.policy;
        let spends = policy.asks_leave(&call.caller, tool, call.lease_group);
        if spends || call.key.is_some() && !self.store.writes_well() {
            return None;
        }
        match poll_once(pin!(self.invoke_found(call, found))) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }
}

fn poll_once<F: Future>(work: Pin<&mut F>) -> Poll<F::Output> {
    work.poll(&mut Context::from_waker(Waker::noop()))
}

/// The outcome of a call whose task ended without one.
#[must_use]
pub fn lost_outcome(call: CallId) -> Outcome {
    Outcome {
        call,
        result: Err(Fault::Internal {
            message: "the call's task ended early".to_owned(),
        }),
        replayed: false,
        enforcement: Enforcement::default(),
        hint: None,
        blocked: Vec::new(),
    }
}
