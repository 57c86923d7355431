//! The last word on a call that had a process of its own: a line of the zygote that forked it.
//!
//! ```text
//! <tab>{"exit":0}
//! <tab>{"signal":11,"left":true}
//! ```
//!
//! What the process itself said comes before it and holds no tab: a zygote sees to that.

use callgate_sandbox::Ending;
use serde::Deserialize;

/// Begins a verdict, behind whatever the process left unfinished.
const MARK: u8 = b'\t';

/// How a call's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub ending: Ending,
    /// Something it started may still be alive.
    pub left: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    exit: Option<i32>,
    #[serde(default)]
    signal: Option<i32>,
    #[serde(default)]
    left: bool,
}

impl Verdict {
    /// The verdict in a line, if it holds one; an error if that can not be read.
    pub fn find(line: &[u8]) -> Option<Result<Self, String>> {
        let at = memchr::memchr(MARK, line)?;
        Some(Self::read(&line[at + 1..]))
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let ending = match (line.exit, line.signal) {
            (Some(code), None) => Ending::Code(code),
            (None, Some(signal)) => Ending::Signal(signal),
            _ => return Err("it needs either `exit` or `signal`".to_owned()),
        };
        let left = line.left;
        Ok(Self { ending, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let found = |line: &str| Verdict::find(line.as_bytes());
        let verdict = |ending, left| Some(Ok(Verdict { ending, left }));
        assert_eq!(found("{\"call\":\"x\",\"output\":1}"), None);
        assert_eq!(found("\t{\"exit\":0}"), verdict(Ending::Code(0), false));
        assert_eq!(
            found("{\"call\t{\"signal\":9,\"left\":true}"),
            verdict(Ending::Signal(9), true)
        );
        for wrong in ["\t", "\t{}", "\t{\"exit\":0,\"signal\":1}"] {
            assert!(found(wrong).is_some_and(|found| found.is_err()), "{wrong}");
        }
    }
}
