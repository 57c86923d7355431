//! Workspaces with tools that are shell scripts.

use super::drive::cli;
use super::{Folder, wait_for};

#[cfg(feature = "failpoints")]
pub use callgate_testing::scripts::APPEND_TEXT;
pub use callgate_testing::scripts::{
    APPEND, EVERY_BUILTIN, HANGS, ONE, OR_HANG, SLOW, TOOL, effects, folder_of, workspace,
};

/// A trusted workspace with this configuration and [`TOOL`] as `tool.sh`.
pub fn trusted(config: &str) -> Folder {
    trusted_with(&[("callgate.toml", config), ("tool.sh", TOOL)])
}

/// A workspace with these files, its configuration among them, trusted.
pub fn trusted_with(files: &[(&str, &str)]) -> Folder {
    let folder = folder_of(files);
    cli(&folder, &["trust"]).good();
    folder
}

/// How many tools there are without a configuration.
pub fn builtins() -> usize {
    let listed = cli(&Folder::new(), &["tools", "--json"]).good().json();
    listed["tools"].as_array().expect("tools").len()
}

/// Waits until so many calls have left their line.
pub fn started(folder: &Folder, count: usize) {
    wait_for("the effect", || (effects(folder) == count).then_some(()));
}
