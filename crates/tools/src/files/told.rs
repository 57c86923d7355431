//! Answers that were told before. A file that is as it was is told in the same words, so that they
//! are written and hashed once. Its bytes are read all the same and compared: that nothing has
//! changed is never taken on the word of a time stamp.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use callgate_call::Document;

use super::etag::Stamp;

/// Bytes of all answers; at the bound all are forgotten.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// The newest answer for each file.
#[derive(Default)]
pub struct Told(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    answers: HashMap<OsString, (Stamp, Document)>,
    bytes: usize,
}

impl Told {
    /// The answer for a file that has these bytes, if it was told of it as it is.
    pub fn again(&self, real: &Path, stamp: Stamp, bytes: &[u8]) -> Option<Document> {
        let kept = self.kept();
        let (told_of, answer) = kept.answers.get(real.as_os_str())?;
        let content = answer.value()["content"].as_str()?;
        (*told_of == stamp && content.as_bytes() == bytes).then(|| answer.clone())
    }

    /// Keeps an answer that tells all of a file.
    pub fn keep(&self, real: &Path, stamp: Stamp, answer: &Document) {
        let bytes = answer.text().len();
        let mut kept = self.kept();
        if kept.bytes + bytes > KEPT_BYTES_MAX {
            *kept = Kept::default();
        }
        kept.bytes += bytes;
        let key = real.as_os_str().to_owned();
        if let Some((_, before)) = kept.answers.insert(key, (stamp, answer.clone())) {
            kept.bytes -= before.text().len();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stamp(number: u64) -> Stamp {
        Stamp::from([number; 7])
    }

    #[test]
    fn only_what_is_as_it_was() {
        let told = Told::default();
        let (a, b) = (Path::new("a"), Path::new("b"));
        let answer = Document::from_value(json!({ "content": "text" }));
        told.keep(a, stamp(1), &answer);
        assert_eq!(told.again(a, stamp(1), b"text"), Some(answer.clone()));
        assert_eq!(told.again(a, stamp(2), b"text"), None);
        assert_eq!(told.again(a, stamp(1), b"Text"), None);
        assert_eq!(told.again(b, stamp(1), b"text"), None);
        let other = Document::from_value(json!({ "content": "more text" }));
        told.keep(a, stamp(2), &other);
        assert_eq!(told.again(a, stamp(1), b"text"), None);
        assert_eq!(told.again(a, stamp(2), b"more text"), Some(other.clone()));
        assert_eq!(told.kept().bytes, other.text().len());
    }

    /// At the bound, and just past it.
    #[test]
    fn little_is_kept() {
        let told = Told::default();
        let around = Document::from_value(json!({ "content": "" })).text().len();
        let answer = |bytes: usize| {
            let content = "x".repeat(bytes - around);
            Document::from_value(json!({ "content": content }))
        };
        told.keep(Path::new("a"), stamp(1), &answer(KEPT_BYTES_MAX / 2));
        told.keep(Path::new("b"), stamp(1), &answer(KEPT_BYTES_MAX / 2));
        assert_eq!(told.kept().answers.len(), 2);
        told.keep(Path::new("c"), stamp(1), &answer(around + 1));
        assert_eq!(told.kept().answers.len(), 1);
        assert_eq!(told.kept().bytes, around + 1);
    }
}
