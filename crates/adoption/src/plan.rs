//! What an import would do: the servers of all clients, each once, under names of ours. Nothing is
//! read or written here.

use std::collections::BTreeSet;
use std::path::PathBuf;

use callgate_call::chain;
use callgate_importer::{
    ClientFile, CommandKind, FoundServer, Piece, Scope, Secret, SecretField, Settings, Severity,
    Template, Transport,
};
use callgate_installer::PackageRequest;
use callgate_registry::config::ServerConfig;
use callgate_registry::servers::edit::NewServer;

use crate::command::read_command;
use crate::proposal::propose;

/// A server that is to be imported.
pub struct Planned {
    /// Its table.
    pub server: NewServer,
    /// The package that is to be installed.
    pub request: Option<PackageRequest>,
    /// What it will run, for people.
    pub runs: String,
    /// Why it gets its preset.
    pub why: &'static str,
    /// Values that move into keeping, by their names there.
    pub secrets: Vec<(String, Secret)>,
    /// The clients that have it.
    pub clients: BTreeSet<String>,
    /// The places in settings files that it comes from.
    pub sources: Vec<(PathBuf, String)>,
    /// It is not configured yet.
    pub is_new: bool,
}

/// A server that stays where it is.
pub struct Skipped {
    /// The client's name for people.
    pub client: String,
    /// Its name there.
    pub name: String,
    /// Why.
    pub why: String,
}

/// All of an import.
#[derive(Default)]
pub struct Plan {
    /// What is imported.
    pub planned: Vec<Planned>,
    /// What is not.
    pub skipped: Vec<Skipped>,
    /// Settings of imported servers that are not carried over: a line each.
    pub remarks: Vec<String>,
}

/// Plans the import of all servers of these files.
pub fn plan<'a>(
    found: impl Iterator<Item = (&'a ClientFile, &'a Settings)>,
    present: &[ServerConfig],
) -> Plan {
    let mut plan = Plan::default();
    for (file, settings) in found {
        for server in &settings.servers {
            if server.is_ours {
                continue;
            }
            match planned(file, server) {
                Ok(one) => {
                    plan.remarks.extend(remarks(file, server));
                    plan.add(one, present);
                }
                Err(why) => plan.skipped.push(Skipped {
                    client: file.client_name.to_owned(),
                    name: server.name.clone(),
                    why,
                }),
            }
        }
    }
    plan
}

impl Plan {
    /// Adds a server, or only its client where the same server is there already.
    fn add(&mut self, mut one: Planned, present: &[ServerConfig]) {
        let same = self.planned.iter_mut().find(|known| is_same(known, &one));
        if let Some(known) = same {
            known.clients.extend(one.clients);
            known.sources.extend(one.sources);
            return;
        }
        if let Some(known) = present.iter().find(|known| is_imported_as(known, &one)) {
            one.server.name.clone_from(&known.name);
            one.is_new = false;
        } else {
            let taken = |name: &str| {
                self.planned.iter().any(|known| known.server.name == name)
                    || present.iter().any(|known| known.name == name)
            };
            let name = one.server.name.clone();
            let numbered = (2..).map(|number| format!("{name}-{number}"));
            let free = [name.clone()]
                .into_iter()
                .chain(numbered)
                .find(|name| !taken(name));
            one.rename(free.unwrap_or(name));
        }
        self.planned.push(one);
    }
}

impl Planned {
    /// Gives the server another name, and its secrets with it.
    fn rename(&mut self, name: String) {
        let before = std::mem::replace(&mut self.server.name, name.clone());
        if before == name {
            return;
        }
        for (secret, _) in &mut self.secrets {
            let after = secret.replacen(&before, &name, 1);
            let (from, to) = (
                format!("${{secret:{secret}}}"),
                format!("${{secret:{after}}}"),
            );
            let texts = self.server.env.values_mut().chain(&mut self.server.args);
            texts.for_each(|text| *text = text.replace(&from, &to));
            *secret = after;
        }
    }
}

/// Returns whether two clients have the same server.
fn is_same(one: &Planned, other: &Planned) -> bool {
    let plain = |planned: &Planned| {
        let values = planned
            .secrets
            .iter()
            .map(|(_, value)| value.reveal().to_owned());
        let mut server = NewServer {
            imported: None,
            ..planned.server.clone()
        };
        // Names of secrets begin with that of the server.
        for text in server.env.values_mut().chain(&mut server.args) {
            *text = text.replace(&format!("${{secret:{}-", server.name), "${secret:");
        }
        server.name = base_name(&server.name).to_owned();
        (server, planned.request.clone(), values.collect::<Vec<_>>())
    };
    plain(one) == plain(other)
}

/// A name without the number that a second server of that name got.
fn base_name(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((base, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => name,
    }
}

/// Returns whether a configured server is an earlier import of this one.
fn is_imported_as(known: &ServerConfig, one: &Planned) -> bool {
    let source = one.server.imported.as_ref();
    let imported = known.imported.as_ref();
    imported
        .zip(source)
        .is_some_and(|(imported, [from, file, at])| {
            imported.from == *from && imported.file == *file && imported.at == *at
        })
}

/// One server, or why it stays where it is.
fn planned(file: &ClientFile, found: &FoundServer) -> Result<Planned, String> {
    let lost = found
        .not_carried
        .iter()
        .find(|lost| lost.severity == Severity::Error);
    if let Some(lost) = lost {
        return Err(format!(
            "its `{}` cannot be carried over: {}",
            lost.field, lost.why
        ));
    }
    let Transport::Stdio { command, args, cwd } = &found.transport else {
        return Err(match &found.transport {
            Transport::Http { .. } | Transport::Sse { .. } => {
                "servers at an address are not taken behind the gate yet".to_owned()
            }
            Transport::Native { kind } => format!("it is a part of the client ({kind})"),
            Transport::Other { kind } => format!("its transport `{kind}` is not supported"),
            Transport::Stdio { .. } => unreachable!("matched above"),
        });
    };
    if found.command_kind == CommandKind::Container {
        return Err("containers are not taken behind the gate yet".to_owned());
    }
    if let Some(file) = &found.env_file {
        return Err(format!(
            "its variables stand in a file, {}: write them into its `env`",
            file.to_text()
        ));
    }
    let name = name_of(&found.name);
    let mut words = vec![command.clone()];
    words.extend(args.iter().cloned());
    let mut secrets = Vec::new();
    let texts: Vec<String> = words
        .iter()
        .enumerate()
        .map(|(index, word)| {
            let field = index.checked_sub(1).map(SecretField::Arg);
            kept_text(&name, found, field.as_ref(), word, &mut secrets)
        })
        .collect();
    let (mut server, request) = read_command(&name, &texts).map_err(|error| chain(&error))?;
    for (variable, template) in &found.env {
        let field = SecretField::Env(variable.clone());
        let text = kept_text(&name, found, Some(&field), template, &mut secrets);
        server.env.insert(variable.clone(), text);
    }
    server.cwd = cwd.as_ref().map(Template::to_text);
    server.deny.clone_from(&found.filter.deny);
    match &found.filter.allow {
        // The client shows none of them; an empty list of ours would show all.
        Some(none) if none.is_empty() => server.deny = vec!["*".to_owned()],
        Some(allow) => server.allow.clone_from(allow),
        None => {}
    }
    server.disabled = found.disabled;
    for (field, ms) in [
        ("start_timeout_ms", found.start_timeout_ms),
        ("timeout_ms", found.call_timeout_ms),
    ] {
        server
            .times
            .extend(ms.filter(|ms| *ms > 0).map(|ms| (field, ms)));
    }
    let path = file.path.display().to_string();
    server.imported = Some([file.client.to_owned(), path, found.pointer.clone()]);
    let why = propose(&mut server, request.as_ref(), found.sandbox.as_ref());
    let runs = match &request {
        Some(request) => request.spec.to_string(),
        None => server.command.join(" "),
    };
    Ok(Planned {
        server,
        request,
        runs,
        why,
        secrets,
        clients: [file.client.to_owned()].into(),
        sources: vec![(file.path.clone(), found.pointer.clone())],
        is_new: true,
    })
}

/// The text of a setting, in which secrets are references.
fn kept_text(
    server: &str,
    found: &FoundServer,
    field: Option<&SecretField>,
    template: &Template,
    secrets: &mut Vec<(String, Secret)>,
) -> String {
    let mut text = String::new();
    for piece in &template.pieces {
        match piece {
            // The client asked its user for it; ours keeps it as a secret.
            Piece::Input(id) => {
                text.push_str(&format!("${{secret:{}}}", secret_name(server, id)));
            }
            piece => text.push_str(
                &Template {
                    pieces: vec![piece.clone()],
                }
                .to_text(),
            ),
        }
    }
    let places = found
        .secrets
        .iter()
        .filter(|place| Some(&place.field) == field);
    for place in places {
        let Some(value) = &place.value else {
            continue;
        };
        let what = match &place.field {
            SecretField::Env(name) | SecretField::Header(name) => name.clone(),
            SecretField::Arg(index) => format!("arg{index}"),
            SecretField::Url => "url".to_owned(),
            SecretField::Oauth => "oauth".to_owned(),
        };
        let name = secret_name(server, &what);
        let written = value.reveal().replace("${", "$${");
        text = text.replace(&written, &format!("${{secret:{name}}}"));
        secrets.push((name, value.clone()));
    }
    text
}

/// The name of a secret: the server's, and that of its setting.
fn secret_name(server: &str, what: &str) -> String {
    /// Longest name of a secret.
    const BYTES_MAX: usize = 64;
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let mut name: String = format!("{server}-{what}").chars().map(plain).collect();
    name.truncate(BYTES_MAX);
    name
}

/// A name for our configuration: letters, digits, `_` and `-`.
fn name_of(name: &str) -> String {
    /// Room for a number behind it.
    const BYTES_MAX: usize = 28;
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let mut plain: String = name.chars().map(plain).collect();
    plain = plain.trim_matches(['-', '_']).to_owned();
    plain.truncate(BYTES_MAX);
    match plain.is_empty() {
        true => "server".to_owned(),
        false => plain,
    }
}

/// What of a server is not carried over: a line each.
fn remarks(file: &ClientFile, found: &FoundServer) -> Vec<String> {
    let begin = format!("{}: `{}`", file.client_name, found.name);
    let lost = found.not_carried.iter();
    let mut lines: Vec<String> = lost
        .map(|lost| {
            format!(
                "{begin}: `{}` is not carried over: {}",
                lost.field, lost.why
            )
        })
        .collect();
    if let Scope::Local(folder) = &found.scope {
        lines.push(format!(
            "{begin}: was for sessions in {} only; behind the gate it is for all sessions of the client",
            folder.display()
        ));
    }
    let asked = found.secrets.iter().filter(|place| place.value.is_none());
    for _ in asked {
        lines.push(format!(
            "{begin}: the client keeps or asks for a secret: `callgate secrets list` and `callgate \
             secrets set NAME` keep it for the gate"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(name_of("GitHub (work)"), "GitHub--work");
        assert_eq!(name_of("日本"), "server");
        assert_eq!(name_of(&"x".repeat(99)).len(), 28);
        assert_eq!(base_name("a-2"), "a");
        assert_eq!(base_name("a-b"), "a-b");
        assert_eq!(secret_name("gh", "TOKEN"), "gh-TOKEN");
    }
}
