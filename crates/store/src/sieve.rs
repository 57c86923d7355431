//! A sieve over the runs of finished keys: which of them may hold a key. Each run has a Bloom
//! filter in blocks of 512 bits; in memory the filters lie crosswise, a word for each bit with
//! one run's answer in each of its bits. A look is eight words of one block, however many runs
//! there are, and tells a key that is in none of them.

use crate::KeyId;

/// Blocks of a filter: 16 bits a key for a run of 65,536.
const BLOCKS: usize = 2048;
/// Bits of a block.
const BLOCK_BITS: usize = 512;
/// Bits looked at for a key.
const PROBES: usize = 8;
/// Runs a sieve can tell apart; further ones always may hold the key.
const SLOTS: usize = 32;
/// Bytes of one run's filter.
pub(crate) const FILTER_BYTES: usize = BLOCKS * BLOCK_BITS / 8;

/// The filters of many runs.
pub(crate) struct Sieve {
    /// For each bit of a filter, the runs that have it.
    bits: Vec<u32>,
    /// The run of each slot.
    runs: [Option<i64>; SLOTS],
}

impl Sieve {
    pub(crate) fn new() -> Self {
        Self {
            bits: vec![0; BLOCKS * BLOCK_BITS],
            runs: [None; SLOTS],
        }
    }

    pub(crate) fn has(&self, run: i64) -> bool {
        self.runs.contains(&Some(run))
    }

    /// Adds a run, if there is room.
    pub(crate) fn add(&mut self, run: i64, filter: &[u8]) {
        let free = self.runs.iter().position(Option::is_none);
        let Some(slot) = free.filter(|_| filter.len() == FILTER_BYTES) else {
            return;
        };
        self.runs[slot] = Some(run);
        let (words, _) = filter.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            let mut word = u64::from_le_bytes(*word);
            while word != 0 {
                self.bits[index * 64 + word.trailing_zeros() as usize] |= 1 << slot;
                word &= word - 1;
            }
        }
    }

    /// Forgets the runs that are not among `runs`.
    pub(crate) fn retain(&mut self, runs: &[i64]) {
        let mut gone = 0_u32;
        for (slot, run) in self.runs.iter_mut().enumerate() {
            if run.is_some_and(|run| !runs.contains(&run)) {
                *run = None;
                gone |= 1 << slot;
            }
        }
        if gone != 0 {
            self.bits.iter_mut().for_each(|bit| *bit &= !gone);
        }
    }

    /// The runs that may hold the key.
    pub(crate) fn look(&self, key: &KeyId) -> Candidates<'_> {
        let slots = probes(key)
            .into_iter()
            .fold(u32::MAX, |all, bit| all & self.bits[bit]);
        Candidates { sieve: self, slots }
    }
}

/// The runs that may hold a key.
pub(crate) struct Candidates<'a> {
    sieve: &'a Sieve,
    slots: u32,
}

impl Candidates<'_> {
    /// True if none of the runs in the sieve holds the key.
    pub(crate) fn is_none(&self) -> bool {
        self.slots == 0
    }

    pub(crate) fn may_hold(&self, run: i64) -> bool {
        match self.sieve.runs.iter().position(|slot| *slot == Some(run)) {
            Some(slot) => self.slots & (1 << slot) != 0,
            None => true,
        }
    }
}

/// The filter of a run.
pub(crate) fn filter_of<'a>(keys: impl Iterator<Item = &'a KeyId>) -> Vec<u8> {
    let mut filter = vec![0; FILTER_BYTES];
    for bit in keys.flat_map(probes) {
        filter[bit / 8] |= 1 << (bit % 8);
    }
    filter
}

/// The bits of a key: it is a hash, so its own bits serve.
fn probes(key: &KeyId) -> [usize; PROBES] {
    let first = u32::from_be_bytes(key.0[..4].try_into().expect("4 bytes"));
    let block = first as usize % BLOCKS;
    let mut rest = u128::from_be_bytes(key.0);
    std::array::from_fn(|_| {
        let bit = rest as usize % BLOCK_BITS;
        rest >>= 9;
        block * BLOCK_BITS + bit
    })
}

const _: () = assert!(BLOCKS.is_power_of_two() && BLOCK_BITS == 1 << 9);
// The probes take the last 72 bits of a key and the block the first 32.
const _: () = assert!(PROBES * 9 + 32 <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> KeyId {
        KeyId(
            blake3::hash(&n.to_le_bytes()).as_bytes()[..16]
                .try_into()
                .unwrap(),
        )
    }

    #[test]
    fn a_sieve_holds_what_it_was_given() {
        let mut sieve = Sieve::new();
        for run in 0..20_u32 {
            let keys: Vec<KeyId> = (run * 1000..run * 1000 + 1000).map(key).collect();
            sieve.add(i64::from(run), &filter_of(keys.iter()));
        }
        for n in 0..20_000 {
            assert!(sieve.look(&key(n)).may_hold(i64::from(n / 1000)));
        }
        let none = (20_000..30_000)
            .filter(|&n| sieve.look(&key(n)).is_none())
            .count();
        assert!(none > 9990, "{none}");
        sieve.retain(&(1..20).collect::<Vec<i64>>());
        assert!(!sieve.has(0) && sieve.has(1));
        assert!(
            sieve.look(&key(5)).is_none() && sieve.look(&key(5)).may_hold(0),
            "unknown to it"
        );
        let full: Vec<KeyId> = (0..65_536).map(|n| key(1_000_000 + n)).collect();
        sieve.add(99, &filter_of(full.iter()));
        let wrong = (20_000..30_000)
            .filter(|&n| !sieve.look(&key(n)).is_none())
            .count();
        assert!(wrong < 60, "{wrong} of 10,000");
    }
}
