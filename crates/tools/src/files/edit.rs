//! `files/edit`: exact replacements, or a unified patch, of what an etag says is there.

use std::io::ErrorKind;

use callgate_call::{Cancel, Fault, bounded};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Files;
use super::etag::{modified, size};
use super::patch;
use super::place::{Outside, errno, fault, shown};
use super::write::{Terms, existing, replace, stale};
use crate::arguments::arguments;
use crate::closed;

/// The schemas of `files/edit`: what it takes and what it gives.
pub fn schemas() -> [Value; 2] {
    let one = closed(
        json!({
            "old": { "type": "string", "minLength": 1 },
            "new": { "type": "string" },
            "all": { "type": "boolean", "default": false },
        }),
        &["old", "new"],
    );
    let input = json!({
        "path": { "type": "string" },
        "etag": { "type": ["string", "null"] },
        "edits": { "type": "array", "items": one, "minItems": 1, "maxItems": 1000 },
        "patch": { "type": "string", "description": "Hunks of a unified diff" },
    });
    let output = json!({
        "path": { "type": "string" },
        "size": { "type": "integer" },
        "etag": { "type": "string" },
        "mtime": { "type": "string" },
        "changes": { "type": "integer" },
    });
    [
        closed(input, &["path"]),
        closed(output, &["path", "size", "etag", "mtime", "changes"]),
    ]
}

/// The arguments of `files/edit`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEditArguments<'a> {
    path: &'a str,
    etag: Option<&'a str>,
    #[serde(borrow)]
    edits: Option<Vec<TextEdit<'a>>>,
    patch: Option<&'a str>,
}

/// One exact text that another takes the place of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextEdit<'a> {
    old: &'a str,
    new: &'a str,
    /// Every place that has the old text; otherwise there must be only one.
    #[serde(default)]
    all: bool,
}

pub fn edit(files: &Files, input: &Value, stop: &Cancel) -> Result<Value, Fault> {
    let asked: FileEditArguments<'_> = arguments(input)?;
    let path = files.ground.within(asked.path, Outside::BadValue)?;
    let spot = files.ground.spot(&path, false)?;
    let (file, about) = existing(&spot)?.ok_or_else(|| fault(rustix::io::Errno::NOENT, &path))?;
    let cap = files.limits.write_bytes_max;
    if size(&about) > cap {
        return Err(Fault::too_large("file", cap).with("bytes", size(&about)));
    }
    // What is read is what is replaced: the etag of these very bytes guards the write.
    let before = bounded::read_file(&file, cap).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => Fault::too_large("file", cap),
        _ => fault(errno(&error), &path),
    })?;
    let etag = files.etags.of_whole(&before, &about, &*files.clock);
    if asked.etag.is_some_and(|wanted| wanted != etag) {
        return Err(stale(&path, &etag));
    }
    let before = String::from_utf8(before).map_err(|_| Fault::BadInput {
        field: "path".to_owned(),
        reason: format!("{} is not UTF-8", path.display()),
    })?;
    let (after, changes) = match (asked.edits, asked.patch) {
        (Some(edits), None) => replaced(before, &edits, cap)?,
        (None, Some(text)) => patch::apply(&before, text)?,
        _ => {
            return Err(Fault::bad_value("one of edits and patch is needed").with("field", "edits"));
        }
    };
    check_size(after.len(), cap)?;
    let terms = Terms {
        create: false,
        overwrite: true,
        etag: Some(&etag),
        mode: None,
    };
    let written = replace(files, &spot, after.as_bytes(), &terms, stop)?;
    Ok(json!({
        "path": shown(&written.path),
        "size": size(&written.about),
        "etag": written.etag,
        "mtime": modified(&written.about).rfc3339(),
        "changes": changes,
    }))
}

fn check_size(bytes: usize, cap: u64) -> Result<(), Fault> {
    match bytes as u64 > cap {
        true => Err(Fault::too_large("content", cap).with("bytes", bytes)),
        false => Ok(()),
    }
}

/// One edit after the other; each text must be there exactly as often as said. None makes more
/// than `cap` bytes of it, not even for the next to remove.
fn replaced(mut text: String, edits: &[TextEdit<'_>], cap: u64) -> Result<(String, usize), Fault> {
    let mut changes = 0;
    for (index, TextEdit { old, new, all }) in edits.iter().enumerate() {
        let found = text.matches(*old).count();
        let bad = |reason: &str| {
            let field = format!("edits.{index}.old");
            Fault::bad_value(format!("{field}: {reason}"))
                .with("field", field)
                .with("reason", reason)
        };
        match found {
            0 => return Err(bad("is not in the file")),
            1 => {}
            _ if *all => {}
            more => {
                return Err(bad(&format!(
                    "is in the file {more} times: say more of it, or all"
                )));
            }
        }
        let kept = text.len().saturating_sub(old.len().saturating_mul(found));
        check_size(kept.saturating_add(new.len().saturating_mul(found)), cap)?;
        text = text.replace(*old, new);
        changes += found;
    }
    Ok((text, changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    /// The bound is looked at before anything of that size is made.
    #[test]
    fn edits_stay_within_the_bound() {
        fn edit<'a>(old: &'a str, new: &'a str) -> TextEdit<'a> {
            let all = true;
            TextEdit { old, new, all }
        }
        let text = || "aaaa".to_owned();
        let grown = replaced(text(), &[edit("a", "bb")], 8).unwrap();
        assert_eq!(grown, ("bbbbbbbb".to_owned(), 4));
        let same = replaced(text(), &[edit("aa", "bb")], 4).unwrap();
        assert_eq!(same, ("bbbb".to_owned(), 2));
        for edits in [
            vec![edit("a", "bbb")],
            // Neither by steps of which the last would make it small again.
            vec![edit("a", "bbb"), edit("b", "")],
        ] {
            let refused = replaced(text(), &edits, 11);
            assert!(
                matches!(refused, Err(Fault::TooLarge { .. })),
                "{refused:?}"
            );
        }
        let much = "b".repeat(1 << 20);
        let steps = [edit("a", &much), edit("b", &much), edit("b", &much)];
        let refused = replaced("a".to_owned(), &steps, 1 << 24);
        assert!(matches!(refused, Err(Fault::TooLarge { .. })));
    }

    /// What edits make of a text, by their definition; nothing if one of them is refused.
    fn by_definition(text: &str, edits: &[TextEdit<'_>], cap: usize) -> Option<(String, usize)> {
        let mut done = (text.to_owned(), 0);
        for edit in edits {
            let parts: Vec<&str> = done.0.split(edit.old).collect();
            let found = parts.len() - 1;
            let is_wanted = found == 1 || (found > 1 && edit.all);
            let text = parts.join(edit.new);
            if !is_wanted || text.len() > cap {
                return None;
            }
            done = (text, done.1 + found);
        }
        Some(done)
    }

    /// 100,000 changed lists of edits: each does what it says, or is refused.
    #[test]
    fn mutated_edits() {
        const CASES: usize = 100_000;
        const TEXT: &str = "fn a() {}\nfn b() {}\nlet \u{e9} = \"aa\";\n";
        const CAP: usize = TEXT.len() + 8;
        const SEEDS: [&[u8]; 4] = [
            br#"[{"old":"fn a","new":"fn first"}]"#,
            br#"[{"old":"fn","new":"f","all":true},{"old":"\u00e9","new":""}]"#,
            br#"[{"old":"a","new":"aa","all":true},{"old":"aaaa","new":"b","all":false}]"#,
            br#"[{"old":"\n","new":"\n\n","all":true},{"old":"{}","new":"{ }","all":true}]"#,
        ];
        const WORDS: [&[u8]; 12] = [
            b"{",
            b"}",
            b",",
            b"\"",
            b"\\n",
            b"fn ",
            b"a",
            b"null",
            b"\"all\":true,",
            b"\"new\":\"xxxxxxxxxxxxxxxx\"",
            b"\"old\":\"b\",",
            b"\xff",
        ];
        let mut random = Random::new("mutated edits");
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..CASES {
            let bytes = mutant(&mut random, &SEEDS, &WORDS);
            let Ok(input) = serde_json::from_slice::<Value>(&bytes) else {
                continue;
            };
            let Ok(edits) = arguments::<Vec<TextEdit<'_>>>(&input) else {
                continue;
            };
            let done = replaced(TEXT.to_owned(), &edits, CAP as u64);
            // The schema lets no empty text through.
            if edits.iter().any(|edit| edit.old.is_empty()) {
                continue;
            }
            match &done {
                Ok(_) => taken += 1,
                Err(Fault::BadValue { .. } | Fault::TooLarge { .. }) => refused += 1,
                Err(other) => panic!("{edits:?}: {other:?}"),
            }
            assert_eq!(done.ok(), by_definition(TEXT, &edits, CAP), "{edits:?}");
        }
        eprintln!("mutated edits: {taken} taken, {refused} refused, of {CASES}");
        assert!(taken > 0 && refused > 0);
    }
}
