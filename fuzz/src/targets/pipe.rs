//! Lines of pipes. T-8, TH-34, TH-42.

use callgate_wires::line::{Line, LineSplitter};

use crate::cuts::cut;

/// Bytes of a line here: small, so that inputs reach the bound.
const LINE_BYTES_MAX: usize = 12;

/// Lines of bytes in any pieces are those of their definition; one over the bound is reported
/// once, in its place.
pub fn lines(input: &[u8]) {
    let Some((whole, parts)) = cut::<4>(input) else {
        return;
    };
    assert_eq!(split(&parts), by_definition(whole));
}

fn split(parts: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut lines = Vec::new();
    for part in parts {
        splitter.feed(part);
        while let Some(line) = splitter.next_line() {
            lines.push(match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            });
        }
    }
    lines.extend(splitter.finish().map(|rest| Some(rest.to_vec())));
    lines
}

fn by_definition(whole: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut lines: Vec<&[u8]> = whole.split(|&byte| byte == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    let kept = |line: &&[u8]| (line.len() <= LINE_BYTES_MAX).then(|| line.to_vec());
    lines.iter().map(kept).collect()
}
