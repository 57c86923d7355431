//! Looks at what of a tool's files bears on its promises, when it is first planned.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use callgate_call::Needs;

use crate::gate::compile::{plain, real};
use crate::gate::levels::Files;

/// Files of writable roots that are looked at for further links. A root with more of them is
/// not known to be free of such.
const LOOKED_AT_MAX: usize = 10_000;

/// Looks.
pub(crate) fn look(needs: &Needs) -> Files {
    let writes: Vec<PathBuf> = needs.writes.iter().map(|path| plain(path)).collect();
    let inside = |path: &Path| writes.iter().any(|root| path.starts_with(root));
    let reads: Vec<PathBuf> = needs.reads.iter().map(|path| real(path)).collect();
    let own = needs.kept.iter().chain(&needs.hidden);
    let own = own.map(|path| plain(path)).filter(|path| inside(path));
    // A link can be replaced, and nothing can be mounted on it.
    let there = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink());
    let (kept, absent): (Vec<PathBuf>, Vec<PathBuf>) = own.partition(there);
    let names = |paths: Vec<PathBuf>| paths.iter().map(|path| name(path)).collect();
    Files {
        links: links(&writes),
        kept: names(kept),
        absent: names(absent),
        proc: proc_of(&reads),
        shown: shown(&reads, needs),
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Why what is written under `roots` may show outside them: a file with a second name
/// somewhere. Folders cannot have one.
fn links(roots: &[PathBuf]) -> Option<String> {
    let mut next: Vec<PathBuf> = roots.to_vec();
    let mut looked_at = 0;
    while let Some(path) = next.pop() {
        looked_at += 1;
        if looked_at > LOOKED_AT_MAX {
            return Some(format!(
                "a look at more than {LOOKED_AT_MAX} files that it may write"
            ));
        }
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        if found.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            // One more than is looked at is enough to know.
            let room = LOOKED_AT_MAX + 1 - next.len().min(LOOKED_AT_MAX);
            next.extend(entries.take(room).map(|entry| entry.path()));
        } else if found.is_file() && found.nlink() > 1 {
            let links = found.nlink();
            return Some(format!("{} with one name, not {links}", path.display()));
        }
    }
    None
}

/// The readable path that shows processes.
fn proc_of(reads: &[PathBuf]) -> Option<String> {
    let proc = Path::new("/proc");
    let shows = |root: &&PathBuf| root.starts_with(proc) || proc.starts_with(root);
    let root = reads.iter().find(shows)?.display();
    Some(format!("reads without {root}: it shows `/proc`"))
}

/// What is the gate's and in a readable path.
fn shown(reads: &[PathBuf], needs: &Needs) -> Option<String> {
    let mut hidden = needs.hidden.iter().map(|path| real(path));
    let shown = hidden.find(|path| reads.iter().any(|root| path.starts_with(root)))?;
    Some(format!(
        "a mount namespace: {} can be read",
        shown.display()
    ))
}
