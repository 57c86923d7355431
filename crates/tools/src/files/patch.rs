//! Unified patches of one file: hunks at their lines, or where their lines are found nearby.

use callgate_call::Fault;

/// Lines up and down that a hunk is looked for in, where the file has changed around it.
const DRIFT_MAX: usize = 1000;

struct Hunk<'a> {
    /// The first line, counted from 0, as the patch has it.
    at: usize,
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    /// Its last line, in the old and in the new text, has no end.
    open: [bool; 2],
}

/// The text with all hunks applied, and their number. All or none.
pub fn apply(text: &str, patch: &str) -> Result<(String, usize), Fault> {
    let hunks = hunks(patch)?;
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    // What was added so far, less what was removed.
    let mut shift = 0_isize;
    let mut least = 0;
    let made: Vec<(Vec<String>, Vec<String>)> = hunks.iter().map(Hunk::texts).collect();
    let mut spans = Vec::new();
    for (index, (hunk, (old, _))) in hunks.iter().zip(&made).enumerate() {
        let guess = hunk.at.saturating_add_signed(shift).max(least);
        let at = find(&lines, old, guess, least).ok_or_else(|| {
            bad(&format!(
                "hunk {} does not fit: the file has other lines there",
                index + 1
            ))
        })?;
        shift = at.cast_signed() - hunk.at.cast_signed();
        least = at + old.len();
        spans.push(at);
    }
    for (at, (old, new)) in spans.into_iter().zip(&made).rev() {
        lines.splice(at..at + old.len(), new.iter().map(String::as_str));
    }
    Ok((lines.concat(), hunks.len()))
}

impl Hunk<'_> {
    fn texts(&self) -> (Vec<String>, Vec<String>) {
        let ended = |lines: &[&str], open: bool| {
            let last = lines.len().wrapping_sub(1);
            let line = |(index, line): (usize, &&str)| match open && index == last {
                true => (*line).to_owned(),
                false => format!("{line}\n"),
            };
            lines.iter().enumerate().map(line).collect()
        };
        (
            ended(&self.old, self.open[0]),
            ended(&self.new, self.open[1]),
        )
    }
}

/// The place of `old` nearest to `guess`, not before `least`.
fn find(lines: &[&str], old: &[String], guess: usize, least: usize) -> Option<usize> {
    let fits = |at: usize| {
        lines
            .get(at..at.checked_add(old.len())?)
            .filter(|found| found.iter().zip(old).all(|(found, old)| found == old))
            .map(|_| at)
    };
    (0..=DRIFT_MAX).find_map(|drift| {
        let up = guess.checked_sub(drift).filter(|at| *at >= least);
        fits(guess + drift).or_else(|| up.and_then(fits))
    })
}

fn hunks(patch: &str) -> Result<Vec<Hunk<'_>>, Fault> {
    let mut hunks = Vec::new();
    let mut lines = patch.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(head) = line.strip_prefix("@@ -") else {
            let is_head = ["--- ", "+++ ", "diff ", "index ", "\\ "];
            if line.is_empty() || is_head.iter().any(|known| line.starts_with(known)) {
                continue;
            }
            return Err(bad(&format!("`{line}` is no line of a unified patch")));
        };
        let (at, old_count, new_count) =
            head_of(head).ok_or_else(|| bad(&format!("`{line}` is no head of a hunk")))?;
        let mut hunk = Hunk {
            at: if old_count == 0 {
                at
            } else {
                at.saturating_sub(1)
            },
            old: Vec::new(),
            new: Vec::new(),
            open: [false; 2],
        };
        while hunk.old.len() < old_count || hunk.new.len() < new_count {
            let line = lines
                .next()
                .ok_or_else(|| bad("the last hunk is cut short"))?;
            match (line.get(..1), line.get(1..)) {
                (Some(" "), Some(rest)) => {
                    hunk.old.push(rest);
                    hunk.new.push(rest);
                }
                // Editors cut the blank of an empty line.
                (None, _) => {
                    hunk.old.push("");
                    hunk.new.push("");
                }
                (Some("-"), Some(rest)) => hunk.old.push(rest),
                (Some("+"), Some(rest)) => hunk.new.push(rest),
                (Some("\\"), _) => open_last(&mut hunk),
                _ => return Err(bad(&format!("`{line}` is no line of a hunk"))),
            }
        }
        if lines.next_if(|line| line.starts_with('\\')).is_some() {
            open_last(&mut hunk);
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

/// "No newline at end of file", of the line before. After the old lines are all there it may
/// speak of both.
fn open_last(hunk: &mut Hunk<'_>) {
    if hunk.new.is_empty() {
        hunk.open[0] = true;
    } else {
        hunk.open[1] = true;
        if hunk.old.last() == hunk.new.last() {
            hunk.open[0] = true;
        }
    }
}

/// `12,3 +14,2 @@ …` as first old line and the two counts.
fn head_of(head: &str) -> Option<(usize, usize, usize)> {
    let (old, rest) = head.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let pair = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((at, count)) => Some((at.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
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

    #[test]
    fn hunks_are_applied_where_they_fit() {
        let text = "a\nb\nc\nd\n";
        let patch = "--- a/x\n+++ b/x\n@@ -2,2 +2,2 @@\n b\n-c\n+C\n";
        assert_eq!(apply(text, patch).unwrap(), ("a\nb\nC\nd\n".to_owned(), 1));
        // Two lines more at the top: the hunk drifts.
        let moved = format!("0\n00\n{text}");
        assert_eq!(apply(&moved, patch).unwrap().0, "0\n00\na\nb\nC\nd\n");
        assert!(apply("a\nb\nx\n", patch).is_err());
    }

    #[test]
    fn ends_without_a_newline() {
        let patch = "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
        assert_eq!(apply("a", patch).unwrap().0, "a\n");
        let back = "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n";
        assert_eq!(apply("a\n", back).unwrap().0, "b");
    }

    #[test]
    fn something_new_into_nothing() {
        assert_eq!(apply("", "@@ -0,0 +1,2 @@\n+a\n+b\n").unwrap().0, "a\nb\n");
    }

    #[test]
    fn bad_patches_are_told() {
        for bad in ["", "hello", "@@ -1,2 +1 @@\n a\n", "@@ -x +1 @@\n"] {
            assert!(apply("a\n", bad).is_err(), "{bad:?}");
        }
    }
}
