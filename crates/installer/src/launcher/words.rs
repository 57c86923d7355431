//! The words of a launcher's command: flags with their values, then the first word that is none.

use super::LauncherError;

/// The name of a program without its folder and without the ending that Windows gives scripts.
pub(super) fn program_name(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let lower = name.to_ascii_lowercase();
    let endings = [".cmd", ".exe", ".ps1", ".bat"];
    let plain = endings.iter().find_map(|ending| lower.strip_suffix(ending));
    plain.unwrap_or(name).to_owned()
}

/// The meaning of a flag to its launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagKind<T> {
    /// No value, and nothing that would be lost: `--yes`.
    Ignored,
    /// A value that does not matter: `--loglevel warn`.
    IgnoredValue,
    /// A switch that matters.
    Switch(T),
    /// A value that matters.
    Value(T),
}

/// One word of a command, as a launcher reads it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word<'a, T> {
    /// A flag with its value; an empty one for a switch.
    Flag(T, &'a str),
    /// A word that is no flag.
    Plain(&'a str),
    /// `--`.
    End,
}

/// The words that are left of a command.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    launcher: &'static str,
    rest: &'a [String],
}

impl<'a> Words<'a> {
    pub fn new(launcher: &'static str, rest: &'a [String]) -> Self {
        Self { launcher, rest }
    }

    /// All words that are left.
    pub fn rest(&self) -> Vec<String> {
        self.rest.to_vec()
    }

    /// The next word as it is.
    pub fn next_plain(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next word that is not ignored. `kind` knows the flags of the launcher.
    pub fn next<T: Copy>(
        &mut self,
        kind: impl Fn(&str) -> Option<FlagKind<T>>,
    ) -> Result<Option<Word<'a, T>>, LauncherError> {
        while let Some(word) = self.next_plain() {
            if word == "--" {
                return Ok(Some(Word::End));
            }
            if !word.starts_with('-') || word == "-" {
                return Ok(Some(Word::Plain(word)));
            }
            let (flag, joined) = match word.split_once('=') {
                Some((flag, value)) if word.starts_with("--") => (flag, Some(value)),
                _ => (word, None),
            };
            let unknown = || LauncherError::Flag {
                launcher: self.launcher,
                flag: flag.to_owned(),
            };
            match (kind(flag).ok_or_else(unknown)?, joined) {
                (FlagKind::Ignored, _) => {}
                (FlagKind::IgnoredValue, Some(_)) => {}
                (FlagKind::IgnoredValue, None) => {
                    self.value(flag)?;
                }
                (FlagKind::Switch(flag), None) => return Ok(Some(Word::Flag(flag, ""))),
                (FlagKind::Switch(_), Some(_)) => return Err(unknown()),
                (FlagKind::Value(known), Some(value)) => {
                    return Ok(Some(Word::Flag(known, value)));
                }
                (FlagKind::Value(known), None) => {
                    return Ok(Some(Word::Flag(known, self.value(flag)?)));
                }
            }
        }
        Ok(None)
    }

    fn value(&mut self, flag: &str) -> Result<&'a str, LauncherError> {
        let launcher = self.launcher;
        self.next_plain()
            .ok_or_else(|| LauncherError::MissingValue {
                launcher,
                flag: flag.to_owned(),
            })
    }
}
