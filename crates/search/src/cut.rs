//! Files cut into pieces of at most 60 lines: a piece is a function with what is said above it,
//! or what stands between functions. What is longer is cut between the things in it, its
//! signature with the first of them. Where no grammar is known, or one does not get through the
//! text, pieces end at blank lines.

use std::ops::Range;

use crate::language;
use crate::syntax::{self, Unit};

/// Lines of a piece.
pub const LINES_MAX: usize = 60;
/// Bytes of a piece. Of a longer line only its beginning counts: it is data.
pub const BYTES_MAX: usize = 16 * 1024;
/// Functions that have fewer go with what is around them. What only closes brackets is none.
const ALONE_LINES_MIN: usize = 3;

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// First line, from 1.
    pub start: u32,
    /// Last line.
    pub end: u32,
    /// The lines.
    pub text: &'a str,
}

/// The pieces of a file, in order. Lines with nothing on them between pieces are left out.
#[must_use]
pub fn pieces<'a>(path: &str, text: &'a str) -> Vec<Piece<'a>> {
    let (_, grammar) = language::of(path);
    let lines = Lines::of(text);
    let units = grammar.and_then(|grammar| syntax::units(text, grammar));
    let ranges = match units {
        Some(units) => packed(lines.joined(units), &lines),
        None => lines.windows(0..lines.all.len()),
    };
    let small = ranges.into_iter().flat_map(|range| lines.small(range));
    small.map(|range| lines.piece(range)).collect()
}

struct Lines<'a> {
    text: &'a str,
    all: Vec<&'a str>,
    /// Where each begins, and where the last one ends.
    starts: Vec<usize>,
}

/// Units that stay together.
#[derive(Default)]
struct Group {
    units: Vec<Range<usize>>,
    apart_before: bool,
    apart_after: bool,
}

impl Group {
    fn rows(&self) -> Range<usize> {
        match (self.units.first(), self.units.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }

    fn of(units: Vec<Unit>, lines: &Lines<'_>) -> Self {
        let rows = units.iter().flat_map(|unit| unit.rows.clone());
        let says = rows.filter(|row| !lines.closes(*row)).count();
        let alone = says >= ALONE_LINES_MIN && units.iter().any(|unit| unit.whole);
        Self {
            apart_before: alone || units.iter().any(|unit| unit.begins),
            apart_after: alone || units.iter().any(|unit| unit.ends),
            units: units.into_iter().map(|unit| unit.rows).collect(),
        }
    }

    /// What is too long is cut from its end, so that a signature keeps what follows it.
    fn split(&self) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        for rows in self.units.iter().rev() {
            match parts.last_mut() {
                Some(part) if part.end - rows.start <= LINES_MAX => part.start = rows.start,
                _ => parts.push(rows.clone()),
            }
        }
        parts.reverse();
        parts
    }
}

/// Groups made pieces: neighbours are one while there is room, unless they stand apart.
fn packed(groups: Vec<Group>, lines: &Lines<'_>) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut open = Group::default();
    for group in groups {
        let apart = open.apart_after || group.apart_before;
        if apart || group.rows().end - open.rows().start > LINES_MAX {
            let adjoins = open.rows().end == group.rows().start;
            let left = match adjoins && !apart {
                true => later(&mut open.units),
                false => None,
            };
            close(&std::mem::take(&mut open), lines, &mut out);
            open.units = left.unwrap_or_default();
            if group.rows().end - open.rows().start > LINES_MAX {
                close(&std::mem::take(&mut open), lines, &mut out);
            }
        }
        open.apart_after = group.apart_after;
        open.units.extend(group.units);
    }
    close(&open, lines, &mut out);
    out
}

/// Takes what comes after the last blank line of a piece that is full, if that is in its second
/// half: it belongs to what comes next.
fn later(units: &mut Vec<Range<usize>>) -> Option<Vec<Range<usize>>> {
    let from = units.first()?.start + LINES_MAX / 2;
    let is_gap = |at: &usize| units[*at].start >= from && units[*at - 1].end < units[*at].start;
    let at = (1..units.len()).rev().find(is_gap)?;
    Some(units.split_off(at))
}

fn close(group: &Group, lines: &Lines<'_>, out: &mut Vec<Range<usize>>) {
    match group.rows().len() {
        0 => {}
        1..=LINES_MAX => out.push(group.rows()),
        _ => {
            let parts = group.split().into_iter();
            out.extend(parts.flat_map(|part| lines.windows(part)));
        }
    }
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let mut starts = vec![0];
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        starts.extend(ends.map(|(at, _)| at + 1));
        if starts.last() != Some(&text.len()) {
            starts.push(text.len());
        }
        let all = text.lines().collect();
        Self { text, all, starts }
    }

    fn is_blank(&self, row: usize) -> bool {
        self.all[row].trim().is_empty()
    }

    /// True for lines that close brackets, or say nothing at all.
    fn closes(&self, row: usize) -> bool {
        self.all[row].chars().all(|c| " \t\r})];,".contains(c))
    }

    /// Units that belong together, and lines that are in none. What only closes brackets goes
    /// with what is before it.
    fn joined(&self, units: Vec<Unit>) -> Vec<Group> {
        let mut whole: Vec<Unit> = Vec::with_capacity(units.len());
        let mut next = 0;
        for mut unit in units {
            unit.rows.end = unit.rows.end.min(self.all.len());
            if let Some(rows) = self.trimmed(next..unit.rows.start) {
                whole.push(Unit {
                    rows,
                    ..Unit::default()
                });
            }
            next = unit.rows.end;
            let Some(rows) = self.trimmed(unit.rows) else {
                continue;
            };
            if let Some(last) = whole.last_mut() {
                last.glued |= rows.clone().all(|row| self.closes(row));
            }
            whole.push(Unit { rows, ..unit });
        }
        if let Some(rows) = self.trimmed(next..self.all.len()) {
            whole.push(Unit {
                rows,
                ..Unit::default()
            });
        }
        let mut groups = Vec::new();
        let mut group = Vec::new();
        for unit in whole {
            let ends = !unit.glued;
            group.push(unit);
            if ends {
                groups.push(Group::of(std::mem::take(&mut group), self));
            }
        }
        groups.push(Group::of(group, self));
        groups.retain(|group| !group.units.is_empty());
        groups
    }

    /// Without the blank lines around it.
    fn trimmed(&self, range: Range<usize>) -> Option<Range<usize>> {
        let full = |row: &usize| !self.is_blank(*row);
        let first = range.clone().find(full)?;
        let last = range.rev().find(full)?;
        Some(first..last + 1)
    }

    /// As long as may be, and ending at blank lines where there are some.
    fn windows(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        let mut left = self.trimmed(range);
        while let Some(range) = left {
            let full = range.start + LINES_MAX;
            if range.end <= full {
                out.push(range);
                break;
            }
            let blank = (range.start..=full).rev().find(|row| self.is_blank(*row));
            let end = blank.unwrap_or(full);
            out.extend(self.trimmed(range.start..end));
            left = self.trimmed(end..range.end);
        }
        out
    }

    /// The same lines, in parts that are not too many bytes unless they are one line.
    fn small(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut out = Vec::new();
        let mut start = range.start;
        for row in range.clone() {
            if row > start && self.starts[row + 1] - self.starts[start] > BYTES_MAX {
                out.extend(self.trimmed(start..row));
                start = row;
            }
        }
        out.extend(self.trimmed(start..range.end));
        out
    }

    fn piece(&self, range: Range<usize>) -> Piece<'a> {
        let whole = self.text[self.starts[range.start]..self.starts[range.end]].trim_end();
        let cut = whole.floor_char_boundary(BYTES_MAX);
        Piece {
            start: number(range.start + 1),
            end: number(range.end),
            text: &whole[..cut],
        }
    }
}

fn number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(path: &str, text: &str) -> Vec<(u32, u32)> {
        pieces(path, text)
            .iter()
            .map(|piece| (piece.start, piece.end))
            .collect()
    }

    fn body(lines: usize) -> String {
        (0..lines)
            .map(|n| format!("    let x{n} = {n};\n"))
            .collect()
    }

    #[test]
    fn functions_are_pieces() {
        let text = "use a;\nuse b;\n\n/// One.\nfn one() {\n    1;\n    2;\n}\n\n#[test]\nfn two() {\n    3;\n    4;\n}\nconst C: u8 = 1;\n";
        assert_eq!(ranges("a.rs", text), [(1, 2), (4, 8), (10, 14), (15, 15)]);
        let text = "import a\n\n\n@b\ndef one(\n    x,\n):\n    if x:\n        y\n    else:\n        z\n    return 1\n\n\nclass Two:\n    def a(self):\n        return 1\n\n    def b(self):\n        return 2\n";
        assert_eq!(ranges("a.py", text), [(1, 1), (4, 12), (15, 20)]);
        let text =
            "package a\n\nfunc one() {\n\ta()\n\tb()\n}\n\nfunc (x T) two() {\n\tc()\n\td()\n}\n";
        assert_eq!(ranges("a.go", text), [(1, 1), (3, 6), (8, 11)]);
        let text = "import a from 'a';\n\nexport class A {\n  one() {\n    return `}`;\n  }\n}\n\nexport const b = () => {\n  c();\n  d();\n};\n";
        assert_eq!(ranges("a.ts", text), [(1, 1), (3, 7), (9, 12)]);
    }

    #[test]
    fn what_is_long_is_cut_inside() {
        let methods: String = (0..4)
            .map(|n| format!("    fn m{n}() {{\n{}    }}\n\n", body(20)))
            .collect();
        let text = format!("impl A {{\n{methods}}}\n");
        let found = ranges("a.rs", &text);
        assert_eq!(found, [(1, 23), (25, 46), (48, 69), (71, 94)]);
        let text = format!("fn long() {{\n{}}}\n", body(150));
        assert_eq!(ranges("a.rs", &text), [(1, 60), (61, 120), (121, 152)]);
    }

    /// A signature, with what is said above it, stays with what follows; what follows is cut
    /// between statements, at blank lines where there are some, and into few pieces.
    #[test]
    fn long_functions_are_cut_into_few() {
        let text = format!(
            "const A: u8 = 1;\n\n/// Says\n/// much.\n#[inline]\nfn long<T>(\n    a: T,\n)\nwhere\n    T: Copy,\n{{\n{}}}\nconst B: u8 = 1;\n",
            body(70)
        );
        assert_eq!(ranges("a.rs", &text), [(1, 1), (3, 62), (63, 82), (83, 83)]);
        let ifs = "    if a {\n        b();\n        c();\n        d();\n        e();\n    }\n";
        let text = format!("fn long() {{\n{}}}\n", ifs.repeat(10));
        assert_eq!(ranges("a.rs", &text), [(1, 55), (56, 62)]);
        let statements = "    a();\n\n".repeat(40);
        let text = format!("fn long() {{\n{statements}}}\n");
        assert_eq!(ranges("a.rs", &text), [(1, 60), (62, 82)]);
        let lines = "    a()\n".repeat(45) + "\n" + &"    b()\n".repeat(30);
        let text = format!("def long():\n    \"\"\"Says.\"\"\"\n{lines}");
        assert_eq!(ranges("a.py", &text), [(1, 47), (49, 78)]);
        let says = "/// Says.\n".repeat(100);
        let text = format!("{says}fn short() {{\n    a();\n    b();\n}}\n");
        assert_eq!(ranges("a.rs", &text), [(1, 44), (45, 104)]);
    }

    /// What looks like a bracket, a text or an end and is none: the function that it is in is a
    /// piece, and so is the next. R-20.
    #[test]
    fn what_is_in_a_function_does_not_end_it() {
        let cases = [
            (
                "a.go",
                "func a(p string) string {\n\tp = strings.ReplaceAll(p, `\\`, \"/\")\n\treturn p\n}\n",
            ),
            (
                "a.go",
                "func a() {\n\tb := `{\n{`\n\tc := '{'\n\treturn\n}\n",
            ),
            (
                "a.tsx",
                "function A({n}) {\n  return <p>You don't have {n > 1 ? (\n    <b>x</b>\n  ) : null}</p>\n}\n",
            ),
            (
                "a.tsx",
                "function A({show}) {\n  return <div><h1>T</h1> {show && (\n    <b>x</b>\n  )}</div>\n}\n",
            ),
            (
                "a.tsx",
                "function A({show}) {\n  return <p>one ` and /* or {show && (\n    <b>x</b>\n  )}</p>\n}\n",
            ),
            (
                "a.jsx",
                "function A({show}) {\n  return <p>don't ` and /* {show && (\n    <b>x</b>\n  )}</p>\n}\n",
            ),
            (
                "a.ts",
                "function a(total?: number, n = 1) {\n  if (total! / 2 > n) {\n    b();\n  }\n}\n",
            ),
            (
                "a.ts",
                "function a(ok: boolean, s: string) {\n  if (ok) /[{]/.test(s);\n  b(<string>s);\n}\n",
            ),
            (
                "a.js",
                "function a(b, c, d) {\n  const e = b < c > (d);\n  if (b<c>d) {\n    return e;\n  }\n}\n",
            ),
            (
                "a.js",
                "function a(i, n) {\n  while (i++ / 2 < n) {\n    b();\n  }\n}\n",
            ),
            (
                "a.js",
                "function a(ok, s) {\n  if (ok) /[{]/.test(s);\n  b();\n}\n",
            ),
            (
                "a.js",
                "function a() {\n  b(`x ${ {c: '}'} } {`);\n  c(/[{\"/]/, d / 2 /* { */);\n}\n",
            ),
            (
                "a.rs",
                "fn a() {\n    b(br#\"{\"a\":\"b}\"#);\n    c(br\"C:\\\");\n}\n",
            ),
            ("a.rs", "fn a() {\n    b(['é', '{']);\n    c();\n}\n"),
            (
                "a.rs",
                "fn a<'x>() {\n    b('{', '\\'', \"{\n{\", r#\"\"{\"#); /* { /* } */ { */\n}\n",
            ),
            (
                "a.py",
                "def a(x):\n    b(x)\n    c(x)\n    d(x)\n    e(x)\n# old code\n    f(x)\n    g(x)\n    h(x)\n    return x\n",
            ),
            (
                "a.py",
                "def a(x):\n    b('usage \\\n(see')\n    c(x)\n    return x\n",
            ),
            (
                "a.py",
                "def a(\n    x,\n):\n    '''y\nz {\n    '''\n    if x:\n        b()\n    else:\n        c()\n",
            ),
        ];
        for (path, one) in cases {
            let lines = one.lines().count() as u32;
            let text = format!("{one}\n{one}");
            let wanted = [(1, lines), (lines + 2, 2 * lines + 1)];
            assert_eq!(ranges(path, &text), wanted, "{path}\n{text}");
        }
    }

    /// What is no part of a function does not go with it.
    #[test]
    fn what_comes_after_a_function_is_apart() {
        let text = "def a(x):\n    b(x)\n    c(x)\n    return x\nexceptions = (1, 2)\nelse_ = 3\n";
        assert_eq!(ranges("a.py", text), [(1, 4), (5, 6)]);
        let text = "it('a', () => {\n  b();\n  c();\n});\n\nconst d = 1;\nexport const e = () => {\n  f();\n  g();\n};\n";
        assert_eq!(ranges("a.ts", text), [(1, 4), (6, 6), (7, 10)]);
        let text = "fn a() {}\nfn b() {}\n\n// c\nfn c() {\n    d();\n    e();\n}\n";
        assert_eq!(ranges("a.rs", text), [(1, 2), (4, 8)]);
    }

    #[test]
    fn elsewhere_pieces_end_at_blank_lines() {
        let text = "a\n".repeat(40) + "\n" + &"b\n".repeat(30) + "\n" + &"c\n".repeat(70);
        let wanted = [(1, 40), (42, 71), (73, 132), (133, 142)];
        assert_eq!(ranges("a.md", &text), wanted);
        assert_eq!(ranges("a.c", &text), wanted);
    }

    /// No line is left out for its bytes; of a line that is data the beginning counts.
    #[test]
    fn long_lines_are_apart() {
        let line = "x".repeat(7000);
        let text = format!("{line}\n{line}\n{line}\n{}\nz\n", "y".repeat(20_000));
        for path in ["a.md", "a.rs"] {
            assert_eq!(ranges(path, &text), [(1, 2), (3, 3), (4, 4), (5, 5)]);
            assert_eq!(pieces(path, &text)[2].text.len(), BYTES_MAX);
        }
    }

    /// Sources that were made to take long, or to nest without end, are cut. The work on each is
    /// counted, so that none takes for ever.
    #[test]
    fn hostile_sources_are_cut() {
        let seeds = "(|[|{|<|r#\"|\"|'|`|`${|/*|/|//\n|\n (|{\n|if x:\n|f(|<a>|<a\n>|a<|a?|=>|!|\\\n|\
                     ((a)=>|fn a() {\n|x = [\n|\0|é|async |#[a]\n|@a\n|case |<T,>(|'''|f'{|\
                     lambda: |a.b\n|-|else ";
        for seed in seeds.split('|') {
            let deep = matches!(seed, "(" | "{\n" | "<a>" | "if x:\n");
            let bytes = if deep { 128 * 1024 } else { 8 * 1024 };
            let text = seed.repeat(bytes / seed.len());
            for path in ["a.rs", "a.py", "a.ts", "a.tsx", "a.js", "a.go"] {
                let found = ranges(path, &text);
                let fits = found.iter().all(|(from, to)| to - from < 60);
                assert!(fits, "{path} {seed:?}");
            }
        }
        let deep: String = (0..900).map(|n| " ".repeat(n) + "if x: {\n").collect();
        for path in ["a.py", "a.js"] {
            assert!(!ranges(path, &deep).is_empty());
        }
    }

    /// Every line with something on it is in one piece, whatever the text; none is too long.
    #[test]
    fn nothing_is_lost_or_doubled() {
        let lines = [
            "fn a() {",
            "}",
            "",
            "  x",
            "    y = '",
            "{",
            "  }",
            "class B:",
            "else:",
            "\"\"\"",
            ")",
            "(",
            "# z",
        ];
        let mut seed = 3_u32;
        for _ in 0..400 {
            let mut text = String::new();
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for _ in 0..(seed >> 8) % 300 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                text.push_str(lines[(seed >> 16) as usize % lines.len()]);
                text.push('\n');
            }
            for path in ["a.rs", "a.py", "a.ts", "a.tsx", "a.js", "a.go", "a.md"] {
                let mut next = 1;
                for piece in pieces(path, &text) {
                    assert!(
                        piece.start >= next && piece.end >= piece.start,
                        "{path}: {text}"
                    );
                    assert!((piece.end - piece.start) < 60, "{path}: {text}");
                    for line in next..piece.start {
                        let line = text.lines().nth(line as usize - 1).expect("a line");
                        assert_eq!(line.trim(), "", "{path}: {text}");
                    }
                    next = piece.end + 1;
                }
                let rest = text.lines().skip(next as usize - 1);
                assert!(
                    rest.into_iter().all(|line| line.trim().is_empty()),
                    "{path}: {text}"
                );
            }
        }
    }
}
