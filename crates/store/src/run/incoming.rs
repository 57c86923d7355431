//! Bytes on their way to be an artifact. Each run has a folder in `incoming/` that it holds
//! locked; a folder whose lock can be taken has a dead writer. In it is a file for each artifact
//! that has begun. A script may have many under way at once, so that only the files written last
//! are open.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use callgate_call::{Digest, KeepError};
use rustix::fs::{FlockOperation, flock};

use super::disk::{self, Folder, step};
use super::names::failed;
use super::read::digest_of;
use super::usage::Usage;

/// Artifacts of a run that are under way at once.
pub const RUN_ARTIFACTS_OPEN_MAX: usize = 16_384;
/// Files of them that are open at once.
const FILES_OPEN_MAX: usize = 32;

/// The name of the folder in the state folder.
pub(super) const INCOMING: &str = "incoming";

#[derive(Default)]
pub(super) struct Incoming {
    /// Made by the first byte.
    place: Option<Place>,
    under_way: HashMap<String, UnderWay>,
    files_open: usize,
    /// Counts writes, to tell which file was written longest ago.
    clock: u64,
    next: u64,
}

struct Place {
    parent: Folder,
    name: String,
    folder: Folder,
}

struct UnderWay {
    file_name: String,
    file: Option<File>,
    written_at: u64,
    bytes: u64,
    /// So many have set out for the disk.
    set_out: u64,
    /// Of the bytes so far, while the file is open: it takes 2 KiB. The digest of a file that was
    /// closed meanwhile is taken of its bytes.
    hasher: Option<Box<blake3::Hasher>>,
}

/// All bytes of an artifact.
pub(super) struct Complete {
    /// Locked for as long as this lives.
    _file: File,
    pub(super) file_name: String,
    pub(super) digest: Digest,
}

impl Incoming {
    /// More bytes of an artifact.
    pub(super) fn add(
        &mut self,
        state: &Path,
        artifact: &str,
        bytes: &[u8],
        usage: &Usage,
        now: impl Fn() -> u64,
    ) -> Result<(), KeepError> {
        let fail = failed("the artifact could not be written");
        if !self.under_way.contains_key(artifact) {
            self.begin(state, artifact)?;
        }
        self.open(artifact).map_err(&fail)?;
        let under_way = self.under_way.get_mut(artifact).expect("begun above");
        let file = under_way.file.as_ref().expect("opened above");
        usage.reserve(bytes.len(), now)?;
        if let Err(error) = disk::write(file, bytes) {
            // Should this fail too, the file has another size at the commit.
            let _ = file.set_len(under_way.bytes);
            usage.release(bytes.len() as u64);
            return Err(fail(error));
        }
        if let Some(hasher) = &mut under_way.hasher {
            hasher.update(bytes);
        }
        under_way.bytes += bytes.len() as u64;
        disk::set_out(file, under_way.bytes, &mut under_way.set_out);
        Ok(())
    }

    /// How many bytes of an artifact there are; nothing if it has not begun.
    pub(super) fn bytes_of(&self, artifact: &str) -> Option<u64> {
        self.under_way.get(artifact).map(|it| it.bytes)
    }

    /// All bytes of an artifact, on the disk. Its file is locked, so that it is not taken for a
    /// dead writer's before the chain tells of it. It stays under way until `forget`.
    pub(super) fn complete(&mut self, artifact: &str) -> io::Result<Complete> {
        self.open(artifact)?;
        let under_way = &self.under_way[artifact];
        let file = under_way.file.as_ref().expect("opened above").try_clone()?;
        step(|| flock(&file, FlockOperation::NonBlockingLockExclusive))?;
        // Before the file gets the name that its digest is (commit.rs). Killed in between, it is
        // collected with the folder of its dead writer.
        step(|| file.sync_data())?;
        if file.metadata()?.len() != under_way.bytes {
            return Err(io::Error::other("its file has another size"));
        }
        let digest = match &under_way.hasher {
            Some(hasher) => Digest(*hasher.finalize().as_bytes()),
            None => {
                let folder = &self.place.as_ref().expect("it has begun").folder;
                let kept = folder.read(&under_way.file_name)?;
                digest_of(kept.ok_or(io::ErrorKind::NotFound)?)?.0
            }
        };
        Ok(Complete {
            _file: file,
            file_name: under_way.file_name.clone(),
            digest,
        })
    }

    /// An artifact is an artifact now.
    pub(super) fn forget(&mut self, artifact: &str) {
        let gone = self.under_way.remove(artifact);
        self.files_open -= usize::from(gone.is_some_and(|gone| gone.file.is_some()));
    }

    /// The folder of its files.
    pub(super) fn folder(&self) -> Option<&Folder> {
        self.place.as_ref().map(|place| &place.folder)
    }

    /// Begins an artifact: a file without bytes.
    pub(super) fn begin(&mut self, state: &Path, artifact: &str) -> Result<(), KeepError> {
        if self.under_way.len() >= RUN_ARTIFACTS_OPEN_MAX {
            let many = format!("more than {RUN_ARTIFACTS_OPEN_MAX} artifacts are under way");
            return Err(KeepError::Failed(many));
        }
        let fail = failed("the artifact could not be begun");
        if self.place.is_none() {
            self.place = Some(Place::make(state).map_err(&fail)?);
        }
        self.close_one();
        let file_name = self.next.to_string();
        let folder = &self.place.as_ref().expect("made above").folder;
        let file = folder.append(&file_name, true).map_err(&fail)?;
        self.next += 1;
        self.files_open += 1;
        let under_way = UnderWay {
            file_name,
            file: Some(file),
            written_at: self.clock,
            bytes: 0,
            set_out: 0,
            hasher: Some(Box::default()),
        };
        self.under_way.insert(artifact.to_owned(), under_way);
        Ok(())
    }

    /// Has the file of an artifact open.
    fn open(&mut self, artifact: &str) -> io::Result<()> {
        self.clock += 1;
        if self.under_way[artifact].file.is_none() {
            self.close_one();
            let folder = &self.place.as_ref().expect("it has begun").folder;
            let file = folder.append(&self.under_way[artifact].file_name, false)?;
            self.under_way.get_mut(artifact).expect("it has begun").file = Some(file);
            self.files_open += 1;
        }
        let clock = self.clock;
        self.under_way
            .get_mut(artifact)
            .expect("it has begun")
            .written_at = clock;
        Ok(())
    }

    /// Makes room for one more open file.
    fn close_one(&mut self) {
        if self.files_open < FILES_OPEN_MAX {
            return;
        }
        let open = self.under_way.values_mut().filter(|it| it.file.is_some());
        if let Some(oldest) = open.min_by_key(|it| it.written_at) {
            oldest.file = None;
            oldest.hasher = None;
            self.files_open -= 1;
        }
    }

    /// Removes what never became an artifact.
    pub(super) fn clear(&mut self, usage: &Usage) {
        let Some(place) = self.place.take() else {
            return;
        };
        for under_way in self.under_way.values() {
            if place.folder.remove(&under_way.file_name).is_ok() {
                usage.release(under_way.bytes);
            }
        }
        self.under_way.clear();
        self.files_open = 0;
        let flags = rustix::fs::AtFlags::REMOVEDIR;
        // What can not be removed is collected later.
        let _ = step(|| rustix::fs::unlinkat(&place.parent.0, &place.name, flags));
    }
}

impl Place {
    /// Makes and locks a folder. Until it is locked it looks like a dead writer's, so nobody may
    /// collect meanwhile.
    fn make(state: &Path) -> io::Result<Self> {
        let state = Folder::open(state)?;
        let parent = state.make(INCOMING)?;
        let held = step(|| flock(&parent.0, FlockOperation::LockExclusive));
        held?;
        let name = format!("{:016x}", crate::random_u64().map_err(io::Error::other)?);
        let made = parent.make(&name).and_then(|folder| {
            step(|| flock(&folder.0, FlockOperation::NonBlockingLockExclusive))?;
            Ok(folder)
        });
        let _ = flock(&parent.0, FlockOperation::Unlock);
        Ok(Self {
            folder: made?,
            parent,
            name,
        })
    }
}
