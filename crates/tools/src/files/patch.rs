//! Unified patches of one file: hunks at their lines, or where their lines are found nearby.

use std::borrow::Cow;

use callgate_call::Fault;

/// Lines up and down that a hunk is looked for in, where the file has changed around it.
const DRIFT_MAX: usize = 1000;

struct Hunk<'a> {
    /// The first line, counted from 0, as the patch has it.
    at: usize,
    /// Its lines in the old text, each with its end.
    old: Vec<&'a str>,
    /// And in the new one.
    new: Vec<&'a str>,
}

/// The text with all hunks applied, and their number. All or none.
pub fn apply(text: &str, patch: &str) -> Result<(String, usize), Fault> {
    // Its own last line may have lost its end on the way here.
    let patch = match patch.is_empty() || patch.ends_with('\n') {
        true => Cow::from(patch),
        false => format!("{patch}\n").into(),
    };
    let hunks = hunks(&patch)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut made = Vec::with_capacity(lines.len());
    // How far from where it says the last hunk was found.
    let mut shift = 0_isize;
    // The first line behind it.
    let mut least = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        let guess = hunk.at.saturating_add_signed(shift).max(least);
        let at = find(&lines, &hunk.old, guess, least).ok_or_else(|| {
            bad(&format!(
                "hunk {} does not fit: the file has other lines there",
                index + 1
            ))
        })?;
        shift = at.cast_signed() - hunk.at.cast_signed();
        made.extend_from_slice(&lines[least..at]);
        made.extend_from_slice(&hunk.new);
        least = at + hunk.old.len();
    }
    made.extend_from_slice(&lines[least..]);
    if made.iter().rev().skip(1).any(|line| !line.ends_with('\n')) {
        return Err(bad("a line without an end would not be the last"));
    }
    Ok((made.concat(), hunks.len()))
}

/// The place of `old` nearest to `guess`, not before `least`.
fn find(lines: &[&str], old: &[&str], guess: usize, least: usize) -> Option<usize> {
    let fits = |at: usize| {
        lines
            .get(at..at.checked_add(old.len())?)
            .filter(|found| *found == old)
            .map(|_| at)
    };
    (0..=DRIFT_MAX).find_map(|drift| {
        let up = guess.checked_sub(drift).filter(|at| *at >= least);
        let down = guess.checked_add(drift);
        down.and_then(fits).or_else(|| up.and_then(fits))
    })
}

fn hunks(patch: &str) -> Result<Vec<Hunk<'_>>, Fault> {
    let mut hunks = Vec::new();
    let mut lines = patch.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let Some(head) = line.strip_prefix("@@ -") else {
            let line = line.trim_end();
            let is_head = ["--- ", "+++ ", "diff ", "index ", "\\ "];
            if line.is_empty() || is_head.iter().any(|known| line.starts_with(known)) {
                continue;
            }
            return Err(bad(&format!("`{line}` is no line of a unified patch")));
        };
        let (at, old_count, new_count) = head_of(head)
            .ok_or_else(|| bad(&format!("`{}` is no head of a hunk", line.trim_end())))?;
        let mut hunk = Hunk {
            // Where it has no old lines its head names the line before.
            at: at.saturating_sub(usize::from(old_count > 0)),
            old: Vec::new(),
            new: Vec::new(),
        };
        let mut last = Sides::default();
        while hunk.old.len() < old_count || hunk.new.len() < new_count {
            let line = lines
                .next()
                .ok_or_else(|| bad("the last hunk is cut short"))?;
            last = hunk.add(line, last)?;
        }
        if let Some(mark) = lines.next_if(|line| line.starts_with('\\')) {
            hunk.add(mark, last)?;
        }
        if (hunk.old.len(), hunk.new.len()) != (old_count, new_count) {
            return Err(bad("a hunk has other lines than its head says"));
        }
        hunks.push(hunk);
    }
    match hunks.is_empty() {
        true => Err(bad("has no hunk")),
        false => Ok(hunks),
    }
}

/// Which texts a line of a hunk is in.
#[derive(Clone, Copy, Default)]
struct Sides {
    old: bool,
    new: bool,
}

impl<'a> Hunk<'a> {
    /// Takes one line with its end, after one that was in the texts of `last`. Gives the texts
    /// that it is in.
    fn add(&mut self, line: &'a str, last: Sides) -> Result<Sides, Fault> {
        let (old, new, rest) = match line.as_bytes().first() {
            Some(b' ') => (true, true, &line[1..]),
            Some(b'-') => (true, false, &line[1..]),
            Some(b'+') => (false, true, &line[1..]),
            // Editors cut the blank of an empty line.
            Some(b'\n' | b'\r') if line.trim_end().is_empty() => (true, true, line),
            Some(b'\\') if last.old || last.new => return Ok(self.open(last)),
            _ => return Err(bad(&format!("`{}` is no line of a hunk", line.trim_end()))),
        };
        if old {
            self.old.push(rest);
        }
        if new {
            self.new.push(rest);
        }
        Ok(Sides { old, new })
    }

    /// "No newline at end of file", of the line before. Nothing is before what comes next.
    fn open(&mut self, last: Sides) -> Sides {
        let texts = [(last.old, &mut self.old), (last.new, &mut self.new)];
        for (_, lines) in texts.into_iter().filter(|(is_in, _)| *is_in) {
            if let Some(line) = lines.last_mut() {
                *line = line.strip_suffix('\n').unwrap_or(line);
            }
        }
        Sides::default()
    }
}

/// `12,3 +14,2 @@ …` as first old line and the two counts.
fn head_of(head: &str) -> Option<(usize, usize, usize)> {
    let (old, rest) = head.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    // No text has so many lines that this is too little, and they can be added up.
    let number = |text: &str| usize::try_from(text.parse::<u32>().ok()?).ok();
    let pair = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((at, count)) => Some((number(at)?, number(count)?)),
            None => Some((number(text)?, 1)),
        }
    };
    let ((at, old), (_, new)) = (pair(old)?, pair(new)?);
    Some((at, old, new))
}

fn bad(reason: &str) -> Fault {
    Fault::bad_value(format!("patch: {reason}"))
        .with("field", "patch")
        .with("reason", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    #[test]
    fn hunks_are_applied_where_they_fit() {
        let text = "a\nb\nc\nd\n";
        let patch = "--- a/x\n+++ b/x\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n";
        assert_eq!(apply(text, patch).unwrap(), ("a\nb\nC\nd\n".to_owned(), 1));
        // Two lines more at the top: the hunk drifts.
        let moved = format!("0\n00\n{text}");
        assert_eq!(apply(&moved, patch).unwrap().0, "0\n00\na\nb\nC\nd\n");
        assert!(apply("a\nb\nx\n", patch).is_err());
        // The patch lost its own last end.
        assert_eq!(apply(text, patch.trim_end()).unwrap().0, "a\nb\nC\nd\n");
    }

    #[test]
    fn ends_without_a_newline() {
        const OPEN: &str = "\\ No newline at end of file\n";
        let patch = format!("@@ -1 +1 @@\n-a\n{OPEN}+a\n");
        assert_eq!(apply("a", &patch).unwrap().0, "a\n");
        let back = format!("@@ -1 +1 @@\n-a\n+b\n{OPEN}");
        assert_eq!(apply("a\n", &back).unwrap().0, "b");
        let both = format!("@@ -1 +1 @@\n-a\n{OPEN}+b\n{OPEN}");
        assert_eq!(apply("a", &both).unwrap().0, "b");
        // After lines that are in both texts, and of one that is.
        let later = format!("@@ -1,2 +1,2 @@\n a\n-b\n{OPEN}+c\n{OPEN}");
        assert_eq!(apply("a\nb", &later).unwrap().0, "a\nc");
        let kept = format!("@@ -1,2 +1,2 @@\n-a\n+A\n b\n{OPEN}");
        assert_eq!(apply("a\nb", &kept).unwrap().0, "A\nb");
        // Only the last line can be without an end.
        assert!(apply("a\nb\n", &back).is_err());
        assert!(apply("a", "@@ -1,0 +2 @@\n+b\n").is_err());
    }

    #[test]
    fn lines_are_what_is_between_newlines() {
        let patch = "@@ -1,3 +1,3 @@\r\n a\r\n-b\r\n+é\r\n\r\n";
        assert_eq!(apply("a\r\nb\r\n\r\n", patch).unwrap().0, "a\r\né\r\n\r\n");
        assert!(apply("a\nb\n\n", patch).is_err());
    }

    #[test]
    fn something_new_into_nothing() {
        assert_eq!(apply("", "@@ -0,0 +1,2 @@\n+a\n+b\n").unwrap().0, "a\nb\n");
    }

    /// Each line is moved once, however many hunks there are: were it once for each, this would
    /// take minutes.
    #[test]
    fn many_hunks() {
        const HUNKS: usize = 100_000;
        const BETWEEN: usize = 20;
        let text = "a\n".repeat(HUNKS * BETWEEN);
        let hunk = |number: usize| format!("@@ -{},0 +1 @@\n+b\n", number * BETWEEN);
        let patch: String = (0..HUNKS).map(hunk).collect();
        let made = format!("b\n{}", "a\n".repeat(BETWEEN)).repeat(HUNKS);
        let (patched, hunks) = apply(&text, &patch).unwrap();
        assert!(patched == made && hunks == HUNKS);
    }

    #[test]
    fn bad_patches_are_told() {
        for bad in [
            "",
            "hello",
            "@@ -1,2 +1 @@\n a\n",
            "@@ -x +1 @@\n",
            "@@ -18446744073709551615 +1 @@\n a\n",
            "@@ -9223372036854775808,0 +1 @@\n+a\n",
            "@@ -4294967295,4294967295 +1 @@\n a\n",
            "@@ -1 +1 @@\né\n",
            "@@ -1 +1 @@\n\\ No newline at end of file\n a\n",
        ] {
            assert!(apply("a\n", bad).is_err(), "{bad:?}");
        }
    }

    const LINES: [&str; 12] = [
        "",
        "a",
        "b",
        "a\r",
        "\r",
        "é",
        "-x",
        "+x",
        "\\ x",
        "@@ -1 +1 @@",
        " ",
        "--- a",
    ];

    /// A line that goes, and one that comes; the same where it stays.
    type Step = (Option<String>, Option<String>);

    fn steps(random: &mut Random) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..random.below(30))
            .map(|_| {
                let mut line = || format!("{}\n", random.pick(&LINES));
                let (one, other) = (line(), line());
                match random.below(8) {
                    0 => (Some(one), None),
                    1 => (None, Some(one)),
                    2 => (Some(one), Some(other)),
                    _ => (Some(one.clone()), Some(one)),
                }
            })
            .collect();
        let mut open = |last: Option<&mut String>| {
            if let Some(line) = last.filter(|line| *line != "\n" && random.one_in(3)) {
                line.pop();
            }
        };
        open(steps.iter_mut().rev().find_map(|step| step.0.as_mut()));
        open(steps.iter_mut().rev().find_map(|step| step.1.as_mut()));
        steps
    }

    /// What `diff -U` with so much context would print.
    fn diff(steps: &[Step], context: usize) -> String {
        let is_change = |step: &Step| step.0 != step.1;
        let mut patch = String::from("--- a\n+++ b\n");
        let mut from = 0;
        while let Some(first) = (from..steps.len()).find(|at| is_change(&steps[*at])) {
            let mut last = first;
            while let Some(next) = (last + 1..steps.len())
                .take(2 * context + 1)
                .find(|at| is_change(&steps[*at]))
            {
                last = next;
            }
            let begin = first.saturating_sub(context).max(from);
            let end = (last + 1 + context).min(steps.len());
            patch += &hunk(&steps[..begin], &steps[begin..end]);
            from = end;
        }
        patch
    }

    fn hunk(before: &[Step], steps: &[Step]) -> String {
        let counts = |steps: &[Step]| {
            let old = steps.iter().filter(|step| step.0.is_some()).count();
            (old, steps.iter().filter(|step| step.1.is_some()).count())
        };
        let ((old_at, new_at), (old, new)) = (counts(before), counts(steps));
        let at = |before: usize, count: usize| before + usize::from(count > 0);
        let (old_at, new_at) = (at(old_at, old), at(new_at, new));
        let mut text = format!("@@ -{old_at},{old} +{new_at},{new} @@\n");
        let mut line = |mark: char, line: &str| {
            text.push(mark);
            text += line;
            if !line.ends_with('\n') {
                text += "\n\\ No newline at end of file\n";
            }
        };
        for (old, new) in steps {
            if old == new {
                line(' ', old.as_deref().unwrap_or_default());
                continue;
            }
            old.iter().for_each(|old| line('-', old));
            new.iter().for_each(|new| line('+', new));
        }
        text
    }

    /// Whatever two files are like, what tells them apart makes one of the other.
    #[test]
    fn random_patches() {
        let mut random = Random::new("random patches");
        let mut patches = 0;
        for _ in 0..20_000 {
            let steps = steps(&mut random);
            let side = |side: fn(&Step) -> &Option<String>| -> String {
                steps
                    .iter()
                    .filter_map(|step| side(step).as_deref())
                    .collect()
            };
            let (old, new) = (side(|step| &step.0), side(|step| &step.1));
            if old == new || steps.iter().all(|step| step.0 == step.1) {
                continue;
            }
            let patch = diff(&steps, random.below(4));
            let made = apply(&old, &patch).map(|(made, _)| made);
            assert_eq!(made.as_ref(), Ok(&new), "{old:?} by {patch:?}");
            patches += 1;
        }
        assert!(patches > 10_000, "{patches}");
    }

    /// 100,000 changed patches: none panics, and what one makes is a text of lines.
    #[test]
    fn mutated_patches() {
        const SEEDS: [&[u8]; 3] = [
            b"--- a/x\n+++ b/x\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n",
            b"@@ -1 +1 @@\n-a\n+b\n@@ -4 +4 @@\n-d\n\\ No newline at end of file\n+e\n",
            b"@@ -0,0 +1,2 @@ fn\r\n+a\r\n+b\r\n",
        ];
        const WORDS: [&[u8]; 14] = [
            b"\n",
            b"\r",
            b" ",
            b"-",
            b"+",
            b"\\ ",
            b",",
            b"@@ -",
            b" @@\n",
            b"0",
            b"4294967295",
            b"18446744073709551616",
            b"\xc3\xa9",
            b"\xff",
        ];
        let mut random = Random::new("mutated patches");
        let mut applied = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &SEEDS, &WORDS);
            let patch = String::from_utf8_lossy(&bytes);
            for text in ["a\nb\nc\nd", ""] {
                if let Ok((made, hunks)) = apply(text, &patch) {
                    assert!(hunks > 0 && made.len() <= text.len() + patch.len());
                    applied += 1;
                }
            }
        }
        assert!(applied > 0);
    }
}
