//! Variables in the notation of each client, read into one form.

use crate::clients::dialects::Variables;
use crate::model::{Piece, Severity, Template};

/// Folders that variables of editors stand for.
pub(super) struct Folders<'a> {
    pub project: Option<&'a str>,
}

/// Text with its variables read.
pub(super) struct ReadText {
    pub template: Template,
    /// What can not be carried.
    pub troubles: Vec<(Severity, String)>,
}

/// A variable as it is found in a text.
enum Found {
    Piece(Piece),
    /// Text in place of the variable.
    Text(String),
    /// No variable: the text stands for itself.
    Nothing,
    Trouble(Severity, String),
}

/// Reads a text.
pub(super) fn read(notation: Variables, text: &str, folders: &Folders<'_>) -> ReadText {
    let mut read = ReadText {
        template: Template::default(),
        troubles: Vec::new(),
    };
    let mut rest = text;
    while let Some((at, len, found)) = next(notation, rest, folders) {
        read.template.push_literal(&rest[..at]);
        let whole = &rest[at..at + len];
        match found {
            Found::Piece(piece) => read.template.pieces.push(piece),
            Found::Text(text) => read.template.push_literal(&text),
            Found::Nothing => read.template.push_literal(whole),
            Found::Trouble(severity, why) => {
                read.template.push_literal(whole);
                read.troubles.push((severity, why));
            }
        }
        rest = &rest[at + len..];
    }
    read.template.push_literal(rest);
    read
}

/// Returns the place and length of the next variable, and what it is.
fn next(notation: Variables, text: &str, folders: &Folders<'_>) -> Option<(usize, usize, Found)> {
    match notation {
        Variables::None => None,
        Variables::Opencode => {
            let at = [text.find("{env:"), text.find("{file:")];
            let at = at.into_iter().flatten().min()?;
            let (inner, len) = enclosed(&text[at..], "{", "}")?;
            Some((at, len, opencode(inner)))
        }
        Variables::Continue => {
            let at = text.find("${{")?;
            let (inner, len) = enclosed(&text[at..], "${{", "}}")?;
            Some((at, len, continue_secret(inner)))
        }
        Variables::Braces => {
            let at = text.find("${")?;
            let (inner, len) = enclosed(&text[at..], "${", "}")?;
            Some((at, len, with_default(inner)))
        }
        Variables::Editor { bare } => {
            let at = text.find("${")?;
            let (inner, len) = enclosed(&text[at..], "${", "}")?;
            Some((at, len, editor(inner, bare, folders)))
        }
        Variables::Shell | Variables::ShellCommands => {
            let at = text.find('$')?;
            let (len, found) = shell(&text[at..], notation == Variables::ShellCommands);
            Some((at, len, found))
        }
    }
}

fn enclosed<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, usize)> {
    let inner = &text[open.len()..];
    let end = inner.find(close)?;
    Some((&inner[..end], open.len() + end + close.len()))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_')
}

fn named(name: &str) -> Found {
    match is_name(name) {
        true => Found::Piece(Piece::Variable {
            name: name.to_owned(),
            default: None,
        }),
        false => Found::Nothing,
    }
}

fn with_default(inner: &str) -> Found {
    let Some((name, default)) = inner.split_once(":-") else {
        return named(inner);
    };
    match (is_name(name), default.contains("${")) {
        (false, _) => Found::Nothing,
        (true, true) => Found::Trouble(
            Severity::Error,
            "a variable in the default of a variable".to_owned(),
        ),
        (true, false) => Found::Piece(Piece::Variable {
            name: name.to_owned(),
            default: Some(default.to_owned()),
        }),
    }
}

fn opencode(inner: &str) -> Found {
    match inner.split_once(':') {
        Some(("env", name)) => named(name),
        Some(("file", path)) => Found::Piece(Piece::File(path.to_owned())),
        _ => Found::Nothing,
    }
}

fn continue_secret(inner: &str) -> Found {
    match inner.trim().split_once('.') {
        Some(("secrets", name)) => named(name),
        _ => Found::Trouble(
            Severity::Error,
            "a variable that only the client knows".to_owned(),
        ),
    }
}

fn editor(inner: &str, is_bare: bool, folders: &Folders<'_>) -> Found {
    let project = || match folders.project {
        Some(project) => Ok(project),
        None => Err(Found::Trouble(
            Severity::Error,
            "the folder that is open in the client".to_owned(),
        )),
    };
    match inner.split_once(':') {
        Some(("env", name)) => named(name),
        Some(("input", id)) => Found::Piece(Piece::Input(id.to_owned())),
        Some(("file", path)) => Found::Piece(Piece::File(path.to_owned())),
        Some(("workspaceFolder", _)) => match project() {
            Ok(_) => Found::Trouble(
                Severity::Error,
                "a folder of a workspace with several".to_owned(),
            ),
            Err(trouble) => trouble,
        },
        Some(_) => Found::Trouble(
            Severity::Error,
            "a variable that only the client knows".to_owned(),
        ),
        None => match inner {
            "workspaceFolder" | "workspaceRoot" => match project() {
                Ok(project) => Found::Text(project.to_owned()),
                Err(trouble) => trouble,
            },
            "workspaceFolderBasename" => match project() {
                Ok(project) => {
                    let name = project.rsplit('/').next().unwrap_or_default();
                    Found::Text(name.to_owned())
                }
                Err(trouble) => trouble,
            },
            "userHome" => named("HOME"),
            "pathSeparator" | "/" => Found::Text("/".to_owned()),
            name if is_bare => named(name),
            _ => Found::Trouble(
                Severity::Error,
                "a variable that only the client knows".to_owned(),
            ),
        },
    }
}

fn shell(text: &str, has_commands: bool) -> (usize, Found) {
    let after = &text[1..];
    if after.starts_with('{') {
        return match enclosed(text, "${", "}") {
            Some((inner, len)) if has_commands => (len, with_default(inner)),
            Some((inner, len)) => (len, named(inner)),
            None => (1, Found::Nothing),
        };
    }
    if after.starts_with('(') && has_commands {
        let why = "the output of a command".to_owned();
        return (1, Found::Trouble(Severity::Error, why));
    }
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let len = after.find(|char| !is_part(char)).unwrap_or(after.len());
    match is_name(&after[..len]) {
        true => (1 + len, named(&after[..len])),
        false => (1, Found::Nothing),
    }
}
