//! Answers that are streams of events: what a request says before its answer, and the answer.

use std::sync::Arc;

use axum::body::Bytes;
use axum::response::Response;
use callgate_call::{BearerToken, Cancel};
use callgate_wires::sse;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::super::Answered;
use super::super::outbox::Outgoing;
use super::HttpDoor;
use super::sessions::Held;
use callgate_listener::web::{EVENTS_WAITING_MAX, HEARTBEAT, event_stream, no_longer_good};

impl HttpDoor {
    /// The stream ends with its answer; a client that closes it takes the request back.
    pub(super) fn modern_stream(
        &self,
        mut work: JoinHandle<(Vec<u8>, Answered)>,
        mut outgoing: mpsc::Receiver<Outgoing>,
        first: Option<Outgoing>,
        cancel: Cancel,
        keyed: bool,
        bearer: Option<BearerToken>,
    ) -> Response {
        let (to, body) = mpsc::channel(EVENTS_WAITING_MAX);
        let gone = no_longer_good(Arc::clone(&self.entrance.access), bearer);
        let to = Patient {
            to,
            ending: self.server.ending.clone(),
        };
        self.server.calls.spawn(async move {
            let mut next = first;
            let mut gone = std::pin::pin!(gone);
            loop {
                if let Some(Outgoing::Message(message)) = next.take() {
                    // Waits for a client that is slow, and so does whoever speaks.
                    to.send_message(&message).await;
                }
                // `recv` is cancel safe, and `work` and `gone` outlive the loop. Biased so that all
                // that was said before the answer is sent before it.
                tokio::select! {
                    biased;
                    Some(said) = outgoing.recv() => next = Some(said),
                    done = &mut work => {
                        while let Ok(Outgoing::Message(message)) = outgoing.try_recv() {
                            to.send_message(&message).await;
                        }
                        if let Ok((message, answered)) = done && !answered.silent {
                            to.send_message(&message).await;
                        }
                        return;
                    }
                    () = to.to.closed(), if !cancel.is_cancelled() && !keyed => cancel.cancel(),
                    () = &mut gone, if !cancel.is_cancelled() => cancel.cancel(),
                    () = tokio::time::sleep(HEARTBEAT) => {
                        to.send(Bytes::from_static(sse::HEARTBEAT)).await;
                    }
                }
            }
        });
        event_stream(body)
    }

    /// The events are kept, so that a client whose connection broke can come back for them.
    pub(super) fn legacy_stream(
        &self,
        held: &Arc<Held>,
        mut work: JoinHandle<(Vec<u8>, Answered)>,
        mut outgoing: mpsc::Receiver<Outgoing>,
        first: Option<Outgoing>,
        (cancel, keyed): (Cancel, bool),
    ) -> Response {
        let log = held.new_stream(&self.server);
        let (to, body) = mpsc::channel(EVENTS_WAITING_MAX);
        let (reader, can_resume) = (Arc::clone(&log), held.can_resume());
        let ending = self.server.ending.clone();
        self.server.calls.spawn(async move {
            let fed = async {
                if !can_resume || to.send(reader.priming()).await.is_ok() {
                    reader.feed(0, &to).await;
                }
            };
            // Dropping `fed` at the end of the server leaves the events in the log, which goes with
            // it.
            tokio::select! {
                () = fed => {}
                () = ending.cancelled() => {}
            }
        });
        let (server, held) = (Arc::clone(&self.server), Arc::clone(held));
        self.server.calls.spawn(async move {
            let say = |said: Outgoing| match said {
                Outgoing::Message(message) => log.push(&message),
                Outgoing::Linger if can_resume => log.hang_up(),
                Outgoing::Linger => {}
            };
            if let Some(first) = first {
                // The reader must be there to be hung up on.
                tokio::task::yield_now().await;
                say(first);
            }
            let guarded = log.guard(&cancel);
            let mut guarded = std::pin::pin!(guarded);
            // With a key the call runs on: its client will come and ask again.
            let mut watched = !keyed;
            loop {
                // `recv` is cancel safe, and `work` and `guarded` outlive the loop. Biased so that
                // all that was said before the answer is kept before it.
                tokio::select! {
                    biased;
                    Some(said) = outgoing.recv() => say(said),
                    done = &mut work => {
                        while let Ok(said) = outgoing.try_recv() {
                            say(said);
                        }
                        if let Ok((message, answered)) = done && !answered.silent {
                            log.push(&message);
                        }
                        break;
                    }
                    () = &mut guarded, if watched => watched = false,
                }
            }
            held.end_stream(&server, Arc::clone(&log)).await;
        });
        event_stream(body)
    }
}

/// Waits for a client that is slow, but not once all must end.
pub(super) struct Patient {
    pub to: mpsc::Sender<Bytes>,
    pub ending: Cancel,
}

impl Patient {
    /// False if nobody is left to hear it.
    pub async fn send(&self, bytes: Bytes) -> bool {
        // A message that is dropped at the end is one that the client was too slow to take.
        tokio::select! {
            sent = self.to.send(bytes) => sent.is_ok(),
            () = self.ending.cancelled() => false,
        }
    }

    pub async fn send_message(&self, message: &[u8]) -> bool {
        let mut event = Vec::with_capacity(message.len() + 32);
        sse::write_event(None, message, &mut event);
        self.send(event.into()).await
    }
}
