//! The parts of a word that may be paths: the word, what is attached to an option or stands after
//! `=`, and the words of a text. Which program reads them is not asked: whatever of these the
//! workspace has is code, and the rest is nothing.

/// Longest word whose parts are looked at one by one.
const ATTACHED_MAX: usize = 128;

/// Characters that end a word in the text of a shell or of a similar language.
const SIGNS: &str = "\"'`;|&()<>{}[]!,\\";

/// Characters after which a shell decides about the rest of a path.
const OPEN_SIGNS: [char; 6] = ['*', '?', '[', '{', '$', '\\'];

/// Part of a word that may be a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    pub path: String,
    /// Stands by itself in the command, or after `=`, as names of data do too.
    pub is_plain: bool,
    /// Counts also while nothing has the name.
    pub is_name: bool,
}

/// Splits a text at blanks and shell signs.
pub fn tokens_of(text: &str) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || SIGNS.contains(c) || c == '$';
    let tokens = text.split(ends).filter(|token| !token.is_empty());
    tokens.map(str::to_owned).collect()
}

/// The parts of a word that may be paths, each once.
pub fn guesses_in(word: &str) -> Vec<Guess> {
    let mut guesses = Vec::new();
    let is_text = word.contains(|c: char| c.is_whitespace() || SIGNS.contains(c));
    let mut push = |path: &str, is_plain: bool, is_name: bool| {
        let path = path.trim_start_matches(['@', '+']);
        let is_known = guesses.iter().any(|known: &Guess| known.path == path);
        if !path.is_empty() && !is_known {
            guesses.push(Guess {
                path: path.to_owned(),
                is_plain,
                is_name,
            });
        }
    };
    push(word, true, true);
    // `-ftools/p`, `-wIlib`
    if word.starts_with('-') && !word.starts_with("--") && word.len() <= ATTACHED_MAX {
        for (at, _) in word.char_indices().skip(1) {
            push(&word[at..], false, at == 2);
        }
    }
    for value in word.split(['=', ':', ',']).skip(1) {
        push(value, !is_text, true);
    }
    for part in word.split(|c: char| c.is_whitespace() || "\"'`;|&()<>,=:".contains(c)) {
        // The folder of `lib/*.sh` and of `tools/$x`.
        let known = part.find(OPEN_SIGNS).and_then(|at| part[..at].rfind('/'));
        if let Some(at) = known {
            push(&part[..at], !is_text, false);
        }
    }
    if !is_text && !word.contains(['$', '~']) {
        return guesses;
    }
    for token in tokens_of(word) {
        for part in token.split(['=', ':']) {
            push(part, false, part.contains('/'));
            // `~/w/tools/run`, `$PWD/tools/run`
            if word.contains(['$', '~']) {
                for (at, _) in part.match_indices('/') {
                    push(&part[at + 1..], false, false);
                }
            }
        }
    }
    guesses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_that_may_be_paths() {
        for (word, path) in [
            ("tools/run", "tools/run"),
            ("-ftools/p", "tools/p"),
            ("-wIlib", "lib"),
            ("--init=lib/a", "lib/a"),
            ("PERLLIB=lib:b", "b"),
            ("@tools/args", "tools/args"),
            (". tools/common && go", "tools/common"),
            ("x='tools/a b'", "tools/a"),
            ("sh<tools/a", "tools/a"),
            ("for f in tools/*; do . $f; done", "tools"),
            (". tools/${x}", "tools"),
            ("~/w/tools/run", "tools/run"),
            ("$PWD/tools/run", "tools/run"),
            ("${PWD}/tools/run", "tools/run"),
        ] {
            let guesses = guesses_in(word);
            assert!(
                guesses.iter().any(|guess| guess.path == path),
                "{word}: {guesses:?}"
            );
        }
        assert!(!guesses_in(". lib/a").iter().any(|guess| guess.path == "a"));
    }
}
