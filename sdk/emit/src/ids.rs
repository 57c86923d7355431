//! Names and times of events.

use std::time::SystemTime;

use callgate_wires::stream::time_text;

const ID_BYTES: usize = 16;
/// Random bytes are fetched for as many ids at once.
const IDS: usize = 64;

/// Makes UUIDs of version 4.
pub struct Ids {
    pool: [u8; ID_BYTES * IDS],
    used: usize,
}

impl Ids {
    pub fn new() -> Self {
        Self {
            pool: [0; ID_BYTES * IDS],
            used: IDS,
        }
    }

    pub fn next(&mut self) -> String {
        if self.used == IDS {
            getrandom::fill(&mut self.pool).expect("every kernel we run on has random bytes");
            self.used = 0;
        }
        let from = self.used * ID_BYTES;
        self.used += 1;
        let mut bytes: [u8; ID_BYTES] = std::array::from_fn(|at| self.pool[from + at]);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let mut text = String::with_capacity(36);
        for (at, byte) in bytes.into_iter().enumerate() {
            if let 4 | 6 | 8 | 10 = at {
                text.push('-');
            }
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
        }
        text
    }
}

/// Now, as events say it.
pub fn now() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "an executor is a program of its own: its clock is the system's"
    )]
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unix_ms = since.unwrap_or_default().as_millis();
    time_text(u64::try_from(unix_ms).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_and_never_the_same() {
        let mut ids = Ids::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 * IDS {
            let id = ids.next();
            assert_eq!(id.len(), 36);
            let parts: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12]);
            assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]));
            assert!(seen.insert(id));
        }
    }
}
