//! How a call ended.

use serde_json::Value;

use crate::{CallId, Document, Enforcement, Fault, SlotChange};

/// What a tool gave back: any JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The value and its text, which replies and replays pass on.
    pub json: Document,
    /// What the tool did to the slots, if it takes them.
    pub slots: SlotChange,
}

impl Output {
    /// An output that leaves the slots alone.
    #[must_use]
    pub fn new(json: Document) -> Self {
        Self {
            json,
            slots: SlotChange::default(),
        }
    }

    /// An output that has no text of its own yet.
    #[must_use]
    pub fn from_value(value: Value) -> Self {
        Self::new(Document::from_value(value))
    }
}

/// The end of one call. Not serialisable: each wire converts by hand.
#[derive(Debug)]
pub struct Outcome {
    /// The call it answers.
    pub call: CallId,
    /// What came of it.
    pub result: Result<Output, Fault>,
    /// True if this is the recorded outcome of an earlier call with the same key.
    pub replayed: bool,
    /// What confined the tool while it ran.
    pub enforcement: Enforcement,
}
