//! Lines for a shell: `sh -c LINE`, `cmd /c …`, and commands that are a whole line in one word.

use super::ShellLine;

/// Characters by which a shell does more than split a line into words.
const ACTIVE: &[char] = &[
    '|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '?', '[', ']', '#', '~', '{', '}', '!', '\n',
    '\r', '\\',
];

/// A whole line in place of a program: a word with spaces that no path explains.
pub(super) fn whole_line(program: &str, rest: &[String]) -> Option<ShellLine> {
    let first = program.split_whitespace().next()?;
    let is_path = first.starts_with(['/', '.', '~']) || program.contains(":\\");
    let is_line = rest.is_empty() && program.trim().contains(char::is_whitespace) && !is_path;
    is_line.then(|| line_of(program.trim()))
}

/// The line that a shell is started with.
pub(super) fn parse(name: &str, rest: &[String]) -> Option<ShellLine> {
    match name {
        "sh" | "bash" | "dash" | "zsh" | "ash" | "ksh" | "fish" => {
            let at = rest.iter().position(|word| {
                word.starts_with('-') && !word.starts_with("--") && word.contains('c')
            })?;
            rest.get(at + 1).map(|line| line_of(line))
        }
        "cmd" => {
            let at = rest.iter().position(|word| {
                word.eq_ignore_ascii_case("/c") || word.eq_ignore_ascii_case("/k")
            })?;
            match &rest[at + 1..] {
                [line] => Some(line_of(line)),
                words => Some(ShellLine {
                    line: words.join(" "),
                    words: words
                        .iter()
                        .all(|word| !word.contains(['|', '&', '<', '>', '^', '%']))
                        .then(|| words.to_vec()),
                }),
            }
        }
        "powershell" | "pwsh" => {
            let at = rest.iter().position(|word| {
                word.eq_ignore_ascii_case("-c") || word.eq_ignore_ascii_case("-command")
            })?;
            Some(ShellLine {
                line: rest[at + 1..].join(" "),
                words: None,
            })
        }
        _ => None,
    }
}

fn line_of(line: &str) -> ShellLine {
    ShellLine {
        line: line.to_owned(),
        words: split(line),
    }
}

/// The words of a line in which quotes are all that a shell acts on.
fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            // Variables and escapes count inside double quotes.
            Some('"') if ['$', '`', '\\'].contains(&c) => return None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() && c != '\n' && c != '\r' => words.extend(word.take()),
            None if ACTIVE.contains(&c) => return None,
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let first: &String = words.first()?;
    // An assignment before a command is the shell's, and so are its built-in commands.
    let is_assignment = first.contains('=');
    let is_built_in = ["cd", "exec", "source", ".", "export", "set", "eval"]
        .iter()
        .any(|name| first == name);
    (quote.is_none() && !is_assignment && !is_built_in).then_some(words)
}
