//! Dialects: which fields a client's entry of a server has and what each of them means. A field
//! that is not listed is reported as not carried over.

use crate::model::Severity;

/// Entry of a server in one client's settings.
#[derive(Debug)]
pub(crate) struct Dialect {
    pub variables: Variables,
    /// Transport of an entry with an address and without a type.
    pub untyped_url: UrlKind,
    pub fields: &'static [(&'static str, Meaning)],
    pub own: OwnShape,
    /// Whether entries may be extensions of the client.
    pub is_extension_host: bool,
}

/// Notation of variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variables {
    /// None: every text is meant as it stands.
    None,
    /// `${VAR}`, `${VAR:-default}`.
    Braces,
    /// `$VAR`, `${VAR}`.
    Shell,
    /// As `Shell`, and `${VAR:-default}`, and `$(command)`.
    ShellCommands,
    /// `${env:VAR}`, `${input:id}`, `${file:path}`, `${workspaceFolder}` and such; `${VAR}` too if
    /// `bare`.
    Editor { bare: bool },
    /// `{env:VAR}`, `{file:path}`.
    Opencode,
    /// `${{ secrets.VAR }}`.
    Continue,
}

/// Transport of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UrlKind {
    /// As the type says, and without one as `Dialect::untyped_url` says.
    ByType,
    Http,
    HttpThenSse,
    Sse,
}

/// Unit of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds,
    Seconds,
}

/// What a field means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A program; or a list, with its arguments; or a table `{path, args, env}`.
    Command,
    Args,
    Env,
    /// Names of variables that the server gets.
    EnvNames,
    /// As `EnvNames`, with values in a keyring of the client.
    KeyringNames,
    EnvFile,
    Cwd,
    Type,
    Url(UrlKind),
    Headers,
    /// Headers whose values are names of variables.
    HeaderNames,
    /// Name of the variable with a bearer token.
    BearerName,
    /// A table with `headers` and more.
    RequestOptions,
    /// A table with fields of the entry.
    Nested,
    Oauth,
    Allow,
    /// As `Allow`; an empty list means all tools.
    AllowUnlessEmpty,
    Deny,
    Disabled,
    Enabled,
    StartTimeout(Unit),
    CallTimeout(Unit),
    SandboxEnabled,
    Sandbox,
    /// Name of the server, in a list.
    Name,
    /// Known and not carried.
    Lost(Severity, &'static str),
}

/// Form of our own entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnShape {
    /// `command`, `args`.
    Plain,
    /// `type: stdio` first.
    Typed,
    /// As `Plain`, with `source` where other entries have it.
    Zed,
    Opencode,
    Opencode2,
    Goose,
    Continue,
    ContinueOld,
    Copilot,
}

use Meaning::{
    Allow, AllowUnlessEmpty, Args, BearerName, CallTimeout, Command, Cwd, Deny, Disabled, Enabled,
    Env, EnvFile, EnvNames, HeaderNames, Headers, KeyringNames, Lost, Name, Nested, Oauth,
    RequestOptions, Sandbox, SandboxEnabled, StartTimeout, Type, Url,
};
use Severity::{Error, Note};
use Unit::{Milliseconds, Seconds};

const APPROVAL: Meaning = Lost(
    Note,
    "which tools run without asking stays the client's affair",
);
const LABEL: Meaning = Lost(Note, "text for people");

const fn dialect(
    variables: Variables,
    untyped_url: UrlKind,
    fields: &'static [(&'static str, Meaning)],
    own: OwnShape,
) -> Dialect {
    Dialect {
        variables,
        untyped_url,
        fields,
        own,
        is_extension_host: matches!(own, OwnShape::Zed | OwnShape::Goose),
    }
}

pub(crate) static CLAUDE_DESKTOP: Dialect = dialect(
    Variables::None,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
    ],
    OwnShape::Plain,
);

pub(crate) static CLAUDE_CODE: Dialect = dialect(
    Variables::Braces,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("headersHelper", Lost(Error, "a program that makes headers")),
        ("oauth", Oauth),
        ("timeout", CallTimeout(Milliseconds)),
    ],
    OwnShape::Typed,
);

pub(crate) static CURSOR: Dialect = dialect(
    Variables::Editor { bare: false },
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("envFile", EnvFile),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("auth", Oauth),
    ],
    OwnShape::Plain,
);

pub(crate) static VS_CODE: Dialect = dialect(
    Variables::Editor { bare: false },
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("envFile", EnvFile),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("sandboxEnabled", SandboxEnabled),
        ("sandbox", Sandbox),
        ("dev", Lost(Note, "a debugger for the server's author")),
        ("gallery", LABEL),
        ("version", LABEL),
    ],
    OwnShape::Typed,
);

pub(crate) static WINDSURF: Dialect = dialect(
    Variables::Editor { bare: true },
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("serverUrl", Url(UrlKind::ByType)),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("disabled", Disabled),
        ("disabledTools", Deny),
        ("alwaysAllow", APPROVAL),
    ],
    OwnShape::Plain,
);

pub(crate) static ZED: Dialect = dialect(
    Variables::None,
    UrlKind::HttpThenSse,
    &[
        ("source", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("oauth", Oauth),
        ("timeout", CallTimeout(Seconds)),
        ("enabled", Enabled),
        (
            "remote",
            Lost(Note, "whether the server runs beside a remote project"),
        ),
        ("settings", Lost(Note, "settings of an extension")),
    ],
    OwnShape::Zed,
);

pub(crate) static CLINE: Dialect = dialect(
    Variables::None,
    UrlKind::Sse,
    &[
        ("type", Type),
        ("transportType", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("disabled", Disabled),
        ("timeout", CallTimeout(Seconds)),
        ("autoApprove", APPROVAL),
    ],
    OwnShape::Plain,
);

pub(crate) static ROO: Dialect = dialect(
    Variables::Editor { bare: false },
    UrlKind::Sse,
    &[
        ("type", Type),
        ("transportType", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("disabled", Disabled),
        ("disabledTools", Deny),
        ("timeout", CallTimeout(Seconds)),
        ("alwaysAllow", APPROVAL),
        ("watchPaths", Lost(Note, "a restart when files change")),
    ],
    OwnShape::Plain,
);

pub(crate) static CODEX: Dialect = dialect(
    Variables::None,
    UrlKind::Http,
    &[
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("env_vars", EnvNames),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("bearer_token_env_var", BearerName),
        ("http_headers", Headers),
        ("env_http_headers", HeaderNames),
        ("scopes", Oauth),
        ("oauth", Oauth),
        ("oauth_resource", Oauth),
        ("enabled", Enabled),
        (
            "required",
            Lost(Note, "whether a session fails without the server"),
        ),
        ("enabled_tools", Allow),
        ("disabled_tools", Deny),
        ("default_tools_approval_mode", APPROVAL),
        ("tools", APPROVAL),
        ("startup_timeout_sec", StartTimeout(Seconds)),
        ("startup_timeout_ms", StartTimeout(Milliseconds)),
        ("tool_timeout_sec", CallTimeout(Seconds)),
        (
            "supports_parallel_tool_calls",
            Lost(Note, "the gate has its own bound on calls at a time"),
        ),
    ],
    OwnShape::Plain,
);

pub(crate) static GEMINI: Dialect = dialect(
    Variables::Shell,
    UrlKind::Sse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("httpUrl", Url(UrlKind::Http)),
        ("headers", Headers),
        ("timeout", CallTimeout(Milliseconds)),
        ("trust", APPROVAL),
        ("includeTools", Allow),
        ("excludeTools", Deny),
        ("oauth", Oauth),
        ("authProviderType", Lost(Error, "a way to sign in")),
        ("description", LABEL),
    ],
    OwnShape::Plain,
);

pub(crate) static GOOSE: Dialect = dialect(
    Variables::None,
    UrlKind::Http,
    &[
        ("type", Type),
        ("name", LABEL),
        ("display_name", LABEL),
        ("description", LABEL),
        ("cmd", Command),
        ("args", Args),
        ("envs", Env),
        ("env_keys", KeyringNames),
        ("uri", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("timeout", CallTimeout(Seconds)),
        ("bundled", LABEL),
        ("enabled", Enabled),
        ("available_tools", AllowUnlessEmpty),
    ],
    OwnShape::Goose,
);

pub(crate) static OPENCODE: Dialect = dialect(
    Variables::Opencode,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("environment", Env),
        ("cwd", Cwd),
        ("enabled", Enabled),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("oauth", Oauth),
        ("timeout", StartTimeout(Milliseconds)),
    ],
    OwnShape::Opencode,
);

pub(crate) static OPENCODE_2: Dialect = dialect(
    Variables::Opencode,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("environment", Env),
        ("cwd", Cwd),
        ("disabled", Disabled),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("oauth", Oauth),
        ("timeout", StartTimeout(Milliseconds)),
    ],
    OwnShape::Opencode2,
);

pub(crate) static JUNIE: Dialect = dialect(
    Variables::None,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("workingDirectory", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("enabled", Enabled),
        ("disabled", Disabled),
    ],
    OwnShape::Plain,
);

pub(crate) static CONTINUE: Dialect = dialect(
    Variables::Continue,
    UrlKind::HttpThenSse,
    &[
        ("name", Name),
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("requestOptions", RequestOptions),
        ("connectionTimeout", StartTimeout(Milliseconds)),
        ("description", LABEL),
    ],
    OwnShape::Continue,
);

pub(crate) static CONTINUE_OLD: Dialect = dialect(
    Variables::None,
    UrlKind::HttpThenSse,
    &[
        ("name", Name),
        ("transport", Nested),
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("timeout", StartTimeout(Milliseconds)),
    ],
    OwnShape::ContinueOld,
);

pub(crate) static LM_STUDIO: Dialect = dialect(
    Variables::None,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("timeout", CallTimeout(Milliseconds)),
    ],
    OwnShape::Plain,
);

pub(crate) static KIRO: Dialect = dialect(
    Variables::Braces,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("disabled", Disabled),
        ("disabledTools", Deny),
        ("autoApprove", APPROVAL),
        ("timeout", CallTimeout(Milliseconds)),
    ],
    OwnShape::Plain,
);

pub(crate) static CRUSH: Dialect = dialect(
    Variables::ShellCommands,
    UrlKind::Http,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("disabled", Disabled),
        ("disabled_tools", Deny),
        ("enabled_tools", Allow),
        ("timeout", CallTimeout(Seconds)),
    ],
    OwnShape::Typed,
);

pub(crate) static AMP: Dialect = dialect(
    Variables::Braces,
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("disabled", Disabled),
        ("includeTools", Allow),
    ],
    OwnShape::Plain,
);

pub(crate) static TRAE: Dialect = dialect(
    Variables::Editor { bare: false },
    UrlKind::HttpThenSse,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("disabled", Disabled),
    ],
    OwnShape::Plain,
);

pub(crate) static COPILOT: Dialect = dialect(
    Variables::Shell,
    UrlKind::Http,
    &[
        ("type", Type),
        ("command", Command),
        ("args", Args),
        ("env", Env),
        ("cwd", Cwd),
        ("url", Url(UrlKind::ByType)),
        ("headers", Headers),
        ("tools", Allow),
        ("timeout", CallTimeout(Milliseconds)),
    ],
    OwnShape::Copilot,
);
