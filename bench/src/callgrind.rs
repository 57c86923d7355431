//! The program under callgrind, which counts the instructions of its process: not those of the
//! kernel, and not those of processes that the program starts.
//!
//! Debian 12 has a valgrind that answers `openat2`, by which files are found, with `ENOSYS`. A
//! copy of that one build gets the missing entry in its table of system calls. Any other build
//! is taken as it is; without `openat2`, reading a file fails with a message that says so.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::Failure;

/// A file of counts is named by the process that was counted.
const COUNTS: &str = "callgrind.";
/// The folder of the mended copy, beside the counts.
const MENDED: &str = "valgrind";

/// Where Debian has the parts of valgrind, and the part that counts.
const PARTS: &str = "/usr/libexec/valgrind";
const TOOL: &str = "callgrind-amd64-linux";
/// The tool of Debian's valgrind 1:3.19.0-1 by its BLAKE3, its table's entry for `openat2`, which
/// is empty, and the one for `getuid`, which lets the call pass as it is.
const DEBIAN_12: &str = "2311d2ae6e996a1fae2cb69f14a93f0125f2f494d87f24f315d4560317f65a15";
const OPENAT2_AT: usize = 0x25_58f0;
const GETUID_AT: usize = 0x25_4400;
const ENTRY_BYTES: usize = 16;

/// Prepares a folder for [`command`] and its counts.
pub fn prepare(folder: &Path) -> Result<(), Failure> {
    let Ok(mut tool) = fs::read(Path::new(PARTS).join(TOOL)) else {
        return Ok(());
    };
    if blake3::hash(&tool).to_hex().as_str() != DEBIAN_12 {
        return Ok(());
    }
    tool.copy_within(GETUID_AT..GETUID_AT + ENTRY_BYTES, OPENAT2_AT);
    let mended = folder.join(MENDED);
    fs::create_dir(&mended)?;
    for part in fs::read_dir(PARTS)? {
        let part = part?;
        if part.file_name() != TOOL {
            symlink(part.path(), mended.join(part.file_name()))?;
        }
    }
    fs::write(mended.join(TOOL), tool)?;
    fs::set_permissions(mended.join(TOOL), fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// A program under callgrind, which leaves its counts in a prepared folder.
pub fn command(program: &Path, folder: &Path) -> Command {
    let mut out = OsString::from("--callgrind-out-file=");
    out.push(folder.join(COUNTS));
    out.push("%p");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--quiet"])
        .arg(out)
        .arg(program);
    let mended = folder.join(MENDED);
    if mended.is_dir() {
        command.env("VALGRIND_LIB", mended);
    }
    command
}

/// Instructions of a process that has ended.
pub fn total(folder: &Path, pid: u32) -> Result<u64, Failure> {
    let path = folder.join(format!("{COUNTS}{pid}"));
    let text =
        fs::read_to_string(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let total = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals:"));
    let total = total.ok_or_else(|| format!("{} has no total", path.display()))?;
    Ok(total.trim().parse()?)
}
