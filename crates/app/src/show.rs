//! How things look at a terminal: data to stdout, words to stderr, colours only where a
//! person is looking.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callgate_adoption::ShowProgress;
use callgate_call::{Timestamp, visible_lines};
use serde_json::Value;

/// Set once data could not be written.
static UNTOLD: AtomicBool = AtomicBool::new(false);

/// True if all data was written, or its reader went away, which is no error of ours.
pub fn all_told() -> bool {
    !UNTOLD.load(Ordering::Relaxed)
}

/// Writes data; to a terminal without what that would act on.
pub fn data(text: &str) {
    match std::io::stdout().is_terminal() {
        true => put(&plain(text)),
        false => put(text),
    }
}

fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        complain(&format!("write to standard output: {error}"));
        UNTOLD.store(true, Ordering::Relaxed);
    }
}

/// Writes one JSON value and a newline.
pub fn json(value: &Value) {
    let text = if std::io::stdout().is_terminal() {
        format!("{value:#}\n")
    } else {
        format!("{value}\n")
    };
    data(&text);
}

/// Without what a terminal would act on: files and tools say what they like.
pub fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\t' => c,
        // Nor what would show it in another order than it has.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            char::REPLACEMENT_CHARACTER
        }
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(plain).collect()
}

/// Says something to the person.
pub fn say(words: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", visible_lines(words));
}

/// Says how far slow steps of servers are.
pub fn progress() -> ShowProgress {
    Arc::new(|server, words| say(&format!("{server}: {words}")))
}

/// Asks the person something, whose answer stands on the same line.
pub fn prompt(words: &str) {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "{}", visible_lines(words)).and_then(|()| err.flush());
}

/// Says what went wrong.
pub fn complain(words: &str) {
    marked("error:", "31", words);
}

/// Says what is allowed and can hardly be meant.
pub fn warn(words: &str) {
    marked("warning:", "33", words);
}

fn marked(mark: &str, colour: &str, words: &str) {
    let words = visible_lines(words);
    let mut err = std::io::stderr().lock();
    let _ = match std::io::stderr().is_terminal() {
        true => writeln!(err, "\x1b[{colour}m{mark}\x1b[0m {words}"),
        false => writeln!(err, "{mark} {words}"),
    };
}

/// A table, or the words for one without rows.
pub fn table_or(head: &[&str], rows: &[Vec<String>], empty: &str) {
    if rows.is_empty() {
        say(empty);
    } else {
        table(head, rows);
    }
}

/// A table with aligned columns; the last one is not padded.
pub fn table(head: &[&str], rows: &[Vec<String>]) {
    // A cell is one line, whatever is in it. People decide by tables, so nothing in one is hidden.
    let cell = |cell: &String| visible_lines(cell).replace(['\n', '\t'], " ");
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(cell).collect())
        .collect();
    let mut widths: Vec<usize> = head.iter().map(|word| word.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let last = cells.len().saturating_sub(1);
        let mut text = String::new();
        for (index, cell) in cells.iter().enumerate() {
            text.push_str(cell);
            if index < last {
                let gap = widths[index].saturating_sub(cell.chars().count()) + 2;
                text.extend(std::iter::repeat_n(' ', gap));
            }
        }
        text
    };
    let heading = line(head.to_vec());
    let mut text = if std::io::stdout().is_terminal() {
        format!("\x1b[1m{heading}\x1b[0m\n")
    } else {
        format!("{heading}\n")
    };
    for row in &rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
        text.push('\n');
    }
    put(&text);
}

/// Milliseconds since the epoch as `2026-11-15T22:28:27Z`.
pub fn time(ms: u64) -> String {
    let mut text = Timestamp(ms).rfc3339();
    text.replace_range(19..23, "");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_told_nothing_to_act_on() {
        let text = "a\x1b[2K\u{9b}2J\u{202e}b\tc\n";
        assert_eq!(plain(text), "a\u{fffd}[2K\u{fffd}2J\u{fffd}b\tc\n");
    }

    #[test]
    fn times() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_794_781_707_999), "2026-11-15T22:28:27Z");
    }
}
