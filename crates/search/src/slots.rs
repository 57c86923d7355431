//! What is known of each piece for filters, and which of them pass one.

use std::collections::HashMap;

/// A set of pieces, as bits.
#[derive(Clone, Debug, Default)]
pub struct Mask(Vec<u64>);

impl Mask {
    /// None of `count`.
    #[must_use]
    pub fn none(count: usize) -> Self {
        // bound: the pieces in memory
        Self(vec![0; count.div_ceil(64)])
    }

    /// All of `count`.
    pub fn all(count: usize) -> Self {
        let word = |from: usize| u64::MAX >> (64 - (count - from).min(64));
        Self((0..count).step_by(64).map(word).collect())
    }

    /// Those that pass.
    fn of<T>(all: &[T], passes: impl Fn(&T) -> bool) -> Self {
        let bit = |(at, one): (usize, &T)| u64::from(passes(one)) << at;
        let word = |some: &[T]| some.iter().enumerate().map(bit).fold(0, |a, b| a | b);
        Self(all.chunks(64).map(word).collect())
    }

    /// Adds one.
    #[cfg(test)]
    pub fn set(&mut self, slot: usize) {
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    /// True if it is in the set.
    #[must_use]
    pub fn has(&self, slot: usize) -> bool {
        self.0
            .get(slot / 64)
            .is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// How many are in the set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Calls `each` with those in the set, in order.
    pub fn each(&self, mut each: impl FnMut(usize)) {
        for (at, word) in self.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                each(at * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }

    /// Those in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(at * 64 + bit)
            })
        })
    }
}

/// Texts that occur often, by number.
#[derive(Default)]
pub struct Names {
    all: Vec<String>,
    known: HashMap<String, u32>,
}

impl Names {
    /// The number of a text.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }

    /// The number of a text that is known.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.known.get(text).copied()
    }

    /// The text of a number.
    pub fn text(&self, number: u32) -> &str {
        self.all.get(number as usize).map_or("", String::as_str)
    }

    /// For each text, whether it passes.
    fn passing(&self, passes: impl Fn(&str) -> bool) -> Vec<bool> {
        self.all.iter().map(|text| passes(text)).collect()
    }
}

/// One piece.
pub struct Slot {
    /// Its number in the store.
    pub id: i64,
    pub hash: [u8; 16],
}

/// What filters look at, for each piece: small, since every query reads all of it.
pub struct Marks {
    /// `NOWHERE` for a piece that is no more.
    pub namespace: u32,
    pub path: u32,
    /// All its tags, as one text.
    pub tags: u32,
}

/// The namespace of what is no more.
const NOWHERE: u32 = u32::MAX;

/// All pieces, in the order in which they were put.
#[derive(Default)]
pub struct Slots {
    pub all: Vec<Slot>,
    pub marks: Vec<Marks>,
    /// Those of their vectors, in the space of their namespace.
    pub rows: Vec<u32>,
    pub by_id: HashMap<i64, u32>,
    pub by_hash: HashMap<[u8; 16], Vec<u32>>,
    pub paths: Names,
    pub namespaces: Names,
    pub tags: Names,
    /// Those that are no more.
    pub dead: usize,
}

/// What a piece must be.
pub struct Wanted<'a> {
    pub namespace: &'a str,
    pub path_prefix: &'a str,
    /// One of them is enough; none asks for nothing.
    pub tags: &'a [String],
}

impl Slots {
    /// A piece that is no more.
    pub fn bury(&mut self, id: i64) {
        if let Some(slot) = self.by_id.remove(&id) {
            self.marks[slot as usize].namespace = NOWHERE;
            self.dead += 1;
        }
    }

    /// True if something is in a namespace.
    pub fn is_used(&self, namespace: &str) -> bool {
        let number = self.namespaces.find(namespace);
        number.is_some_and(|number| self.marks.iter().any(|marks| marks.namespace == number))
    }

    /// The pieces that pass.
    pub fn mask(&self, wanted: &Wanted<'_>) -> Mask {
        let Some(namespace) = self.namespaces.find(wanted.namespace) else {
            return Mask::none(self.all.len());
        };
        let (prefix, asked) = (wanted.path_prefix, wanted.tags);
        if prefix.is_empty() && asked.is_empty() {
            return Mask::of(&self.marks, |marks| marks.namespace == namespace);
        }
        let paths = self.paths.passing(|path| path.starts_with(prefix));
        let tags = self.tags.passing(|tags| {
            asked.is_empty() || tags.lines().any(|tag| asked.iter().any(|one| one == tag))
        });
        Mask::of(&self.marks, |marks| {
            marks.namespace == namespace && paths[marks.path as usize] && tags[marks.tags as usize]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_set() {
        let mut mask = Mask::none(200);
        let some = [0, 1, 63, 64, 65, 127, 128, 199];
        some.iter().for_each(|slot| mask.set(*slot));
        assert_eq!(mask.iter().collect::<Vec<_>>(), some);
        for count in [0, 1, 63, 64, 65, 200] {
            assert_eq!(Mask::all(count).iter().count(), count);
            assert_eq!(Mask::all(count).count(), count);
        }
        assert!(mask.has(63) && !mask.has(62) && !mask.has(1000));
    }
}
