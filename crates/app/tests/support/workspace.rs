//! Workspaces with tools that are shell scripts.

use super::Folder;
use super::drive::cli;

/// A tool that notes its input in `effects` and gives it back.
pub const TOOL: &str = r#"
read -r input
echo "$input" >> effects
printf '{"got":%s}' "$input"
"#;

/// A tool that notes its start in `effects`, waits until `go` is there and answers.
pub const SLOW: &str = r#"
read -r input
echo started >> effects
while [ ! -e go ]; do sleep 0.02; done
echo '{"done":true}'
"#;

/// `[[tool]]`: `tool.sh` as `one`.
pub const ONE: &str = r#"
[[tool]]
name = "one"
aid = "AID.TEST.ONE.v1"
description = "The first"
tier = 1
input_schema = { type = "object", properties = { n = { type = "integer" }, text = { type = "string" } } }
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
"#;

/// A folder with these files.
pub fn folder_of(files: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    for (name, text) in files {
        folder.write(name, text);
    }
    folder
}

/// A workspace with this configuration and [`TOOL`] as `tool.sh`, not trusted yet.
pub fn workspace(config: &str) -> Folder {
    folder_of(&[("callgate.toml", config), ("tool.sh", TOOL)])
}

/// The same, trusted.
pub fn trusted(config: &str) -> Folder {
    let folder = workspace(config);
    cli(&folder, &["trust"]).good();
    folder
}
