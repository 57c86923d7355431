//! Conversations of `callgate mcp` and `callgate rpc` with the running gate, and what is said of
//! them.

use std::time::Duration;

use callgate_client::relay::{Attached, Notice, PendingRequests, Pipe, attach, attached};
use callgate_registry::environment::Environment;

use super::{StopSignals, user_gate};
use crate::cli::Place;
use crate::compose::chain;
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
    let next = async || match socket() {
        Ok(socket) => attach(&socket, pipe).await,
        Err(_) => None,
    };
    let conversation = attached(gate, next, pipe, signals.next());
    conversation.await.map_err(CommandError::system("relay"))
}

/// Serves by the user's own gate, which is started where it does not run yet, and again when it is
/// gone. Returns once the client has left.
pub async fn converse_by_user_gate<B: PendingRequests>(
    environment: &Environment,
    place: &Place,
    pipe: &Pipe,
) -> Result<(), CommandError> {
    let mut signals = StopSignals::watch()?;
    let gate = user_gate::attach_or_start(environment, place, pipe).await?;
    let next = async || {
        let attached = user_gate::attach_or_start(environment, place, pipe).await;
        attached.inspect_err(|error| show::warn(&chain(error))).ok()
    };
    let conversation = attached::<B>(gate, next, pipe, signals.next());
    match conversation.await.map_err(CommandError::system("relay"))? {
        Attached::Lost(_) => Err(CommandError::NoUserGate),
        Attached::Never | Attached::Over => Ok(()),
    }
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
