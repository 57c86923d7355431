//! The lines of one file that fit a pattern.

use std::fs::File;
use std::io;
use std::path::Path;

use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use serde_json::{Value, json};

use crate::files::place::shown;

/// What is shown of a line, from its beginning or from where it fits.
const SHOWN_BYTES_MAX: usize = 1000;

/// The longest line that is searched: a file with a longer one is passed over like one that can
/// not be read. Without it a file without line ends would be in memory as a whole.
const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A line that fits.
pub struct Line {
    pub number: u64,
    column: usize,
    text: String,
}

impl Line {
    /// As answers have it.
    pub fn told(self, path: &Path) -> Value {
        json!({
            "path": shown(path),
            "line": self.number,
            "column": self.column,
            "text": self.text,
        })
    }
}

/// Who finds them. One for many files: it has a buffer that is not made for each.
pub fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .build()
}

/// Collects them.
pub struct Lines<'a> {
    pattern: &'a RegexMatcher,
    /// Lines up to this one were told.
    after: u64,
    room: usize,
    found: Vec<Line>,
}

impl<'a> Lines<'a> {
    pub fn new(pattern: &'a RegexMatcher, after: u64, room: usize) -> Self {
        Self {
            pattern,
            after,
            room,
            found: Vec::new(),
        }
    }

    /// Those of a file; none of one that is not text, or that can not be read.
    pub fn of(mut self, file: &File, searcher: &mut Searcher) -> Vec<Line> {
        let pattern = self.pattern;
        let _ = searcher.search_file(pattern, file, &mut self);
        self.found
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let number = line.line_number().unwrap_or(0);
        if number > self.after {
            let bytes = line.bytes().trim_ascii_end();
            self.found.push(shown_line(self.pattern, number, bytes));
        }
        Ok(self.found.len() < self.room)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.found.clear();
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        if end.binary_byte_offset().is_some() {
            self.found.clear();
        }
        Ok(())
    }
}

fn shown_line(pattern: &RegexMatcher, number: u64, bytes: &[u8]) -> Line {
    use grep_matcher::Matcher as _;
    let at = pattern
        .find(bytes)
        .ok()
        .flatten()
        .map_or(0, |found| found.start());
    let from = if at < SHOWN_BYTES_MAX { 0 } else { at };
    let to = bytes.len().min(from + SHOWN_BYTES_MAX);
    Line {
        number,
        column: at + 1,
        text: String::from_utf8_lossy(&bytes[from..to]).into_owned(),
    }
}
