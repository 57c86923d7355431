//! The word a person may have meant: the nearest of those there are, if it is near enough.

/// Longer words are no slips of the hand, and comparing them costs their square.
const WORD_CHARS_MAX: usize = 64;

/// The nearest candidate. A tool's last segment may stand for all of it.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().count() > WORD_CHARS_MAX {
        return None;
    }
    let word = word.to_lowercase();
    let slips_max = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| {
            let whole = slips(&word, candidate);
            let last = candidate.rsplit('/').next().unwrap_or(candidate);
            (whole.min(slips(&word, last)), whole, candidate)
        })
        .filter(|(slips, ..)| *slips <= slips_max)
        // Of two that are as near, the one that need not stand for more.
        .min_by_key(|(slips, whole, _)| (*slips, *whole))
        .map(|(.., candidate)| candidate)
}

/// `; did you mean …?` to follow other words, or nothing.
pub fn question<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// The letters that must be inserted, removed, changed or swapped with the next. Case is ignored:
/// `word` is in lower case already.
fn slips(word: &str, candidate: &str) -> usize {
    if candidate.chars().count() > WORD_CHARS_MAX {
        return usize::MAX;
    }
    strsim::osa_distance(word, &candidate.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let tools = [
            "builtin/echo",
            "memory/append",
            "runs/get",
            "greet",
            "AID.DEMO.GREET.v1",
        ];
        for (word, wanted) in [
            ("grete", Some("greet")),
            ("gret", Some("greet")),
            ("Greet", Some("greet")),
            ("ehco", Some("builtin/echo")),
            ("echo", Some("builtin/echo")),
            ("memory/apend", Some("memory/append")),
            ("AID.DEMO.GRET.v1", Some("AID.DEMO.GREET.v1")),
            ("nothing", None),
            ("", None),
            ("xy", None),
        ] {
            assert_eq!(nearest(word, tools), wanted, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), tools), None);
        assert_eq!(question("teir", ["name", "tier"]), "; did you mean `tier`?");
        assert_eq!(question("teir", []), "");
    }
}
