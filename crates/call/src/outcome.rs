//! How a call ended.

use serde_json::Value;

use crate::{CallId, ConfinementHint, Document, Enforcement, Fault, Guarantee, SlotChange};

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

    /// The end of a tool that gives content blocks: `content`, and perhaps
    /// `structuredContent` and `isError`. One that says it failed is a fault.
    pub fn from_content(result: Value) -> Result<Self, Fault> {
        let Some(content) = result.get("content").filter(|content| content.is_array()) else {
            return Err(Fault::BadOutput {
                reason: "its result has no list of content".to_owned(),
            });
        };
        if result.get("isError") != Some(&Value::Bool(true)) {
            return Ok(Self::from_value(result));
        }
        let words = content
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|block| block.get("text").and_then(Value::as_str));
        Err(Fault::ToolFailed {
            error_type: "ToolError".to_owned(),
            message: words.unwrap_or("the tool failed").to_owned(),
            content: Some(content.clone()),
        })
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
    /// Why confinement made the call fail, or refused a host to a call that went well.
    pub hint: Option<Box<ConfinementHint>>,
    /// Attempts of the tool that a promise stopped, whether or not it failed of them.
    pub blocked: Vec<Guarantee>,
}
