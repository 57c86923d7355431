//! What of the system's settings is for root alone. A tool that stays root in name (P-16) would
//! be its owner, and an owner needs no capability to read.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where the settings are.
const SETTINGS: &str = "/etc";

/// Those of passwords, whether or not they are there yet: each change puts another file in place.
const PASSWORDS: [&str; 4] = ["shadow", "shadow-", "gshadow", "gshadow-"];

/// Files that are looked at; those beyond are as readable as they are.
const LOOKED_AT_MAX: usize = 10_000;

const OTHERS_READ: u32 = 0o004;
const OTHERS_ENTER: u32 = 0o001;

/// All of them, folders as a whole.
pub(crate) fn settings() -> Vec<PathBuf> {
    let root = Path::new(SETTINGS);
    let mut private: Vec<PathBuf> = PASSWORDS.iter().map(|name| root.join(name)).collect();
    let mut next = vec![root.to_owned()];
    let mut looked_at = 0;
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > LOOKED_AT_MAX {
                return private;
            }
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let path = entry.path();
            if is_private(&found) {
                private.push(path);
            } else if found.is_dir() {
                next.push(path);
            }
        }
    }
    private.sort_unstable();
    private.dedup();
    private
}

/// True if root may read it and others may not. What a link leads to is looked at where it is.
fn is_private(found: &Metadata) -> bool {
    let wanted = match (found.is_dir(), found.is_file()) {
        (true, _) => OTHERS_READ | OTHERS_ENTER,
        (_, true) => OTHERS_READ,
        _ => return false,
    };
    let roots = found.uid() == 0 || found.gid() == 0;
    roots && found.mode() & wanted != wanted
}
