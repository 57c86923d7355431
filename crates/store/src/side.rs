//! Side bytes: what a record changes, beside its body in the chain. Binary on the path of every
//! call, JSON for the rare ones. A reader applies them in the order of the journal and so has
//! the state of the workspace.

use callgate_call::{CallId, Digest};
use serde::{Deserialize, Serialize};

use crate::approvals::ApprovalDoc;
use crate::body::cut;
use crate::leases::LeaseDoc;
use crate::pilots::PilotDoc;
use crate::plans::{GoneDoc, PlanDoc, TaskDoc};
use crate::run::{ArtifactDoc, EndDoc, LostDoc, StartDoc};
use crate::tokens::TokenDoc;
use crate::{Health, KeyId, OwnerId, RecordedFault};

/// Outputs above this go to `blobs/`.
pub(crate) const INLINE_BYTES_MAX: usize = 1024 * 1024;
/// Messages and data of a fault above this are cut or left out.
const FAULT_BYTES_MAX: usize = 64 * 1024;

/// A change of state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change<'a> {
    /// None: the record is for the chain alone.
    Nothing,
    /// A key was claimed for a run.
    Claim(Claim),
    /// A run ended.
    End(Ended<'a>),
    /// A key's owner died before the end.
    Unknown(Claim),
    /// A lease is now so.
    Lease(LeaseDoc),
    /// An approval is now so.
    Approval(ApprovalDoc),
    /// A path is trusted now, or no longer.
    Trust(TrustDoc),
    /// A bearer token is now so.
    Token(TokenDoc),
    /// A plan was made; its id is the record's seq.
    Plan(PlanDoc),
    /// A task of a plan is now so.
    PlanTask(TaskDoc),
    /// A plan is no more.
    PlanGone(GoneDoc),
    /// A streamed run began.
    RunStart(StartDoc),
    /// A streamed run ended.
    RunEnd(EndDoc),
    /// A streamed run's process died before its end.
    RunLost(LostDoc),
    /// An artifact of a run exists.
    Artifact(ArtifactDoc),
    /// An event of a pilot's run.
    Pilot(PilotDoc),
    /// A note of the memory tool; its id is the record's seq.
    Note {
        at: u64,
        meta: Option<&'a str>,
        text: &'a str,
    },
}

/// A key and the run that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) key: KeyId,
    pub(crate) bond: Digest,
    pub(crate) call: CallId,
    pub(crate) owner: OwnerId,
    pub(crate) at: u64,
    /// It was unfinished before, so the number of unfinished keys stays.
    pub(crate) again: bool,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended<'a> {
    pub(crate) at: u64,
    pub(crate) health: Health,
    pub(crate) tool: &'a str,
    pub(crate) key: Option<EndedKey<'a>>,
}

/// The end of a run that had a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedKey<'a> {
    pub(crate) key: KeyId,
    pub(crate) bond: Digest,
    pub(crate) call: CallId,
    /// It was unfinished before, so there is one unfinished key less.
    pub(crate) held: bool,
    /// It counts among the newest entries of a `View::Recent`.
    pub(crate) recent: bool,
    /// How many such entries there were, with this one. Known under the commit lock.
    pub(crate) ordinal: u64,
    /// `None`: the key is free again.
    pub(crate) result: Option<Kept<'a>>,
}

/// What is kept for replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kept<'a> {
    Text(&'a str),
    /// With what the call did to the slots, as the gate writes it.
    Slotted {
        text: &'a str,
        slots: &'a str,
    },
    /// In `blobs/`, under the digest of its bytes.
    Blob(Digest),
    Fault {
        kind: &'a str,
        message: &'a str,
        data: &'a str,
    },
}

/// A word of trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrustDoc {
    pub(crate) path: String,
    /// Hex; `None` takes the word back.
    pub(crate) digest: Option<String>,
}

const CLAIM: u8 = 1;
const END: u8 = 2;
const UNKNOWN: u8 = 3;
const LEASE: u8 = 4;
const APPROVAL: u8 = 5;
const TRUST: u8 = 6;
const NOTE: u8 = 7;
const TOKEN: u8 = 20;
const PLAN: u8 = 21;
const PLAN_TASK: u8 = 22;
const PLAN_GONE: u8 = 23;
const RUN_START: u8 = 24;
const RUN_END: u8 = 25;
const RUN_LOST: u8 = 26;
const ARTIFACT: u8 = 27;
const PILOT: u8 = 28;

/// Where the ordinal of an `End` with a key is, from the start of the side bytes.
pub(crate) fn ordinal_at(tool: &str) -> usize {
    1 + 8 + 1 + 2 + tool_of(tool).len() + 1 + 16 + 32 + 16 + 1 + 1
}

fn tool_of(tool: &str) -> &str {
    cut(tool, 1024)
}

impl Change<'_> {
    /// Appends the side bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nothing => {}
            Self::Claim(claim) => encode_claim(CLAIM, claim, out),
            Self::Unknown(claim) => encode_claim(UNKNOWN, claim, out),
            Self::End(ended) => encode_end(ended, out),
            Self::Lease(doc) => encode_doc(LEASE, doc, out),
            Self::Approval(doc) => encode_doc(APPROVAL, doc, out),
            Self::Trust(doc) => encode_doc(TRUST, doc, out),
            Self::Token(doc) => encode_doc(TOKEN, doc, out),
            Self::Plan(doc) => encode_doc(PLAN, doc, out),
            Self::PlanTask(doc) => encode_doc(PLAN_TASK, doc, out),
            Self::PlanGone(doc) => encode_doc(PLAN_GONE, doc, out),
            Self::RunStart(doc) => encode_doc(RUN_START, doc, out),
            Self::RunEnd(doc) => encode_doc(RUN_END, doc, out),
            Self::RunLost(doc) => encode_doc(RUN_LOST, doc, out),
            Self::Artifact(doc) => encode_doc(ARTIFACT, doc, out),
            Self::Pilot(doc) => encode_doc(PILOT, doc, out),
            Self::Note { at, meta, text } => {
                out.push(NOTE);
                out.extend_from_slice(&at.to_le_bytes());
                out.push(u8::from(meta.is_some()));
                encode_text(meta.unwrap_or(""), out);
                encode_text(text, out);
            }
        }
    }
}

impl<'a> Change<'a> {
    /// `None` if the bytes make no sense.
    pub(crate) fn decode(side: &'a [u8]) -> Option<Self> {
        let Some((&tag, rest)) = side.split_first() else {
            return Some(Self::Nothing);
        };
        let mut from = Reader(rest);
        let change = match tag {
            CLAIM => Self::Claim(decode_claim(&mut from)?),
            UNKNOWN => Self::Unknown(decode_claim(&mut from)?),
            END => Self::End(decode_end(&mut from)?),
            LEASE => return serde_json::from_slice(rest).ok().map(Self::Lease),
            APPROVAL => return serde_json::from_slice(rest).ok().map(Self::Approval),
            TRUST => return serde_json::from_slice(rest).ok().map(Self::Trust),
            TOKEN => return serde_json::from_slice(rest).ok().map(Self::Token),
            PLAN => return serde_json::from_slice(rest).ok().map(Self::Plan),
            PLAN_TASK => return serde_json::from_slice(rest).ok().map(Self::PlanTask),
            PLAN_GONE => return serde_json::from_slice(rest).ok().map(Self::PlanGone),
            RUN_START => return serde_json::from_slice(rest).ok().map(Self::RunStart),
            RUN_END => return serde_json::from_slice(rest).ok().map(Self::RunEnd),
            RUN_LOST => return serde_json::from_slice(rest).ok().map(Self::RunLost),
            ARTIFACT => return serde_json::from_slice(rest).ok().map(Self::Artifact),
            PILOT => return serde_json::from_slice(rest).ok().map(Self::Pilot),
            NOTE => {
                let at = from.u64()?;
                let has_meta = from.u8()? == 1;
                let meta = from.text()?;
                Self::Note {
                    at,
                    meta: has_meta.then_some(meta),
                    text: from.text()?,
                }
            }
            _ => return None,
        };
        from.0.is_empty().then_some(change)
    }
}

impl Kept<'_> {
    /// The fault, if it is one.
    pub(crate) fn fault(&self) -> Option<RecordedFault> {
        match self {
            Self::Fault {
                kind,
                message,
                data,
            } => Some(RecordedFault {
                kind: (*kind).to_owned(),
                message: (*message).to_owned(),
                data: serde_json::from_str(data).unwrap_or_default(),
            }),
            Self::Text(_) | Self::Slotted { .. } | Self::Blob(_) => None,
        }
    }
}

/// A fault's parts, cut to what is kept.
pub(crate) fn fault_parts<'a>(message: &'a str, data: &'a str) -> (&'a str, &'a str) {
    let data = if data.len() <= FAULT_BYTES_MAX {
        data
    } else {
        "{}"
    };
    (cut(message, FAULT_BYTES_MAX), data)
}

fn encode_claim(tag: u8, claim: &Claim, out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&claim.key.0);
    out.extend_from_slice(&claim.bond.0);
    out.extend_from_slice(&claim.call.0.to_le_bytes());
    out.extend_from_slice(&claim.owner.0.to_le_bytes());
    out.extend_from_slice(&claim.at.to_le_bytes());
    out.push(u8::from(claim.again));
}

fn decode_claim(from: &mut Reader<'_>) -> Option<Claim> {
    Some(Claim {
        key: KeyId(from.array()?),
        bond: Digest(from.array()?),
        call: CallId(u128::from_le_bytes(from.array()?)),
        owner: OwnerId(from.u64()?),
        at: from.u64()?,
        again: from.u8()? == 1,
    })
}

fn encode_end(ended: &Ended<'_>, out: &mut Vec<u8>) {
    let tool = tool_of(ended.tool);
    out.push(END);
    out.extend_from_slice(&ended.at.to_le_bytes());
    out.push(match ended.health {
        Health::Silent => 0,
        Health::Works => 1,
        Health::Trouble => 2,
    });
    out.extend_from_slice(&(tool.len() as u16).to_le_bytes());
    out.extend_from_slice(tool.as_bytes());
    let Some(key) = &ended.key else {
        out.push(0);
        return;
    };
    out.push(1);
    out.extend_from_slice(&key.key.0);
    out.extend_from_slice(&key.bond.0);
    out.extend_from_slice(&key.call.0.to_le_bytes());
    out.push(u8::from(key.held));
    out.push(u8::from(key.recent));
    out.extend_from_slice(&key.ordinal.to_le_bytes());
    match key.result {
        None => out.push(0),
        Some(Kept::Text(text)) => {
            out.push(1);
            encode_text(text, out);
        }
        Some(Kept::Slotted { text, slots }) => {
            out.push(4);
            encode_text(text, out);
            encode_text(slots, out);
        }
        Some(Kept::Blob(digest)) => {
            out.push(2);
            out.extend_from_slice(&digest.0);
        }
        Some(Kept::Fault {
            kind,
            message,
            data,
        }) => {
            out.push(3);
            encode_text(kind, out);
            encode_text(message, out);
            encode_text(data, out);
        }
    }
}

fn decode_end<'a>(from: &mut Reader<'a>) -> Option<Ended<'a>> {
    let at = from.u64()?;
    let health = match from.u8()? {
        0 => Health::Silent,
        1 => Health::Works,
        2 => Health::Trouble,
        _ => return None,
    };
    let tool_bytes = u16::from_le_bytes(from.array()?);
    let tool = std::str::from_utf8(from.take(usize::from(tool_bytes))?).ok()?;
    let key = match from.u8()? {
        0 => None,
        1 => Some(EndedKey {
            key: KeyId(from.array()?),
            bond: Digest(from.array()?),
            call: CallId(u128::from_le_bytes(from.array()?)),
            held: from.u8()? == 1,
            recent: from.u8()? == 1,
            ordinal: from.u64()?,
            result: match from.u8()? {
                0 => None,
                1 => Some(Kept::Text(from.text()?)),
                2 => Some(Kept::Blob(Digest(from.array()?))),
                3 => Some(Kept::Fault {
                    kind: from.text()?,
                    message: from.text()?,
                    data: from.text()?,
                }),
                4 => Some(Kept::Slotted {
                    text: from.text()?,
                    slots: from.text()?,
                }),
                _ => return None,
            },
        }),
        _ => return None,
    };
    Some(Ended {
        at,
        health,
        tool,
        key,
    })
}

fn encode_doc(tag: u8, doc: &impl Serialize, out: &mut Vec<u8>) {
    out.push(tag);
    serde_json::to_writer(out, doc).expect("plain values become JSON");
}

fn encode_text(text: &str, out: &mut Vec<u8>) {
    let len = u32::try_from(text.len()).expect("bounded by the largest output");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let bytes = u32::from_le_bytes(self.array()?);
        std::str::from_utf8(self.take(bytes as usize)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_their_bytes() {
        let claim = Claim {
            key: KeyId([1; 16]),
            bond: Digest([2; 32]),
            call: CallId(3),
            owner: OwnerId(4),
            at: 5,
            again: true,
        };
        let end = |key| {
            Change::End(Ended {
                at: 9,
                health: Health::Trouble,
                tool: "t/é",
                key,
            })
        };
        let key = |result| EndedKey {
            key: KeyId([7; 16]),
            bond: Digest([8; 32]),
            call: CallId(9),
            held: false,
            recent: true,
            ordinal: 0x0102_0304_0506_0708,
            result,
        };
        let fault = Kept::Fault {
            kind: "crash",
            message: "m",
            data: "{}",
        };
        let changes = [
            Change::Nothing,
            Change::Claim(claim),
            Change::Unknown(claim),
            end(None),
            end(Some(key(None))),
            end(Some(key(Some(Kept::Text("{}"))))),
            end(Some(key(Some(Kept::Blob(Digest([3; 32])))))),
            end(Some(key(Some(fault)))),
            Change::Trust(TrustDoc {
                path: "a".into(),
                digest: None,
            }),
            Change::Token(TokenDoc {
                name: "ci".into(),
                hash: "00".into(),
                tools: vec!["a/*".into()],
                tier_max: 1,
                rate: Some((0.1, 2)),
                created_at: 1,
                expires_at: Some(2),
                revoked_at: None,
            }),
            Change::PlanGone(GoneDoc { plan: 7, at: 2 }),
            Change::RunLost(LostDoc {
                run: "r".into(),
                at: 3,
            }),
            Change::Note {
                at: 1,
                meta: None,
                text: "hello",
            },
            Change::Note {
                at: 1,
                meta: Some("{}"),
                text: "",
            },
        ];
        for change in changes {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            assert_eq!(Change::decode(&bytes), Some(change.clone()));
            for cut in 1..bytes.len() {
                assert_eq!(
                    Change::decode(&bytes[..cut]),
                    None,
                    "{change:?} cut at {cut}"
                );
            }
            if let Change::End(Ended {
                tool,
                key: Some(key),
                ..
            }) = change
            {
                let at = ordinal_at(tool);
                assert_eq!(bytes[at..at + 8], key.ordinal.to_le_bytes());
            }
        }
    }
}
