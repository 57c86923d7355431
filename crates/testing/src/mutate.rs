//! Changes bytes the way hostile or broken peers do: flips, cuts, repeats, and pieces of the
//! language put where they do not belong.

use crate::random::Random;

/// One to four changes to one of `seeds`.
pub fn mutant(random: &mut Random, seeds: &[&[u8]], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = random.pick(seeds).to_vec();
    for _ in 0..=random.below(4) {
        change(random, &mut bytes, seeds, words);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[&[u8]], words: &[&[u8]]) {
    let at = random.below(bytes.len() + 1);
    let to = (at + 1 + random.below(16)).min(bytes.len());
    match random.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).expect("below 256"),
        2 => drop(bytes.drain(at.min(to)..to)),
        3 => {
            let again = bytes[at.min(to)..to].to_vec();
            bytes.splice(at..at, again);
        }
        4 => bytes.truncate(at),
        5 => {
            let other = random.pick(seeds);
            let (from, till) = (random.below(other.len()), random.below(other.len()));
            let piece = other[from.min(till)..from.max(till)].to_vec();
            bytes.splice(at..to.max(at), piece);
        }
        6 => {
            let word = *random.pick(words);
            bytes.splice(at..to.max(at), word.iter().copied());
        }
        _ => {
            let word = *random.pick(words);
            bytes.splice(at..at, word.iter().copied());
        }
    }
}
