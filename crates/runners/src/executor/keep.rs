//! What is done with each piece of a run's stream: checked against the contract, cleaned of
//! secrets, kept, acknowledged, told. Everything here returns once it is done, so that whoever
//! reads the pipe reads on only then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use callgate_call::{
    Digest, KeepError, Log, LogLevel, Redactor, RunArtifact, RunEvent, RunEye, RunFile, RunLog,
    Secrets,
};
use callgate_wires::stream::{
    Ack, Breach, ChunkHead, CommitRecord, Envelope, EventHead, EventKind, FileWhen, FileWrite,
    Mask, Piece, RunResult, Session, Status, StreamFault, Whole,
};
use serde_json::Value;
use tokio::sync::mpsc;

use super::acks::{Acks, Unread};
use super::leash::Strides;
use super::news::News;

/// Types of events that are counted by name; further ones, and those with long names, together.
const KINDS_MAX: usize = 64;
const KIND_BYTES_MAX: usize = 64;
/// Artifacts that a report lists; all of them are in the run's manifest.
const LISTED_MAX: usize = 100;
/// The longest payload of a terminal event that goes into a report.
const SUMMARY_BYTES_MAX: usize = 64 * 1024;

/// Why reading stopped before the end.
#[derive(Debug)]
pub(super) enum Halt {
    /// Something could not be kept.
    Policy(KeepError),
    /// Of another version.
    Version(Breach),
    /// The stream is none.
    Stream(String),
}

impl From<Breach> for Halt {
    fn from(breach: Breach) -> Self {
        match breach {
            Breach::Version { .. } => Self::Version(breach),
            other => Self::Stream(other.to_string()),
        }
    }
}

impl From<StreamFault> for Halt {
    fn from(fault: StreamFault) -> Self {
        Self::Stream(fault.to_string())
    }
}

impl From<KeepError> for Halt {
    fn from(error: KeepError) -> Self {
        Self::Policy(error)
    }
}

impl From<Unread> for Halt {
    fn from(_: Unread) -> Self {
        Self::Stream("it does not read its acknowledgements, and more than 64 KiB wait".to_owned())
    }
}

/// What is kept of a run result. ST-44 to ST-49, ST-25.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub status: Status,
    pub message: Option<String>,
    pub error_type: Option<String>,
    pub proxy_used: Option<Value>,
}

/// The terminal event, as reports have it.
#[derive(Clone, Debug)]
pub(super) struct Terminal {
    pub complete: bool,
    pub error_type: String,
    pub message: String,
    /// The whole payload, or how long it is.
    pub summary: Value,
}

/// An artifact that exists.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub whole: Whole,
    pub digest: Digest,
}

/// What is kept of a run, while it runs.
pub(super) struct Keeper {
    pub session: Session,
    pub log: Box<dyn RunLog>,
    pub acks: Acks,
    pub secrets: Secrets,
    pub strides: Arc<Strides>,
    pub news: News,
    /// Who looks on.
    pub eye: Option<Box<dyn RunEye>>,
    /// Where the caller's log goes, if there is one. What does not fit is in the events alone.
    pub logs: Option<mpsc::Sender<Log>>,
    pub kinds: BTreeMap<String, u64>,
    /// Events that the policy took: one that it refused ends the run and is none of them.
    pub events: u64,
    pub terminal: Option<Terminal>,
    pub told: Option<Told>,
    pub kept: Vec<Kept>,
    line: Vec<u8>,
    /// Artifacts under way whose bytes are searched for secrets, by their ids. The session bounds
    /// their number.
    redactors: BTreeMap<String, Redactor>,
    /// The present chunk is the last of its artifact.
    is_last: bool,
}

/// Secrets in values of every kind. S-18.
struct Known<'a>(&'a Secrets);

impl Mask for Known<'_> {
    fn text(&self, text: &str) -> Option<String> {
        self.0.cleaned(text)
    }

    fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.0.filled(bytes)
    }
}

impl Keeper {
    pub fn new(session: Session, log: Box<dyn RunLog>, acks: Acks, secrets: &Secrets) -> Self {
        Self {
            session,
            log,
            acks,
            secrets: secrets.in_json(),
            strides: Arc::default(),
            news: News::default(),
            eye: None,
            logs: None,
            kinds: BTreeMap::new(),
            events: 0,
            terminal: None,
            told: None,
            kept: Vec::new(),
            line: Vec::new(),
            redactors: BTreeMap::new(),
            is_last: false,
        }
    }

    /// The next piece of the stream.
    pub fn piece(&mut self, piece: Piece<'_>) -> Result<(), Halt> {
        match piece {
            Piece::Event(envelope) => self.event(&envelope),
            Piece::Chunk(head) => self.chunk(&head),
            Piece::Bytes(bytes) => self.bytes(bytes),
            Piece::ChunkEnd => {
                self.flush()?;
                match self.session.chunk_end() {
                    Some(whole) => self.commit(whole),
                    None => Ok(()),
                }
            }
            Piece::RunResult(result) => {
                // Of several the first counts. ST-51.
                let secrets = &self.secrets;
                self.told.get_or_insert_with(|| told(&result, secrets));
                Ok(())
            }
            Piece::FileWrite(file) => self.file(&file),
        }
    }

    fn event(&mut self, envelope: &Envelope<'_>) -> Result<(), Halt> {
        let kind = self.session.event(&EventHead {
            contract_version: envelope.contract_version,
            run_id: envelope.run_id,
            attempt: u64::from(envelope.attempt),
            seq: envelope.seq,
            kind: envelope.kind,
        })?;
        let whole = match kind {
            EventKind::Artifact => self.session.commit(&CommitRecord {
                artifact_id: envelope.payload_str("artifact_id"),
                name: envelope.payload_str("name"),
                content_type: envelope.payload_str("content_type"),
                size_bytes: envelope.payload_u64("size_bytes"),
            })?,
            _ => None,
        };
        self.line.clear();
        let known = Known(&self.secrets);
        let mask = (!self.secrets.is_empty()).then_some(&known as &dyn Mask);
        envelope.write_masked_json(mask, &mut self.line);
        let said = self.secrets.clean(envelope.kind);
        let event = RunEvent {
            seq: envelope.seq,
            kind: &said,
            line: &self.line,
        };
        if let Some(eye) = &mut self.eye {
            eye.event(&event);
        }
        self.log.event(&event)?;
        self.strides.events.store(envelope.seq, Ordering::Relaxed);
        self.events += 1;
        count(&mut self.kinds, &said);
        match kind {
            EventKind::Log => self.tell_log(),
            EventKind::Complete => self.end_with(true),
            EventKind::Error => self.end_with(false),
            EventKind::Artifact | EventKind::Plain => {}
        }
        whole.map_or(Ok(()), |whole| self.commit(whole))
    }

    /// The payload of the line that was just written.
    fn payload(&self) -> Value {
        let line = serde_json::from_slice::<Value>(&self.line);
        line.map_or(Value::Null, |mut line| line["payload"].take())
    }

    /// ST-41: for the caller who watches. One who is slow misses some; all are kept.
    fn tell_log(&mut self) {
        let Some(logs) = &self.logs else { return };
        if logs.capacity() == 0 {
            return;
        }
        let payload = self.payload();
        let level = match payload["level"].as_str() {
            Some("debug") => LogLevel::Debug,
            Some("warn") => LogLevel::Warning,
            Some("error") => LogLevel::Error,
            _ => LogLevel::Info,
        };
        let (logger, data) = (None, payload);
        let _ = logs.try_send(Log {
            level,
            logger,
            data,
        });
    }

    fn end_with(&mut self, complete: bool) {
        let summary = self.payload();
        let text = |name: &str| start_of(summary[name].as_str().unwrap_or_default());
        let (error_type, message) = (text("error_type"), text("message"));
        let summary = match self.line.len() {
            0..=SUMMARY_BYTES_MAX => summary,
            bytes => serde_json::json!({ "left_out_bytes": bytes }),
        };
        self.terminal = Some(Terminal {
            complete,
            error_type,
            message,
            summary,
        });
    }

    fn chunk(&mut self, head: &ChunkHead<'_>) -> Result<(), Halt> {
        let bytes = head.bytes as u64;
        self.session
            .chunk(head.artifact_id, head.seq, head.is_last, bytes)?;
        self.is_last = head.is_last;
        if bytes == 0 {
            // An empty artifact has a place too.
            let artifact_id = self.secrets.clean(head.artifact_id);
            self.log.chunk(&artifact_id, &[])?;
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Halt> {
        if self.secrets.is_empty() {
            self.log.chunk(self.session.current(), bytes)?;
        } else {
            let id = self.session.current();
            if !self.redactors.contains_key(id) {
                let redactor = Redactor::in_place(&self.secrets);
                self.redactors.insert(id.to_owned(), redactor);
            }
            let redactor = self.redactors.get_mut(id);
            let masked = redactor.map_or_else(Vec::new, |redactor| redactor.feed(bytes));
            self.log.chunk(&self.secrets.clean(id), &masked)?;
        }
        if let Some(eye) = &mut self.eye {
            eye.bytes(bytes.len());
        }
        let all = &self.strides.artifact_bytes;
        all.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps what was held back of an artifact, at its end.
    fn flush(&mut self) -> Result<(), Halt> {
        let id = self.session.current();
        if self.is_last
            && let Some(mut redactor) = self.redactors.remove(id)
        {
            let rest = redactor.finish();
            self.log.chunk(&self.secrets.clean(id), &rest)?;
        }
        Ok(())
    }

    fn commit(&mut self, mut whole: Whole) -> Result<(), Halt> {
        for text in [
            &mut whole.artifact_id,
            &mut whole.name,
            &mut whole.content_type,
        ] {
            if let Some(clean) = self.secrets.cleaned(text) {
                *text = clean;
            }
        }
        let artifact = RunArtifact {
            artifact_id: &whole.artifact_id,
            name: &whole.name,
            content_type: &whole.content_type,
            bytes: whole.bytes,
        };
        let digest = self.log.commit(&artifact)?;
        if let Some(eye) = &mut self.eye {
            eye.committed(&artifact);
        }
        self.strides.artifacts.fetch_add(1, Ordering::Relaxed);
        let kept = Kept { whole, digest };
        self.news.artifact(&kept);
        if self.kept.len() < LISTED_MAX {
            self.kept.push(kept);
        }
        Ok(())
    }

    /// ST-75, ST-76, S-11: what can not be stored is said, and the run goes on.
    fn file(&mut self, file: &FileWrite<'_>) -> Result<(), Halt> {
        let error = match self.session.file() {
            FileWhen::AfterTerminal => Some("the run has announced its end".to_owned()),
            // Under another name nobody would find it.
            FileWhen::InTime if self.secrets.cleaned(file.filename).is_some() => {
                Some("its name holds a secret".to_owned())
            }
            FileWhen::InTime => {
                let filled = self.secrets.filled(file.data);
                let stored = self.log.file(&RunFile {
                    name: file.filename,
                    content_type: &self.secrets.clean(file.content_type),
                    data: filled.as_deref().unwrap_or(file.data),
                });
                stored.err().map(|error| error.to_string())
            }
        };
        if file.write_id == 0 {
            return Ok(());
        }
        let mut frame = Vec::new();
        let ack = Ack {
            write_id: file.write_id,
            ok: error.is_none(),
            error: error.as_deref(),
        };
        ack.write(&mut frame);
        Ok(self.acks.push(&frame)?)
    }
}

fn count(kinds: &mut BTreeMap<String, u64>, kind: &str) {
    if let Some(count) = kinds.get_mut(kind) {
        *count += 1;
    } else {
        let by_name = kinds.len() < KINDS_MAX && kind.len() <= KIND_BYTES_MAX;
        let name = if by_name { kind } else { "others" };
        *kinds.entry(name.to_owned()).or_default() += 1;
    }
}

/// Texts are cleaned before they are cut: half a secret is found by nobody.
fn told(result: &RunResult<'_>, secrets: &Secrets) -> Told {
    let text = |text| start_of(&secrets.clean(text));
    Told {
        status: result.status,
        message: result.message.map(text),
        error_type: result.error_type.map(text),
        proxy_used: result.proxy_used.map(|used| {
            let mut used = used.to_json();
            secrets.clean_value(&mut used);
            used
        }),
    }
}

/// As much of a text as a report has.
fn start_of(text: &str) -> String {
    const CHARS_MAX: usize = 4096;
    text.chars().take(CHARS_MAX).collect()
}
