//! Where messages go that are not the answer itself: progress, log messages, requests of ours.

use callgate_wires::jsonrpc;
use serde::Serialize;
use tokio::sync::mpsc;

/// Messages that wait for a client that does not read. Progress beyond it is dropped, other
/// messages wait.
pub(crate) const WAITING_MAX: usize = 64;

/// What a connection is handed.
#[derive(Debug)]
pub enum Outgoing {
    /// One message, without a newline.
    Message(Vec<u8>),
    /// The answer will take a while: an HTTP stream may be closed and taken up again.
    Linger,
}

/// The way to one client.
#[derive(Clone, Debug)]
pub struct Outbox {
    sender: mpsc::Sender<Outgoing>,
}

impl Outbox {
    /// A way and its far end.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Outgoing>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self { sender }, receiver)
    }

    /// Sends a message, once there is room. False if nobody is there any more.
    pub(crate) async fn send(&self, message: Vec<u8>) -> bool {
        self.sender.send(Outgoing::Message(message)).await.is_ok()
    }

    /// Sends a notification if there is room. Those that may be lost go this way.
    pub(crate) fn offer<P: Serialize>(&self, method: &str, params: &P) {
        let mut message = Vec::new();
        jsonrpc::write_notification(method, params, &mut message);
        let _ = self.sender.try_send(Outgoing::Message(message));
    }

    /// Sends a notification, once there is room.
    pub(crate) async fn notify<P: Serialize + Sync>(&self, method: &str, params: &P) -> bool {
        let mut message = Vec::new();
        jsonrpc::write_notification(method, params, &mut message);
        self.send(message).await
    }

    pub(crate) fn linger(&self) {
        let _ = self.sender.try_send(Outgoing::Linger);
    }

    /// Ready when nobody is there any more.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}
