//! How many events of each type there are. A script may make up as many types as it likes, so
//! only so many have a count of their own.

use std::collections::{BTreeMap, HashMap};

/// Types that are counted by name; the rest together.
const KINDS_MAX: usize = 256;
const KIND_BYTES_MAX: usize = 128;
/// The name of the rest.
const REST: &str = "(other)";

#[derive(Default)]
pub(super) struct Rows {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    written: Vec<u64>,
    waiting: Vec<u64>,
    /// Events come in runs of one type.
    last: usize,
}

impl Rows {
    /// The number of a type.
    pub(super) fn kind(&mut self, name: &str) -> usize {
        if self.names.get(self.last).is_some_and(|last| last == name) {
            return self.last;
        }
        let is_known = self.numbers.contains_key(name);
        let has_room = self.names.len() < KINDS_MAX && name.len() <= KIND_BYTES_MAX;
        let name = if is_known || has_room { name } else { REST };
        let next = self.names.len();
        let number = *self.numbers.entry(name.to_owned()).or_insert(next);
        if number == next {
            self.names.push(name.to_owned());
            self.written.push(0);
            self.waiting.push(0);
        }
        self.last = number;
        number
    }

    /// One more waits to be written.
    pub(super) fn wait(&mut self, kind: usize) {
        self.waiting[kind] += 1;
    }

    /// All that waited are written.
    pub(super) fn settle(&mut self) {
        for (written, waiting) in self.written.iter_mut().zip(&mut self.waiting) {
            *written += std::mem::take(waiting);
        }
    }

    pub(super) fn name(&self, kind: usize) -> &str {
        &self.names[kind]
    }

    /// Written events, by type.
    pub(super) fn by_name(&self) -> BTreeMap<&str, u64> {
        let names = self.names.iter().map(String::as_str);
        let counted = names.zip(self.written.iter().copied());
        counted.filter(|(_, count)| *count > 0).collect()
    }
}
