//! `tools.yaml`: which code a tool's name stands for, and what runs it. TP-59, TP-60.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::lines::{LineError, Pair, below, blocks, quoted};

/// What a name is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its language.
    pub kind: Kind,
    /// `module:function`.
    pub entry: String,
    /// What runs it; local if not said.
    pub runner: Option<RunnerWord>,
    /// Of a service.
    pub url: Option<String>,
    /// Of a container.
    pub image: Option<String>,
    /// Of a container: what runs in it.
    pub command: Option<Vec<String>>,
    /// Of a container: its environment.
    pub env: Option<BTreeMap<String, String>>,
    /// Outranks what the tool itself declares.
    pub purity: Option<Purity>,
    /// The longest a call may take.
    pub timeout_ms: Option<u64>,
    /// Whether it is confined.
    pub sandbox: Option<bool>,
    /// Of a container: what its maker says of its guarantees.
    pub enforcement: Option<Claim>,
}

/// The language of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Python,
    Node,
}

/// What runs a tool, as files say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum RunnerWord {
    Local,
    Service,
    Container,
    Node,
}

/// Whether a tool has effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Purity {
    Pure,
    Impure,
}

/// What a file says of a container's guarantees. It proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Claim {
    Declared,
    Verified,
}

impl Kind {
    const WORDS: [(&str, Self); 2] = [("python", Self::Python), ("node", Self::Node)];
}

impl RunnerWord {
    pub(super) const WORDS: [(&str, Self); 4] = [
        ("local", Self::Local),
        ("service", Self::Service),
        ("container", Self::Container),
        ("node", Self::Node),
    ];

    /// The word in files and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        word_of(&Self::WORDS, self)
    }
}

impl Purity {
    const WORDS: [(&str, Self); 2] = [("pure", Self::Pure), ("impure", Self::Impure)];

    /// The word in files and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        word_of(&Self::WORDS, self)
    }
}

impl Claim {
    const WORDS: [(&str, Self); 2] = [("declared", Self::Declared), ("verified", Self::Verified)];
}

const SWITCH: [(&str, bool); 2] = [("true", true), ("false", false)];

pub(super) fn word_of<T: PartialEq + Copy>(words: &[(&'static str, T)], value: T) -> &'static str {
    let known = words.iter().find(|(_, known)| *known == value);
    known.map_or("", |(word, _)| word)
}

/// Reads a bindings file.
pub fn read_bindings(text: &str) -> Result<BTreeMap<String, Binding>, LineError> {
    let blocks = blocks(&below(text, "tools:")?)?;
    blocks
        .into_iter()
        .map(|(name, fields)| {
            let binding = binding(&name, &fields, None)?;
            Ok((name.key, binding))
        })
        .collect()
}

/// The binding of a name by its fields; `kind` is what it is if nothing is said.
pub(super) fn binding(
    name: &Pair<'_>,
    fields: &[Pair<'_>],
    kind: Option<Kind>,
) -> Result<Binding, LineError> {
    let mut said = Said {
        kind,
        ..Said::default()
    };
    for field in fields {
        said.take(field)?;
    }
    let missing = |field: &str| name.wrong_key(format!("`{}` needs `{field}`", name.key));
    let entry = said.entry.ok_or_else(|| missing("entry"))?;
    Ok(Binding {
        kind: said.kind.ok_or_else(|| missing("kind"))?,
        entry,
        runner: said.runner,
        url: said.url,
        image: said.image,
        command: said.command,
        env: said.env,
        purity: said.purity,
        timeout_ms: said.timeout_ms,
        sandbox: said.sandbox,
        enforcement: said.enforcement,
    })
}

/// The fields that were seen.
#[derive(Default)]
struct Said {
    kind: Option<Kind>,
    entry: Option<String>,
    runner: Option<RunnerWord>,
    url: Option<String>,
    image: Option<String>,
    command: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    purity: Option<Purity>,
    timeout_ms: Option<u64>,
    sandbox: Option<bool>,
    enforcement: Option<Claim>,
}

impl Said {
    fn take(&mut self, field: &Pair<'_>) -> Result<(), LineError> {
        match field.key.as_str() {
            "kind" => self.kind = Some(field.word(&Kind::WORDS)?),
            "entry" => self.entry = Some(entry(field)?),
            "runner" => self.runner = Some(field.word(&RunnerWord::WORDS)?),
            "url" => self.url = Some(field.text()?),
            "image" => self.image = Some(field.text()?),
            "command" => self.command = Some(field.texts()?),
            "env" => self.env = Some(env(field)?),
            "purity" => self.purity = Some(field.word(&Purity::WORDS)?),
            "timeout_ms" => self.timeout_ms = Some(timeout(field)?),
            "sandbox" => self.sandbox = Some(field.word(&SWITCH)?),
            "enforcement" => self.enforcement = Some(field.word(&Claim::WORDS)?),
            other => {
                return Err(field.wrong_key(format!(
                    "`{other}` is not a field: kind, entry, runner, url, image, command, env, \
                     purity, timeout_ms, sandbox and enforcement are"
                )));
            }
        }
        Ok(())
    }
}

fn entry(field: &Pair<'_>) -> Result<String, LineError> {
    let text = field.text()?;
    match text.split_once(':') {
        Some((module, function)) if !module.is_empty() && !function.is_empty() => Ok(text),
        _ => Err(field.wrong(format!("`{text}` is not module:function"))),
    }
}

fn env(field: &Pair<'_>) -> Result<BTreeMap<String, String>, LineError> {
    let texts = match field.json()? {
        Value::Object(all) => all
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(text) => Some((name, text)),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    texts.ok_or_else(|| field.wrong("write texts by their names: {\"NAME\": \"value\"}"))
}

fn timeout(field: &Pair<'_>) -> Result<u64, LineError> {
    let text = field.text()?;
    match text.parse() {
        Ok(ms) if ms > 0 => Ok(ms),
        _ => Err(field.wrong(format!("`{text}` is not a whole number above 0"))),
    }
}

/// True for `module:function` with identifiers between the dots, as Python has them.
#[must_use]
pub fn is_entry(text: &str) -> bool {
    let identifier = |word: &str| {
        word.chars()
            .next()
            .is_some_and(|c| c.is_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    text.split_once(':')
        .is_some_and(|(module, function)| module.split('.').all(identifier) && identifier(function))
}

/// A tool's name as the name of a file: what is no letter or digit becomes `_`.
#[must_use]
pub fn slug(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) {
        format!("tool_{plain}")
    } else {
        plain
    }
}

/// Writes a bindings file.
#[must_use]
pub fn write_bindings(bindings: &BTreeMap<String, Binding>) -> String {
    let mut out = "tools:\n".to_owned();
    for (name, binding) in bindings {
        write_binding(&mut out, name, binding);
    }
    out
}

pub(super) fn write_binding(out: &mut String, name: &str, binding: &Binding) {
    let _ = writeln!(out, "  {}:", quoted(name));
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "    {key}: {value}");
        }
    };
    let word = |word: &str| Some(quoted(word));
    put("kind", word(word_of(&Kind::WORDS, binding.kind)));
    put("entry", word(&binding.entry));
    put("runner", binding.runner.and_then(|it| word(it.as_str())));
    put("url", binding.url.as_deref().and_then(word));
    put("image", binding.image.as_deref().and_then(word));
    let command = binding.command.as_ref();
    put(
        "command",
        command.map(|it| Value::from(it.clone()).to_string()),
    );
    let env = binding.env.as_ref();
    put(
        "env",
        env.map(|it| Value::from_iter(it.clone()).to_string()),
    );
    put("purity", binding.purity.and_then(|it| word(it.as_str())));
    put("timeout_ms", binding.timeout_ms.map(|ms| ms.to_string()));
    put("sandbox", binding.sandbox.map(|it| it.to_string()));
    let claim = binding.enforcement.map(|it| word_of(&Claim::WORDS, it));
    put("enforcement", claim.and_then(word));
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"
# Of the project.
tools:
  "greet someone":
    kind: "python"
    entry: "tools.greet:run"

  plain:
    kind: python
    entry: tools.plain:run
    runner: "container"
    image: 'x/y@sha256:00'
    command: ["python", "-m", "runner"]
    env: {"LOG": "info"}
    purity: "pure"
    timeout_ms: 1500
    sandbox: true
    enforcement: "declared"
  remote:
    kind: "python"
    entry: "tools.remote:run"
    runner: "service"
    url: "http://127.0.0.1:8787/tools?a=b"
"#;

    /// TP-59, TP-60: every field, quoted and plain.
    #[test]
    fn everything() {
        let read = read_bindings(ALL).unwrap();
        let plain = &read["plain"];
        assert_eq!(plain.runner, Some(RunnerWord::Container));
        assert_eq!(
            plain.command.as_ref().unwrap().join(" "),
            "python -m runner"
        );
        assert_eq!(plain.env.as_ref().unwrap()["LOG"], "info");
        assert_eq!((plain.timeout_ms, plain.sandbox), (Some(1500), Some(true)));
        assert_eq!(read["greet someone"].runner, None);
        assert_eq!(read_bindings(&write_bindings(&read)).unwrap(), read);
        assert!(read_bindings("tools:\n").unwrap().is_empty());
    }

    /// TP-59, TP-60: what is refused says where, and what to write.
    #[test]
    fn refused() {
        let one =
            |field: &str| format!("tools:\n  a:\n    kind: python\n    entry: m:f\n    {field}\n");
        assert!(read_bindings(&one("timeout_ms: 1")).is_ok());
        for (text, line, words) in [
            (String::new(), 1, "empty"),
            (
                "tools:\n  a:\n    kind: python\n".to_owned(),
                2,
                "needs `entry`",
            ),
            (
                "tools:\n  a:\n    entry: m:f\n".to_owned(),
                2,
                "needs `kind`",
            ),
            ("tools:\n  a: m:f\n".to_owned(), 2, "below its name"),
            (one("kind: ruby"), 5, "said twice"),
            (one("entri: x"), 5, "not a field"),
            (one("timeout_ms: 0"), 5, "above 0"),
            (one("timeout_ms: 1.5"), 5, "above 0"),
            (one("sandbox: yes"), 5, "true, false"),
            (one("runner: cloud"), 5, "local, service, container, node"),
            (one("command: python"), 5, "not JSON"),
            (one("command: {}"), 5, "list of texts"),
            (one("env: {\"A\": 1}"), 5, "texts by their names"),
            (one("purity: \"\""), 5, "is empty"),
        ] {
            let error = read_bindings(&text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.reason.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn slugs_and_entries() {
        assert_eq!(slug("Greet someone!"), "greet_someone_");
        assert_eq!(slug("2 things"), "tool_2_things");
        assert!(is_entry("tools.a_b:run") && is_entry("m:f") && is_entry("_m.n:_f"));
        for bad in [
            "", "m", "m:", ":f", "a..b:f", "a/b:f", "m:f:g", "../m:f", "1m:f",
        ] {
            assert!(!is_entry(bad), "{bad}");
        }
    }
}
