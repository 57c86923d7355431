//! One entry of a table, read by its client's dialect. Every field ends up in the description or
//! in its list of what is not carried.

use super::command;
use super::variables::{self, Folders};
use crate::clients::dialects::{Dialect, Meaning, Unit, UrlKind};
use crate::model::{
    CommandKind, EntryPlace, FoundServer, NotCarried, Piece, Problem, SandboxProposal, Scope,
    SecretField, SecretPlace, SecretReason, Severity, Template, ToolFilter, Transport,
};
use crate::node::{Member, Node, Value};

/// Longest duration that is carried, a week: more is a unit taken for another.
const TIMEOUT_MS_MAX: f64 = 7.0 * 24.0 * 3600.0 * 1000.0;

/// Where an entry stands.
pub(super) struct Context<'a> {
    pub client: &'static str,
    pub dialect: &'static Dialect,
    pub scope: &'a Scope,
    pub place: EntryPlace,
    pub pointer: String,
}

/// Entry while its fields are read.
struct EntryReader<'a> {
    dialect: &'static Dialect,
    folders: Folders<'a>,
    server: FoundServer,
    kind: Option<String>,
    command: Option<Template>,
    args: Vec<Template>,
    cwd: Option<Template>,
    url: Option<(Template, UrlKind)>,
    /// OAuth settings by field.
    oauth: Vec<(String, String)>,
}

/// Reads an entry. A problem says why it is no server.
pub(super) fn read(context: Context<'_>, name: &str, node: &Node) -> Result<FoundServer, Problem> {
    let problem = |text: &str| Problem {
        pointer: context.pointer.clone(),
        text: text.to_owned(),
        severity: Severity::Error,
    };
    if !matches!(node.value, Value::Table(_)) {
        return Err(problem("no table of settings"));
    }
    let project = match context.scope {
        Scope::User => None,
        Scope::Local(folder) | Scope::Project(folder) => folder.to_str(),
    };
    let mut reader = EntryReader {
        dialect: context.dialect,
        folders: Folders { project },
        server: FoundServer {
            name: name.to_owned(),
            client: context.client,
            scope: context.scope.clone(),
            transport: Transport::Native {
                kind: String::new(),
            },
            command_kind: CommandKind::Direct,
            is_ours: false,
            env: Vec::new(),
            env_file: None,
            headers: Vec::new(),
            oauth: None,
            filter: ToolFilter::default(),
            disabled: false,
            start_timeout_ms: None,
            call_timeout_ms: None,
            sandbox: None,
            secrets: Vec::new(),
            not_carried: Vec::new(),
            pointer: context.pointer.clone(),
            place: context.place.clone(),
        },
        kind: None,
        command: None,
        args: Vec::new(),
        cwd: None,
        url: None,
        oauth: Vec::new(),
    };
    reader.fields(node, "");
    let has_settings = context.dialect.is_extension_host && node.get("settings").is_some();
    reader.finish(has_settings).map_err(problem)
}

impl EntryReader<'_> {
    /// Reads the fields of the entry, or of a table within it.
    fn fields(&mut self, node: &Node, prefix: &str) {
        let members = node.members();
        for (index, member) in members.iter().enumerate() {
            let field = format!("{prefix}{}", member.key);
            // The last one of equal keys counts.
            if members[index + 1..]
                .iter()
                .any(|later| later.key == member.key)
            {
                self.lose(
                    &field,
                    Severity::Note,
                    "stands there again; the last one counts",
                );
                continue;
            }
            let fields = self.dialect.fields;
            match fields.iter().find(|(name, _)| *name == member.key) {
                Some((_, meaning)) => self.field(*meaning, &field, member),
                None => self.unknown(&field),
            }
        }
    }

    /// Reports a field that the dialect does not know. What may be a filter of tools is an error.
    fn unknown(&mut self, field: &str) {
        let severity = match field.to_ascii_lowercase().contains("tool") {
            true => Severity::Error,
            false => Severity::Note,
        };
        self.lose(field, severity, "not known");
    }

    fn lose(&mut self, field: &str, severity: Severity, why: &str) {
        self.server.not_carried.push(NotCarried {
            field: field.to_owned(),
            why: why.to_owned(),
            severity,
        });
    }

    fn field(&mut self, meaning: Meaning, field: &str, member: &Member) {
        let node = &member.node;
        if matches!(node.value, Value::Null) {
            return;
        }
        let is_read = match meaning {
            Meaning::Command => self.command(node, field),
            Meaning::Args => match self.templates(node, field) {
                Some(args) => {
                    self.args.extend(args);
                    true
                }
                None => false,
            },
            Meaning::Env => self.env(node, field),
            Meaning::EnvNames => self.env_names(node, false),
            Meaning::KeyringNames => self.env_names(node, true),
            Meaning::EnvFile => {
                self.server.env_file = self.template(node, field);
                self.server.env_file.is_some()
            }
            Meaning::Cwd => {
                self.cwd = self.template(node, field);
                self.cwd.is_some()
            }
            Meaning::Type => {
                let kind = node.as_text().map(str::to_owned);
                self.kind = kind.or(self.kind.take());
                self.kind.is_some()
            }
            Meaning::Url(kind) => match self.template(node, field) {
                Some(url) => {
                    // Gemini prefers `httpUrl` to `url`.
                    if kind != UrlKind::ByType || self.url.is_none() {
                        self.url = Some((url, kind));
                    } else {
                        self.lose(field, Severity::Note, "a second address");
                    }
                    true
                }
                None => false,
            },
            Meaning::Headers => self.headers(node, field),
            Meaning::HeaderNames => self.header_names(node),
            Meaning::BearerName => self.bearer(node),
            Meaning::RequestOptions => self.request_options(node, field),
            Meaning::Nested => {
                let is_table = matches!(node.value, Value::Table(_));
                self.fields(node, &format!("{field}."));
                is_table
            }
            Meaning::Oauth => {
                self.oauth.push((member.key.clone(), node.to_json()));
                true
            }
            Meaning::Allow | Meaning::AllowUnlessEmpty => match texts(node) {
                Some(names) => {
                    self.allow(names, meaning == Meaning::AllowUnlessEmpty);
                    true
                }
                None => false,
            },
            Meaning::Deny => match texts(node) {
                Some(names) => {
                    self.server.filter.deny.extend(names);
                    true
                }
                None => false,
            },
            Meaning::Disabled => self.switch(node.as_bool()),
            Meaning::Enabled => self.switch(node.as_bool().map(|truth| !truth)),
            Meaning::StartTimeout(unit) => {
                let timeout = duration_ms(node, unit);
                self.server.start_timeout_ms = timeout.or(self.server.start_timeout_ms);
                timeout.is_some()
            }
            Meaning::CallTimeout(unit) => {
                let timeout = duration_ms(node, unit);
                self.server.call_timeout_ms = timeout.or(self.server.call_timeout_ms);
                timeout.is_some()
            }
            Meaning::SandboxEnabled => match node.as_bool() {
                Some(truth) => {
                    self.sandbox().enabled = truth;
                    true
                }
                None => false,
            },
            Meaning::Sandbox => {
                let mut lost = Vec::new();
                let is_read = read_sandbox(node, self.sandbox(), &mut lost);
                for name in lost {
                    self.lose(&format!("{field}.{name}"), Severity::Note, "not known");
                }
                is_read
            }
            Meaning::Name => node.as_text().is_some(),
            Meaning::Lost(severity, why) => {
                self.lose(field, severity, why);
                true
            }
        };
        if !is_read {
            self.lose(
                field,
                Severity::Error,
                "not of the kind that the client reads",
            );
        }
    }

    fn command(&mut self, node: &Node, field: &str) -> bool {
        match &node.value {
            Value::Text(_) => {
                self.command = self.template(node, field);
                true
            }
            Value::List(_) => match self.templates(node, field) {
                Some(mut words) if !words.is_empty() => {
                    self.command = Some(words.remove(0));
                    self.args.splice(0..0, words);
                    true
                }
                _ => false,
            },
            Value::Table(_) => {
                let path = node.get("path").and_then(|path| self.template(path, field));
                self.command = path;
                for member in node.members() {
                    match member.key.as_str() {
                        "path" => {}
                        "args" => self.field(Meaning::Args, "command.args", member),
                        "env" => self.field(Meaning::Env, "command.env", member),
                        _ => self.unknown(&format!("{field}.{}", member.key)),
                    }
                }
                self.command.is_some()
            }
            _ => false,
        }
    }

    /// Returns a text or a number with its variables read.
    fn template(&mut self, node: &Node, field: &str) -> Option<Template> {
        let text = match &node.value {
            Value::Text(text) | Value::Number(text) => text,
            _ => return None,
        };
        let read = variables::read(self.dialect.variables, text, &self.folders);
        for (severity, why) in read.troubles {
            self.lose(field, severity, &why);
        }
        Some(read.template)
    }

    fn templates(&mut self, node: &Node, field: &str) -> Option<Vec<Template>> {
        let Value::List(items) = &node.value else {
            return None;
        };
        let items = items.iter().enumerate();
        items
            .map(|(index, item)| self.template(item, &format!("{field}[{index}]")))
            .collect()
    }

    fn pairs(&mut self, node: &Node, field: &str) -> Option<Vec<(String, Template)>> {
        let Value::Table(members) = &node.value else {
            return None;
        };
        let mut pairs: Vec<(String, Template)> = Vec::new();
        for member in members {
            let field = format!("{field}.{}", member.key);
            let node = match &member.node.value {
                Value::Bool(truth) => &Node::text(if *truth { "true" } else { "false" }),
                _ => &member.node,
            };
            match self.template(node, &field) {
                Some(value) => {
                    pairs.retain(|(name, _)| *name != member.key);
                    pairs.push((member.key.clone(), value));
                }
                None if matches!(node.value, Value::Null) => {
                    self.lose(&field, Severity::Note, "null, which unsets a variable");
                }
                None => self.lose(&field, Severity::Error, "no text"),
            }
        }
        Some(pairs)
    }

    fn env(&mut self, node: &Node, field: &str) -> bool {
        let Some(pairs) = self.pairs(node, field) else {
            return false;
        };
        self.server.env.extend(pairs);
        true
    }

    fn env_names(&mut self, node: &Node, is_kept: bool) -> bool {
        let Some(names) = texts(node) else {
            return false;
        };
        for name in names {
            if is_kept {
                self.server.secrets.push(SecretPlace {
                    field: SecretField::Env(name.clone()),
                    reason: SecretReason::Kept,
                    value: None,
                });
                let why = "the value is in the client's keyring or file of secrets";
                self.lose(&format!("env_keys.{name}"), Severity::Note, why);
            }
            let value = variable(&name);
            self.server.env.push((name, value));
        }
        true
    }

    fn headers(&mut self, node: &Node, field: &str) -> bool {
        let Some(pairs) = self.pairs(node, field) else {
            return false;
        };
        self.server.headers.extend(pairs);
        true
    }

    fn header_names(&mut self, node: &Node) -> bool {
        for member in node.members() {
            let Some(name) = member.node.as_text() else {
                return false;
            };
            let header = (member.key.clone(), variable(name));
            self.server.headers.push(header);
        }
        matches!(node.value, Value::Table(_))
    }

    fn bearer(&mut self, node: &Node) -> bool {
        let Some(name) = node.as_text() else {
            return false;
        };
        let mut value = Template::literal("Bearer ");
        value.pieces.extend(variable(name).pieces);
        self.server
            .headers
            .push(("Authorization".to_owned(), value));
        true
    }

    fn request_options(&mut self, node: &Node, field: &str) -> bool {
        for member in node.members() {
            let field = format!("{field}.{}", member.key);
            match member.key.as_str() {
                "headers" => self.field(Meaning::Headers, &field, member),
                _ => self.lose(
                    &field,
                    Severity::Error,
                    "a setting of the client's requests",
                ),
            }
        }
        matches!(node.value, Value::Table(_))
    }

    /// Sets the list of allowed tools. `*` in it means all of them.
    fn allow(&mut self, names: Vec<String>, is_all_if_empty: bool) {
        let is_all = names.iter().any(|name| name == "*") || (is_all_if_empty && names.is_empty());
        if !is_all {
            self.server.filter.allow = Some(names);
        }
    }

    fn switch(&mut self, is_disabled: Option<bool>) -> bool {
        if let Some(is_disabled) = is_disabled {
            self.server.disabled |= is_disabled;
        }
        is_disabled.is_some()
    }

    fn sandbox(&mut self) -> &mut SandboxProposal {
        self.server.sandbox.get_or_insert_default()
    }

    /// Makes the transport of what was read.
    fn finish(mut self, has_settings: bool) -> Result<FoundServer, &'static str> {
        if !self.oauth.is_empty() {
            let oauth = match self.oauth.as_slice() {
                [(name, json)] if name == "oauth" || name == "auth" => json.clone(),
                settings => {
                    let members: Vec<_> = settings
                        .iter()
                        .map(|(name, json)| format!("{}:{json}", crate::node::json_text(name)))
                        .collect();
                    format!("{{{}}}", members.join(","))
                }
            };
            self.server.oauth = Some(oauth);
        }
        let kind = self.kind.take().unwrap_or_default();
        let transport = match kind.to_ascii_lowercase().as_str() {
            "stdio" | "local" => None,
            "custom" | "" => None,
            "http" | "streamable-http" | "streamable_http" | "streamablehttp" => {
                Some(UrlKind::Http)
            }
            "remote" => Some(UrlKind::HttpThenSse),
            "sse" => Some(UrlKind::Sse),
            "builtin" | "platform" | "frontend" | "extension" => {
                self.server.transport = Transport::Native { kind };
                return Ok(self.server);
            }
            _ => {
                let why = format!("transport `{kind}` is not supported");
                self.lose("type", Severity::Error, &why);
                self.server.transport = Transport::Other { kind };
                return Ok(self.server);
            }
        };
        if transport.is_some() && self.url.is_none() {
            return Err("a remote server without an address");
        }
        match (self.command.take(), self.url.take()) {
            (Some(command), url) => {
                if url.is_some() {
                    let why = "an entry with a command has no address";
                    self.lose("url", Severity::Error, why);
                }
                self.set_stdio(command);
            }
            (None, Some((url, by_field))) => {
                let kind = match (by_field, transport) {
                    (UrlKind::ByType, Some(kind)) => kind,
                    (UrlKind::ByType, None) => self.dialect.untyped_url,
                    (kind, _) => kind,
                };
                self.server.transport = match kind {
                    UrlKind::Sse => Transport::Sse { url },
                    UrlKind::Http => Transport::Http { url, or_sse: false },
                    UrlKind::HttpThenSse | UrlKind::ByType => Transport::Http { url, or_sse: true },
                };
            }
            (None, None) if has_settings => {
                let kind = "extension".to_owned();
                self.server.transport = Transport::Native { kind };
            }
            (None, None) => return Err("neither a command nor an address"),
        }
        Ok(self.server)
    }

    fn set_stdio(&mut self, command: Template) {
        self.server.command_kind = command::kind(&command, &self.args);
        self.server.is_ours = command::is_ours(&command, &self.args);
        let text = command.as_literal().unwrap_or_default();
        if text.contains('/') && !text.starts_with(['/', '~']) && self.cwd.is_none() {
            match self.folders.project {
                Some(project) => self.cwd = Some(Template::literal(project)),
                None => {
                    let why = "a path relative to the folder that is open in the client";
                    self.lose("command", Severity::Error, why);
                }
            }
        }
        self.server.transport = Transport::Stdio {
            command,
            args: std::mem::take(&mut self.args),
            cwd: self.cwd.take(),
        };
    }
}

fn variable(name: &str) -> Template {
    Template {
        pieces: vec![Piece::Variable {
            name: name.to_owned(),
            default: None,
        }],
    }
}

/// Returns the texts of a list, or `None` if it is no list of texts.
pub(super) fn texts(node: &Node) -> Option<Vec<String>> {
    match &node.value {
        Value::List(items) => items
            .iter()
            .map(|item| item.as_text().map(str::to_owned))
            .collect(),
        _ => None,
    }
}

/// Reads VS Code's limits of a server. Returns false if they have another form.
pub(super) fn read_sandbox(node: &Node, to: &mut SandboxProposal, lost: &mut Vec<String>) -> bool {
    let mut is_read = matches!(node.value, Value::Table(_));
    for group in node.members() {
        for member in group.node.members() {
            let names = texts(&member.node);
            is_read &= names.is_some();
            let names = names.unwrap_or_default();
            match (group.key.as_str(), member.key.as_str()) {
                ("filesystem", "allowWrite") => to.allow_write = names,
                ("filesystem", "denyRead") => to.deny_read = names,
                ("filesystem", "denyWrite") => to.deny_write = names,
                ("network", "allowedDomains") => to.allowed_domains = Some(names),
                ("network", "deniedDomains") => to.denied_domains = names,
                (group, name) => lost.push(format!("{group}.{name}")),
            }
        }
        if !["filesystem", "network"].contains(&group.key.as_str())
            && group.node.members().is_empty()
        {
            lost.push(group.key.clone());
        }
    }
    is_read
}

fn duration_ms(node: &Node, unit: Unit) -> Option<u64> {
    let Value::Number(number) = &node.value else {
        return None;
    };
    let number: f64 = number.replace('_', "").parse().ok()?;
    let ms = match unit {
        Unit::Milliseconds => number,
        Unit::Seconds => number * 1000.0,
    };
    // In range, so the conversion neither wraps nor saturates.
    (ms > 0.0 && ms <= TIMEOUT_MS_MAX).then_some(ms.ceil() as u64)
}
