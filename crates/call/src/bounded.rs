//! Reads and allocations whose size comes from outside: from a caller, a tool, a file or a peer.
//!
//! Each function compares the size with a bound before it allocates, and reports a failed
//! allocation as an error instead of ending the process. `cargo xtask tidy` (`sizes`) reports code
//! that does neither.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Buffer for the first read of a source of unknown length.
const FIRST_READ_BYTES: u64 = 8 * 1024;

/// Returns `len` zero bytes.
///
/// # Errors
///
/// `FileTooLarge` if `len` exceeds `len_max`, `OutOfMemory` if there is no memory for them.
pub fn zeroed(len: u64, len_max: u64) -> Result<Vec<u8>> {
    let mut bytes = room(len, len_max)?;
    // bound: the capacity just reserved
    bytes.resize(bytes.capacity().min(as_usize(len)), 0);
    Ok(bytes)
}

/// Returns an empty vector with room for `count` items.
///
/// # Errors
///
/// As `zeroed`.
pub fn room<T>(count: u64, count_max: u64) -> Result<Vec<T>> {
    if count > count_max {
        return Err(too_large(count_max));
    }
    let mut items = Vec::new();
    items
        .try_reserve_exact(as_usize(count))
        .map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
    Ok(items)
}

/// Reads all of `source`, which must not have more than `bytes_max` bytes.
///
/// # Errors
///
/// `FileTooLarge` if there are more, `OutOfMemory` if there is no memory for them, or the error of
/// the source.
pub fn read_all(source: impl Read, bytes_max: u64) -> Result<Vec<u8>> {
    read_into(
        source,
        room(FIRST_READ_BYTES.min(bytes_max), bytes_max)?,
        bytes_max,
    )
}

/// Reads all of a file. One that says it is larger than `bytes_max` is not read at all; one that
/// grows meanwhile is read no further.
///
/// # Errors
///
/// As `read_all`.
pub fn read_file(file: &File, bytes_max: u64) -> Result<Vec<u8>> {
    // One byte more, so that the end is seen without growing. Files of the kernel say 0.
    let len = file.metadata()?.len();
    if len > bytes_max {
        return Err(too_large(bytes_max));
    }
    let bytes = room(len.saturating_add(1), bytes_max.saturating_add(1))?;
    read_into(file, bytes, bytes_max)
}

/// Reads all of a file as text.
///
/// # Errors
///
/// As `read_all`, and `InvalidData` for what is not UTF-8.
pub fn read_text(file: &File, bytes_max: u64) -> Result<String> {
    let bytes = read_file(file, bytes_max)?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

/// Opens a file and reads all of it.
///
/// # Errors
///
/// As `read_all`.
pub fn read_path(path: impl AsRef<Path>, bytes_max: u64) -> Result<Vec<u8>> {
    read_file(&File::open(path)?, bytes_max)
}

/// Opens a file and reads all of it as text.
///
/// # Errors
///
/// As `read_text`.
pub fn read_path_text(path: impl AsRef<Path>, bytes_max: u64) -> Result<String> {
    read_text(&File::open(path)?, bytes_max)
}

fn read_into(source: impl Read, mut bytes: Vec<u8>, bytes_max: u64) -> Result<Vec<u8>> {
    let mut source = source.take(bytes_max.saturating_add(1));
    // bound: `take`; the standard library reserves fallibly
    source.read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(too_large(bytes_max)),
        false => Ok(bytes),
    }
}

fn too_large(max: u64) -> Error {
    Error::new(ErrorKind::FileTooLarge, format!("larger than {max} bytes"))
}

/// A size that does not fit cannot be allocated either.
fn as_usize(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_at_below_and_past_the_bound() {
        for (len, fits) in [
            (0, true),
            (7, true),
            (8, true),
            (9, false),
            (u64::MAX, false),
        ] {
            assert_eq!(zeroed(len, 8).is_ok(), fits, "{len}");
            assert_eq!(room::<u32>(len, 8).is_ok(), fits, "{len}");
        }
        assert_eq!(zeroed(8, 8).unwrap(), [0; 8]);
        for len in 0..20_usize {
            let read = read_all(&vec![b'x'; len][..], 8);
            assert_eq!(read.ok().map(|read| read.len()), (len <= 8).then_some(len));
        }
    }

    /// A bound that is too generous for the machine is no reason to abort.
    #[test]
    fn what_no_memory_holds_is_an_error() {
        let kind = |result: Result<Vec<u64>>| result.unwrap_err().kind();
        assert_eq!(kind(room(u64::MAX, u64::MAX)), ErrorKind::OutOfMemory);
        assert_eq!(kind(room(1 << 60, u64::MAX)), ErrorKind::OutOfMemory);
    }

    #[test]
    fn an_endless_source_and_a_sparse_file_are_refused() {
        let endless = read_all(std::io::repeat(0), 100_000);
        assert_eq!(endless.unwrap_err().kind(), ErrorKind::FileTooLarge);
        // A device says that it has no bytes.
        let zeros = File::open("/dev/zero").unwrap();
        let read = read_file(&zeros, 100_000);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::FileTooLarge);
        let status = File::open("/proc/self/status").unwrap();
        assert!(read_text(&status, 64 * 1024).unwrap().starts_with("Name:"));
    }
}
