//! JSON written member by member: a trace is made for every call, and a tree of values would
//! cost as much as all the rest of it.

use std::fmt::Write as _;

use callgate_text::is_json_plain;

/// An object in the making.
pub(super) struct Text(String);

/// Room for most traces.
const CAPACITY: usize = 2 * 1024;

impl Text {
    pub(super) fn new() -> Self {
        let mut text = String::with_capacity(CAPACITY);
        text.push('{');
        Self(text)
    }

    /// The name of the next value. The names of one object differ: who calls sees to it.
    pub(super) fn name(&mut self, name: &'static str) -> &mut Self {
        self.next();
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self
    }

    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.next();
        if is_json_plain(text.as_bytes()) {
            self.0.push('"');
            self.0.push_str(text);
            self.0.push('"');
        } else {
            let quoted = serde_json::to_string(text).expect("a text is JSON");
            self.0.push_str(&quoted);
        }
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.next();
        let _ = write!(self.0, "{number}"); // a String takes everything
        self
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.next();
        self.0.push_str(if flag { "true" } else { "false" });
        self
    }

    /// An object or an array that `inside` fills.
    pub(super) fn object(&mut self, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.next();
        self.0.push('{');
        inside(self);
        self.0.push('}');
        self
    }

    pub(super) fn array(&mut self, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.open_array();
        inside(self);
        self.close_array()
    }

    /// An array that is closed later.
    pub(super) fn open_array(&mut self) -> &mut Self {
        self.next();
        self.0.push('[');
        self
    }

    pub(super) fn close_array(&mut self) -> &mut Self {
        self.0.push(']');
        self
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// A value follows: after another one comes a comma. Strings end with a quotation mark, so
    /// that none of these is the end of one.
    fn next(&mut self) {
        if !self.0.ends_with(['{', '[', ':']) {
            self.0.push(',');
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn is_json() {
        let mut text = Text::new();
        text.name("a").string("plain ü {[:");
        text.name("b").string("\"quoted\"\\ \n\u{1}\u{7f}");
        text.name("c").object(|inside| {
            inside.name("n").number(u64::MAX).name("f").flag(true);
            inside.name("empty").object(|_| {});
        });
        text.name("d").array(|inside| {
            inside.string("x").number(0).array(|_| {}).flag(false);
        });
        text.name("e").open_array().number(1).close_array();
        let read: Value = serde_json::from_str(&text.finish()).expect("JSON");
        assert_eq!(
            read,
            json!({
                "a": "plain ü {[:",
                "b": "\"quoted\"\\ \n\u{1}\u{7f}",
                "c": { "n": u64::MAX, "f": true, "empty": {} },
                "d": ["x", 0, [], false],
                "e": [1],
            })
        );
    }
}
