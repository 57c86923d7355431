//! What a run's frames must be together: whose they are, in what order they come, and what
//! becomes of each artifact. Decoding is done before this, keeping after it; here is no byte of
//! an artifact, only how many there were.

use std::collections::HashMap;

use super::version::{CONTRACT_VERSION, accepts, major};

/// The largest artifact where nothing is said. ST-69.
pub const ARTIFACT_BYTES_MAX: u64 = 1 << 30;
/// Artifacts of a run: each is remembered to its end, so that none is sent twice.
pub const ARTIFACTS_MAX: usize = 65_536;
/// Artifacts whose bytes have not all come, at the same time: each is an open file of the store's.
pub const ARTIFACTS_OPEN_MAX: usize = 256;
/// Bytes of an artifact's id.
pub const ARTIFACT_ID_BYTES_MAX: usize = 256;
/// Bytes of its name, and of its content type.
pub const ARTIFACT_WORDS_BYTES_MAX: usize = 1024;

const _: () = assert!(ARTIFACTS_OPEN_MAX < ARTIFACTS_MAX);

/// What a run is held to.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The run's own name.
    pub run_id: String,
    /// Which try it is.
    pub attempt: u64,
    /// The versions of the contract that it may speak; none: all of our own major one. S-4.
    pub versions: Vec<String>,
    /// The largest artifact.
    pub artifact_bytes_max: u64,
}

/// Of an event, what is checked.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are the contract's")]
pub struct EventHead<'a> {
    pub contract_version: &'a str,
    pub run_id: &'a str,
    pub attempt: u64,
    pub seq: u64,
    pub kind: &'a str,
}

/// A commit record as it was sent; nothing where a field is missing or not what it must be.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the names are the contract's")]
pub struct CommitRecord<'a> {
    pub artifact_id: Option<&'a str>,
    pub name: Option<&'a str>,
    pub content_type: Option<&'a str>,
    pub size_bytes: Option<u64>,
}

/// An artifact that exists from now on, once it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// As the executor names it.
    pub artifact_id: String,
    /// For people.
    pub name: String,
    /// What kind of bytes.
    pub content_type: String,
    /// How many.
    pub bytes: u64,
}

/// What kind of event it is, to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A commit record: `Session::commit` comes next.
    Artifact,
    /// `log`.
    Log,
    /// The last event of a run that is content.
    Complete,
    /// The last event of a run that is not.
    Error,
    /// Any other, those we do not know among them. S-3.
    Plain,
}

/// What may be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileWhen {
    /// It is stored.
    InTime,
    /// The run has announced its end: it is refused, and the run goes on. ST-76.
    AfterTerminal,
}

/// What breaks the contract. Each ends the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum Breach {
    #[error("contract_version {got:?} is not {accepted}")]
    Version { got: String, accepted: String },
    #[error("event {seq}: run_id is {got:?}, not {expected:?}")]
    RunId {
        seq: u64,
        expected: String,
        got: String,
    },
    #[error("event {seq}: attempt is {got}, not {expected}")]
    Attempt { seq: u64, expected: u64, got: u64 },
    #[error("event seq is {got}, not {expected}")]
    Seq { expected: u64, got: u64 },
    #[error("event {seq} (`{kind}`) after the terminal event")]
    AfterTerminal { seq: u64, kind: String },
    #[error("artifact {artifact_id:?}: chunk seq is {got}, not {expected}")]
    ChunkSeq {
        artifact_id: String,
        expected: u64,
        got: u64,
    },
    #[error("artifact {artifact_id:?}: a chunk after the last")]
    ChunkAfterLast { artifact_id: String },
    #[error("artifact {artifact_id:?} is {how} {bytes} bytes, and at most {max} are taken")]
    TooLarge {
        artifact_id: String,
        how: &'static str,
        bytes: u64,
        max: u64,
    },
    #[error("artifact {artifact_id:?}: {received} bytes came, size_bytes is {declared}")]
    Size {
        artifact_id: String,
        declared: u64,
        received: u64,
    },
    #[error("artifact {artifact_id:?}: its commit record came, {received} of {declared} bytes did")]
    Unfinished {
        artifact_id: String,
        declared: u64,
        received: u64,
    },
    #[error("artifact event {seq}: {what}")]
    CommitField { seq: u64, what: &'static str },
    #[error("artifact {artifact_id:?} is committed twice")]
    CommittedTwice { artifact_id: String },
    #[error("an artifact_id is empty or longer than {ARTIFACT_ID_BYTES_MAX} bytes")]
    ArtifactId,
    #[error("more than {max} artifacts{at_once}")]
    TooMany { max: usize, at_once: &'static str },
}

/// What came of a run's artifacts. ST-86.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArtifactTally {
    /// Named by a chunk or a commit record.
    pub total: u64,
    /// With all bytes and a commit record.
    pub committed: u64,
    /// With bytes, and no commit record.
    pub orphaned: u64,
    /// Chunks of all of them.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One run's frames, checked in their order.
#[derive(Debug)]
pub struct Session {
    rules: Rules,
    events: u64,
    terminal: bool,
    artifacts: HashMap<String, State>,
    open: usize,
    chunks: u64,
    bytes: u64,
    /// The artifact whose chunk is being read.
    at: String,
}

/// How far an artifact has come. Words are kept only while its commit record waits for bytes.
#[derive(Debug, Default)]
struct State {
    chunks: u64,
    received: u64,
    complete: bool,
    declared: Option<Box<Declared>>,
    committed: bool,
}

#[derive(Debug)]
struct Declared {
    name: String,
    content_type: String,
    bytes: u64,
}

impl Session {
    /// A run of which nothing has come.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            events: 0,
            terminal: false,
            artifacts: HashMap::new(),
            open: 0,
            chunks: 0,
            bytes: 0,
            at: String::new(),
        }
    }

    /// The next event. Its version comes first: of another one nothing else is known to mean
    /// what it says.
    pub fn event(&mut self, head: &EventHead<'_>) -> Result<EventKind, Breach> {
        let &EventHead { seq, kind, .. } = head;
        let rules = &self.rules;
        if !accepts(head.contract_version, &rules.versions) {
            return Err(Breach::Version {
                got: shown(head.contract_version),
                accepted: accepted(&rules.versions),
            });
        }
        if head.run_id != rules.run_id {
            return Err(Breach::RunId {
                seq,
                expected: rules.run_id.clone(),
                got: shown(head.run_id),
            });
        }
        if head.attempt != rules.attempt {
            let (expected, got) = (rules.attempt, head.attempt);
            return Err(Breach::Attempt { seq, expected, got });
        }
        let expected = self.events + 1;
        if seq != expected {
            return Err(Breach::Seq { expected, got: seq });
        }
        if self.terminal {
            let kind = shown(kind);
            return Err(Breach::AfterTerminal { seq, kind });
        }
        self.events = seq;
        let kind = match kind {
            "artifact" => EventKind::Artifact,
            "log" => EventKind::Log,
            "run_complete" => EventKind::Complete,
            "run_error" => EventKind::Error,
            _ => EventKind::Plain,
        };
        self.terminal = matches!(kind, EventKind::Complete | EventKind::Error);
        Ok(kind)
    }

    /// What the `artifact` event of this moment says; the artifact, if that makes it whole.
    pub fn commit(&mut self, record: &CommitRecord<'_>) -> Result<Option<Whole>, Breach> {
        let seq = self.events;
        let field = |what| Breach::CommitField { seq, what };
        let id = record.artifact_id.filter(|id| is_id(id));
        let id = id.ok_or_else(|| field("artifact_id is no text of 1 to 256 bytes"))?;
        let bytes = record.size_bytes;
        let bytes = bytes.ok_or_else(|| field("size_bytes is no whole number"))?;
        let (name, content_type) = (
            record.name.unwrap_or_default(),
            record.content_type.unwrap_or_default(),
        );
        if name.len().max(content_type.len()) > ARTIFACT_WORDS_BYTES_MAX {
            return Err(field("name or content_type is longer than 1024 bytes"));
        }
        let max = self.rules.artifact_bytes_max;
        if bytes > max {
            return Err(too_large(id, "declared with", bytes, max));
        }
        let state = self.state(id)?;
        if state.committed || state.declared.is_some() {
            return Err(Breach::CommittedTwice {
                artifact_id: id.to_owned(),
            });
        }
        if state.received > bytes || (state.complete && state.received != bytes) {
            return Err(Breach::Size {
                artifact_id: id.to_owned(),
                declared: bytes,
                received: state.received,
            });
        }
        state.declared = Some(Box::new(Declared {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            bytes,
        }));
        Ok(self.whole(id))
    }

    /// A chunk begins. Sizes are checked before a byte of it is kept.
    pub fn chunk(
        &mut self,
        artifact_id: &str,
        seq: u64,
        is_last: bool,
        bytes: u64,
    ) -> Result<(), Breach> {
        if !is_id(artifact_id) {
            return Err(Breach::ArtifactId);
        }
        let max = self.rules.artifact_bytes_max;
        let artifact_id = || artifact_id.to_owned();
        let state = self.state(&artifact_id())?;
        if state.complete {
            return Err(Breach::ChunkAfterLast {
                artifact_id: artifact_id(),
            });
        }
        let expected = state.chunks + 1;
        if seq != expected {
            return Err(Breach::ChunkSeq {
                artifact_id: artifact_id(),
                expected,
                got: seq,
            });
        }
        let received = state.received.saturating_add(bytes);
        if received > max {
            return Err(too_large(&artifact_id(), "received with", received, max));
        }
        let declared = state.declared.as_ref().map(|declared| declared.bytes);
        if let Some(declared) = declared
            && (received > declared || (is_last && received != declared))
        {
            return Err(Breach::Size {
                artifact_id: artifact_id(),
                declared,
                received,
            });
        }
        state.chunks = seq;
        state.received = received;
        state.complete = is_last;
        self.open -= usize::from(is_last);
        self.chunks += 1;
        self.bytes += bytes;
        self.at = artifact_id();
        Ok(())
    }

    /// The artifact whose chunk began last.
    #[must_use]
    pub fn current(&self) -> &str {
        &self.at
    }

    /// All bytes of the chunk were kept; the artifact, if that makes it whole.
    pub fn chunk_end(&mut self) -> Option<Whole> {
        let id = std::mem::take(&mut self.at);
        let whole = self.whole(&id);
        self.at = id;
        whole
    }

    /// What becomes of a file that is to be written now.
    #[must_use]
    pub fn file(&self) -> FileWhen {
        if self.terminal {
            FileWhen::AfterTerminal
        } else {
            FileWhen::InTime
        }
    }

    /// The stream has ended as it should: a commit record whose bytes never came is a lie.
    pub fn end(&self) -> Result<(), Breach> {
        let lacking = self.artifacts.iter().filter_map(|(id, state)| {
            let declared = state.declared.as_ref()?.bytes;
            Some((id, declared, state.received))
        });
        match lacking.min() {
            None => Ok(()),
            Some((id, declared, received)) => Err(Breach::Unfinished {
                artifact_id: id.clone(),
                declared,
                received,
            }),
        }
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes of artifacts so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Artifacts so far.
    #[must_use]
    pub fn tally(&self) -> ArtifactTally {
        let all = self.artifacts.values();
        let count = |is: fn(&State) -> bool| self.artifacts.values().filter(|s| is(s)).count();
        ArtifactTally {
            total: all.len() as u64,
            committed: count(|state| state.committed) as u64,
            orphaned: count(|state| !state.committed && state.chunks > 0) as u64,
            chunks: self.chunks,
            bytes: self.bytes,
        }
    }

    fn state(&mut self, id: &str) -> Result<&mut State, Breach> {
        if !self.artifacts.contains_key(id) {
            if self.artifacts.len() == ARTIFACTS_MAX {
                let (max, at_once) = (ARTIFACTS_MAX, "");
                return Err(Breach::TooMany { max, at_once });
            }
            if self.open == ARTIFACTS_OPEN_MAX {
                let (max, at_once) = (ARTIFACTS_OPEN_MAX, " at once");
                return Err(Breach::TooMany { max, at_once });
            }
            self.open += 1;
            self.artifacts.insert(id.to_owned(), State::default());
        }
        Ok(self.artifacts.get_mut(id).expect("it was put there"))
    }

    /// The artifact, once both its bytes and its commit record are there. S-10.
    fn whole(&mut self, id: &str) -> Option<Whole> {
        let state = self.artifacts.get_mut(id)?;
        if !state.complete {
            return None;
        }
        let declared = *state.declared.take()?;
        state.committed = true;
        Some(Whole {
            artifact_id: id.to_owned(),
            name: declared.name,
            content_type: declared.content_type,
            bytes: declared.bytes,
        })
    }
}

fn is_id(id: &str) -> bool {
    (1..=ARTIFACT_ID_BYTES_MAX).contains(&id.len())
}

fn too_large(id: &str, how: &'static str, bytes: u64, max: u64) -> Breach {
    Breach::TooLarge {
        artifact_id: id.to_owned(),
        how,
        bytes,
        max,
    }
}

/// For messages: `0.x`, `1.2.0 or 1.3.0`.
fn accepted(versions: &[String]) -> String {
    match versions {
        [] => format!("{}.x", major(CONTRACT_VERSION).unwrap_or_default()),
        several => several.join(" or "),
    }
}

/// Foreign words as a message may have them.
fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 100;
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
