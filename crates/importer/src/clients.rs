//! Table of MCP clients: where their settings files stand, in which syntax, and which tables hold
//! servers in which dialect. Data alone; `dialects` has the fields of an entry.

pub(crate) mod dialects;

use dialects::{self as dialect, Dialect};

use crate::syntax::Syntax;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub id: &'static str,
    pub name: &'static str,
    pub places: &'static [Place],
}

/// Place of a settings file.
#[derive(Debug)]
pub(crate) struct Place {
    pub root: Root,
    /// Path below the root. A name of `*`, or one that begins with `*`, stands for each entry of
    /// the folder.
    pub path: &'static str,
    pub syntax: Syntax,
    /// Tables that may hold servers. The last one there is gets a new entry, or else the first.
    pub tables: &'static [TableRule],
    pub extra: Extra,
}

/// Folder that a place begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Home,
    Config,
    /// `$CLAUDE_CONFIG_DIR`, or else the home folder.
    Claude,
    Project,
}

/// Table of servers.
#[derive(Debug)]
pub(crate) struct TableRule {
    /// Keys from the root. `*` stands for every key of a table of folders.
    pub path: &'static [&'static str],
    pub is_list: bool,
    pub dialect: &'static Dialect,
}

/// Settings of a file that apply to its servers but stand outside of their entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extra {
    None,
    /// `disabledMcpServers` of folders, and permissions in files beside it.
    ClaudeCode,
    /// `inputs` and a common `sandbox`.
    VsCode,
    /// Tools switched off in profiles of agents.
    Zed,
    /// `mcp.allowed`, `mcp.excluded`.
    Gemini,
    /// `tools` with names of servers.
    Opencode,
}

const fn table(path: &'static [&'static str], dialect: &'static Dialect) -> TableRule {
    TableRule {
        path,
        is_list: false,
        dialect,
    }
}

const fn list(path: &'static [&'static str], dialect: &'static Dialect) -> TableRule {
    TableRule {
        path,
        is_list: true,
        dialect,
    }
}

const fn json(root: Root, path: &'static str, tables: &'static [TableRule], extra: Extra) -> Place {
    Place {
        root,
        path,
        syntax: Syntax::Json,
        tables,
        extra,
    }
}

const fn plain(root: Root, path: &'static str, tables: &'static [TableRule]) -> Place {
    json(root, path, tables, Extra::None)
}

const fn other(
    root: Root,
    path: &'static str,
    syntax: Syntax,
    tables: &'static [TableRule],
) -> Place {
    Place {
        root,
        path,
        syntax,
        tables,
        extra: Extra::None,
    }
}

const MCP_SERVERS: &[&str] = &["mcpServers"];

static DESKTOP: &[TableRule] = &[table(MCP_SERVERS, &dialect::CLAUDE_DESKTOP)];
static CLAUDE_USER: &[TableRule] = &[
    table(&["projects", "*", "mcpServers"], &dialect::CLAUDE_CODE),
    table(MCP_SERVERS, &dialect::CLAUDE_CODE),
];
static CLAUDE_PROJECT: &[TableRule] = &[table(MCP_SERVERS, &dialect::CLAUDE_CODE)];
static CURSOR: &[TableRule] = &[table(MCP_SERVERS, &dialect::CURSOR)];
static VS_CODE: &[TableRule] = &[table(&["servers"], &dialect::VS_CODE)];
static VS_CODE_SETTINGS: &[TableRule] = &[
    table(&["mcp", "servers"], &dialect::VS_CODE),
    table(&["mcp.servers"], &dialect::VS_CODE),
];
static WINDSURF: &[TableRule] = &[table(MCP_SERVERS, &dialect::WINDSURF)];
static ZED: &[TableRule] = &[table(&["context_servers"], &dialect::ZED)];
static CLINE: &[TableRule] = &[table(MCP_SERVERS, &dialect::CLINE)];
static ROO: &[TableRule] = &[table(MCP_SERVERS, &dialect::ROO)];
static CODEX: &[TableRule] = &[table(&["mcp_servers"], &dialect::CODEX)];
static GEMINI: &[TableRule] = &[table(MCP_SERVERS, &dialect::GEMINI)];
static GOOSE: &[TableRule] = &[table(&["extensions"], &dialect::GOOSE)];
static OPENCODE: &[TableRule] = &[
    table(&["mcp"], &dialect::OPENCODE),
    table(&["mcp", "servers"], &dialect::OPENCODE_2),
];
static JUNIE: &[TableRule] = &[table(MCP_SERVERS, &dialect::JUNIE)];
static CONTINUE: &[TableRule] = &[list(MCP_SERVERS, &dialect::CONTINUE)];
static CONTINUE_OLD: &[TableRule] = &[list(
    &["experimental", "modelContextProtocolServers"],
    &dialect::CONTINUE_OLD,
)];
static LM_STUDIO: &[TableRule] = &[table(MCP_SERVERS, &dialect::LM_STUDIO)];
static KIRO: &[TableRule] = &[table(MCP_SERVERS, &dialect::KIRO)];
static CRUSH: &[TableRule] = &[table(&["mcp"], &dialect::CRUSH)];
static AMP: &[TableRule] = &[table(&["amp.mcpServers"], &dialect::AMP)];
static TRAE: &[TableRule] = &[table(MCP_SERVERS, &dialect::TRAE)];
static COPILOT: &[TableRule] = &[table(MCP_SERVERS, &dialect::COPILOT)];

/// All clients, in the order in which they are listed.
pub(crate) static CLIENTS: &[Client] = &[
    Client {
        id: "claude-desktop",
        name: "Claude Desktop",
        places: &[
            plain(Root::Config, "Claude/claude_desktop_config.json", DESKTOP),
            plain(Root::Config, "claude/claude_desktop_config.json", DESKTOP),
        ],
    },
    Client {
        id: "claude-code",
        name: "Claude Code",
        places: &[
            json(Root::Claude, ".claude.json", CLAUDE_USER, Extra::ClaudeCode),
            json(
                Root::Project,
                ".mcp.json",
                CLAUDE_PROJECT,
                Extra::ClaudeCode,
            ),
        ],
    },
    Client {
        id: "cursor",
        name: "Cursor",
        places: &[
            plain(Root::Home, ".cursor/mcp.json", CURSOR),
            plain(Root::Project, ".cursor/mcp.json", CURSOR),
        ],
    },
    Client {
        id: "vscode",
        name: "VS Code",
        places: &[
            json(Root::Config, "Code/User/mcp.json", VS_CODE, Extra::VsCode),
            json(
                Root::Config,
                "Code/User/profiles/*/mcp.json",
                VS_CODE,
                Extra::VsCode,
            ),
            json(
                Root::Config,
                "Code/User/settings.json",
                VS_CODE_SETTINGS,
                Extra::VsCode,
            ),
            json(
                Root::Config,
                "Code - Insiders/User/mcp.json",
                VS_CODE,
                Extra::VsCode,
            ),
            json(
                Root::Config,
                "VSCodium/User/mcp.json",
                VS_CODE,
                Extra::VsCode,
            ),
            json(Root::Project, ".vscode/mcp.json", VS_CODE, Extra::VsCode),
            json(
                Root::Project,
                ".vscode/settings.json",
                VS_CODE_SETTINGS,
                Extra::VsCode,
            ),
        ],
    },
    Client {
        id: "windsurf",
        name: "Windsurf",
        places: &[
            plain(Root::Home, ".codeium/windsurf/mcp_config.json", WINDSURF),
            plain(Root::Home, ".codeium/mcp_config.json", WINDSURF),
        ],
    },
    Client {
        id: "zed",
        name: "Zed",
        places: &[
            json(Root::Config, "zed/settings.json", ZED, Extra::Zed),
            json(Root::Project, ".zed/settings.json", ZED, Extra::Zed),
        ],
    },
    Client {
        id: "cline",
        name: "Cline",
        places: &[
            plain(
                Root::Config,
                "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                CLINE,
            ),
            plain(
                Root::Config,
                "Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                CLINE,
            ),
            plain(
                Root::Config,
                "VSCodium/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                CLINE,
            ),
            plain(
                Root::Config,
                "Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                CLINE,
            ),
            plain(
                Root::Config,
                "Windsurf/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                CLINE,
            ),
        ],
    },
    Client {
        id: "roo",
        name: "Roo Code",
        places: &[
            plain(
                Root::Config,
                "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ROO,
            ),
            plain(
                Root::Config,
                "Code - Insiders/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ROO,
            ),
            plain(
                Root::Config,
                "VSCodium/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ROO,
            ),
            plain(
                Root::Config,
                "Cursor/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                ROO,
            ),
            plain(Root::Project, ".roo/mcp.json", ROO),
        ],
    },
    Client {
        id: "codex",
        name: "Codex",
        places: &[
            other(Root::Home, ".codex/config.toml", Syntax::Toml, CODEX),
            other(Root::Project, ".codex/config.toml", Syntax::Toml, CODEX),
        ],
    },
    Client {
        id: "gemini-cli",
        name: "Gemini CLI",
        places: &[
            json(Root::Home, ".gemini/settings.json", GEMINI, Extra::Gemini),
            json(
                Root::Project,
                ".gemini/settings.json",
                GEMINI,
                Extra::Gemini,
            ),
        ],
    },
    Client {
        id: "goose",
        name: "Goose",
        places: &[other(
            Root::Config,
            "goose/config.yaml",
            Syntax::Yaml,
            GOOSE,
        )],
    },
    Client {
        id: "opencode",
        name: "opencode",
        places: &[
            json(
                Root::Config,
                "opencode/opencode.json",
                OPENCODE,
                Extra::Opencode,
            ),
            json(
                Root::Config,
                "opencode/opencode.jsonc",
                OPENCODE,
                Extra::Opencode,
            ),
            json(Root::Project, "opencode.json", OPENCODE, Extra::Opencode),
            json(Root::Project, "opencode.jsonc", OPENCODE, Extra::Opencode),
            json(
                Root::Project,
                ".opencode/opencode.json",
                OPENCODE,
                Extra::Opencode,
            ),
            json(
                Root::Project,
                ".opencode/opencode.jsonc",
                OPENCODE,
                Extra::Opencode,
            ),
        ],
    },
    Client {
        id: "junie",
        name: "JetBrains Junie",
        places: &[
            plain(Root::Home, ".junie/mcp/mcp.json", JUNIE),
            plain(Root::Project, ".junie/mcp/mcp.json", JUNIE),
        ],
    },
    Client {
        id: "continue",
        name: "Continue",
        places: &[
            other(Root::Home, ".continue/config.yaml", Syntax::Yaml, CONTINUE),
            plain(Root::Home, ".continue/config.json", CONTINUE_OLD),
            other(
                Root::Home,
                ".continue/mcpServers/*.yaml",
                Syntax::Yaml,
                CONTINUE,
            ),
            plain(Root::Home, ".continue/mcpServers/*.json", DESKTOP),
            other(
                Root::Project,
                ".continue/mcpServers/*.yaml",
                Syntax::Yaml,
                CONTINUE,
            ),
            plain(Root::Project, ".continue/mcpServers/*.json", DESKTOP),
        ],
    },
    Client {
        id: "lm-studio",
        name: "LM Studio",
        places: &[
            plain(Root::Home, ".lmstudio/mcp.json", LM_STUDIO),
            plain(Root::Home, ".cache/lm-studio/mcp.json", LM_STUDIO),
        ],
    },
    Client {
        id: "kiro",
        name: "Kiro",
        places: &[
            plain(Root::Home, ".kiro/settings/mcp.json", KIRO),
            plain(Root::Project, ".kiro/settings/mcp.json", KIRO),
        ],
    },
    Client {
        id: "crush",
        name: "Crush",
        places: &[
            plain(Root::Config, "crush/crush.json", CRUSH),
            plain(Root::Project, "crush.json", CRUSH),
            plain(Root::Project, ".crush.json", CRUSH),
        ],
    },
    Client {
        id: "amp",
        name: "Amp",
        places: &[
            plain(Root::Config, "amp/settings.json", AMP),
            plain(Root::Project, ".amp/settings.json", AMP),
        ],
    },
    Client {
        id: "trae",
        name: "Trae",
        places: &[plain(Root::Config, "Trae/User/mcp.json", TRAE)],
    },
    Client {
        id: "antigravity",
        name: "Antigravity",
        places: &[plain(
            Root::Home,
            ".gemini/antigravity/mcp_config.json",
            WINDSURF,
        )],
    },
    Client {
        id: "copilot-cli",
        name: "Copilot CLI",
        places: &[plain(Root::Home, ".copilot/mcp-config.json", COPILOT)],
    },
    Client {
        id: "mcp-folder",
        name: "the shared folder of MCP settings",
        places: &[plain(Root::Config, "mcp/*.json", DESKTOP)],
    },
];
