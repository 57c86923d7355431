//! Tools that are shell scripts, and configurations that name them.

use crate::TempFolder;

/// A tool that notes its input in `effects.log` and gives it back.
pub const TOOL: &str = r#"
read -r input
echo "$input" >> effects.log
printf '{"got":%s}' "$input"
"#;

/// A tool that notes its start in `effects.log`, waits until `go` is there and answers.
pub const SLOW: &str = r#"
read -r input
echo started >> effects.log
while [ ! -e go ]; do sleep 0.02; done
echo '{"done":true}'
"#;

/// A tool that notes its start in `effects.log`, then hangs until it is ended.
pub const HANGS: &str = "read -r input\necho started >> effects.log\nexec sleep 1000\n";

/// [`TOOL`], which hangs when its input says so.
pub const OR_HANG: &str = r#"
read -r input
echo "$input" >> effects.log
case $input in *hang*) exec sleep 1000 ;; esac
printf '{"got":%s}' "$input"
"#;

/// A tool that notes its input in `effects.log`.
pub const APPEND: &str = r#"
read -r input
echo "$input" >> effects.log
echo '{"appended":true}'
"#;

/// The beginning of a tool that notes the `text` it was given in `effects.log`, in one write.
pub const APPEND_TEXT: &str = r#"
read -r input
# A gate that is killed while it hands over the input leaves us without.
case $input in *'}') ;; *) exit 1 ;; esac
text=${input#*'"text":"'}; text=${text%%'"'*}
echo "$text" >> effects.log || exit 1
"#;

/// `[[tool]]`: `tool.sh` as `one`.
pub const ONE: &str = r#"
[[tool]]
name = "one"
aid = "AID.TEST.ONE.v1"
description = "The first"
tier = 1
input_schema = { type = "object", properties = { n = { type = "integer" }, text = { type = "string" } } }
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
"#;

/// All built-in tools over MCP too, where six would be served. G-14.
pub const EVERY_BUILTIN: &str = "\n[builtins]\nallow = [\"*\"]\n";

/// Creates a folder with these files.
pub fn folder_of(files: &[(&str, &str)]) -> TempFolder {
    let folder = TempFolder::new();
    for (name, text) in files {
        folder.write(name, text);
    }
    folder
}

/// Creates a workspace with this configuration and [`TOOL`] as `tool.sh`, not trusted yet.
pub fn workspace(config: &str) -> TempFolder {
    folder_of(&[("callgate.toml", config), ("tool.sh", TOOL)])
}

/// Returns how often tools ran that note it in `effects.log`.
pub fn effects(folder: &TempFolder) -> usize {
    folder
        .read("effects.log")
        .map_or(0, |text| text.lines().count())
}
