//! As much Markdown as the checks need: lines outside code fences, table
//! cells, list items and links.

/// The lines outside fenced code, numbered from 1.
pub fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(opening)) => fence = Some(opening),
            (Some(opening), Some(closing)) if opening == closing => fence = None,
            (None, None) => lines.push((index + 1, line)),
            (Some(_), _) => {}
        }
    }
    lines
}

/// The cells of a table row; `None` for other lines and for the rule below a
/// table's head. A `|` in code or after a backslash does not part cells.
pub fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let mut cells = vec![String::new()];
    let mut in_code = false;
    let mut escaped = false;
    for c in inner.chars() {
        if c == '|' && !in_code && !escaped {
            cells.push(String::new());
            continue;
        }
        if c == '`' && !escaped {
            in_code = !in_code;
        }
        escaped = c == '\\' && !escaped;
        if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
    }
    let cells: Vec<String> = cells.iter().map(|cell| cell.trim().to_owned()).collect();
    let rule = cells
        .iter()
        .all(|cell| !cell.is_empty() && cell.chars().all(|c| "-:".contains(c)));
    (!rule).then_some(cells)
}

/// A word of a cell without emphasis and code marks.
pub fn bare(cell: &str) -> &str {
    cell.trim_matches(|c| matches!(c, '*' | '`' | '_' | ' '))
}

/// The targets of inline links and images on a line, code excepted.
pub fn link_targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let mut targets = Vec::new();
    let mut rest = line.as_str();
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        let Some(end) = closing_bracket(rest) else {
            break;
        };
        // A title may follow the target: [text](target "title").
        if let Some(target) = rest[..end].split_whitespace().next() {
            targets.push(target.trim_matches(['<', '>']).to_owned());
        }
        rest = &rest[end..];
    }
    if let Some(target) = reference_definition(&line) {
        targets.push(target.to_owned());
    }
    targets
}

fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// `[name]: target`
fn reference_definition(line: &str) -> Option<&str> {
    let (name, target) = line.trim_start().strip_prefix('[')?.split_once("]: ")?;
    let is_footnote = name.starts_with('^');
    if is_footnote {
        None
    } else {
        target.split_whitespace().next()
    }
}

fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    // An odd mark at the end opens nothing: its text counts.
    let closed = parts.len() - (parts.len() + 1) % 2;
    parts
        .iter()
        .enumerate()
        .filter(|(index, _)| index % 2 == 0 || *index >= closed)
        .map(|(_, part)| *part)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_lines_are_left_out() {
        let text = "a\n```md\n- **TH-1** no\n~~~\n```\nb\n";
        assert_eq!(prose(text), [(1, "a"), (6, "b")]);
    }

    #[test]
    fn rows_are_cut_at_bars_outside_code() {
        let row = cells(r"| T-5 | `a|b` and c\|d |  |").expect("a row");
        assert_eq!(row, ["T-5", "`a|b` and c\\|d", ""]);
        assert_eq!(cells("|---|:-:|"), None);
        assert_eq!(cells("text | with a bar"), None);
        assert_eq!(cells("| open end | x").expect("a row"), ["open end", "x"]);
    }

    #[test]
    fn links_are_found_outside_code() {
        let line = r#"see [a](docs/a.md "title"), ![i](i.png), `[no](no.md)` and [b](<b.md#x>)"#;
        assert_eq!(link_targets(line), ["docs/a.md", "i.png", "b.md#x"]);
        assert_eq!(link_targets("[ref]: docs/ref.md"), ["docs/ref.md"]);
        assert_eq!(link_targets("[w](wiki_(x).md)"), ["wiki_(x).md"]);
        assert_eq!(link_targets("a ` b [c](d.md)"), ["d.md"]);
    }
}
