//! One run, as it is kept: what its executor emits is written as its policy says, artifacts
//! bytes by bytes, and at its end what became of it all.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Digest, KeepError, RunArtifact, RunCounts, RunEvent, RunFile, RunLog, RunStart, RunVerdict,
    Timestamp,
};
use serde_json::Value;

use super::disk::Folder;
use super::docs::{EndDoc, LostDoc};
use super::events::EventFile;
use super::incoming::Incoming;
use super::manifest::{self, ArtifactLine, FileLine};
use super::names::{check_file_name, check_text, failed, unrecorded};
use super::policy::{Taken, Waiting};
use super::rows::Rows;
use crate::{Store, records};

/// Artifacts of one run, and files of one run.
pub const RUN_ARTIFACTS_MAX: usize = 65_536;
/// One write of what `buffered` held.
const WRITE_BYTES: usize = 1024 * 1024;

pub(super) struct KeptRun {
    pub(super) store: Arc<Store>,
    pub(super) start: RunStart,
    pub(super) began: Timestamp,
    pub(super) state: Folder,
    /// From the state folder down to the run's own.
    pub(super) path: [String; 7],
    pub(super) own: Folder,
    pub(super) counts: RunCounts,
    pub(super) waiting: Waiting,
    pub(super) rows: Rows,
    pub(super) events: EventFile,
    pub(super) incoming: Incoming,
    /// Ids of committed artifacts.
    pub(super) committed: HashSet<String>,
    pub(super) artifacts: Vec<ArtifactLine>,
    pub(super) files: Vec<FileLine>,
    /// The folder `files`, once there is one.
    pub(super) files_folder: Option<Folder>,
    /// The disk has the names of all folders.
    pub(super) is_rooted: bool,
    pub(super) is_over: bool,
}

impl RunLog for KeptRun {
    fn event(&mut self, event: &RunEvent<'_>) -> Result<(), KeepError> {
        debug_assert!(!event.line.contains(&b'\n'), "one line");
        self.counts.received += 1;
        let kind = self.rows.kind(event.kind);
        match &mut self.waiting {
            Waiting::Batch(batch) => {
                if batch.is_full_for(event.line) {
                    self.flush("capacity")?;
                }
                self.take(event, kind)
            }
            Waiting::Held(held) => match held.add(event, kind)? {
                Taken::Held { dropped } => {
                    dropped
                        .into_iter()
                        .for_each(|kind| self.count_dropped(kind));
                    Ok(())
                }
                Taken::Dropped => {
                    self.count_dropped(kind);
                    Ok(())
                }
            },
        }
    }

    fn chunk(&mut self, artifact_id: &str, bytes: &[u8]) -> Result<(), KeepError> {
        self.check_uncommitted(artifact_id)?;
        let store = &self.store;
        let now = || store.clock.micros();
        self.incoming
            .add(&store.dir, artifact_id, bytes, &store.usage, now)?;
        // While chunks flow nobody is idle, and events wait no longer for that.
        self.write_due().map(|_| ())
    }

    fn commit(&mut self, artifact: &RunArtifact<'_>) -> Result<Digest, KeepError> {
        self.check_uncommitted(artifact.artifact_id)?;
        check_text("artifact name", artifact.name)?;
        check_text("content type", artifact.content_type)?;
        if self.artifacts.len() >= RUN_ARTIFACTS_MAX {
            let many = format!("a run has at most {RUN_ARTIFACTS_MAX} artifacts");
            return Err(KeepError::Failed(many));
        }
        self.check_size(artifact)?;
        let digest = self.commit_bytes(artifact)?;
        self.committed.insert(artifact.artifact_id.to_owned());
        self.artifacts.push(ArtifactLine::new(artifact, digest));
        Ok(digest)
    }

    fn file(&mut self, file: &RunFile<'_>) -> Result<(), KeepError> {
        check_file_name(file.name)?;
        check_text("content type", file.content_type)?;
        if self.files.len() >= RUN_ARTIFACTS_MAX {
            let many = format!("a run has at most {RUN_ARTIFACTS_MAX} files");
            return Err(KeepError::Failed(many));
        }
        let (meta_name, meta) = manifest::meta_of(file);
        let bytes = file.data.len() + meta.len();
        self.reserve(bytes)?;
        let put = self.put_file(file, &meta_name, &meta);
        if let Err(error) = put {
            self.store.usage.release(bytes as u64);
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => KeepError::Exists {
                    name: file.name.to_owned(),
                },
                _ => failed("the file could not be written")(error),
            });
        }
        self.files.push(FileLine::new(file));
        Ok(())
    }

    fn idle(&mut self) -> Result<Option<Duration>, KeepError> {
        match &self.waiting {
            Waiting::Batch(batch) if batch.is_durable() => self.flush("interval").map(|()| None),
            _ => self.write_due(),
        }
    }

    fn seal(&mut self) -> Result<(), KeepError> {
        match &self.waiting {
            Waiting::Batch(_) => self.flush("termination")?,
            Waiting::Held(_) => self.write_held()?,
        }
        self.sync()
    }

    fn counts(&self) -> RunCounts {
        self.counts.clone()
    }

    fn end(mut self: Box<Self>, verdict: RunVerdict, report: &Value) -> Result<(), KeepError> {
        // Events, then report and manifest, then the record of the end: a record that is there has
        // its papers. Killed in between, the run counts as lost, whatever its papers say.
        //
        // What could not be written then is not written now; the counts tell of it.
        let _ = self.seal();
        let ended = self.store.clock.now();
        let report = manifest::json_line(report);
        let written = self.write_papers(verdict, ended, &report);
        // How it ended is said even where its report found no room, and as its caller hears it:
        // what could not be kept is no success.
        let verdict = match written {
            Ok(()) => verdict,
            Err(_) => RunVerdict::PolicyFailure,
        };
        let doc = self.end_doc(verdict, ended, &report);
        let recorded = self.record_end(doc);
        self.is_over = recorded.is_ok();
        written.and(recorded)
    }
}

impl KeptRun {
    /// The call's id as the chain has it.
    pub(super) fn call(&self) -> String {
        self.start.call.to_string()
    }

    fn take(&mut self, event: &RunEvent<'_>, kind: usize) -> Result<(), KeepError> {
        let Waiting::Batch(batch) = &mut self.waiting else {
            return Ok(());
        };
        let now = match batch.is_timed() {
            true => self.store.clock.micros(),
            false => 0,
        };
        batch.add(event.line, now);
        self.rows.wait(kind);
        match batch.due(now) {
            Some(why) => self.flush(why),
            None => Ok(()),
        }
    }

    /// Writes the batch if its time has come; else how long it may wait, where that has a bound.
    fn write_due(&mut self) -> Result<Option<Duration>, KeepError> {
        let Waiting::Batch(batch) = &self.waiting else {
            return Ok(None);
        };
        if !batch.is_timed() {
            return Ok(None);
        }
        let now = self.store.clock.micros();
        match batch.due(now) {
            Some(why) => self.flush(why).map(|()| None),
            None => Ok(batch.left(now)),
        }
    }

    fn count_dropped(&mut self, kind: usize) {
        let name = self.rows.name(kind).to_owned();
        *self.counts.dropped.entry(name).or_default() += 1;
    }

    fn reserve(&self, bytes: usize) -> Result<(), KeepError> {
        let clock = &self.store.clock;
        self.store.usage.reserve(bytes, || clock.micros())
    }

    /// Writes the batch, and syncs it where the policy says so.
    fn flush(&mut self, why: &'static str) -> Result<(), KeepError> {
        let Waiting::Batch(batch) = &mut self.waiting else {
            return Ok(());
        };
        if batch.events == 0 {
            return Ok(());
        }
        let (store, own) = (&self.store, &self.own);
        let clock = &store.clock;
        store.usage.reserve(batch.lines.len(), || clock.micros())?;
        if let Err(error) = self.events.write(own, &batch.lines) {
            store.usage.release(batch.lines.len() as u64);
            return Err(failed("the events could not be written")(error));
        }
        self.counts.persisted += batch.events;
        *self.counts.flushes.entry(why).or_default() += 1;
        self.rows.settle();
        batch.clear();
        match batch.is_durable() {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Writes all that `buffered` held, in order.
    fn write_held(&mut self) -> Result<(), KeepError> {
        let (mut lines, mut kinds) = (Vec::new(), Vec::new());
        let mut any = false;
        loop {
            let Waiting::Held(held) = &self.waiting else {
                return Ok(());
            };
            let mut through = 0;
            lines.clear();
            kinds.clear();
            for (seq, event) in &held.events {
                if !lines.is_empty() && lines.len() + event.line.len() > WRITE_BYTES {
                    break;
                }
                lines.extend_from_slice(&event.line);
                kinds.push(event.kind);
                through = *seq;
            }
            if kinds.is_empty() {
                break;
            }
            self.reserve(lines.len())?;
            let own = &self.own;
            if let Err(error) = self.events.write(own, &lines) {
                self.store.usage.release(lines.len() as u64);
                return Err(failed("the events could not be written")(error));
            }
            kinds.iter().for_each(|kind| self.rows.wait(*kind));
            self.rows.settle();
            self.counts.persisted += kinds.len() as u64;
            any = true;
            if let Waiting::Held(held) = &mut self.waiting {
                held.forget(through);
            }
        }
        if any {
            *self.counts.flushes.entry("termination").or_default() += 1;
        }
        Ok(())
    }

    /// Events are on the disk on return, and can be found there.
    fn sync(&mut self) -> Result<(), KeepError> {
        // Bytes before names: a name that outlived its bytes would show a shorter file.
        let fail = failed("the disk did not confirm the events");
        let own = &self.own;
        self.events.sync(own).map_err(&fail)?;
        if self.is_rooted {
            return Ok(());
        }
        self.root().map_err(&fail)?;
        self.is_rooted = true;
        Ok(())
    }

    /// The names of all its folders are on the disk on return.
    fn root(&self) -> io::Result<()> {
        // From the top down, so that at no moment a folder is on the disk that cannot be reached.
        self.state.sync()?;
        let mut above: Option<Folder> = None;
        for name in &self.path {
            let folder = above.as_ref().unwrap_or(&self.state).enter(name)?;
            folder.sync()?;
            above = Some(folder);
        }
        self.files_folder.as_ref().map_or(Ok(()), Folder::sync)
    }

    fn check_uncommitted(&self, artifact_id: &str) -> Result<(), KeepError> {
        if artifact_id.is_empty() {
            return Err(KeepError::BadName("artifact id is empty".to_owned()));
        }
        check_text("artifact id", artifact_id)?;
        match self.committed.contains(artifact_id) {
            true => Err(KeepError::Exists {
                name: format!("artifact {artifact_id}"),
            }),
            false => Ok(()),
        }
    }

    /// An artifact without bytes needs no chunk.
    fn check_size(&mut self, artifact: &RunArtifact<'_>) -> Result<(), KeepError> {
        let (id, said) = (artifact.artifact_id, artifact.bytes);
        let wrong = match self.incoming.bytes_of(id) {
            Some(bytes) if bytes == said => return Ok(()),
            Some(bytes) => format!("artifact {id} has {bytes} bytes, its commit says {said}"),
            None if said == 0 => return self.incoming.begin(&self.store.dir, id),
            None => format!("artifact {id} has no bytes, its commit says {said}"),
        };
        Err(KeepError::Failed(wrong))
    }

    fn put_file(&mut self, file: &RunFile<'_>, meta_name: &str, meta: &[u8]) -> io::Result<()> {
        if self.files_folder.is_none() {
            self.files_folder = Some(self.own.make("files")?);
        }
        self.is_rooted = false;
        let (own, files) = (&self.own, self.files_folder.as_ref().expect("made above"));
        if files.read(file.name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        own.put(files, meta_name, meta, false)?;
        let put = own.put(files, file.name, file.data, false);
        if put.is_err() {
            let _ = files.remove(meta_name);
        }
        put
    }

    fn write_papers(
        &self,
        verdict: RunVerdict,
        ended: Timestamp,
        report: &[u8],
    ) -> Result<(), KeepError> {
        let manifest = manifest::json_line(&self.manifest(verdict, ended, report));
        self.store.usage.add(report.len() + manifest.len());
        let own = &self.own;
        let written = own
            .put(own, manifest::REPORT, report, true)
            .and_then(|()| own.put(own, manifest::MANIFEST, &manifest, true))
            .and_then(|()| own.sync());
        if written.is_err() {
            // One that tells of another end than the chain does is worse than none.
            let _ = own.remove(manifest::REPORT);
            let _ = own.remove(manifest::MANIFEST);
        }
        written.map_err(failed("the report could not be written"))
    }

    fn end_doc(&self, verdict: RunVerdict, ended: Timestamp, report: &[u8]) -> EndDoc {
        EndDoc {
            run: self.start.run_id.clone(),
            at: ended.0,
            verdict: verdict.as_str().to_owned(),
            received: self.counts.received,
            persisted: self.counts.persisted,
            dropped: self.counts.dropped.clone(),
            events_bytes: self.events.bytes(),
            events: self.events.digest().to_hex(),
            report: Digest::of_bytes(report).to_hex(),
        }
    }

    fn record_end(&self, doc: EndDoc) -> Result<(), KeepError> {
        let call = self.call();
        self.store
            .commit_at("run.io", "run.io", |inner, now| {
                records::run_end(&mut inner.pending, now, &call, doc);
                Ok(())
            })
            .and_then(|()| self.store.settle_written())
            .map_err(unrecorded)
    }
}

impl Drop for KeptRun {
    /// Without an end nobody knows how it ended. What was not committed goes.
    fn drop(&mut self) {
        self.incoming.clear(&self.store.usage);
        if self.is_over {
            return;
        }
        let doc = LostDoc {
            run: self.start.run_id.clone(),
            at: self.store.clock.now().0,
        };
        let call = self.call();
        // Should this fail, it is told once this process is dead.
        let _ = self.store.commit(|inner, now| {
            records::run_lost(&mut inner.pending, now, &call, doc);
            Ok(())
        });
    }
}
