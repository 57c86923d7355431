//! A file of a package as it is published: a ZIP archive. Only what is asked for is unpacked,
//! and nothing that is longer than it may be.

use miniz_oxide::inflate::decompress_to_vec_with_limit;

const END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
/// The end has its signature, 18 bytes and a comment.
const END_BYTES: usize = 22;
const COMMENT_BYTES_MAX: usize = 65_535;

/// The first file whose path ends so; `None` if there is none, it is longer than `bytes_max`, or
/// this is no archive.
#[must_use]
pub fn file(archive: &[u8], path_end: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let tail = archive.len().saturating_sub(END_BYTES + COMMENT_BYTES_MAX);
    let end = archive[tail..].windows(4).rposition(|four| four == END)? + tail;
    let count = short(archive, end + 10)?;
    let mut at = long(archive, end + 16)?;
    for _ in 0..count {
        if archive.get(at..at + 4)? != ENTRY {
            return None;
        }
        let names = [28, 30, 32].map(|place| short(archive, at + place));
        let [Some(name), Some(extra), Some(comment)] = names else {
            return None;
        };
        let path = archive.get(at + 46..at + 46 + name)?;
        if path.ends_with(path_end.as_bytes()) {
            return unpacked(archive, at, bytes_max);
        }
        at += 46 + name + extra + comment;
    }
    None
}

fn unpacked(archive: &[u8], entry: usize, bytes_max: usize) -> Option<Vec<u8>> {
    let (packed, from) = (long(archive, entry + 20)?, long(archive, entry + 42)?);
    let start = from + 30 + short(archive, from + 26)? + short(archive, from + 28)?;
    let bytes = archive.get(start..start.checked_add(packed)?)?;
    match short(archive, entry + 10)? {
        0 => (bytes.len() <= bytes_max).then(|| bytes.to_vec()),
        8 => decompress_to_vec_with_limit(bytes, bytes_max).ok(),
        _ => None,
    }
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_le_bytes(*two)))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(u32::from_le_bytes(*four)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a/b.txt` with "hello", stored.
    fn archive() -> Vec<u8> {
        let mut bytes = b"PK\x03\x04".to_vec();
        bytes.extend([0; 22]);
        bytes.extend([7, 0, 0, 0]);
        bytes.extend(b"a/b.txthello");
        let entry = bytes.len() as u32;
        bytes.extend(ENTRY);
        bytes.extend([0; 16]);
        bytes.extend([5, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0, 0]);
        bytes.extend([0; 12]);
        bytes.extend(b"a/b.txt");
        bytes.extend(END);
        bytes.extend([0; 6]);
        bytes.extend([1, 0]);
        bytes.extend([0; 4]);
        bytes.extend(entry.to_le_bytes());
        bytes.extend([0, 0]);
        bytes
    }

    #[test]
    fn what_is_asked_for_is_unpacked() {
        let archive = archive();
        assert_eq!(file(&archive, "/b.txt", 5).as_deref(), Some(&b"hello"[..]));
        assert_eq!(file(&archive, "/b.txt", 4), None);
        assert_eq!(file(&archive, "/c.txt", 5), None);
        for cut in 0..archive.len() {
            let _ = file(&archive[..cut], "/b.txt", 5);
        }
        for at in 0..archive.len() {
            let mut changed = archive.clone();
            changed[at] ^= 0xff;
            let _ = file(&changed, "/b.txt", 5);
        }
    }
}
