//! `pack.yaml`: what a pack is, and which tools it has. TP-61.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::bindings::{Binding, Kind, RunnerWord, binding, write_binding};
use super::lines::{Line, LineError, NAME_CHARS_MAX, Pair, TOOLS_MAX, blocks, lines, quoted};

/// A pack's manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackManifest {
    /// `acme.greeter`.
    pub id: String,
    /// For people.
    pub name: String,
    /// Any text.
    pub version: String,
    /// For people.
    pub description: String,
    /// For people.
    pub author: String,
    /// For people.
    pub license: String,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// What runs a tool whose binding does not say.
    pub runner: Option<RunnerWord>,
    /// Of tools that are services and name no address.
    pub service_url: Option<String>,
    /// Of tools that are containers and name none.
    pub container_image: Option<String>,
    /// What its tools are bound to, where the pack has no `tools.yaml`.
    pub entrypoints: Option<BTreeMap<String, Binding>>,
    /// Who signed it in the older form.
    pub signer_id: Option<String>,
    /// When that was.
    pub signed_at: Option<String>,
    /// What was signed then. It covers neither code nor capabilities, so nothing rests on it.
    pub digest: Option<String>,
}

/// True if it may be a pack's id: it becomes the name of a folder, and a part of tools' names.
#[must_use]
pub fn is_pack_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// Reads a manifest.
pub fn read_pack(text: &str) -> Result<PackManifest, LineError> {
    let all = lines(text)?;
    let mut pack = PackManifest::default();
    let mut seen: Vec<String> = Vec::new();
    let mut rest = all.as_slice();
    while let Some((line, after)) = rest.split_first() {
        if line.indent != 0 {
            return Err(line.wrong(0, "this belongs to no key above it"));
        }
        let pair = line.pair()?;
        if seen.contains(&pair.key) {
            return Err(line.wrong(0, format!("`{}` is said twice", pair.key)));
        }
        let end = after.iter().position(|line| line.indent == 0);
        let (below, next) = after.split_at(end.unwrap_or(after.len()));
        pack.take(&pair, below)?;
        seen.push(pair.key);
        rest = next;
    }
    let needed = [
        "id",
        "name",
        "version",
        "description",
        "author",
        "license",
        "tools",
    ];
    match needed
        .into_iter()
        .find(|key| !seen.iter().any(|seen| seen == key))
    {
        None => Ok(pack),
        Some(key) => Err(LineError {
            line: 1,
            column: 1,
            reason: format!("`{key}` is missing"),
        }),
    }
}

impl PackManifest {
    fn take(&mut self, pair: &Pair<'_>, below: &[Line<'_>]) -> Result<(), LineError> {
        match pair.key.as_str() {
            "id" => self.id = id(pair, below)?,
            "name" => self.name = text(pair, below)?,
            "version" => self.version = text(pair, below)?,
            "description" => self.description = text(pair, below)?,
            "author" => self.author = text(pair, below)?,
            "license" => self.license = text(pair, below)?,
            "service_url" => self.service_url = Some(text(pair, below)?),
            "signer_id" => self.signer_id = Some(text(pair, below)?),
            "signed_at" => self.signed_at = Some(text(pair, below)?),
            "digest" => self.digest = Some(text(pair, below)?),
            "tools" => self.tools = tools(pair, below)?,
            "runners" => {
                let default = only(pair, below, "default")?;
                self.runner = Some(default.word(&RunnerWord::WORDS)?);
            }
            "container" => self.container_image = Some(only(pair, below, "image")?.text()?),
            "entrypoints" => self.entrypoints = Some(entrypoints(pair, below)?),
            other => {
                return Err(pair.wrong_key(format!(
                    "`{other}` is not a key: id, name, version, description, author, license, \
                     tools, runners, service_url, container, entrypoints, signer_id, signed_at \
                     and digest are"
                )));
            }
        }
        Ok(())
    }
}

fn text(pair: &Pair<'_>, below: &[Line<'_>]) -> Result<String, LineError> {
    match below.first() {
        Some(line) => Err(line.wrong(0, format!("`{}` is one text on its own line", pair.key))),
        None => pair.text(),
    }
}

fn id(pair: &Pair<'_>, below: &[Line<'_>]) -> Result<String, LineError> {
    let id = text(pair, below)?;
    if is_pack_id(&id) {
        return Ok(id);
    }
    Err(pair
        .wrong("an id is at most 64 letters, digits, `_`, `-` and `.`, a letter or digit first"))
}

fn no_value(pair: &Pair<'_>) -> Result<(), LineError> {
    if pair.value.is_empty() {
        return Ok(());
    }
    Err(pair.wrong(format!(
        "what `{}` has stands below it, indented by 2 blanks",
        pair.key
    )))
}

fn tools(pair: &Pair<'_>, below: &[Line<'_>]) -> Result<Vec<String>, LineError> {
    no_value(pair)?;
    let mut names: Vec<String> = Vec::new();
    for line in below {
        if line.indent != 2 {
            return Err(line.wrong(0, "indent the items of the list by 2 blanks"));
        }
        let name = line.item()?;
        if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
            return Err(line.wrong(0, format!("a name has 1 to {NAME_CHARS_MAX} characters")));
        }
        if names.contains(&name) {
            return Err(line.wrong(0, format!("`{name}` is named twice")));
        }
        if names.len() == TOOLS_MAX {
            return Err(line.wrong(0, format!("more than {TOOLS_MAX} tools")));
        }
        names.push(name);
    }
    if names.is_empty() {
        return Err(pair.wrong("a pack has at least one tool"));
    }
    Ok(names)
}

/// The one field of a small block.
fn only<'a>(pair: &Pair<'_>, below: &[Line<'a>], key: &str) -> Result<Pair<'a>, LineError> {
    no_value(pair)?;
    match below {
        [line] if line.indent == 2 => match line.pair()? {
            found if found.key == key => Ok(found),
            _ => Err(line.wrong(0, format!("only `{key}` stands here"))),
        },
        [line, ..] if line.indent != 2 => Err(line.wrong(0, "indent by 2 blanks")),
        [_, second, ..] => Err(second.wrong(0, format!("only `{key}` stands here"))),
        _ => Err(pair.wrong_key(format!("`{}` needs `{key}` below it", pair.key))),
    }
}

fn entrypoints(
    pair: &Pair<'_>,
    below: &[Line<'_>],
) -> Result<BTreeMap<String, Binding>, LineError> {
    no_value(pair)?;
    let blocks = blocks(below)?;
    blocks
        .into_iter()
        .map(|(name, fields)| {
            let binding = binding(&name, &fields, Some(Kind::Python))?;
            Ok((name.key, binding))
        })
        .collect()
}

/// Writes a manifest.
#[must_use]
pub fn write_pack(pack: &PackManifest) -> String {
    let mut out = String::new();
    let mut put = |key: &str, text: Option<&str>| {
        if let Some(text) = text {
            let _ = writeln!(out, "{key}: {}", quoted(text));
        }
    };
    put("id", Some(&pack.id));
    put("name", Some(&pack.name));
    put("version", Some(&pack.version));
    put("description", Some(&pack.description));
    put("author", Some(&pack.author));
    put("license", Some(&pack.license));
    put("service_url", pack.service_url.as_deref());
    put("signer_id", pack.signer_id.as_deref());
    put("signed_at", pack.signed_at.as_deref());
    put("digest", pack.digest.as_deref());
    out.push_str("tools:\n");
    for tool in &pack.tools {
        let _ = writeln!(out, "  - {}", quoted(tool));
    }
    if let Some(runner) = pack.runner {
        let _ = writeln!(out, "runners:\n  default: {}", quoted(runner.as_str()));
    }
    if let Some(image) = &pack.container_image {
        let _ = writeln!(out, "container:\n  image: {}", quoted(image));
    }
    if let Some(entrypoints) = &pack.entrypoints {
        out.push_str("entrypoints:\n");
        for (name, binding) in entrypoints {
            write_binding(&mut out, name, binding);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"# A pack.
id: "acme.greeter"
name: "Greeter"
version: "1.2.0"
description: "Greets: politely"
author: Acme
license: "MIT"
tools:
  - "greet someone"
  - plain
runners:
  default: "local"
service_url: "http://127.0.0.1:8787/tools"
container:
  image: "x/y:1"
entrypoints:
  "greet someone":
    entry: "tools.greet:run"
  plain:
    kind: "python"
    entry: "tools.plain:run"
    timeout_ms: "250"
signer_id: "acme.key"
signed_at: "not_recorded"
digest: "sha256:00"
"#;

    /// TP-61, P-11: every key, those of the older signature included.
    #[test]
    fn everything() {
        let pack = read_pack(ALL).unwrap();
        assert_eq!(pack.description, "Greets: politely");
        assert_eq!(pack.tools, ["greet someone", "plain"]);
        assert_eq!(pack.runner, Some(RunnerWord::Local));
        assert_eq!(pack.container_image.as_deref(), Some("x/y:1"));
        let entrypoints = pack.entrypoints.as_ref().unwrap();
        assert_eq!(entrypoints["plain"].timeout_ms, Some(250));
        assert_eq!(entrypoints["greet someone"].kind, Kind::Python);
        assert_eq!(read_pack(&write_pack(&pack)).unwrap(), pack);
    }

    #[test]
    fn refused() {
        for (from, to, line, words) in [
            ("name: \"Greeter\"\n", "", 1, "`name` is missing"),
            ("license: \"MIT\"\n", "license:\n", 7, "is empty"),
            (
                "license: \"MIT\"\n",
                "license: \"MIT\"\n  x: y\n",
                8,
                "one text",
            ),
            ("id: \"acme.greeter\"", "id: \"../x\"", 2, "an id is"),
            ("author: Acme", "autor: Acme", 6, "not a key"),
            ("author: Acme", "name: Acme", 6, "said twice"),
            ("  - plain", "  - \"greet someone\"", 10, "named twice"),
            ("  - plain", "  plain", 10, "`- name`"),
            ("  - plain", "    - plain", 10, "by 2 blanks"),
            (
                "default: \"local\"",
                "default: \"cloud\"",
                12,
                "local, service",
            ),
            (
                "default: \"local\"",
                "other: \"local\"",
                12,
                "only `default`",
            ),
            ("    entry: \"tools.greet:run\"\n", "", 17, "needs `entry`"),
        ] {
            assert!(ALL.contains(from), "{from}");
            let error = read_pack(&ALL.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.line, line, "{to}: {error}");
            assert!(error.reason.contains(words), "{to}: {error}");
        }
        assert!(!is_pack_id("") && !is_pack_id(".a") && !is_pack_id("a/b") && is_pack_id("a.b-1"));
    }
}
