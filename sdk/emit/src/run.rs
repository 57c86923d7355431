//! A run: what a script is given, and what it may emit.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use callgate_wires::stream::encode::{self, Event};
use callgate_wires::stream::{
    ARTIFACT_WORDS_BYTES_MAX, CHUNK_BYTES_MAX, CONTRACT_VERSION, ChunkHead, RunRequest, RunResult,
    Status, StreamFault,
};
use serde::Serialize;

use crate::error::{EmitError, StartError};
use crate::ids::{Ids, now};
use crate::payload::Payload;
use crate::pipes::{Input, Output};
use crate::{EXIT_BAD_REQUEST, guard};

/// What a run that completed exits with, one whose script failed, and one whose stream broke.
const EXIT_COMPLETED: u8 = 0;
const EXIT_ERROR: u8 = 1;
const EXIT_CRASH: u8 = 2;
const _: () = assert!(EXIT_CRASH < EXIT_BAD_REQUEST);

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words are the contract's")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// How a run was said to end.
enum Terminal {
    Complete,
    Error { error_type: String, message: String },
}

/// A run under way. Everything it emits is written before the call returns.
pub struct Run {
    request: RunRequest,
    input: Input,
    output: Output,
    ids: Ids,
    /// Of the last event.
    seq: u64,
    /// Of the last sidecar file.
    write_id: u32,
    terminal: Option<Terminal>,
    proxy_used: bool,
    frame: Vec<u8>,
}

impl Run {
    /// Takes stdin and stdout of this process for the stream and reads the request. A program
    /// that uses [`main`](crate::main) does not need this.
    pub fn from_stdin() -> Result<Self, StartError> {
        let (input, output) = guard::take().map_err(StartError::Descriptors)?;
        Self::from_pipes(input, output)
    }

    /// The same with pipes of the caller's.
    pub fn from_pipes(input: OwnedFd, output: OwnedFd) -> Result<Self, StartError> {
        let mut input = Input::new(input);
        let line = input.request_line().map_err(StartError::Read)?;
        Ok(Self {
            request: RunRequest::parse(&line).map_err(StartError::Request)?,
            input,
            output: Output::new(output),
            ids: Ids::new(),
            seq: 0,
            write_id: 0,
            terminal: None,
            proxy_used: false,
            frame: Vec::new(),
        })
    }

    /// What was asked for.
    #[must_use]
    pub fn request(&self) -> &RunRequest {
        &self.request
    }

    /// Emits a result.
    pub fn item<V: Serialize + ?Sized>(
        &mut self,
        item_type: &str,
        data: &V,
    ) -> Result<(), EmitError> {
        self.check_open()?;
        let payload = Payload::new().text("item_type", item_type);
        self.event("item", &payload.value("data", data)?)
    }

    /// Emits bytes that are at hand; gives the artifact's id.
    pub fn artifact(
        &mut self,
        name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<String, EmitError> {
        self.check_open()?;
        check_words(name, content_type)?;
        let artifact_id = self.ids.next();
        let mut seq = 0;
        let mut rest = bytes;
        // One chunk at least: an empty artifact is one empty chunk.
        while seq == 0 || !rest.is_empty() {
            let (now, after) = rest.split_at(rest.len().min(CHUNK_BYTES_MAX));
            rest = after;
            seq += 1;
            self.chunk(&artifact_id, seq, rest.is_empty(), now)?;
        }
        self.commit(artifact_id, name, content_type, bytes.len() as u64)
    }

    /// Emits a file.
    pub fn artifact_file(
        &mut self,
        name: &str,
        content_type: &str,
        path: impl AsRef<Path>,
    ) -> Result<String, EmitError> {
        self.check_open()?;
        match File::open(path) {
            Ok(file) => self.artifact_from(name, content_type, file),
            Err(source) => Err(unread(name, source)),
        }
    }

    /// Emits whatever a reader gives, of any length; 8 MiB of it are held. If reading
    /// fails there is no artifact, and the run may go on.
    pub fn artifact_from(
        &mut self,
        name: &str,
        content_type: &str,
        mut reader: impl Read,
    ) -> Result<String, EmitError> {
        self.check_open()?;
        check_words(name, content_type)?;
        let artifact_id = self.ids.next();
        let (mut seq, mut total) = (0, 0);
        let mut held = Vec::with_capacity(CHUNK_BYTES_MAX + 1);
        loop {
            // One byte more than a chunk has tells whether it is the last.
            let wanted = CHUNK_BYTES_MAX + 1 - held.len();
            let mut bounded = reader.by_ref().take(wanted as u64);
            bounded
                // bound: a chunk and a byte
                .read_to_end(&mut held)
                .map_err(|source| unread(name, source))?;
            let bytes = held.len().min(CHUNK_BYTES_MAX);
            let is_last = bytes == held.len();
            seq += 1;
            total += bytes as u64;
            self.chunk(&artifact_id, seq, is_last, &held[..bytes])?;
            if is_last {
                return self.commit(artifact_id, name, content_type, total);
            }
            held.drain(..bytes);
        }
    }

    /// Says how far the script is.
    pub fn checkpoint(&mut self, checkpoint_id: &str, note: Option<&str>) -> Result<(), EmitError> {
        self.check_open()?;
        let payload = Payload::new().text("checkpoint_id", checkpoint_id);
        self.event("checkpoint", &payload.maybe("note", note))
    }

    /// Asks for another run. Source and category are the run's own unless said otherwise.
    pub fn enqueue<V: Serialize + ?Sized>(
        &mut self,
        target: &str,
        params: &V,
        source: Option<&str>,
        category: Option<&str>,
    ) -> Result<(), EmitError> {
        self.check_open()?;
        let payload = Payload::new().text("target", target);
        let payload = payload.value("params", params)?;
        let payload = payload.maybe("source", source).maybe("category", category);
        self.event("enqueue", &payload)
    }

    /// Asks for another proxy.
    pub fn rotate_proxy(&mut self, reason: Option<&str>) -> Result<(), EmitError> {
        self.check_open()?;
        self.event("rotate_proxy", &Payload::new().maybe("reason", reason))
    }

    /// Emits a log line.
    pub fn log(&mut self, level: Level, message: &str) -> Result<(), EmitError> {
        self.check_open()?;
        let payload = Payload::new().text("level", level.as_str());
        self.event("log", &payload.text("message", message))
    }

    /// Emits a log line with more to it.
    pub fn log_with<V: Serialize + ?Sized>(
        &mut self,
        level: Level,
        message: &str,
        fields: &V,
    ) -> Result<(), EmitError> {
        self.check_open()?;
        let payload = Payload::new().text("level", level.as_str());
        let payload = payload.text("message", message).value("fields", fields)?;
        self.event("log", &payload)
    }

    /// Stores a small file beside the events and waits until that is done. A refusal is an error
    /// of this call alone: the run goes on.
    pub fn put(
        &mut self,
        filename: &str,
        content_type: &str,
        data: &[u8],
    ) -> Result<(), EmitError> {
        self.check_open()?;
        if filename.is_empty() || filename.contains(['/', '\\']) || filename.contains("..") {
            let name = filename.to_owned();
            return Err(EmitError::Unsendable(StreamFault::FileName { name }));
        }
        // 0 would ask for no answer.
        self.write_id = self.write_id.checked_add(1).unwrap_or(1);
        let write_id = self.write_id;
        self.frame.clear();
        encode::file_head(
            write_id,
            filename,
            content_type,
            data.len(),
            &mut self.frame,
        )
        .map_err(EmitError::Unsendable)?;
        let written = self.output.write(&[&self.frame, data]);
        written.map_err(EmitError::Stream)?;
        let filename = filename.to_owned();
        match self.input.answer(write_id) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(EmitError::Refused { filename, reason }),
            Err(source) => Err(EmitError::NoAnswer { filename, source }),
        }
    }

    /// The run failed. Nothing can be emitted after it.
    pub fn run_error(
        &mut self,
        error_type: &str,
        message: &str,
        stack: Option<&str>,
    ) -> Result<(), EmitError> {
        self.check_open()?;
        let payload = Payload::new().text("error_type", error_type);
        let payload = payload.text("message", message).maybe("stack", stack);
        self.event("run_error", &payload)?;
        self.terminal = Some(Terminal::Error {
            error_type: error_type.to_owned(),
            message: message.to_owned(),
        });
        Ok(())
    }

    /// The run is done. Nothing can be emitted after it.
    pub fn run_complete(&mut self) -> Result<(), EmitError> {
        self.check_open()?;
        self.complete(&Payload::new())
    }

    /// The run is done, and this is what it came to. Nothing can be emitted after it.
    pub fn run_complete_with<V: Serialize + ?Sized>(
        &mut self,
        summary: &V,
    ) -> Result<(), EmitError> {
        self.check_open()?;
        self.complete(&Payload::new().value("summary", summary)?)
    }

    /// Has the run result say that the proxy of the request was used.
    pub fn used_proxy(&mut self) {
        self.proxy_used = true;
    }

    /// Ends the run: completes it unless that was said or the contrary, and sends the run result.
    /// What it gives is what the program must exit with.
    pub fn finish(mut self) -> ExitCode {
        if self.terminal.is_none() {
            // A stream that breaks here is told by the exit code.
            let _ = self.run_complete();
        }
        self.send_result()
    }

    /// Ends a run that failed, unless the script said before how it ended.
    pub fn fail(mut self, error_type: &str, message: &str) -> ExitCode {
        if self.terminal.is_none() && self.run_error(error_type, message, None).is_err() {
            // Perhaps it was the message that could not be sent.
            let _ = self.run_error(error_type, "a message that can not be sent", None);
        }
        self.send_result()
    }

    /// The one run result. The stream ends with it, or is broken.
    fn send_result(mut self) -> ExitCode {
        let proxy = self.request.proxy.as_ref().filter(|_| self.proxy_used);
        let mut result = RunResult {
            status: Status::Completed,
            message: None,
            error_type: None,
            stack: None,
            proxy_used: proxy.map(|proxy| proxy.used()),
        };
        let exit = match &self.terminal {
            Some(Terminal::Complete) => EXIT_COMPLETED,
            Some(Terminal::Error {
                error_type,
                message,
            }) => {
                result.status = Status::Error;
                result.error_type = Some(error_type);
                result.message = Some(message);
                EXIT_ERROR
            }
            None => {
                result.status = Status::Crash;
                EXIT_CRASH
            }
        };
        self.frame.clear();
        let sendable = encode::run_result(&result, &mut self.frame).is_ok();
        if !sendable || self.output.write(&[&self.frame]).is_err() {
            return ExitCode::from(EXIT_CRASH);
        }
        ExitCode::from(exit)
    }

    fn complete(&mut self, payload: &Payload) -> Result<(), EmitError> {
        self.event("run_complete", payload)?;
        self.terminal = Some(Terminal::Complete);
        Ok(())
    }

    fn check_open(&self) -> Result<(), EmitError> {
        if self.output.is_broken() {
            return Err(EmitError::Stream(std::io::ErrorKind::BrokenPipe.into()));
        }
        match self.terminal {
            Some(_) => Err(EmitError::AfterTerminal),
            None => Ok(()),
        }
    }

    fn event(&mut self, kind: &str, payload: &Payload) -> Result<(), EmitError> {
        let event = Event {
            contract_version: CONTRACT_VERSION,
            event_id: &self.ids.next(),
            run_id: &self.request.run_id,
            seq: self.seq + 1,
            kind,
            ts: &now(),
            payload: payload.as_bytes(),
            attempt: self.request.attempt,
            job_id: self.request.job_id.as_deref(),
            parent_run_id: self.request.parent_run_id.as_deref(),
        };
        self.frame.clear();
        encode::event(&event, &mut self.frame).map_err(EmitError::Unsendable)?;
        self.output
            .write(&[&self.frame])
            .map_err(EmitError::Stream)?;
        self.seq += 1;
        Ok(())
    }

    fn chunk(
        &mut self,
        artifact_id: &str,
        seq: u64,
        is_last: bool,
        data: &[u8],
    ) -> Result<(), EmitError> {
        let head = ChunkHead {
            artifact_id,
            seq,
            is_last,
            bytes: data.len(),
        };
        self.frame.clear();
        encode::chunk_head(&head, &mut self.frame).map_err(EmitError::Unsendable)?;
        let written = self.output.write(&[&self.frame, data]);
        written.map_err(EmitError::Stream)
    }

    /// The commit record: from now on there is an artifact.
    fn commit(
        &mut self,
        artifact_id: String,
        name: &str,
        content_type: &str,
        size_bytes: u64,
    ) -> Result<String, EmitError> {
        let payload = Payload::new()
            .text("artifact_id", &artifact_id)
            .text("name", name)
            .text("content_type", content_type)
            .uint("size_bytes", size_bytes);
        self.event("artifact", &payload)?;
        Ok(artifact_id)
    }
}

/// Checked before a byte of the artifact goes out: the other side would end the run for it.
fn check_words(name: &str, content_type: &str) -> Result<(), EmitError> {
    for (field, text) in [("name", name), ("content_type", content_type)] {
        let bytes = text.len();
        if bytes > ARTIFACT_WORDS_BYTES_MAX {
            return Err(EmitError::TooLong { field, bytes });
        }
    }
    Ok(())
}

fn unread(name: &str, source: std::io::Error) -> EmitError {
    let name = name.to_owned();
    EmitError::Read { name, source }
}
