//! What can go wrong with durable bytes, told so that the gate can choose: refuse what needs a
//! record, serve the rest.

use std::io;
use std::path::{Path, PathBuf};

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state folder is not there, not ours or not usable.
    #[error("open state folder {}", path.display())]
    Open {
        /// The folder or the file inside it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Bytes could not be written: the disk is full, a file-size limit was met, or the like.
    /// Nothing of the change counts; keyed and leased calls are refused, the rest is served.
    #[error("write to {}", path.display())]
    Full {
        /// The file that did not take the bytes.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file of the store could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Bytes were written but the disk did not confirm them (`power` durability).
    #[error("sync the journal to disk")]
    Sync {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The journal holds bytes that were not written by us. Nothing is appended to it any more.
    #[error("chain is damaged at record {seq} ({reason}): run callgate audit verify")]
    Damaged {
        /// The first record that is not as it was written.
        seq: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The journal was written by another version of Callgate, in another format. It is neither
    /// read nor appended to. D-10.
    #[error("journal is of format {found}, and this version reads and writes {known} only")]
    Format {
        /// Its format.
        found: String,
        /// Ours.
        known: &'static str,
    },
    /// The index could not be used. It can be deleted: it is rebuilt from the journal.
    #[error("use the index state.db")]
    Index {
        /// What SQLite said.
        #[from]
        source: rusqlite::Error,
    },
    /// The search index could not be used. What is there of files can be indexed again.
    #[error(
        "use the search index (if it is damaged, remove search.db from the state folder: \
         `callgate index` makes it anew from the files, without what programs have put there)"
    )]
    Search {
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// There is no such lease, approval or note.
    #[error("{what} not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The change does not fit the present state.
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// Somebody else is at what was to be changed.
    #[error("{reason}")]
    Busy {
        /// At what.
        reason: String,
    },
    /// Something is larger than the store keeps.
    #[error("{what} exceeds {max_bytes} bytes")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The bound.
        max_bytes: usize,
    },
    /// As many approvals wait for a decision as may. G-6e.
    #[error("{max} approvals {whose} wait for a decision")]
    ManyApprovals {
        /// How many.
        max: usize,
        /// Which are counted.
        whose: &'static str,
    },
    /// The system gave no randomness for a token, a key or an owner's name.
    #[error("no randomness from the system")]
    Random,
}

impl StoreError {
    pub(crate) fn open(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Open {
            path: path.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn write(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Full {
            path: path.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn format(found: String) -> Self {
        Self::Format {
            found,
            known: crate::frame::FORMAT,
        }
    }

    pub(crate) fn read(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Read {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
