//! A server that is asked again and again: its connections are kept for the next question.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::{Connection, Sent, receive};
use crate::{Address, Ask, Dialer, Reply, Trouble};

/// Connections kept at the same time; those beyond are closed after their answer.
const IDLE_MAX: usize = 16;

/// A connection that was not used for so long is not used again.
const IDLE_FOR: Duration = Duration::from_secs(30);

/// One server and the connections to it.
#[derive(Debug)]
pub struct Peer {
    dialer: Arc<Dialer>,
    address: Address,
    /// The one used last is used next.
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Peer {
    /// No connection is made before the first question.
    #[must_use]
    pub fn new(dialer: Arc<Dialer>, address: Address) -> Self {
        Self {
            dialer,
            address,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Asks one question. A connection that the server had closed meanwhile is replaced, as
    /// long as nothing was sent on it: a question is never asked twice.
    pub async fn ask(&self, ask: Ask, bytes_max: usize) -> Result<Reply, Trouble> {
        let mut request = ask.request(&self.address)?;
        loop {
            let (mut connection, kept) = match self.take() {
                Some(connection) => (connection, true),
                None => (self.dialer.connect(&self.address).await?, false),
            };
            match connection.send(&self.address, request).await? {
                Sent::Closed(unsent) if kept => request = *unsent,
                Sent::Closed(_) => {
                    let reason = format!("{}: closed at once", self.address);
                    return Err(Trouble::Unsent(reason));
                }
                Sent::Answered(response) => {
                    let reply = receive(&self.address, response, bytes_max).await?;
                    if reply.body.is_some() && connection.is_reusable().await {
                        self.keep(connection);
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// Closes what is kept.
    pub fn close(&self) {
        self.idle().clear();
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle();
        let now = Instant::now();
        idle.retain(|(connection, since)| connection.is_open() && now - *since < IDLE_FOR);
        idle.pop().map(|(connection, _)| connection)
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push((connection, Instant::now()));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
