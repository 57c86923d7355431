//! Public description of the servers that a settings file declares: one form for all clients.

use std::fmt;
use std::path::PathBuf;

/// One server of a client, as its settings file declares it.
#[derive(Debug, Clone)]
pub struct FoundServer {
    /// Name in the client's settings, any text.
    pub name: String,
    /// Id of the client, such as `claude-code`.
    pub client: &'static str,
    /// Sessions of the client that the server belongs to.
    pub scope: Scope,
    /// How the server is reached.
    pub transport: Transport,
    /// What kind of command a stdio server has.
    pub command_kind: CommandKind,
    /// Whether the entry starts this program as an MCP server or a bridge.
    pub is_ours: bool,
    /// Environment variables, in the order of the file.
    pub env: Vec<(String, Template)>,
    /// File with more environment variables.
    pub env_file: Option<Template>,
    /// HTTP headers, in the order of the file.
    pub headers: Vec<(String, Template)>,
    /// OAuth settings as JSON, in the client's own form.
    pub oauth: Option<String>,
    /// Tools that the client's user kept or removed.
    pub filter: ToolFilter,
    /// Whether the server is switched off.
    pub disabled: bool,
    /// Longest start, in milliseconds.
    pub start_timeout_ms: Option<u64>,
    /// Longest call, in milliseconds.
    pub call_timeout_ms: Option<u64>,
    /// Limits that the client's user set, as proposals for a confinement.
    pub sandbox: Option<SandboxProposal>,
    /// Values that look like secrets.
    pub secrets: Vec<SecretPlace>,
    /// Settings of the entry that this description does not hold.
    pub not_carried: Vec<NotCarried>,
    /// JSON pointer of the entry in its file.
    pub pointer: String,
    pub(crate) place: EntryPlace,
}

/// Place of an entry for an edit: the table and the positions in it. Equal keys of a table are one
/// server with several positions.
#[derive(Debug, Clone)]
pub(crate) struct EntryPlace {
    pub table: usize,
    pub positions: Vec<usize>,
}

/// Sessions of a client that a server belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All sessions of the user.
    User,
    /// The user's own sessions in one folder.
    Local(PathBuf),
    /// Everybody's sessions in one project, by a file of the project.
    Project(PathBuf),
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process that speaks over its standard input and output.
    Stdio {
        /// Program.
        command: Template,
        /// Arguments.
        args: Vec<Template>,
        /// Folder that it starts in.
        cwd: Option<Template>,
    },
    /// Streamable HTTP.
    Http {
        /// Address.
        url: Template,
        /// Whether the client tries server-sent events (SSE) after HTTP.
        or_sse: bool,
    },
    /// HTTP with server-sent events, of the first revision.
    Sse {
        /// Address.
        url: Template,
    },
    /// Part of the client itself, such as a built-in extension. It can not be moved, and a
    /// replacement leaves it where it is.
    Native {
        /// The client's word for it.
        kind: String,
    },
    /// A transport that is not supported, such as WebSocket.
    Other {
        /// The client's word for it.
        kind: String,
    },
}

/// Kind of a stdio server's command. Launchers such as `npx` are direct commands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// A program and its arguments, or no command at all.
    Direct,
    /// One text with a program and arguments, which the client gives to a shell.
    ShellLine,
    /// A shell that is told what to run: `sh -c`, `cmd /c`.
    Shell,
    /// A container: `docker run`, `podman run`.
    Container,
}

/// Text with variables, in one form for all clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Pieces, in order.
    pub pieces: Vec<Piece>,
}

/// Piece of a template.
#[derive(Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it stands.
    Literal(String),
    /// An environment variable.
    Variable {
        /// Name.
        name: String,
        /// Text for a variable that is not set.
        default: Option<String>,
    },
    /// An answer that the client asks its user for. See `Settings::inputs`.
    Input(String),
    /// Content of a file.
    File(String),
}

impl fmt::Debug for Piece {
    /// Literals may be secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => write!(formatter, "Literal({} bytes)", text.len()),
            Self::Variable { name, .. } => write!(formatter, "Variable({name:?})"),
            Self::Input(id) => write!(formatter, "Input({id:?})"),
            Self::File(path) => write!(formatter, "File({path:?})"),
        }
    }
}

impl Template {
    /// Returns a template without variables.
    pub fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        let pieces = match text.is_empty() {
            true => Vec::new(),
            false => vec![Piece::Literal(text)],
        };
        Self { pieces }
    }

    /// Returns the text of a template without variables.
    pub fn as_literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the template in the notation of Callgate's configuration: `${VAR}`,
    /// `${VAR:-default}`, `${input:id}`, `${file:path}`. A literal `${` is written `$${`.
    pub fn to_text(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => text.replace("${", "$${"),
            Piece::Variable { name, default } => match default {
                Some(default) => format!("${{{name}:-{default}}}"),
                None => format!("${{{name}}}"),
            },
            Piece::Input(id) => format!("${{input:{id}}}"),
            Piece::File(path) => format!("${{file:{path}}}"),
        };
        self.pieces.iter().map(piece).collect()
    }

    /// Appends a literal, joined to one before it.
    pub(crate) fn push_literal(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Literal(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Literal(text.to_owned())),
        }
    }
}

/// Tools that the client's user kept or removed, by the server's own names. `*` stands for any
/// text in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Only these tools, if there is a list.
    pub allow: Option<Vec<String>>,
    /// None of these, which wins.
    pub deny: Vec<String>,
}

/// Limits that the client's user set for a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxProposal {
    /// Whether the limits are in force at the client.
    pub enabled: bool,
    /// Paths that the server may write.
    pub allow_write: Vec<String>,
    /// Paths that the server may not read.
    pub deny_read: Vec<String>,
    /// Paths that the server may not write.
    pub deny_write: Vec<String>,
    /// Hosts that the server may reach, if there is a list.
    pub allowed_domains: Option<Vec<String>>,
    /// Hosts that the server may not reach.
    pub denied_domains: Vec<String>,
}

/// Setting of an entry that the description does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCarried {
    /// Path of the setting in its entry, or the name of another file with it.
    pub field: String,
    /// Reason.
    pub why: String,
    /// What the loss means.
    pub severity: Severity,
}

/// What the loss of a setting means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The server works as before.
    Note,
    /// The server would not work, or would do what its user had switched off.
    Error,
}

/// Secret text, which is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the text, to be put into a store of secrets.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("…")
    }
}

/// Value that looks like a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPlace {
    /// Place of the value.
    pub field: SecretField,
    /// Why it looks like a secret.
    pub reason: SecretReason,
    /// The secret part of the value. None: the client keeps it elsewhere or asks for it.
    pub value: Option<Secret>,
}

/// Place of a secret in its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretField {
    /// Environment variable.
    Env(String),
    /// HTTP header.
    Header(String),
    /// Argument, from 0.
    Arg(usize),
    /// Address.
    Url,
    /// OAuth settings.
    Oauth,
}

/// Why a value looks like a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretReason {
    /// The name of its variable, header or option.
    Name,
    /// A prefix that a service gives to its tokens.
    Prefix,
    /// Long and random.
    Random,
    /// A password in an address.
    Url,
    /// The client asks for it, or keeps it in a keyring.
    Kept,
}

/// Answer that a client asks its user for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Name in `${input:…}`.
    pub id: String,
    /// Kind: `promptString`, `pickString`, `command`.
    pub kind: String,
    /// Text shown to the user.
    pub description: Option<String>,
    /// Whether the answer is hidden.
    pub is_password: bool,
    /// Usual answer.
    pub default: Option<String>,
    /// Possible answers.
    pub options: Vec<String>,
}

/// Remark about a settings file as a whole, or about what in it is no server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer, empty for the whole file.
    pub pointer: String,
    /// Text of the remark.
    pub text: String,
    /// What it means.
    pub severity: Severity,
}
