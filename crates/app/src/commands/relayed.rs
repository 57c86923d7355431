//! Conversations of `callgate mcp` and `callgate rpc` with the running gate, and what is said of
//! them.

use std::time::Duration;

use callgate_client::relay::{Attached, Notice, PendingRequests, Pipe, attach, attached};
use callgate_registry::environment::Environment;

use super::StopSignals;
use crate::cli::Place;
use crate::error::CommandError;
use crate::show;

/// Serves by the running gate, and when that is gone by the next one. Each is looked for anew:
/// the next gate may be elsewhere. Without one, the process is to serve alone.
pub async fn converse<B: PendingRequests>(
    environment: &Environment,
    place: &Place,
    pipe: &Pipe,
) -> Result<Attached<B>, CommandError> {
    let socket = || place.paths(environment).map(|paths| paths.socket);
    let Some(gate) = attach(&socket()?, pipe).await else {
        say_alone(place);
        return Ok(Attached::Never);
    };
    let mut signals = StopSignals::watch()?;
    let next = || socket().ok();
    let conversation = attached(gate, &next, pipe, signals.next());
    conversation.await.map_err(CommandError::system("relay"))
}

/// Says what happens to a conversation.
pub fn say(notice: Notice) {
    match notice {
        Notice::GateGone => show::say("the gate is gone: serving alone"),
        Notice::GivenUp { count, after } => say_given_up(count, after),
    }
}

/// Says that nobody answers at a socket that was named. Where none was, standing alone is as usual
/// as being attached.
fn say_alone(place: &Place) {
    if let Some(socket) = &place.socket {
        let socket = socket.display();
        show::say(&format!(
            "no gate of yours answers at {socket}: serving alone"
        ));
    }
}

/// Says that so many requests are not waited for any longer, since nobody asks anything more.
pub fn say_given_up(count: usize, after: Duration) {
    if count > 0 {
        let (seconds, ending) = (after.as_secs(), if count == 1 { "" } else { "s" });
        show::warn(&format!(
            "the input ended {seconds} s ago: {count} request{ending} without an answer so far \
             will get none, and what runs of it is ended"
        ));
    }
}
