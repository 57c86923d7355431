//! What goes wrong, and how it is said.
//!
//! A `Problem` is something to mend in a file of the project; a `Failure` ends
//! the command. Neither is printed where it is found.

use std::fmt;
use std::io::{self, Write};

/// Something to mend, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// A file of the project, with a line where that helps.
    pub place: String,
    pub text: String,
}

impl Problem {
    pub fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            text: text.into(),
        }
    }

    pub fn at_line(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self::new(format!("{path}:{line}"), text)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// The end of a command, in words for the person who typed it.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes to stdout; a reader that left early (`| head`) is no error.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _closed_pipe = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
