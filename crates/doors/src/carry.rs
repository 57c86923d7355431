//! A call that is carried out where it was read. Most are over before anything has to be waited
//! for; what is not becomes a task, so that its end is recorded whatever becomes of the
//! connection.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use callgate_call::{Call, Fault, Outcome};
use callgate_gate::Gate;
use tokio_util::task::TaskTracker;

/// Takes `call` through the gate; a task of it is one of `calls`. An error is a call that broke
/// off.
pub(crate) async fn carry_out(
    gate: &Arc<Gate>,
    calls: &TaskTracker,
    call: Call,
) -> Result<Outcome, Fault> {
    let lost = || Fault::Internal {
        message: "the call's task ended early".to_owned(),
    };
    let apart = Arc::clone(gate);
    let mut work = Box::pin(async move { apart.invoke(&call).await });
    // It is asked again once it is a task: nothing is lost between.
    let first =
        poll_fn(|cx| Poll::Ready(catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)))));
    match first.await {
        Ok(Poll::Ready(answer)) => {
            // The next call can have its memory while this one waits for others.
            drop(work);
            Ok(gate.settled(answer).await)
        }
        Ok(Poll::Pending) => {
            let gate = Arc::clone(gate);
            let work = async move { gate.settled(work.await).await };
            calls.spawn(work).await.map_err(|_| lost())
        }
        Err(_) => Err(lost()),
    }
}
