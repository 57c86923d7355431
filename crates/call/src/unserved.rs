//! Why a tool is not served, in the words of every wire and command.

use std::fmt;

/// The reason why a caller does not have a tool. Quotes nothing of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// A built-in tool that `[builtins] allow` leaves out.
    NotAllowed,
    /// A built-in tool that `[builtins] allow` names in a file that is not trusted.
    AwaitsTrust,
    /// `[builtins] off`.
    BuiltinsOff,
    /// A built-in tool that this section of the configuration turns off.
    SectionOff(&'static str),
    /// A tool that no `--only` of this client fits.
    NotAmongOnly,
    /// A built-in tool that a client of MCP has to name. G-14.
    NotMcpDefault,
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => f.write_str(
                "this built-in tool is not served here: its owner adds it to `[builtins] allow` in \
                 callgate.toml, then runs `callgate trust`",
            ),
            Self::AwaitsTrust => f.write_str(
                "not served: callgate.toml names it in `[builtins] allow`, but is not trusted yet: \
                 its owner runs `callgate trust`",
            ),
            Self::BuiltinsOff => f.write_str(
                "the built-in tools are turned off: its owner takes `off` out of `[builtins]` in \
                 callgate.toml, then runs `callgate trust`",
            ),
            Self::SectionOff(section) => write!(
                f,
                "turned off by `[{section}]` in callgate.toml: its owner changes that, then runs \
                 `callgate trust`"
            ),
            Self::NotAmongOnly => f.write_str(
                "this client is served only the tools that fit an `--only` of its `callgate mcp`",
            ),
            Self::NotMcpDefault => f.write_str(
                "this built-in tool is not served over MCP unless `[builtins] allow` in \
                 callgate.toml, `callgate mcp --only` or a token's `--tools` names it",
            ),
        }
    }
}
