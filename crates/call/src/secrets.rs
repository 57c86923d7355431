//! Values that must never be stored, logged or answered (R-15), and their removal.

use std::borrow::Cow;

use serde_json::Value;

/// What stands in a secret's place.
pub(crate) const PLACEHOLDER: &str = "[secret]";

/// What stands in place of each byte of a secret where lengths must not change.
pub(crate) const FILLER: u8 = b'*';

/// Shorter values would be found everywhere.
const SECRET_BYTES_MIN: usize = 4;

/// The known secrets. Prints nothing of them.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Longer values go first, so that a secret inside another does not break it up.
    #[must_use]
    pub fn new(mut values: Vec<String>) -> Self {
        values.retain(|value| value.len() >= SECRET_BYTES_MIN);
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self(values)
    }

    /// These and `more`.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = String>) -> Self {
        Self::new(self.0.iter().cloned().chain(more).collect())
    }

    /// As they stand inside a text of JSON.
    #[must_use]
    pub fn in_json(&self) -> Self {
        let escaped = self.0.iter().map(|secret| {
            let text = Value::String(secret.clone()).to_string();
            text[1..text.len() - 1].to_owned()
        });
        self.with(escaped.collect::<Vec<_>>())
    }

    /// As they stand inside a URL, too. Which bytes are escaped there depends on who writes it:
    /// all but the unreserved ones, those that `encodeURIComponent` leaves, a path's slashes,
    /// or what the user's part of a parsed URL may hold; and digits may be small ones.
    #[must_use]
    pub fn in_urls(&self) -> Self {
        const LEFT: &[&str] = &["-._~", "-._~!'()*", "-._~/", "-._~!$&'()*+,%"];
        let escaped = self.0.iter().flat_map(|secret| {
            let forms = LEFT.iter().flat_map(move |left| {
                [false, true].map(|small| percent_encoded(secret, left, small))
            });
            forms.filter(move |form| form != secret)
        });
        self.with(escaped.collect::<Vec<_>>())
    }

    /// True if nothing is secret, so that nothing needs to be looked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The longer ones first.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Bytes of the longest: so much must be seen with a text that was cut, to find a secret
    /// at the cut.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// Bytes at the end of `text` with which a secret may have begun: what comes next shows
    /// whether one has.
    #[must_use]
    pub fn begun(&self, text: &str) -> usize {
        let begun = |secret: &String| {
            let longest = text.len().min(secret.len() - 1);
            let (text, secret) = (text.as_bytes(), secret.as_bytes());
            (1..=longest)
                .rev()
                .find(|&length| text.ends_with(&secret[..length]))
        };
        self.0.iter().filter_map(begun).max().unwrap_or(0)
    }

    /// The text without its secrets; `None` if it has none.
    #[must_use]
    pub fn cleaned(&self, text: &str) -> Option<String> {
        let mut cleaned: Option<String> = None;
        for secret in &self.0 {
            let current = cleaned.as_deref().unwrap_or(text);
            if current.contains(secret.as_str()) {
                cleaned = Some(current.replace(secret.as_str(), PLACEHOLDER));
            }
        }
        cleaned
    }

    /// The text without its secrets.
    #[must_use]
    pub fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.cleaned(text).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// The same, with what is left of it in the lines where it was.
    #[must_use]
    pub fn clean_in_lines<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut cleaned = Cow::Borrowed(text);
        for secret in &self.0 {
            if cleaned.contains(secret.as_str()) {
                let lines = "\n".repeat(secret.matches('\n').count());
                let mask = format!("{PLACEHOLDER}{lines}");
                cleaned = Cow::Owned(cleaned.replace(secret.as_str(), &mask));
            }
        }
        cleaned
    }

    /// Returns the bytes with `*` in place of every byte of a secret, so that their number and the
    /// places of all others stay; `None` if there is no secret in them.
    #[must_use]
    pub fn filled(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut filled: Option<Vec<u8>> = None;
        for secret in &self.0 {
            let (secret, mut from) = (secret.as_bytes(), 0);
            loop {
                let current = filled.as_deref().unwrap_or(bytes);
                let Some(at) = memchr::memmem::find(&current[from..], secret) else {
                    break;
                };
                let at = from + at;
                filled.get_or_insert_with(|| bytes.to_vec())[at..at + secret.len()].fill(FILLER);
                from = at + secret.len();
            }
        }
        filled
    }

    /// Cleans every string and key inside `value`; true if anything was found.
    pub fn clean_value(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => match self.cleaned(text) {
                Some(cleaned) => {
                    *text = cleaned;
                    true
                }
                None => false,
            },
            Value::Array(items) => items
                .iter_mut()
                .fold(false, |found, item| self.clean_value(item) | found),
            Value::Object(members) => {
                let mut found = false;
                for key in members.keys().cloned().collect::<Vec<_>>() {
                    if let Some(cleaned) = self.cleaned(&key)
                        && let Some(inner) = members.remove(&key)
                    {
                        members.insert(cleaned, inner);
                        found = true;
                    }
                }
                members
                    .values_mut()
                    .fold(found, |found, inner| self.clean_value(inner) | found)
            }
        }
    }
}

/// A text with `%40` for what is neither a letter, a digit nor in `left`.
fn percent_encoded(text: &str, left: &str, small: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            _ if byte.is_ascii_alphanumeric() || left.as_bytes().contains(&byte) => {
                encoded.push(char::from(byte));
            }
            _ if small => encoded.push_str(&format!("%{byte:02x}")),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// R-15: in strings, in keys, at any depth, and one inside another.
    #[test]
    fn found_everywhere() {
        let secrets = Secrets::new(vec!["s3cret".into(), "s3cret-long".into(), "abc".into()]);
        let mut value = json!({"a": ["x s3cret-long y", {"s3cret": 1}], "abc": "abc"});
        assert!(secrets.clean_value(&mut value));
        assert_eq!(
            value,
            json!({"a": ["x [secret] y", {"[secret]": 1}], "abc": "abc"})
        );
        assert!(!secrets.clean_value(&mut json!({"clean": true})));
        assert_eq!(format!("{secrets:?}"), "Secrets(2)");
    }

    /// R-15: a secret of many lines leaves as many.
    #[test]
    fn lines_stay_where_they_are() {
        let secrets = Secrets::new(vec!["begin\nkey\nend".into(), "word".into()]);
        let text = "a word\nbegin\nkey\nend\nb\n";
        let cleaned = secrets.clean_in_lines(text);
        assert_eq!(cleaned, "a [secret]\n[secret]\n\n\nb\n");
        assert_eq!(cleaned.lines().count(), text.lines().count());
        assert_eq!(secrets.clean_in_lines("plain"), "plain");
    }

    /// R-15: a secret that JSON has to write in another way.
    #[test]
    fn found_in_json() {
        let secrets = Secrets::new(vec!["a\"b\\c".into()]).in_json();
        let line = json!({ "t": "x a\"b\\c y" }).to_string();
        assert_eq!(secrets.clean(&line), r#"{"t":"x [secret] y"}"#);
        assert_eq!(secrets.clean("a\"b\\c"), "[secret]");
    }

    /// R-15: a secret that a URL has to write in another way, whoever writes it.
    #[test]
    fn found_in_urls() {
        let secrets = Secrets::new(vec!["p@s/s:(é)+1".into(), "plain".into()]).in_urls();
        for form in [
            "p@s/s:(é)+1",
            "p%40s%2Fs%3A%28%C3%A9%29%2B1",
            "p%40s%2fs%3a%28%c3%a9%29%2b1",
            "p%40s%2Fs%3A(%C3%A9)%2B1",
            "p%40s/s%3A%28%C3%A9%29%2B1",
            "p%40s%2Fs%3A(%C3%A9)+1",
        ] {
            let url = format!("http://u:{form}@host/plain");
            assert_eq!(secrets.clean(&url), "http://u:[secret]@host/[secret]");
        }
    }

    /// R-15: in bytes, whose number stays.
    #[test]
    fn found_in_bytes() {
        let secrets = Secrets::new(vec!["s3cret".into(), "s3cret-long".into(), "aaaa".into()]);
        let filled = secrets.filled(b"\xff\0s3cret-long s3crets3cret\xfeaaaaaaaaa");
        assert_eq!(
            filled.unwrap(),
            b"\xff\0*********** ************\xfe********a"
        );
        assert_eq!(secrets.filled(b"\xffs3cre\0t"), None);
    }

    #[test]
    fn the_beginning_of_one_is_seen() {
        let secrets = Secrets::new(vec!["abab-é!".into(), "xyzzy".into()]);
        for (text, begun) in [
            ("", 0),
            ("plain", 0),
            ("b", 0),
            ("tab", 2),
            ("ab-ab", 2),
            ("aabab-é", 7),
            ("abab-é!", 0),
            ("é xyz", 3),
        ] {
            assert_eq!(secrets.begun(text), begun, "{text}");
        }
    }
}
