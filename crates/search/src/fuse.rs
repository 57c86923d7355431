//! Two rankings made one: by place, not by score, since the scores mean different things. How
//! much words weigh against meaning depends on the query.

use std::collections::HashMap;

/// How much more the first places count than the later ones.
const FLATNESS: f32 = 20.0;
/// What the vector ranking weighs against words for a sentence: best on the half of the queries
/// that `bench/search_quality.py` tunes on.
const MEANING_SENTENCE: f32 = 0.8;
/// And for a name, where every weight that moves anything made it worse on that half: words
/// decide, and what vectors alone found comes behind.
const MEANING_NAME: f32 = 0.01;
/// So few words are a name, if not with underscores.
const NAME_WORDS_MAX: usize = 3;

/// What the vector ranking weighs against 1 for words.
#[must_use]
pub fn weight(query: &str) -> f32 {
    let few = query.split_whitespace().count() <= NAME_WORDS_MAX;
    match few || query.split_whitespace().any(is_identifier) {
        true => MEANING_NAME,
        false => MEANING_SENTENCE,
    }
}

/// `read_config`, `ReadConfig`, `a::b`, `a.b()`: nobody writes that and means something like it.
fn is_identifier(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let mut chars = word.chars();
    let first = chars.next().is_some_and(char::is_alphabetic);
    let humps = chars.clone().any(char::is_uppercase) && chars.clone().any(char::is_lowercase);
    let joined = word.contains(['_', '.', '(']) || word.contains("::");
    (first || word.starts_with('_')) && (humps || joined)
}

/// The pieces of both rankings by what their places come to, the best first.
#[must_use]
pub fn fused(lexical: &[(u32, f32)], meaning: &[(u32, f32)], weight: f32) -> Vec<(u32, f32)> {
    let mut sums: HashMap<u32, f32> = HashMap::new();
    for (ranked, weight) in [(lexical, 1.0), (meaning, weight)] {
        for (place, (slot, _)) in ranked.iter().enumerate() {
            *sums.entry(*slot).or_insert(0.0) += weight / (FLATNESS + place as f32);
        }
    }
    let mut all: Vec<(u32, f32)> = sums.into_iter().collect();
    all.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lean_on_words() {
        for query in [
            "read_config",
            "read config",
            "tell me what ReadConfig does",
            "who calls a::b of it",
            "how to call gate.open() twice",
            "where is `_x` made",
        ] {
            assert!(weight(query) < weight("how are files read"), "{query}");
        }
        for query in ["How are files read.", "API of the gate", "the end of it..."] {
            assert_eq!(
                weight(query),
                weight("a sentence in plain words"),
                "{query}"
            );
        }
    }

    #[test]
    fn both_is_better_than_one() {
        let found = fused(&[(1, 9.0), (2, 8.0)], &[(3, 0.9), (2, 0.8)], 1.0);
        assert_eq!(found[0].0, 2);
        assert_eq!(found.len(), 3);
    }
}
