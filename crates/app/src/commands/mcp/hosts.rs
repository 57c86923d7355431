//! What MCP hosts want in their settings to find this gate: each has words and a file of its
//! own.

use clap::ValueEnum;
use serde_json::{Value, json};

/// A program with a model in it that takes MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Host {
    /// Claude Code
    ClaudeCode,
    /// Claude Desktop
    ClaudeDesktop,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
    /// Windsurf
    Windsurf,
    /// Zed
    Zed,
}

/// How the host reaches the gate.
#[derive(Clone, Debug)]
pub enum Way {
    /// It starts this program with these arguments.
    Stdio { program: String, args: Vec<String> },
    /// It connects to this address.
    Http { url: String },
}

/// Where a token comes from, in words for people.
pub const TOKEN_WORDS: &str = "the token is from `callgate token create NAME`; \
     under `callgate serve --no-auth` leave `headers` out";

impl Host {
    /// Where the settings are, in words for people.
    pub fn place(self) -> &'static str {
        match self {
            Self::ClaudeCode => ".mcp.json in the project's folder",
            Self::ClaudeDesktop => {
                "claude_desktop_config.json (Settings, Developer, Edit Config); then restart it"
            }
            Self::Cursor => ".cursor/mcp.json in the project's folder, or ~/.cursor/mcp.json",
            Self::Vscode => ".vscode/mcp.json in the project's folder",
            Self::Windsurf => "~/.codeium/windsurf/mcp_config.json",
            Self::Zed => "settings.json (command palette: zed: open settings)",
        }
    }

    /// The settings to paste; `None` if the host does not know the way.
    pub fn settings(self, way: &Way) -> Option<Value> {
        let entry = self.entry(way)?;
        let servers = json!({ "callgate": entry });
        Some(match (self, way) {
            (Self::Zed, _) => json!({ "context_servers": servers }),
            (Self::Vscode, Way::Stdio { .. }) => json!({ "servers": servers }),
            (Self::Vscode, Way::Http { .. }) => json!({
                "servers": servers,
                "inputs": [{
                    "type": "promptString",
                    "id": "callgate-token",
                    "description": "Token of the gate",
                    "password": true,
                }],
            }),
            _ => json!({ "mcpServers": servers }),
        })
    }

    fn entry(self, way: &Way) -> Option<Value> {
        Some(match way {
            Way::Stdio { program, args } => match self {
                Self::ClaudeCode | Self::Vscode => {
                    json!({ "type": "stdio", "command": program, "args": args })
                }
                Self::ClaudeDesktop | Self::Cursor | Self::Windsurf | Self::Zed => {
                    json!({ "command": program, "args": args })
                }
            },
            Way::Http { url } => {
                let headers = |token: &str| json!({ "Authorization": format!("Bearer {token}") });
                match self {
                    // Its file takes programs only.
                    Self::ClaudeDesktop => return None,
                    Self::ClaudeCode => {
                        json!({ "type": "http", "url": url, "headers": headers("${CALLGATE_TOKEN}") })
                    }
                    Self::Vscode => {
                        json!({ "type": "http", "url": url, "headers": headers("${input:callgate-token}") })
                    }
                    Self::Cursor => {
                        json!({ "url": url, "headers": headers("${env:CALLGATE_TOKEN}") })
                    }
                    Self::Windsurf => {
                        json!({ "serverUrl": url, "headers": headers("${env:CALLGATE_TOKEN}") })
                    }
                    Self::Zed => json!({ "url": url, "headers": headers("TOKEN") }),
                }
            }
        })
    }
}
