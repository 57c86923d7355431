//! The ticket of an answer: the point in the journal that the answer waits for.

/// Up to which record the journal must be safe before an answer is sent. Later tickets compare
/// greater, so a batch of answers settles its greatest ticket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) callgate_store::Ticket);

impl From<callgate_store::Ticket> for Ticket {
    fn from(ticket: callgate_store::Ticket) -> Self {
        Self(ticket)
    }
}
