//! A call that is carried out where it was read. Most are over before anything has to be waited
//! for; what is not becomes a task, so that its end is recorded whatever becomes of the
//! connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use callgate_call::{Call, Fault, Outcome};
use callgate_gate::{Answer, Gate};
use tokio_util::task::TaskTracker;

/// The rest of a call.
pub(crate) type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A call that was tried once.
pub(crate) enum Begun {
    /// It is over; what is left is to make its record safe.
    Over(Answer),
    /// It waits for something.
    Waits(Work),
    /// It broke off.
    Lost,
}

/// Takes `call` through the gate as far as it comes by itself.
pub(crate) fn begin(gate: &Arc<Gate>, call: Call) -> Begun {
    let apart = Arc::clone(gate);
    let mut work = Box::pin(async move { apart.invoke(&call).await });
    // It is asked again once it is a task: nothing is lost between.
    let mut nobody = Context::from_waker(Waker::noop());
    match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut nobody))) {
        Ok(Poll::Ready(answer)) => Begun::Over(answer),
        Ok(Poll::Pending) => Begun::Waits(work),
        Err(_) => Begun::Lost,
    }
}

/// The rest of a call that waits, as a task that is one of `calls`. An error is a call that broke
/// off.
pub(crate) async fn wait(
    gate: &Arc<Gate>,
    calls: &TaskTracker,
    work: Work,
) -> Result<Outcome, Fault> {
    let gate = Arc::clone(gate);
    let work = async move { gate.settled(work.await).await };
    calls.spawn(work).await.map_err(|_| lost())
}

/// What is told of a call that broke off.
pub(crate) fn lost() -> Fault {
    Fault::Internal {
        message: "the call's task ended early".to_owned(),
    }
}
